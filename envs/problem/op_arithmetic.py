"""FLOPs of one operation from its shapes, and which operations cost nothing at run time. Seconds (cost models) do not belong here.

A multiplication and an addition count as two FLOPs. Operation types are those of OpenVINO's operation sets.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from envs.problem.compiled import loop
from envs.problem.graph import ComputationGraph

Shape = tuple[int, ...]
Attributes = Mapping[str, Any]
Formula = Callable[[Sequence[Shape], Sequence[Shape], Attributes], float]

ENDS = frozenset({"Parameter", "Constant", "Result", "ReadValue", "Assign", "Sink"})
"""Inputs, weights and outputs of a model: nothing is computed."""
VIEWS = frozenset({"Reshape", "Squeeze", "Unsqueeze", "ShapeOf", "Identity"})
"""Only the description of a tensor changes, not its data."""
MOVES = frozenset({
    "Transpose", "Concat", "Split", "VariadicSplit", "Gather", "GatherElements", "GatherND", "Slice", "StridedSlice", "Pad", "Tile",
    "Broadcast", "Convert", "ConvertLike", "DepthToSpace", "SpaceToDepth", "ShuffleChannels", "BatchToSpace", "SpaceToBatch", "Reverse",
    "ReverseSequence", "ScatterUpdate", "ScatterElementsUpdate", "ScatterNDUpdate", "Range", "OneHot", "Eye", "ReorgYolo", "Select",
    "ExtractImagePatches", "Roll", "NonZero", "EmbeddingBagOffsets",
})  # fmt: skip
"""Data moves but no arithmetic is done: zero FLOPs."""
PARTIAL_READS = frozenset({"Gather", "GatherElements", "GatherND", "Slice", "StridedSlice"})
"""Only as much of the input is read as comes out (an embedding reads rows, not the table)."""

_PER_ELEMENT = {
    "Sigmoid": 4, "Tanh": 6, "Exp": 2, "Log": 2, "Sqrt": 2, "Erf": 8, "Gelu": 10, "Swish": 5, "Mish": 10, "HSwish": 4, "HSigmoid": 3,
    "Elu": 3, "Selu": 4, "SoftPlus": 5, "Softmax": 5, "LogSoftmax": 6, "MVN": 7, "BatchNormInference": 4, "GroupNormalization": 8,
    "RMS": 4, "NormalizeL2": 4, "FakeQuantize": 5, "Interpolate": 7, "PRelu": 2, "Clamp": 2, "Power": 4, "SquaredDifference": 2,
    "Sin": 4, "Cos": 4, "LRN": 12, "GridSample": 11,
}  # fmt: skip
"""FLOPs for each element of the output; one for whatever is not named here (Add, Relu, comparisons, …)."""


def _convolution(inputs: Sequence[Shape], outputs: Sequence[Shape], _: Attributes) -> float:
    weights = inputs[1]  # [out, in, *kernel]
    return 2.0 * prod(outputs[0]) * prod(weights[1:])


def _group_convolution(inputs: Sequence[Shape], outputs: Sequence[Shape], _: Attributes) -> float:
    weights = inputs[1]  # [groups, out / groups, in / groups, *kernel]
    return 2.0 * prod(outputs[0]) * prod(weights[2:])


def _deformable_convolution(inputs: Sequence[Shape], outputs: Sequence[Shape], _: Attributes) -> float:
    weights = inputs[2]  # [out, in / groups, *kernel]
    return 2.0 * prod(outputs[0]) * prod(weights[1:])


def _transposed_convolution(inputs: Sequence[Shape], outputs: Sequence[Shape], _: Attributes) -> float:
    weights = inputs[1]  # [in, out, *kernel]: every input element is spread over out x kernel
    return 2.0 * prod(inputs[0]) * prod(weights[1:])


def _group_transposed_convolution(inputs: Sequence[Shape], outputs: Sequence[Shape], _: Attributes) -> float:
    weights = inputs[1]  # [groups, in / groups, out / groups, *kernel]
    return 2.0 * prod(inputs[0]) * prod(weights[2:])


def _matmul(inputs: Sequence[Shape], outputs: Sequence[Shape], attributes: Attributes) -> float:
    a = inputs[0]
    inner = a[-2] if attributes.get("transpose_a") and len(a) > 1 else a[-1]
    return 2.0 * prod(outputs[0]) * inner


def _einsum(inputs: Sequence[Shape], outputs: Sequence[Shape], attributes: Attributes) -> float:
    terms = str(attributes.get("equation", "")).split("->", maxsplit=1)[0].replace(" ", "").split(",")
    if "..." in "".join(terms) or len(terms) != len(inputs):
        return 2.0 * max(prod(outputs[0]), *(prod(s) for s in inputs))
    sizes = {letter: size for term, shape in zip(terms, inputs, strict=True) for letter, size in zip(term, shape, strict=False)}
    return 2.0 * prod(sizes.values())


def _attention(inputs: Sequence[Shape], outputs: Sequence[Shape], _: Attributes) -> float:
    query, key, value = inputs[:3]  # [..., L, E], [..., S, E], [..., S, Ev]
    scores = prod(query[:-1]) * key[-2]
    return 2.0 * scores * (query[-1] + value[-1]) + 7.0 * scores  # two products; scale, mask and softmax


def _pool(inputs: Sequence[Shape], outputs: Sequence[Shape], attributes: Attributes) -> float:
    return float(prod(outputs[0]) * prod(attributes.get("kernel", (1,))))


def _each_input(inputs: Sequence[Shape], outputs: Sequence[Shape], _: Attributes) -> float:
    return float(prod(inputs[0]))


def _recurrent(weights_at: int, sequence: bool) -> Formula:
    def formula(inputs: Sequence[Shape], outputs: Sequence[Shape], _: Attributes) -> float:
        steps = prod(inputs[0][:2]) if sequence else inputs[0][0]  # X is [N, T, I] or [N, I]
        return 2.0 * steps * (prod(inputs[weights_at]) + prod(inputs[weights_at + 1]))  # W and R, all directions

    return formula


_FORMULAS: dict[str, Formula] = {
    "Convolution": _convolution, "BinaryConvolution": _convolution, "GroupConvolution": _group_convolution,
    "DeformableConvolution": _deformable_convolution, "ConvolutionBackpropData": _transposed_convolution,
    "GroupConvolutionBackpropData": _group_transposed_convolution, "MatMul": _matmul, "Einsum": _einsum,
    "ScaledDotProductAttention": _attention, "MaxPool": _pool, "AvgPool": _pool, "AdaptiveAvgPool": _each_input,
    "AdaptiveMaxPool": _each_input, "TopK": _each_input, "CumSum": _each_input,
    "LSTMCell": _recurrent(3, False), "GRUCell": _recurrent(2, False), "RNNCell": _recurrent(2, False),
    "LSTMSequence": _recurrent(4, True), "GRUSequence": _recurrent(3, True), "RNNSequence": _recurrent(3, True),
}  # fmt: skip


def operation_flops(op_type: str, inputs: Sequence[Shape], outputs: Sequence[Shape], attributes: Attributes | None = None) -> float:
    """FLOPs of one operation.

    ``inputs`` and ``outputs`` are the shapes of its ports in order; ``attributes`` are OpenVINO's (``transpose_a``, ``kernel``, …).
    An operation without a formula costs one FLOP for each element of its output.
    """
    if op_type in ENDS or op_type in VIEWS or op_type in MOVES or not outputs:
        return 0.0
    formula = _FORMULAS.get(op_type)
    if formula is not None:
        return formula(inputs, outputs, attributes or {})
    if op_type.startswith("Reduce"):
        return _each_input(inputs, outputs, {})
    return float(_PER_ELEMENT.get(op_type, 1) * prod(outputs[0]))


def folded(graph: ComputationGraph) -> np.ndarray:
    """Which operations a compiler evaluates before the first run, bool[V]: constants, shapes, and whatever depends only on those."""
    types = np.asarray(graph.op_types)
    roots = np.isin(types, ("Constant", "ShapeOf"))
    fixed = roots | ~np.isin(types, ("Parameter", "ReadValue", "RandomUniform", "Result"))
    fixed &= roots | (np.bincount(graph.edges[:, 1], minlength=graph.n_nodes) > 0)
    pointer, ids = graph.in_edges
    _spread(graph.topological_order, pointer, graph.edges[ids, 0], roots, fixed)
    return fixed


@loop
def _spread(order, pointer, producers, roots, fixed):
    """What reads a result that is not known beforehand is not known either, unless it is one of ``roots``."""
    for v in order:
        for k in range(pointer[v], pointer[v + 1]):
            fixed[v] &= fixed[producers[k]] or roots[v]


def executed(graph: ComputationGraph) -> np.ndarray:
    """Which operations a compiled model runs, bool[V]: not its inputs and outputs, and nothing known beforehand."""
    return ~(folded(graph) | np.isin(np.asarray(graph.op_types), ("Parameter", "Result")))


def free(graph: ComputationGraph) -> np.ndarray:
    """Which operations take no time and are never launched, bool[V]: inputs, weights, outputs, views and everything `folded`."""
    return folded(graph) | np.isin(np.asarray(graph.op_types), sorted(ENDS | VIEWS))


def bytes_moved(graph: ComputationGraph) -> np.ndarray:
    """Bytes each operation reads and writes in its device's memory, float64[V]; zero for what is `free`."""
    read = np.bincount(graph.edges[:, 1], weights=graph.edge_bytes, minlength=graph.n_nodes)
    partial = np.isin(np.asarray(graph.op_types), sorted(PARTIAL_READS))
    read = np.where(partial, np.minimum(read, graph.output_bytes), read)
    return np.where(free(graph), 0.0, read + graph.output_bytes)
