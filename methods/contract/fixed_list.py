"""Base of methods that have a list of placements to try and learn nothing. No method belongs here."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from envs.problem.problem import Problem
from methods.contract.method import Method, Proposal


class FixedList(Method):
    """Proposes placements 0, 1, 2, … of its list, then nothing more."""

    @classmethod
    def wanted_evaluations(cls, config: Any, problems: Callable[[], Sequence[Problem]]) -> int | None:
        """How long the list is: one placement if a subclass says nothing else."""
        return 1

    def count(self) -> int:
        """How many placements there are to try; `propose` ends after them."""
        return self.wanted_evaluations(self.config, lambda: self.problems) or 0

    @abstractmethod
    def placement(self, index: int) -> np.ndarray:
        """Placement ``index`` of the list, int16[V]; it depends on config, problem, seed and index alone."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._next = 0

    def random(self, index: int) -> np.random.Generator:
        """The random stream of placement ``index``, so that none depends on how many were asked for at once."""
        return np.random.default_rng(self.stream(index))

    def propose(self, n: int) -> list[Proposal]:
        last = min(self._next + n, self.count())
        rows = [self.placement(i) for i in range(self._next, last)]
        self._next = last
        return [Proposal(0, np.stack(rows))] if rows else []

    def state(self) -> dict[str, Any]:
        return {"next": self._next}

    def restore(self, state: dict[str, Any]) -> None:
        self._next = int(state["next"])
