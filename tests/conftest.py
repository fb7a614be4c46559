"""Settings of all tests. No example of Hypothesis fails for compiling or a busy machine.

The fast tests draw the same examples every run (profile ``same``); ``--hypothesis-profile explore``, which ``make test-slow`` gives, draws
other and more ones each time, and prints how to see a failing one again.
"""

import os

from hypothesis import Phase, settings

# The tests run side by side, one process a core: kernels with threads of their own would wait for each other (100 × slower learners).
for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

settings.register_profile("same", deadline=None, derandomize=True)
settings.register_profile("explore", deadline=None, max_examples=1000, print_blob=True)
settings.register_profile(
    "mutants", deadline=None, max_examples=25, derandomize=True, database=None, phases=(Phase.explicit, Phase.generate)
)
settings.load_profile("same")
