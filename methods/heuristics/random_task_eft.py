"""Random task + EFT: GiPH's search baseline (GiPH section 5, "Random task selection + EFT device selection").

Starts from the random placement that all searches under one seed share; at each step a random task (not a mere follower of its
co-location group) moves to the device on which it finishes earliest given the measured times of the current placement, and the
result, better or not, is the next current placement. A task's wait behind tasks that were ready before it is counted
(`methods.placing.list_scheduling.earliest_finish_device`). One placement a step.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from envs.problem.measurement import Measurements
from methods.contract.method import Method, Proposal
from methods.placing.constraints import first_placement
from methods.placing.list_scheduling import earliest_finish_device, followers, planned


class RandomTaskEft(Method):
    """One placement at a time, without end. Where a measurement has no trace, times are planned from the cost model."""

    wants_trace = True

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._tasks = np.flatnonzero(~followers(self.problem))
        self._times: np.ndarray | None = None  # placement, start and finish of the current placement, float64[3, V]

    def propose(self, n: int) -> list[Proposal]:
        problem = self.problem
        if self._times is None:
            return [Proposal(0, first_placement(problem, self.seed)[None, :])]
        placement = self._times[0].astype(np.int16)
        node = int(self.rng.choice(self._tasks))
        device = earliest_finish_device(problem, node, placement, self._times[1], self._times[2])
        placement[problem.leaders == problem.leaders[node]] = device
        return [Proposal(0, placement[None, :])]

    def update(self, results: Sequence[Measurements]) -> None:
        result = results[0]
        placement = result.placements[0]
        if result.start is not None and result.finish is not None and result.ok[0]:
            start, finish = result.start[0], result.finish[0]
        else:
            schedule = planned(self.problem, placement)
            start, finish = schedule.start, schedule.finish
        self._times = np.stack((placement, start, finish)).astype(np.float64)

    def state(self) -> dict[str, Any]:
        return {**super().state(), "times": self._times}

    def restore(self, state: dict[str, Any]) -> None:
        super().restore(state)
        self._times = None if state["times"] is None else np.array(state["times"], dtype=np.float64)
