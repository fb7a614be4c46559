"""Merging operators into groups that are placed as one (GiPH section 5.2). Which devices they go to is not decided here."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Sequence

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from envs.problem.errors import InputError
from envs.problem.graph import ComputationGraph


def group_operators(graph: ComputationGraph, groups: int) -> ComputationGraph:
    """Merge the cheapest operator with a single predecessor into that predecessor, again and again, until ``groups`` are left.

    Cost is work (FLOPs); of equals the first goes. An operator that is merged hands its successors to the group; edges that come to join
    the same two groups become one that carries their sum. Operators that need different hardware or belong to different
    co-location groups stay apart. The result may be larger than ``groups`` where nothing is left to merge.

    Raises:
        InputError: if ``groups`` is below 1.
    """
    if groups < 1:
        raise InputError(f"groups is {groups}; it must be at least 1")
    owner, order, data = _merge(graph, groups)
    index = np.full(graph.n_nodes, -1, dtype=np.int64)
    index[order] = np.arange(len(order))
    of = index[owner]
    work, weights = np.bincount(of, graph.flops), np.bincount(of, graph.parameter_bytes)
    edges = sorted((int(index[u]), int(index[v])) for u, v in data)
    edge_bytes = [data[int(order[a]), int(order[b])] for a, b in edges]
    output = np.zeros(len(order))
    for (a, _), size in zip(edges, edge_bytes, strict=True):
        output[a] = max(output[a], size)
    ends = np.setdiff1d(np.arange(len(order)), [a for a, _ in edges])
    output[ends] = graph.output_bytes[order[ends]]
    return ComputationGraph(
        names=tuple(graph.names[v] for v in order),
        op_types=tuple(graph.op_types[v] for v in order),
        flops=work,
        output_bytes=output,
        edges=np.array(edges, dtype=np.int32).reshape(-1, 2),
        edge_bytes=np.array(edge_bytes),
        parameter_bytes=weights,
        hardware=tuple(graph.hardware[v] for v in order),
        colocation=graph.colocation[order],
        name=graph.name,
    )


def _merge(graph: ComputationGraph, groups: int) -> tuple[np.ndarray, np.ndarray, dict[tuple[int, int], float]]:
    """The operator that heads each operator's group int64[V], those heads in order, and the bytes of the edges between heads."""
    kinds = list(zip(graph.hardware, graph.colocation.tolist(), strict=True))
    return _contract(graph.edges, graph.edge_bytes, graph.flops, kinds, groups)


def merge_operators(
    chosen: np.ndarray, edges: np.ndarray, edge_bytes: np.ndarray, work: np.ndarray, kinds: np.ndarray, groups: int
) -> np.ndarray:
    """The operator that heads the group of each of V operators, int64[V].

    By the rule of `group_operators` on the subgraph of ``chosen``, if that gets down to ``groups``. Unrolled recurrent networks consist of
    operators with several predecessors, so that it leaves them many times as many; then the cheapest group joins the neighbour that
    it exchanges most bytes with, in either direction, again and again. Neighbours with which it would cost more than twice the mean are
    passed over as long as there are others, then the cheapest is taken. Contracted, such groups may form cycles, which groups
    that only share a device are free to do.

    Args:
        chosen: operators that may be merged, bool[V]; the others head themselves.
        edges: [E, 2].
        edge_bytes: float64[E].
        work: FLOPs, float64[V].
        kinds: operators of different kinds stay apart, int[V].
        groups: how many are to be left of the chosen ones; more remain where neighbours are of other kinds.
    """
    at = np.flatnonzero(chosen)
    index = np.full(len(chosen), -1)
    index[at] = np.arange(len(at))
    inner = chosen[edges].all(axis=1)
    pairs = index[edges[inner]]
    owner, left, _ = _contract(pairs, np.zeros(len(pairs)), work[at], kinds[at].tolist(), groups)
    if len(left) > groups:
        owner = _join_neighbours(pairs, edge_bytes[inner], work[at], kinds[at], groups)
    heads = np.arange(len(chosen))
    heads[at] = at[owner]
    return heads


def _join_neighbours(edges: np.ndarray, edge_bytes: np.ndarray, work: np.ndarray, kinds: np.ndarray, groups: int) -> np.ndarray:
    """The other rule of `merge_operators` for n operators that may all be merged, int64[n]."""
    near: list[dict[int, float]] = [{} for _ in work]
    alike = kinds[edges[:, 0]] == kinds[edges[:, 1]]
    for (u, v), size in zip(edges[alike].tolist(), edge_bytes[alike].tolist(), strict=True):
        near[u][v] = near[v][u] = near[u].get(v, 0.0) + size
    cost, heads = work.astype(np.float64).tolist(), np.arange(len(work))
    heap = [(c, v) for v, c in enumerate(cost)]
    heapq.heapify(heap)
    most, alive = 2.0 * work.sum() / groups, len(heap)
    while heap and alive > groups:
        known, v = heapq.heappop(heap)
        if heads[v] != v or known != cost[v] or not near[v]:
            continue  # merged already, grown since (then it stands in the heap once more), or without neighbours
        room = [(size, -u) for u, size in near[v].items() if cost[u] + cost[v] <= most]
        u = -max(room)[1] if room else min((cost[u], u) for u in near[v])[1]
        for w, size in near[v].items():
            del near[w][v]
            if w != u:
                near[u][w] = near[w][u] = near[u].get(w, 0.0) + size
        near[v] = {}
        heads[v] = u
        cost[u] += cost[v]
        alive -= 1
        heapq.heappush(heap, (cost[u], u))
    while not np.array_equal(heads, heads[heads]):
        heads = heads[heads]
    return heads


def joined(sets: Iterable[Collection[int]], n: int) -> np.ndarray:
    """Group numbers int32[n] such that sets with a common member are one group; -1 outside of all."""
    members = [np.fromiter(s, dtype=np.int64, count=len(s)) for s in sets if len(s)]
    groups = np.full(n, -1, dtype=np.int32)
    if members:
        firsts = np.repeat([m[0] for m in members], [len(m) for m in members])
        everyone = np.concatenate(members)
        of = connected_components(coo_array((np.ones(len(everyone)), (firsts, everyone)), shape=(n, n)), directed=False)[1]
        groups[everyone] = np.unique(of[everyone], return_inverse=True)[1]
    return groups


def _contract(
    edges: np.ndarray, edge_bytes: np.ndarray, work: np.ndarray, kinds: Sequence[object], groups: int
) -> tuple[np.ndarray, np.ndarray, dict[tuple[int, int], float]]:
    """`_merge` on plain arrays; operators of different ``kinds`` stay apart."""
    n = len(work)
    parents: list[set[int]] = [set() for _ in range(n)]
    children: list[set[int]] = [set() for _ in range(n)]
    data: dict[tuple[int, int], float] = {}
    for (u, v), size in zip(edges.tolist(), edge_bytes.tolist(), strict=True):
        parents[v].add(u)
        children[u].add(v)
        data[u, v] = data.get((u, v), 0.0) + size
    cost, owner, alive = work.copy(), np.arange(n), n
    heap = [(cost[v], v) for v in range(n) if len(parents[v]) == 1]
    heapq.heapify(heap)
    while heap and alive > groups:
        known, v = heapq.heappop(heap)
        if owner[v] != v or known != cost[v] or len(parents[v]) != 1:
            continue  # merged already, or grown since; then it stands in the heap once more
        (u,) = parents[v]
        if kinds[u] != kinds[v]:
            continue
        owner[owner == v] = u
        cost[u] += cost[v]
        alive -= 1
        children[u].discard(v)
        del data[u, v]
        for w in children[v]:
            data[u, w] = data.get((u, w), 0.0) + data.pop((v, w))
            parents[w].discard(v)
            parents[w].add(u)
            children[u].add(w)
            if len(parents[w]) == 1:
                heapq.heappush(heap, (cost[w], w))
        if len(parents[u]) == 1:
            heapq.heappush(heap, (cost[u], u))
    return owner, np.flatnonzero(owner == np.arange(n)), data
