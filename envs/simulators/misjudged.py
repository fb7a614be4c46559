"""A wrong cost model: what an operation truly takes on a device differs from what the problem says, as a wrapper around any evaluator.

Methods see the problem as it stands; what is measured is its true twin, in which the seconds of every operation on every device have
a log-normal factor of their own. The factors are drawn from the problem's content, so the truth of a problem is one and the same for
everybody. Transfers are as the network says.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from envs.costs.table import TableCosts
from envs.problem.errors import InputError
from envs.problem.measurement import Evaluator, Measurements, Wrapper
from envs.problem.problem import Problem


@lru_cache(maxsize=64)
def true_problem(problem: Problem, sigma: float) -> Problem:
    """The twin of ``problem`` with true costs: those of ``problem`` times exp(sigma z), z normal, for every operation and device."""
    words = [int(problem.content_hash[i : i + 8], 16) for i in range(0, 64, 8)]
    normal = np.random.default_rng(np.random.SeedSequence(words)).standard_normal(problem.compute_seconds.shape)
    true = problem.compute_seconds * np.exp(sigma * normal)
    return replace(problem, costs=TableCosts(problem.graph.names, problem.network.names, true))


@dataclass(frozen=True)
class Misjudged(Wrapper):
    """Measures `true_problem` instead of what it is asked about.

    Raises:
        InputError: if sigma is not in (0, 2).
    """

    inner: Evaluator
    sigma: float

    def __post_init__(self) -> None:
        if not 0.0 < self.sigma < 2.0:
            raise InputError(f"cost_error is {self.sigma}; it must be in (0, 2)")

    @property
    def protocol(self) -> str:
        """What is measured, and how wrong the costs are that methods see."""
        return f"{self.inner.protocol} cost_error={self.sigma}"

    def evaluate(self, problem: Problem, placements: np.ndarray, seed: int = 0, *, first: int = 0, trace: bool = False) -> Measurements:
        """What ``inner`` says of the true problem; the trace has true times."""
        m = self.inner.evaluate(true_problem(problem, self.sigma), placements, seed, first=first, trace=trace)
        return replace(m, problem_hash=problem.content_hash, protocol=self.protocol)
