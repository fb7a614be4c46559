"""DP split: the contiguous split of a pipeline with the smallest largest load (Tarnawski et al., NeurIPS 2020, section 5.1).

Every device takes a contiguous part of the graph; of all such splits the one of the shortest period (objective ``throughput``) is found by
dynamic programming over the graph's ideals (`methods.placing.pipeline`), memory respected. Measured in another objective, it is one
placement like any other. `report` says whether it is ``exact`` (no contiguous split is better), and ``infeasible`` where it is
shown that none fits the devices' memory; then nothing is proposed.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from envs.problem.ranges import Count
from methods.contract.fixed_list import FixedList
from methods.placing.constraints import make_feasible
from methods.placing.pipeline import MOST_IDEALS, Split, best_split


@dataclass(frozen=True)
class DpSplitConfig:
    """How far to go."""

    ideals: Count = MOST_IDEALS
    """Graphs with more ideals than this are split along topological orders instead, which need not be the best."""


class DpSplit(FixedList):
    """One placement, or none."""

    Config = DpSplitConfig
    seeded = False

    @cached_property
    def _split(self) -> Split:
        return best_split(self.problem, self.config.ideals)

    def count(self) -> int:
        return int(self._split.device is not None or not self._split.exact)

    def placement(self, index: int) -> np.ndarray:
        device = self._split.device
        if device is None:  # nothing contiguous was found, which does not say that nothing is
            device = np.zeros(self.problem.n_nodes, dtype=np.int16)
        return make_feasible(self.problem, device[None, :])[0]

    def report(self) -> dict[str, float]:
        """``exact`` and ``infeasible`` as 0 or 1, and the split's ``period``, seconds."""
        split = self._split
        found = {"exact": float(split.exact), "infeasible": float(split.exact and split.device is None)}
        return found | ({"period": split.period} if split.device is not None else {})
