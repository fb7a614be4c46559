"""Critical path: list scheduling by the longest path to an exit, best of several runs with random ties.

The baseline of DOPPLER (sections 5 and 7): of the ready operations, the one with the longest path to an exit node is served
next and goes to the device on which it can start earliest. Ties between operations and between devices are broken at random;
the paper reports the best of 50 assignments. Path lengths are mean costs, communication included; devices offer no gaps.
Inputs that cost nothing are taken to be on every device, as in the paper's Algorithm 1; where the evaluator moves them, say
``free_inputs: false``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from envs.problem.errors import InputError
from envs.problem.problem import Problem
from envs.problem.ranges import Count
from methods.contract.fixed_list import FixedList
from methods.placing.constraints import fit_memory
from methods.placing.list_scheduling import critical_path


@dataclass(frozen=True)
class CriticalPathConfig:
    """How often to run and what counts as earliest; defaults are DOPPLER's."""

    runs: Count = 50
    """Assignments to try (DOPPLER section 7, "Hyperparameters")."""
    earliest: Literal["start", "finish"] = "start"
    """What decides the device; the paper's devices are alike, so it can take the start. ``finish`` minds unequal speeds."""
    free_inputs: bool = True
    """Whether inputs (nodes without a producer that cost nothing) are on every device, so that moving them costs nothing."""

    def __post_init__(self) -> None:
        if self.runs < 1:
            raise InputError(f"setting 'runs' is {self.runs}; critical-path needs at least one run")


class CriticalPath(FixedList):
    """``runs`` placements, each with its own random choice among equals."""

    Config = CriticalPathConfig

    @classmethod
    def wanted_evaluations(cls, config: Any, problems: Callable[[], Sequence[Problem]]) -> int | None:
        return int(config.runs)

    def placement(self, index: int) -> np.ndarray:
        problem, rng = self.problem, self.random(index)
        ties = rng.random(problem.n_nodes)
        devices = rng.permuted(np.tile(np.arange(problem.n_devices), (problem.n_nodes, 1)), axis=1)
        schedule = critical_path(problem, self.config.free_inputs, ties, devices, self.config.earliest)
        return fit_memory(problem, schedule.device[None, :])[0]
