"""Layers over devices, as the "human expert" of the papers places a model by hand. One proposal.

- ``order: levels`` needs nothing but the graph: its topological levels (longest distance from an entry, in edges) are cut into contiguous
  blocks, one block a device in the network's order. A device's share of the work is its share of the devices' total throughput on this
  graph, and a level belongs to the device in whose share the middle of its work lies: see `methods.placing.one_go.level_blocks`.
- ``order: layers`` takes the model's own layers (``layer`` of the graph), one after another in turn over the accelerators (devices that
  are not CPUs), as Google's GNMT and language models do (``--num_gpus``; Wu et al. 2016 section 4, Mirhoseini et al. 2017 section 4.1).
- ``order: blocks`` cuts the model's own layers into contiguous blocks of equally many, one an accelerator.

A graph that does not know its layers is placed by levels. Gradients and updates belong to the layer of what they differentiate.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from methods.contract.fixed_list import FixedList
from methods.placing.one_go import layers_over_devices, level_blocks


@dataclass(frozen=True)
class RoundRobinConfig:
    """What a layer is, and which device it goes to."""

    order: Literal["levels", "layers", "blocks"] = "levels"
    """What goes to the devices: topological levels, in blocks of the device's share of the work; the model's own layers, one after another
    in turn; or blocks of equally many of them."""
    recurrent: tuple[str, ...] = ()
    """Graphs that are placed in the order ``layers`` whatever ``order`` says, by name."""
    one_device: tuple[str, ...] = ()
    """Graphs that are left on the first accelerator, by name."""


class RoundRobin(FixedList):
    """The one placement that deals operations or layers out over the devices."""

    Config = RoundRobinConfig
    seeded = False

    def placement(self, index: int) -> np.ndarray:
        name, order = self.problem.graph.name, self.config.order
        if name in self.config.one_device:
            return layers_over_devices(self.problem, "one")
        if name in self.config.recurrent:
            order = "layers"
        if order == "levels" or (self.problem.graph.layer < 0).all():
            return level_blocks(self.problem)
        return layers_over_devices(self.problem, order)
