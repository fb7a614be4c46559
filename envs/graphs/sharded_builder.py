"""The bookkeeping of a sharded, executable graph while it is being written. No network architecture belongs here."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from envs.problem.errors import InputError
from envs.problem.graph import ComputationGraph

Shape = tuple[int, ...]

# FLOPs of one output element of the elementwise operations; everything not named here counts one.
_PER_ELEMENT = {"silu": 4.0, "normalise": 4.0, "rope": 3.0, "exp_sub": 2.0}
# Operations that only create or move data.
_NO_FLOPS = frozenset(
    ["input", "token_ids", "fill", "causal_mask", "rope_table", "formation", "select", "concat_rows", "concat_cols", "gather"]
)


class ShardedBuilder:
    """Collects operations of a sharded graph; an operation's operands are its in-edges in stored order.

    The op type says which kernel to run, with a number behind a colon where the kernel needs one (``select:1`` is the
    second piece); with the output shape that is all an engine has to know, so a graph can be run from itself alone.
    """

    def __init__(self, name: str, element_bytes: int) -> None:
        if element_bytes not in (2, 4, 8):
            raise InputError(f"element_bytes is {element_bytes}; tensors of 2, 4 or 8 bytes an element are possible")
        self.name = name
        self.element_bytes = element_bytes
        self._names: list[str] = []
        self._ops: list[str] = []
        self._shapes: list[Shape] = []
        self._flops: list[float] = []
        self._operands: list[tuple[int, ...]] = []
        self._meta: list[int] = []
        self._meta_ops = 0

    def meta(self) -> int:
        """The number of a new meta-op: what one operator of the unsharded network becomes (Appendix A)."""
        self._meta_ops += 1
        return self._meta_ops - 1

    def add(self, op: str, name: str, operands: Sequence[int], shape: Shape, meta: int) -> int:
        """Append one operation and return its index."""
        self._names.append(name)
        self._ops.append(op)
        self._shapes.append(shape)
        self._flops.append(self._work(op.partition(":")[0], operands, shape))
        self._operands.append(tuple(operands))
        self._meta.append(meta)
        return len(self._names) - 1

    def leaves(self, op: str, name: str, shapes: Sequence[Shape]) -> list[int]:
        """One input node a shape, all of one meta-op."""
        meta = self.meta()
        return [self.add(op, f"{name}.{i}", (), shape, meta) for i, shape in enumerate(shapes)]

    def each(self, op: str, name: str, operands: Sequence[Sequence[int]], shape: Shape | None = None) -> list[int]:
        """The same operation on every tuple of operands, as one meta-op; the shape is the first operand's if not given."""
        meta = self.meta()
        return [self.add(op, f"{name}.{i}", x, self._shapes[x[0]] if shape is None else shape, meta) for i, x in enumerate(operands)]

    def shape(self, node: int) -> Shape:
        return self._shapes[node]

    def _work(self, op: str, operands: Sequence[int], shape: Shape) -> float:
        size = float(math.prod(shape))
        if op in _NO_FLOPS:
            return 0.0
        if op in ("matmul", "scores"):
            return 2.0 * size * self._shapes[operands[0]][-1]
        if op == "attend":  # probabilities [h, s, t] times values [t, h * d] is [s, h * d]
            return 2.0 * size * self._shapes[operands[0]][-1]
        if op in ("row_max", "row_sum"):
            return float(math.prod(self._shapes[operands[0]]))
        if op == "mean_square":
            return 2.0 * math.prod(self._shapes[operands[0]])
        if op == "sum":
            return size * (len(operands) - 1)
        return size * _PER_ELEMENT.get(op, 1.0)

    def build(self) -> ComputationGraph:
        """The graph of all operations added so far: output and edge bytes are elements times bytes an element, 8 for token ids."""
        # Token ids are int64 whatever the tensors are.
        width = [8 if op.startswith("token_ids") else self.element_bytes for op in self._ops]
        output_bytes = np.array([math.prod(s) * w for s, w in zip(self._shapes, width, strict=True)], dtype=np.float64)
        edges = np.array([(u, v) for v, operands in enumerate(self._operands) for u in operands], dtype=np.int32).reshape(-1, 2)
        return ComputationGraph(
            names=tuple(self._names), op_types=tuple(self._ops), flops=np.array(self._flops), output_bytes=output_bytes, edges=edges,
            edge_bytes=output_bytes[edges[:, 0]], output_shapes=tuple(self._shapes), meta_op=np.array(self._meta), name=self.name,
            provenance="published generator",
        )  # fmt: skip


def pieces(what: str, size: int, count: int) -> int:
    """``size / count``; InputError if the shards would not be equal."""
    if count < 1 or size % count:
        raise InputError(f"{what} of {size} cannot be cut into {count} equal shards; choose a multiple of {count}")
    return size // count
