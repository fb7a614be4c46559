"""A cost model for executable (sharded) graphs: a roofline whose total on one device is a time that was measured there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from envs.problem.errors import InputError, nearest
from envs.problem.graph import ComputationGraph, digest
from envs.problem.network import DeviceNetwork

DENSE = ("matmul", "scores", "attend")
"""Op types that are matrix products; everything else is bound by memory."""


@dataclass(frozen=True)
class CalibratedCosts:
    """``(launch + max(FLOPs / speed, bytes moved / memory bandwidth)) x factor``, by a factor for each graph.

    The roofline says how operations and devices compare; the factor makes all operations one after another take ``seconds`` on
    the network's first device. Nodes without a producer (inputs) cost nothing. Elementwise work is bound by memory alone.

    Raises:
        InputError: for a time that is not positive; when used, for a graph without a time.
    """

    seconds: Mapping[str, float] | float = field(hash=False)
    """One-device time, seconds: of any graph, or by graph name."""

    def __post_init__(self) -> None:
        values: Mapping[str, Any] = self.seconds if isinstance(self.seconds, Mapping) else {"the graph": self.seconds}
        for name, value in values.items():
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
                raise InputError(f"calibrated costs give {name!r} {value!r} s on one device; it must be a positive number")

    @cached_property
    def content_hash(self) -> str:
        """sha256 of the times."""
        times = tuple(sorted(self.seconds.items())) if isinstance(self.seconds, Mapping) else float(self.seconds)
        return digest("calibrated", times)

    def compute_seconds(self, graph: ComputationGraph, network: DeviceNetwork) -> np.ndarray:
        if isinstance(self.seconds, Mapping):
            if graph.name not in self.seconds:
                raise InputError(f"calibrated costs have no one-device time of graph {graph.name!r}{nearest(graph.name, self.seconds)}")
            total = self.seconds[graph.name]
        else:
            total = self.seconds
        dense = np.isin([t.partition(":")[0] for t in graph.op_types], DENSE)
        v = graph.edges[:, 1]
        moved = graph.output_bytes + np.bincount(v, weights=graph.edge_bytes, minlength=graph.n_nodes)
        arithmetic = np.where(dense, graph.flops, 0.0)[:, None] / network.speed[None, :]
        busy = np.maximum(arithmetic, moved[:, None] / network.memory_bandwidth[None, :]) + network.launch_overhead[None, :]
        runs = np.bincount(v, minlength=graph.n_nodes) > 0
        busy = np.where(runs[:, None], busy, 0.0)
        one = busy[:, 0].sum()
        return busy * (total / one) if one > 0 else busy
