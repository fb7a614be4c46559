"""Local search: simulated annealing over moves of single operations, pairs, chains, clusters and stretches of the graph.

Every round proposes a batch of neighbours of the current placement; the best of them becomes the current one by the Metropolis
rule on relative differences (`methods.searching.annealing`, where it is said what makes it strong at small budgets). It starts from the
best of the one-go heuristics (`methods.placing.starts`), HEFT among them, so it never ends above them.

The budget is the number of evaluated placements, as for every method.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from envs.problem.measurement import Measurements
from envs.problem.ranges import Count
from methods.contract.method import Method, Proposal
from methods.placing.starts import good_starts
from methods.searching.annealing import Annealing, AnnealingSettings


@dataclass(frozen=True)
class LocalSearchConfig(AnnealingSettings):
    """How wide and how hot to search."""

    batch: Count = 8
    """Neighbours proposed a round."""


class LocalSearch(Method):
    """Improves one placement by moves, restarting from the best ones found, until the budget is spent."""

    Config = LocalSearchConfig
    wants_trace = True

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._started = 0
        self._annealing = Annealing(self.problem, self.config, self.rng)

    @cached_property
    def _starts(self) -> np.ndarray:
        """int16[S, V], made when first asked for: whoever builds a method may only want to know that it can be."""
        return good_starts(self.problem, int(self.seed.generate_state(1)[0] >> 1))

    def propose(self, n: int) -> list[Proposal]:
        if self._started < len(self._starts):
            return [Proposal(0, self._starts[self._started : self._started + n])]
        return [Proposal(0, self._annealing.propose(min(n, self.config.batch)))]

    def update(self, results: Sequence[Measurements]) -> None:
        if self._started < len(self._starts):
            self._started += len(results[0])
            self._annealing.begin(results[0])
        else:
            self._annealing.update(results[0])

    def state(self) -> dict[str, Any]:
        return {**super().state(), "started": self._started, **self._annealing.state()}

    def restore(self, state: dict[str, Any]) -> None:
        super().restore(state)
        self._started = int(state["started"])
        self._annealing.restore(state)
