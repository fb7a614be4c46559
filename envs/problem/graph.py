"""The computation graph: frozen arrays of a DAG. No costs on devices and no placements belong here."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from envs.problem.errors import InputError, nearest
from envs.problem.ranges import MOST

PROVENANCES = ("measured", "traced", "published generator", "made up")
"""Where a graph may come from: times and sizes that were measured, operations traced from a model, a published generator, or nowhere."""


def frozen(values: object, dtype: type) -> np.ndarray:
    """A read-only contiguous copy of ``values`` as ``dtype``; a read-only array of that dtype is passed through."""
    if isinstance(values, np.ndarray) and values.dtype == dtype and not values.flags.writeable and values.flags.c_contiguous:
        return values
    array: np.ndarray = np.array(values, dtype=dtype, order="C")
    array.setflags(write=False)
    return array


def digest(*parts: object) -> str:
    """A sha256 over arrays, strings and (nested) tuples of strings or numbers; equal content gives an equal digest."""
    sha = hashlib.sha256()
    for part in parts:
        if isinstance(part, np.ndarray):
            sha.update(f"{part.dtype.str}{part.shape}".encode())
            sha.update(np.ascontiguousarray(part).tobytes())
        else:
            sha.update(repr(part).encode())
        sha.update(b"\0")
    return sha.hexdigest()


@dataclass(frozen=True, eq=False)
class ComputationGraph:
    """A directed acyclic graph of operations.

    Sequences are accepted and stored as read-only arrays. The order of ``edges`` matters: outputs of an operation are
    delivered in that order, which decides ties in the simulators. Per-node arrays have length V, per-edge arrays E.

    Raises:
        InputError: naming the node or edge, for wrong lengths, duplicate names, dangling or duplicate edges, cycles,
            and negative, infinite or NaN costs.
    """

    names: tuple[str, ...]
    op_types: tuple[str, ...]
    flops: np.ndarray
    """Work of each operation, FLOPs (or free work units), float64[V]."""
    output_bytes: np.ndarray
    """Size of each operation's output, bytes, float64[V]."""
    edges: np.ndarray
    """Producer and consumer of each edge, int32[E, 2]."""
    edge_bytes: np.ndarray
    """Data carried by each edge, bytes, float64[E]."""
    parameter_bytes: np.ndarray = None  # type: ignore[assignment]
    """Weights held by each operation, bytes, float64[V]; zeros if not given."""
    output_shapes: tuple[tuple[int, ...], ...] = None  # type: ignore[assignment]
    """Shape of each operation's (first) output; empty tuples if not given. Dynamic dimensions are written as 1."""
    hardware: tuple[str, ...] = None  # type: ignore[assignment]
    """Hardware each operation requires of its device; ``""`` (the default) runs anywhere."""
    colocation: np.ndarray = None  # type: ignore[assignment]
    """Co-location group of each node (equal numbers share a device), int32[V]; -1 (the default) is no group."""
    meta_op: np.ndarray = None  # type: ignore[assignment]
    """Sharded operator that each node came from, int32[V]; -1 (the default) is none."""
    layer: np.ndarray = None  # type: ignore[assignment]
    """Layer of the model that each node belongs to, counted from 0 in the order of the model, int32[V]; -1 (the default) is unknown."""
    backward: np.ndarray = None  # type: ignore[assignment]
    """Which operations belong to the backward pass of a training step, bool[V]; none if not given."""
    name: str = field(default="graph")
    provenance: str = "made up"
    """Where it comes from, one of `PROVENANCES`; like the name it is no part of the content."""

    def __post_init__(self) -> None:
        set_ = object.__setattr__
        n = len(self.names)
        if self.provenance not in PROVENANCES:
            raise InputError(f"provenance of graph {self.name!r} is {self.provenance!r}{nearest(str(self.provenance), PROVENANCES)}")
        set_(self, "names", tuple(str(x) for x in self.names))
        set_(self, "op_types", tuple(str(x) for x in self.op_types))
        for key in ("flops", "output_bytes", "edge_bytes"):
            set_(self, key, frozen(getattr(self, key), np.float64))
        set_(self, "edges", frozen(self._edge_array(), np.int32))
        set_(self, "parameter_bytes", frozen(np.zeros(n) if self.parameter_bytes is None else self.parameter_bytes, np.float64))
        shapes: Sequence[Sequence[int]] = ((),) * n if self.output_shapes is None else self.output_shapes
        set_(self, "output_shapes", tuple(tuple(int(d) for d in s) for s in shapes))
        set_(self, "hardware", ("",) * n if self.hardware is None else tuple(h or "" for h in self.hardware))
        for key in ("colocation", "meta_op", "layer"):
            value = getattr(self, key)
            set_(self, key, frozen(np.full(n, -1) if value is None else value, np.int32))
        set_(self, "backward", frozen(np.zeros(n) if self.backward is None else self.backward, np.bool_))
        self._check()

    def _edge_array(self) -> np.ndarray:
        edges = np.asarray(self.edges)
        if edges.size == 0:
            return np.empty((0, 2), dtype=np.int32)
        if edges.ndim != 2 or edges.shape[1] != 2 or edges.dtype.kind not in "iu":
            raise InputError(f"edges of graph {self.name!r} have shape {edges.shape} of {edges.dtype}; they must be [E, 2] whole numbers")
        # Nodes beyond int32 become -1: dangling, like any other node that the graph does not have.
        return np.where(edges > np.iinfo(np.int32).max, -1, np.maximum(edges, -1))

    def _check(self) -> None:
        n = len(self.names)
        if n == 0:
            raise InputError(f"graph {self.name!r} has no nodes; a placement needs at least one")
        if len(set(self.names)) != n:
            seen: set[str] = set()
            twice = next(x for x in self.names if x in seen or seen.add(x))  # type: ignore[func-returns-value]
            raise InputError(f"graph {self.name!r} has two nodes named {twice!r}; names must be unique")
        numbers = ("flops", "output_bytes", "parameter_bytes")
        for key in ("op_types", *numbers, "output_shapes", "hardware", "colocation", "meta_op", "layer", "backward"):
            if len(getattr(self, key)) != n:
                raise InputError(f"graph {self.name!r} has {n} nodes but {len(getattr(self, key))} values of {key}")
        if len(self.edge_bytes) != len(self.edges):
            raise InputError(f"graph {self.name!r} has {len(self.edges)} edges but {len(self.edge_bytes)} values of edge_bytes")
        for key in numbers:
            bad = np.flatnonzero(~((getattr(self, key) >= 0) & (getattr(self, key) <= MOST)))
            if bad.size:
                raise InputError(
                    f"node {self.names[bad[0]]!r} has {key} = {getattr(self, key)[bad[0]]}; it must be a number from 0 to {MOST:g}"
                )
        self._check_edges(n)

    def _check_edges(self, n: int) -> None:
        dangling = np.flatnonzero(((self.edges < 0) | (self.edges >= n)).any(axis=1))
        if dangling.size:
            u, v = self.edges[dangling[0]]
            raise InputError(f"edge {dangling[0]} ({u} -> {v}) names a node that graph {self.name!r} of {n} nodes does not have")
        u, v = self.edges[:, 0].astype(np.int64), self.edges[:, 1]
        loops = np.flatnonzero(u == v)
        if loops.size:
            raise InputError(f"node {self.names[v[loops[0]]]!r} has an edge to itself; remove it")
        unique, counts = np.unique(u * n + v, return_counts=True)
        if unique.size != u.size:
            key = int(unique[counts > 1][0])
            raise InputError(f"edge {self.names[key // n]!r} -> {self.names[key % n]!r} is given twice; merge the two and add their bytes")
        bad = np.flatnonzero(~((self.edge_bytes >= 0) & (self.edge_bytes <= MOST)))
        if bad.size:
            i = bad[0]
            raise InputError(
                f"edge {self.names[u[i]]!r} -> {self.names[v[i]]!r} carries {self.edge_bytes[i]} bytes; "
                f"it must be a number from 0 to {MOST:g}"
            )
        stuck = np.flatnonzero(self.levels < 0)
        if stuck.size:
            raise InputError(f"graph {self.name!r} has a cycle through {self._cycle(stuck)}; a computation graph must be acyclic")

    def _cycle(self, stuck: np.ndarray) -> str:
        """The names along one cycle, for the message; every stuck node has a stuck parent, so walking back closes a loop."""
        inside = np.zeros(len(self.names), dtype=bool)
        inside[stuck] = True
        parent = {int(v): int(u) for u, v in self.edges if inside[u] and inside[v]}
        node, walk = int(stuck[0]), []
        while node not in walk:
            walk.append(node)
            node = parent[node]
        loop = [node, *reversed(walk[walk.index(node) + 1 :]), node]
        return " -> ".join(self.names[i] for i in loop[:8])

    @property
    def n_nodes(self) -> int:
        """V, the number of operations."""
        return len(self.names)

    @property
    def n_edges(self) -> int:
        """E, the number of edges."""
        return len(self.edges)

    @cached_property
    def out_edges(self) -> tuple[np.ndarray, np.ndarray]:
        """CSR of outgoing edges: ``(pointer int64[V+1], edge ids int64[E])``, each node's edges in stored order."""
        return _csr(self.edges[:, 0], self.n_nodes)

    @cached_property
    def in_edges(self) -> tuple[np.ndarray, np.ndarray]:
        """CSR of incoming edges: ``(pointer int64[V+1], edge ids int64[E])``, each node's edges in stored order."""
        return _csr(self.edges[:, 1], self.n_nodes)

    @cached_property
    def levels(self) -> np.ndarray:
        """Longest number of edges from any entry to each node, int32[V]; -1 on and behind a cycle."""
        level = np.full(self.n_nodes, -1, dtype=np.int32)
        indegree = np.bincount(self.edges[:, 1], minlength=self.n_nodes)
        pointer, ids = self.out_edges
        targets = self.edges[ids, 1]
        front, depth = np.flatnonzero(indegree == 0), 0
        while front.size:
            level[front] = depth
            reached = targets[_ranges(pointer[front], pointer[front + 1])]
            np.subtract.at(indegree, reached, 1)
            front, depth = np.unique(reached[indegree[reached] == 0]), depth + 1
        return frozen(level, np.int32)

    @cached_property
    def topological_order(self) -> np.ndarray:
        """Node indices sorted by (level, index), int64[V]: parents come before children."""
        return frozen(np.lexsort((np.arange(self.n_nodes), self.levels)), np.int64)

    @cached_property
    def content_hash(self) -> str:
        """sha256 of everything but the graph's own name and provenance."""
        return digest(
            self.names, self.op_types, self.flops, self.output_bytes, self.edges, self.edge_bytes, self.parameter_bytes,
            self.output_shapes, self.hardware, self.colocation, self.meta_op,
            *((self.layer,) if (self.layer >= 0).any() else ()), *(("backward", self.backward) if self.backward.any() else ()),
        )  # fmt: skip

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ComputationGraph) and self.name == other.name and self.content_hash == other.content_hash

    def __hash__(self) -> int:
        return hash(self.content_hash)

    def __repr__(self) -> str:
        return f"ComputationGraph({self.name!r}, {self.n_nodes} nodes, {self.n_edges} edges)"


def _csr(keys: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
    pointer = np.zeros(n + 1, dtype=np.int64)
    np.cumsum(np.bincount(keys, minlength=n), out=pointer[1:])
    return frozen(pointer, np.int64), frozen(np.argsort(keys, kind="stable"), np.int64)


def _ranges(starts: np.ndarray, stops: np.ndarray) -> np.ndarray:
    """``concatenate([arange(a, b) for a, b in zip(starts, stops)])`` without a loop."""
    lengths = stops - starts
    total = int(lengths.sum())
    offsets = np.repeat(starts - np.concatenate(([0], np.cumsum(lengths)[:-1])), lengths)
    return offsets + np.arange(total)
