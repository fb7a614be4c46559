"""Cost models: how long each operation takes on each device. Communication (delay + bytes / bandwidth) is the network's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np

from envs.problem.graph import ComputationGraph
from envs.problem.network import DeviceNetwork


@runtime_checkable
class CostModel(Protocol):
    """Turns a graph and a network into seconds."""

    @property
    def content_hash(self) -> str:
        """Identity of the model and all its parameters."""
        ...

    def compute_seconds(self, graph: ComputationGraph, network: DeviceNetwork) -> np.ndarray:
        """Expected seconds of every operation on every device, float64[V, D], finite and not negative."""
        ...


@dataclass(frozen=True)
class LinearCosts:
    """Work / speed (GiPH equation 2)."""

    @property
    def content_hash(self) -> str:
        return "linear"

    def compute_seconds(self, graph: ComputationGraph, network: DeviceNetwork) -> np.ndarray:
        return graph.flops[:, None] / network.speed[None, :]
