"""A cost model for captured models: a roofline whose total on each device alone is a time that was published or measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from envs.problem.errors import InputError, nearest
from envs.problem.graph import ComputationGraph, digest
from envs.problem.network import DeviceNetwork

if TYPE_CHECKING:
    from envs.problem.cost_model import CostModel


@dataclass(frozen=True)
class TotalCosts:
    """Another cost model's seconds times a factor for each graph and device, such that all operations on the device take ``seconds``.

    That model says how operations of one graph compare on one device, the factor what a device really makes of the graph. A device
    without a time takes the factor of the first device of its kind that has one, or 1.

    Raises:
        InputError: for a time that is not positive; when used, for a graph without times or a time of a device that is not there.
    """

    seconds: Mapping[str, Mapping[str, float]] = field(hash=False)
    """By the graph's name, then by the device's: seconds of the whole graph on that device alone."""
    shape: CostModel
    """How the operations of a graph compare on one device: a roofline."""

    def __post_init__(self) -> None:
        rows: Any = self.seconds
        if not isinstance(rows, Mapping) or not rows or not all(isinstance(row, Mapping) and row for row in rows.values()):
            raise InputError(f"total costs have seconds = {rows!r}; they must map graphs to devices to times")
        for graph, row in rows.items():
            for device, value in row.items():
                if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
                    raise InputError(f"total costs give {graph!r} {value!r} s on {device!r}; it must be a positive number")

    @cached_property
    def content_hash(self) -> str:
        """sha256 of the times and of what they scale."""
        times = tuple((graph, tuple(sorted(row.items()))) for graph, row in sorted(self.seconds.items()))
        return digest("totals", times, self.shape.content_hash)

    def compute_seconds(self, graph: ComputationGraph, network: DeviceNetwork) -> np.ndarray:
        """Seconds of every operation on every device, float64[V, D]."""
        if graph.name not in self.seconds:
            raise InputError(f"total costs have no times of graph {graph.name!r}{nearest(graph.name, self.seconds)}")
        row = self.seconds[graph.name]
        for device in row:
            network.index(device)
        plain = self.shape.compute_seconds(graph, network)
        whole = plain.sum(axis=0)
        known = {d: row[name] / whole[d] for d, name in enumerate(network.names) if name in row and whole[d] > 0}
        by_kind = {network.kinds[d]: known[d] for d in sorted(known, reverse=True)}
        return plain * np.array([known.get(d, by_kind.get(kind, 1.0)) for d, kind in enumerate(network.kinds)])
