"""The quickest of estimates: a placement takes as long as its busiest device computes, and nothing waits for anything."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from envs.problem.errors import InputError
from envs.problem.measurement import BaseEvaluator, Measurements, Outcome
from envs.problem.problem import Problem
from envs.simulators.fifo.evaluator import as_placements


@dataclass(frozen=True)
class BusiestDevice(BaseEvaluator):
    """A lower bound of the makespan, for searches that balance the load alone.

    Raises:
        InputError: if the launch time is negative.
    """

    launch: float = 0.0
    """Seconds that every operation takes besides its computation."""

    def __post_init__(self) -> None:
        if self.launch < 0:
            raise InputError(f"launch is {self.launch} s; it must not be negative")

    @property
    def protocol(self) -> str:
        """Everything that decides what a measurement means."""
        return f"busiest-device launch={self.launch:g}"

    @property
    def deterministic(self) -> bool:
        """Nothing is drawn."""
        return True

    @property
    def traces(self) -> bool:
        """When an operation runs is not known."""
        return False

    def evaluate(self, problem: Problem, placements: np.ndarray, seed: int = 0, *, first: int = 0, trace: bool = False) -> Measurements:
        """The largest sum of compute seconds on one device."""
        placements = as_placements(problem, placements)
        valid = problem.valid(placements)
        where = np.where(valid[:, None], placements, 0)
        fits = (problem.memory_used(where) <= problem.network.memory).all(axis=1)
        outcome = np.select([~valid, ~fits], [Outcome.INVALID, Outcome.OUT_OF_MEMORY], Outcome.OK).astype(np.int8)
        took = problem.compute_seconds[np.arange(problem.n_nodes), where] + self.launch
        load = np.zeros((len(placements), problem.n_devices))
        np.add.at(load, (np.arange(len(placements))[:, None], where), took)
        ok, busiest = outcome == Outcome.OK, load.max(axis=1)
        return Measurements(
            problem_hash=problem.content_hash, placements=placements, outcome=outcome, seconds=np.where(ok, busiest, np.nan),
            objective=np.where(ok, busiest, np.inf), seed=seed, protocol=self.protocol, host=self.fingerprint, first=first,
        )  # fmt: skip
