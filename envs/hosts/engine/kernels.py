"""The torch kernels behind the op types of sharded graphs. What runs where and when is decided elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from envs.problem.errors import InputError, nearest
from envs.problem.graph import ComputationGraph

Result = Tensor | tuple[Any, ...]
"""What one node computes: a tensor, or the several results of a fragment of an exported program."""
Kernel = Callable[..., Result]


def _sum(first: Tensor, *others: Tensor) -> Tensor:
    if not others:
        return first.clone()
    total = first + others[0]
    for other in others[1:]:
        total += other
    return total


def _select(piece: int, shape: Sequence[int], x: Tensor) -> Tensor:
    return x[piece * shape[0] : (piece + 1) * shape[0]].clone()


def _rope(shape: Sequence[int], x: Tensor, table: Tensor) -> Tensor:
    """``x`` [s, h * d] as heads [h, s, d] with rotary positions; ``table`` [s, d] holds cosines, then sines, of d / 2 angles."""
    heads, rows, dim = shape
    cos, sin = table.chunk(2, dim=-1)
    a, b = x.view(rows, heads, dim).transpose(0, 1).chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, a * sin + b * cos), dim=-1)


def _attend(shape: Sequence[int], weights: Tensor, values: Tensor) -> Tensor:
    """``weights`` [h, s, t] times ``values`` [t, h * d], as [s, h * d]."""
    heads = weights.shape[0]
    return torch.matmul(weights, values.view(values.shape[0], heads, -1).transpose(0, 1)).transpose(0, 1).reshape(tuple(shape))


def _identity(x: Tensor) -> Tensor:
    return x


_KERNELS: dict[str, Kernel] = {
    "matmul": torch.matmul,
    "scores": lambda q, k: torch.matmul(q, k.transpose(-1, -2)),
    "sum": _sum,
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "bias_add": torch.add,
    "mask_add": torch.add,
    "scale": torch.mul,
    "relu": torch.relu,
    "silu": torch.nn.functional.silu,
    "exp": torch.exp,
    "row_max": lambda x: torch.amax(x, dim=-1, keepdim=True),
    "row_sum": lambda x: torch.sum(x, dim=-1, keepdim=True),
    "row_div": torch.div,
    "exp_sub": lambda x, m: torch.sub(x, m).exp_(),
    "mean_square": lambda x: torch.mean(x * x, dim=-1, keepdim=True),
    "normalise": lambda x, m, gamma: (x * torch.rsqrt(m + 1e-5)).mul_(gamma),
    "formation": _identity,
    "concat_rows": lambda *x: torch.cat(x, dim=-2),
    "concat_cols": lambda *x: torch.cat(x, dim=-1),
    "gather": lambda table, ids: table.index_select(0, ids),
}
_SHAPED: dict[str, Callable[..., Tensor]] = {"rope": _rope, "attend": _attend}
LEAVES = ("input", "token_ids", "fill", "causal_mask", "rope_table")


class ShardedCode:
    """The code of a sharded graph: kernels by op type; inputs drawn from a seed."""

    by_reference = False
    returned: list[int] = []  # noqa: RUF012 (never changed)

    def __init__(self, graph: ComputationGraph, seed: int) -> None:
        self.graph, self.seed = graph, seed
        self._kernels, self.dtype = kernels(graph), element_type(graph)
        pointer, ids = graph.in_edges
        self.operands: list[list[int]] = [graph.edges[ids[pointer[v] : pointer[v + 1]], 0].tolist() for v in range(graph.n_nodes)]

    def kernel(self, node: int, where: torch.device) -> Kernel:
        """See `envs.hosts.engine.program.Code`."""
        return self._kernels[node] or _identity

    def leaf(self, node: int) -> Tensor:
        """See `envs.hosts.engine.program.Code`."""
        return leaf(self.graph, node, self.seed, self.dtype)


def kernels(graph: ComputationGraph) -> list[Kernel | None]:
    """The kernel of every node, None for the leaves; operands come in the stored order of the in-edges.

    Raises:
        InputError: naming the node, for an op type that has no kernel or a leaf with operands.
    """
    entries = np.bincount(graph.edges[:, 1], minlength=graph.n_nodes) == 0
    return [_kernel(*row) for row in zip(graph.names, graph.op_types, graph.output_shapes, entries.tolist(), strict=True)]


def _kernel(name: str, op_type: str, shape: tuple[int, ...], entry: bool) -> Kernel | None:
    op, _, number = op_type.partition(":")
    if (op in LEAVES) != entry:
        raise InputError(f"node {name!r} of type {op!r} has {'no' if entry else 'some'} operands; the engine needs it the other way round")
    if entry:
        return None
    if op == "select":
        return partial(_select, int(number), shape)
    if op in _SHAPED:
        return partial(_SHAPED[op], shape)
    if op not in _KERNELS:
        known = [*_KERNELS, *_SHAPED, "select"]
        raise InputError(f"node {name!r} has op type {op_type!r}, for which the engine has no kernel{nearest(op, known)}")
    return _KERNELS[op]


def element_type(graph: ComputationGraph) -> torch.dtype:
    """The float type whose width matches the graph's output bytes."""
    floats = next(i for i, t in enumerate(graph.op_types) if not t.startswith("token_ids") and np.prod(graph.output_shapes[i]) > 0)
    width = graph.output_bytes[floats] / np.prod(graph.output_shapes[floats])
    types = {2: torch.float16, 4: torch.float32, 8: torch.float64}
    if width not in types:
        raise InputError(f"graph {graph.name!r} has {width:g} bytes an element; the engine runs tensors of 2, 4 or 8")
    return types[int(width)]


def leaf(graph: ComputationGraph, node: int, seed: int, dtype: torch.dtype) -> Tensor:
    """The data of an input node on the CPU: equal graph, node and seed give equal data."""
    op, _, number = graph.op_types[node].partition(":")
    shape = graph.output_shapes[node]
    if op == "fill":
        return torch.full(shape, float(number), dtype=dtype)
    if op == "causal_mask":  # the last row sees every column
        return torch.full(shape, float("-inf"), dtype=dtype).triu_(1 + shape[1] - shape[0])
    if op == "rope_table":
        half = shape[1] // 2
        angles = torch.outer(torch.arange(shape[0]) + float(number), 10_000.0 ** (-torch.arange(half) / half))
        return torch.cat((angles.cos(), angles.sin()), dim=1).to(dtype)
    generator = torch.Generator().manual_seed(int(np.random.SeedSequence((seed, node)).generate_state(1)[0]))
    if op == "token_ids":
        return torch.randint(int(number), shape, generator=generator)
    # Scaled so that chains of products keep their size, whatever the matrix sizes.
    return (torch.randn(shape, generator=generator) * (shape[-2] if len(shape) > 1 else 1) ** -0.5).to(dtype)
