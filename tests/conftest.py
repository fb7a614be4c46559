"""Settings of all tests: Hypothesis draws the same examples every run, and no example fails for compiling or a busy machine."""

import os

from hypothesis import settings

# The tests run side by side, one process a core: kernels with threads of their own would wait for each other (100 × slower learners).
for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

settings.register_profile("placewright", deadline=None, derandomize=True)
settings.load_profile("placewright")
