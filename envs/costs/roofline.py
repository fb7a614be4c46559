"""Roofline: an operation takes as long as its FLOPs or its bytes do, whichever is longer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from envs.problem.errors import InputError
from envs.problem.graph import ComputationGraph, digest
from envs.problem.network import DeviceNetwork
from envs.problem.op_arithmetic import bytes_moved, free

EFFICIENCY: Mapping[str, Mapping[str, float]] = {
    "cpu": {"Convolution": 0.7, "GroupConvolution": 0.3, "MatMul": 0.75, "ScaledDotProductAttention": 0.6, "*": 0.15},
    "gpu": {"Convolution": 0.6, "GroupConvolution": 0.12, "MatMul": 0.65, "ScaledDotProductAttention": 0.45, "*": 0.1},
    "npu": {"Convolution": 0.8, "GroupConvolution": 0.5, "MatMul": 0.8, "ScaledDotProductAttention": 0.25, "*": 0.02},
    "*": {"Convolution": 0.6, "GroupConvolution": 0.2, "MatMul": 0.65, "ScaledDotProductAttention": 0.45, "*": 0.1},
}
"""Share of a device's peak FLOP/s that an operation type reaches, by kind of device; ``"*"`` is everything not named.

Operations of torch (``aten.mm``) have the share of their `FAMILIES`, unless they are named themselves. Rounded from what libraries of
the three kinds are usually seen to reach at batch sizes near one: dense products well, grouped convolutions badly (little reuse),
element-wise work hardly at all on an NPU's narrow vector units.
"""


FAMILIES: Mapping[str, str] = {
    **dict.fromkeys(("aten.mm", "aten.addmm", "aten.bmm", "aten.baddbmm"), "MatMul"),
    **dict.fromkeys(("aten.convolution", "aten.convolution_backward"), "Convolution"),
}
"""The operation type that an operation of a captured torch step is like."""


@dataclass(frozen=True)
class RooflineCosts:
    """``max(FLOPs / (speed x efficiency), bytes moved / memory bandwidth) + launch overhead``.

    Bytes moved are an operation's inputs, weights and output (`envs.problem.op_arithmetic.bytes_moved`). Inputs, weights and outputs of
    the model, views, and what a compiler evaluates beforehand (`envs.problem.op_arithmetic.free`) cost nothing.

    Raises:
        InputError: for an efficiency outside (0, 1].
    """

    efficiency: Mapping[str, Mapping[str, float]] = field(default_factory=lambda: EFFICIENCY, hash=False)
    """By kind of device, then by operation type; ``"*"`` stands for any."""

    def __post_init__(self) -> None:
        for kind, row in self.efficiency.items():
            for op_type, value in row.items():
                if not isinstance(value, int | float) or not 0 < value <= 1:
                    raise InputError(f"efficiency of {op_type!r} on {kind!r} is {value!r}; it must be above 0 and at most 1")

    @cached_property
    def content_hash(self) -> str:
        """sha256 of the efficiencies."""
        return digest("roofline", tuple((kind, op, float(row[op])) for kind, row in sorted(self.efficiency.items()) for op in sorted(row)))

    def efficiencies(self, op_types: tuple[str, ...], kinds: tuple[str, ...]) -> np.ndarray:
        """Share of the peak for every operation on every device, float64[V, D]: (kind, type), (kind, *), (*, type), (*, *), else 1."""
        types, rows = np.unique(np.asarray(op_types), return_inverse=True)
        table = np.array([[self._efficiency(str(op), kind) for kind in kinds] for op in types])
        return table[rows]

    def _efficiency(self, op_type: str, kind: str) -> float:
        """The share of its peak that a kind of device reaches with an operation type: own values first, then `EFFICIENCY`."""
        for row in (self.efficiency.get(kind, {}), self.efficiency.get("*", {})):
            for key in (op_type, FAMILIES.get(op_type, "*"), "*"):
                if key in row:
                    return float(row[key])
        return 1.0

    def busy_seconds(self, graph: ComputationGraph, network: DeviceNetwork) -> np.ndarray:
        """Seconds without launch overhead, float64[V, D]."""
        arithmetic = graph.flops[:, None] / (network.speed[None, :] * self.efficiencies(graph.op_types, network.kinds))
        memory = bytes_moved(graph)[:, None] / network.memory_bandwidth[None, :]
        return np.where(free(graph)[:, None], 0.0, np.maximum(arithmetic, memory))

    def compute_seconds(self, graph: ComputationGraph, network: DeviceNetwork) -> np.ndarray:
        return self.busy_seconds(graph, network) + np.where(free(graph)[:, None], 0.0, network.launch_overhead[None, :])


def merged_efficiency(given: Any) -> Mapping[str, Mapping[str, float]]:
    """The default table with a spec's rows laid over it."""
    if not isinstance(given, Mapping) or not all(isinstance(row, Mapping) for row in given.values()):
        raise InputError(f"efficiency is {given!r}; it must map kinds of device to operation types to shares, as {{gpu: {{MatMul: 0.5}}}}")
    return {kind: {**EFFICIENCY.get(kind, {}), **given.get(kind, {})} for kind in sorted({*EFFICIENCY, *given})}
