"""A method for tests of sweeps: it learns nothing worth knowing, but has everything a learner has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from envs.problem.errors import InputError
from envs.problem.measurement import Measurements
from envs.problem.problem import Problem
from methods.contract.method import Method, Proposal


@dataclass(frozen=True)
class Features:
    output_shape: bool = True
    in_degree: bool = True


@dataclass(frozen=True)
class ToyConfig:
    rate: float = 0.1
    steps: int = 5
    start: Literal["random", "first"] = "random"
    temperature: float = 1.0
    features: Features = field(default_factory=Features)

    def __post_init__(self) -> None:
        if self.rate <= 0:
            raise InputError(f"rate is {self.rate}; it must be above 0")


class ToyLearner(Method):
    """Counts its updates; the count is its policy."""

    Config = ToyConfig
    many_problems = True

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.updates = 0

    def propose(self, n: int) -> list[Proposal]:
        which = self.updates % len(self.problems)
        problem = self.problems[which]
        return [Proposal(which, self.rng.integers(0, problem.n_devices, (n, problem.n_nodes)).astype(np.int16))]

    def update(self, results: Sequence[Measurements]) -> None:
        self.updates += 1

    def policy(self) -> dict[str, Any]:
        return {"updates": self.updates}

    def load_policy(self, policy: dict[str, Any]) -> None:
        self.updates = policy["updates"]

    def place(self, problem: Problem) -> np.ndarray:
        return np.full(problem.n_nodes, self.updates % problem.n_devices, dtype=np.int16)
