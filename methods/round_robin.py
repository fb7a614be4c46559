"""Layers over devices in topological order, as the "human expert" of the papers places a model by hand.

The graph's topological levels (longest distance from an entry, in edges) are cut into contiguous blocks, one block a device in
the network's order. A device's share of the work is its share of the devices' total throughput on this graph, and a level
belongs to the device in whose share the middle of its work lies: see `methods.common.baselines.level_blocks`. One proposal.
"""

from __future__ import annotations

import numpy as np

from methods.common.baselines import level_blocks
from methods.common.fixed_list import FixedList


class RoundRobin(FixedList):
    """One placement: blocks of layers, in the network's order of devices."""

    seeded = False

    def count(self) -> int:
        return 1

    def placement(self, index: int) -> np.ndarray:
        return level_blocks(self.problem)
