"""What learned placers see of an operation: its type, shapes and neighbours (GDP section 3.1, Mars section 3.1). No graph networks here.

Types are not one-hot over the types of one graph but two hashed codes each, so that weights carry over to graphs with other types:
`FeatureEncoder` adds the two rows of its table, which is a linear layer on a vector with two ones instead of one.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from envs.problem.graph import ComputationGraph
from envs.problem.problem import Problem
from envs.problem.ranges import WidthOrNone
from methods.nets.node_features import mean_types, positional_encoding
from methods.nets.products import Linear
from methods.placing.coarsening import CoarseGraph, coarsen
from methods.placing.graph_parsing import adjacency, undirected
from methods.placing.regions import pulls

RANK = 5
"""Dimensions of a shape that are told apart; the sizes of further ones are multiplied into the last."""
PLACE = 16
"""Sines and cosines of a place in the topological order."""
BUCKETS = 512
"""Values of a type's code."""


@dataclass(frozen=True)
class OpFeatureConfig:
    """Which features there are, types aside."""

    output_shapes: bool = True
    """Shape of the output."""
    input_shapes: bool = False
    """Shape of the first input."""
    adjacent: WidthOrNone = 6
    """How many inputs and outputs of an operation are named, by their position in the graph, each way."""
    costs: bool = False
    """FLOPs, parameter bytes and output bytes, on a log scale."""
    place: bool = False
    """Where an operation stands: its layer and its level as shares of the last."""
    sines: bool = False
    """Its place in the topological order, as sines and cosines; other graphs have other places."""
    scale: Literal["log", "largest"] = "log"
    """Shapes as log(1 + size) / 10, or divided by the largest size in the graph."""

    @property
    def count(self) -> int:
        """F, the number of features besides the type."""
        return RANK * (self.output_shapes + self.input_shapes) + 2 * self.adjacent + 3 * self.costs + PLACE * self.sines + 2 * self.place


@dataclass(frozen=True, eq=False)
class OpGraph:
    """A problem as a learned placer sees it: N units (operations, or co-location groups of them) in topological order."""

    coarse: CoarseGraph
    types: Tensor
    """Share of every operation type of the graph in each unit, float32[N, K]."""
    codes: Tensor
    """The two codes of every type, int64[K, 2]."""
    numbers: Tensor
    """Other features, float32[N, F]."""
    allowed: Tensor
    """Devices each unit may use, bool[N, D]; D may exceed the problem's devices."""
    problem: Problem
    """What it is a view of."""

    @property
    def n(self) -> int:
        """N, the number of units that are placed."""
        return self.coarse.n_nodes

    @cached_property
    def pairs(self) -> np.ndarray:
        """Units that an edge joins in either direction, each pair once, int64[E', 2]."""
        return undirected(self.coarse.edges, self.n)

    @cached_property
    def neighbours(self) -> Tensor:
        """The pairs in both directions, int64[2 E', 2]."""
        return torch.from_numpy(np.concatenate((self.pairs, self.pairs[:, ::-1])))

    @cached_property
    def adjacency(self) -> tuple[np.ndarray, np.ndarray]:
        """The neighbours as lists: those of unit v are the second array from the first's v to its v + 1, int64[N + 1] and int64[2 E']."""
        ends = self.neighbours.numpy()
        order = np.argsort(ends[:, 1], kind="stable")
        return np.searchsorted(ends[order, 1], np.arange(self.n + 1)), ends[order, 0].copy()

    @cached_property
    def propagation(self) -> Tensor:
        """The sparse matrix D^-1/2 (A + I) D^-1/2 of the pairs, float32[N, N]."""
        matrix = adjacency(self.n, self.pairs)
        index = torch.from_numpy(np.stack((np.repeat(np.arange(self.n), np.diff(matrix.pointer)), matrix.column)))
        weight = torch.from_numpy(matrix.weight)
        return torch.sparse_coo_tensor(index, weight, (self.n, self.n), is_coalesced=True, check_invariants=False)

    @cached_property
    def pulls(self) -> Tensor:
        """W, the sparse matrix of how much neighbours want to be together (`methods.placing.regions.pulls`), float32[N, N], symmetric."""
        weights = torch.from_numpy(pulls(self.problem, self.coarse, self.pairs)).float().repeat(2)
        return torch.sparse_coo_tensor(self.neighbours.t(), weights, (self.n, self.n), check_invariants=False).coalesce()

    @cached_property
    def work(self) -> Tensor:
        """Share of the graph's seconds in every unit, each operation on its fastest device, float32[N]."""
        fastest = np.where(self.problem.feasible, self.problem.compute_seconds, np.inf).min(axis=1)
        seconds = np.bincount(self.coarse.group, weights=fastest, minlength=self.n) + 1e-12
        return torch.from_numpy((seconds / seconds.sum()).astype(np.float32))

    @cached_property
    def log_speed(self) -> Tensor:
        """Log of the least seconds of the whole graph on one device over those on each, float32[D]; of what may run on all devices."""
        anywhere = self.problem.feasible.all(axis=1)
        total = self.problem.compute_seconds[anywhere].sum(axis=0)
        out = torch.zeros(self.allowed.shape[1])
        if (total > 0).all():
            out[: len(total)] = torch.from_numpy(np.log(total.min() / total))
        return out

    @cached_property
    def root_degree(self) -> Tensor:
        """D^-1/2 of the pulls, float32[N, 1]; 0 without neighbours."""
        degree = torch.sparse.sum(self.pulls, dim=1).to_dense()[:, None]
        return torch.where(degree > 0, degree.clamp_min(1e-12).rsqrt(), torch.zeros_like(degree))


def op_graph(problem: Problem, config: OpFeatureConfig, devices: int) -> OpGraph:
    """The units of ``problem`` with their features, for a policy that chooses among ``devices``."""
    coarse = coarsen(problem)
    allowed = np.zeros((coarse.n_nodes, devices), dtype=bool)
    allowed[:, : problem.n_devices] = coarse.allowed(problem.feasible)
    return OpGraph(
        coarse,
        torch.from_numpy(mean_types(problem.graph.op_types, coarse).astype(np.float32)),
        torch.from_numpy(type_codes(sorted(set(problem.graph.op_types)))),
        torch.from_numpy(numbers(problem.graph, coarse, config)),
        torch.from_numpy(allowed),
        problem,
    )


def type_codes(types: Sequence[str]) -> np.ndarray:
    """Two codes below `BUCKETS` of every operation type, int64[K, 2], equal in every process and on every machine."""
    digests = [hashlib.blake2b(t.encode(), digest_size=8).digest() for t in types]
    return np.array([(int.from_bytes(d[:4], "big") % BUCKETS, int.from_bytes(d[4:], "big") % BUCKETS) for d in digests], dtype=np.int64)


def numbers(graph: ComputationGraph, coarse: CoarseGraph, config: OpFeatureConfig) -> np.ndarray:
    """Features of every unit, float32[N, F]; a unit's shapes are those of its last operation, its costs are added up."""
    parts = [np.zeros((coarse.n_nodes, 0))]
    outputs = padded(graph.output_shapes)
    scaled = np.log1p(outputs) / 10 if config.scale == "log" else outputs / max(outputs.max(initial=0), 1.0)
    if config.output_shapes:
        parts.append(scaled[coarse.last])
    if config.input_shapes:
        pointer, ids = graph.in_edges
        has = pointer[1:] > pointer[:-1]
        inputs = np.zeros_like(scaled)
        inputs[has] = scaled[graph.edges[ids[pointer[:-1][has]], 0]]
        parts.append(inputs[coarse.last])
    if config.adjacent:
        parts += [adjacent(coarse.n_nodes, coarse.edges[:, [side, 1 - side]], config.adjacent) for side in (1, 0)]
    if config.costs:
        for amount in (graph.flops, graph.parameter_bytes, graph.output_bytes):
            parts.append(np.log1p(np.bincount(coarse.group, weights=amount, minlength=coarse.n_nodes))[:, None] / 10)
    if config.sines:
        parts.append(positional_encoding(np.arange(1, coarse.n_nodes + 1), PLACE))
    if config.place:
        layer, level = np.maximum(graph.layer, 0)[coarse.last], graph.levels[coarse.last]
        parts += [(x / max(int(x.max(initial=0)), 1))[:, None] for x in (layer, level)]
    return np.concatenate(parts, axis=1).astype(np.float32)


def padded(shapes: Sequence[Sequence[int]]) -> np.ndarray:
    """Sizes of the first `RANK` dimensions, the rest multiplied into the last of them, 0 where there is none, float64[V, RANK]."""
    out = np.zeros((len(shapes), RANK))
    length = np.array([len(s) for s in shapes], dtype=np.int64)
    flat = np.array([d for s in shapes for d in s[:RANK]], dtype=np.float64)
    kept = np.minimum(length, RANK)
    row = np.repeat(np.arange(len(shapes)), kept)
    out[row, np.arange(len(flat)) - np.repeat(np.cumsum(kept) - kept, kept)] = flat
    for v in np.flatnonzero(length > RANK).tolist():  # rare
        out[v, -1] = math.prod(shapes[v][RANK - 1 :])
    return out


def adjacent(n: int, edges: np.ndarray, count: int) -> np.ndarray:
    """Positions in [0, 1] of the first ``count`` nodes that each of ``n`` nodes has an edge to, -1 where there are fewer, [n, count]."""
    order = np.argsort(edges[:, 0], kind="stable")
    degree = np.bincount(edges[:, 0], minlength=n)
    source = edges[order, 0]
    slot = np.arange(len(edges)) - np.repeat(np.cumsum(degree) - degree, degree)
    kept = slot < count
    out = np.full((n, count), -1.0)
    out[source[kept], slot[kept]] = edges[order[kept], 1] / max(n - 1, 1)
    return out


class FeatureEncoder(nn.Module):
    """A linear layer on types and numbers: [N, size] of an `OpGraph`."""

    def __init__(self, config: OpFeatureConfig, size: int) -> None:
        super().__init__()
        self.table = nn.Embedding(BUCKETS, size)
        self.linear = Linear(config.count, size) if config.count else None
        nn.init.normal_(self.table.weight, std=0.5)

    def forward(self, view: OpGraph) -> Tensor:
        x: Tensor = view.types @ self.table(view.codes).sum(dim=1)
        return x if self.linear is None else x + self.linear(view.numbers)
