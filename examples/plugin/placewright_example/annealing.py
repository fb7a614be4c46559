"""Simulated annealing (Kirkpatrick, Gelatt and Vecchi 1983): move one operation, accept worse ever less often."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from envs.problem.measurement import Measurements
from methods.contract.method import Method, Proposal
from methods.placing.constraints import make_feasible, random_placements


@dataclass(frozen=True)
class AnnealingConfig:
    """How fast it cools."""

    temperature: float = 0.1
    """At first, as a part of the present objective."""
    cooling: float = 0.98
    """Factor on the temperature after every placement."""


class Annealing(Method):
    """One placement after another, from a random one."""

    Config = AnnealingConfig
    config: AnnealingConfig

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.present, self.value, self.tried = random_placements(self.problem, 1, self.rng)[0], np.inf, 0

    def propose(self, n: int) -> list[Proposal]:
        """The present placement with one operation moved; the present one itself at first."""
        moved = self.present.copy()
        if self.tried:
            moved[self.rng.integers(len(moved))] = self.rng.integers(self.problem.n_devices)
        return [Proposal(0, make_feasible(self.problem, moved[None, :]))]

    def update(self, results: Sequence[Measurements]) -> None:
        """Go there if it is better, or by the Metropolis rule."""
        value, warmth = float(results[0].objective[0]), self.config.temperature * self.config.cooling**self.tried
        if value <= self.value or self.rng.random() < np.exp((self.value - value) / (self.value * warmth)):
            self.present, self.value = results[0].placements[0].copy(), value
        self.tried += 1

    def state(self) -> dict[str, Any]:
        return {**super().state(), "present": self.present, "value": np.array(self.value), "tried": self.tried}

    def restore(self, state: dict[str, Any]) -> None:
        super().restore(state)
        self.present, self.value, self.tried = np.array(state["present"]), float(state["value"]), int(state["tried"])
