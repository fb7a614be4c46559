"""Parts of a graph: random regions by what crossing their edges costs, and whole branches. What is done with one is not known here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
from scipy.sparse import coo_array, csr_array
from scipy.sparse.csgraph import connected_components, dijkstra

from envs.graphs.grouping import joined
from envs.problem.problem import Problem
from methods.placing.coarsening import CoarseGraph
from methods.placing.constraints import unit_of, units
from methods.placing.graph_parsing import undirected


def pulls(problem: Problem, coarse: CoarseGraph, pairs: np.ndarray) -> np.ndarray:
    """What an edge between two units would cost if it crossed devices: the square root of its mean seconds over the longest, float64[E'].

    Args:
        problem: whose network and edges.
        coarse: its units.
        pairs: units that an edge joins, sorted, int64[E', 2].
    """
    ends = np.sort(coarse.group[problem.graph.edges], axis=1)
    crossing = ends[:, 0] != ends[:, 1]
    index = np.searchsorted(pairs @ (coarse.n_nodes, 1), ends[crossing] @ (coarse.n_nodes, 1))
    carried = np.bincount(index, weights=problem.graph.edge_bytes[crossing], minlength=len(pairs))
    off = ~np.eye(problem.n_devices, dtype=bool)
    slowness = float(np.mean(1 / problem.network.bandwidth[off])) if off.any() else 0.0
    seconds = (float(np.mean(problem.network.delay[off])) if off.any() else 0.0) + carried * slowness
    return np.sqrt(np.maximum(seconds, 1e-12) / max(float(seconds.max(initial=0.0)), 1e-12))


class Regions:
    """Regions of the N units of a problem.

    Half of the draws give each edge a random length (exponential, over the square root of its transfer's seconds), so that units which
    exchange much are mostly in one region, and no two draws have the same borders. The others cut the model's layers, one after another and
    each in topological order, into stretches.
    """

    def __init__(self, problem: Problem, coarse: CoarseGraph) -> None:
        self.n = coarse.n_nodes
        self.pairs = undirected(coarse.edges, self.n)
        self.order = np.lexsort((np.arange(self.n), problem.graph.layer[coarse.last]))
        self.rank = np.argsort(self.order)
        self.pull = pulls(problem, coarse, self.pairs)

    def _lengths(self, rng: np.random.Generator) -> csr_array:
        lengths = rng.exponential(size=len(self.pairs)) / self.pull + 1e-9
        return csr_array((lengths, (self.pairs[:, 0], self.pairs[:, 1])), shape=(self.n, self.n))

    def partition(self, rng: np.random.Generator, most: int) -> np.ndarray:
        """The region of every unit int64[N]: a random number of them (log-uniform up to ``most``), around or from random units."""
        count = min(int(np.exp(rng.uniform(0.0, np.log(max(1, min(most, self.n)) + 1.0)))), self.n)
        centres, stretches = rng.choice(self.n, size=count, replace=False), rng.random() < 0.5
        if stretches:
            out = np.empty(self.n, dtype=np.int64)
            begins = np.bincount(centres, minlength=self.n)
            begins[0] = 0
            out[self.order] = np.cumsum(begins)
            return out
        _, _, nearest = dijkstra(self._lengths(rng), directed=False, indices=centres, min_only=True, return_predecessors=True)
        label = np.zeros(self.n, dtype=np.int64)
        label[centres] = np.arange(len(centres))
        return np.where(nearest >= 0, label[np.maximum(nearest, 0)], rng.integers(len(centres), size=self.n))

    def around(self, rng: np.random.Generator, placed: np.ndarray, centres: np.ndarray | None = None) -> np.ndarray:
        """The units of one region bool[N]: the nearest of a random unit or those that begin with it, at most N / 2 (log-uniform).

        Args:
            rng: draws it.
            placed: the device of every unit; half of the regions keep to units on the device of the first.
            centres: units to begin with, if there are any; None or none takes any unit.
        """
        size = max(1, int(np.exp(rng.uniform(0.0, np.log(max(1.0, self.n / 2) + 1.0)))))
        centre = int(rng.integers(self.n) if centres is None or not len(centres) else rng.choice(centres))
        if rng.random() < 0.5:
            order = self.order[int(self.rank[centre]) :]
        else:
            distance = dijkstra(self._lengths(rng), directed=False, indices=centre)
            order = np.argsort(distance, kind="stable")
            order = order[np.isfinite(distance[order])]
        if rng.random() < 0.5:
            order = order[placed[order] == placed[centre]]
        chosen = np.zeros(self.n, dtype=bool)
        chosen[order[:size]] = True
        return chosen


def grouped(problem: Problem, chains: bool) -> Problem:
    """The problem with larger co-location groups: what takes no time and has one reader goes with it.

    Args:
        problem: whose groups stay together.
        chains: whether units that follow one another, with no other reader or operand, are one group too: whole branches.
    """
    unit, heads = unit_of(problem), units(problem)
    carries = _carries(problem)
    u, v = unit[problem.graph.edges].T
    works = np.zeros(len(heads), dtype=bool)
    np.logical_or.at(works, unit, carries)
    pairs = np.unique(np.stack((u, v), axis=1)[u != v], axis=0)
    inner = works[pairs].all(axis=1)
    sets = [{int(heads[a]), int(heads[b])} for a, b in _only_readers(pairs, works)]
    if chains:
        a, b = pairs[inner].T
        out, into = np.bincount(a, minlength=len(heads)), np.bincount(b, minlength=len(heads))
        sets += [{int(heads[x]), int(heads[y])} for x, y in zip(a, b, strict=True) if out[x] == 1 and into[y] == 1]
    old = problem.graph.colocation
    sets += [set(np.flatnonzero(old == group).tolist()) for group in np.unique(old[old >= 0])]
    return replace(problem, graph=replace(problem.graph, colocation=joined(sets, problem.n_nodes)))


def _carries(problem: Problem) -> np.ndarray:
    """Nodes that take time, or read of one that does, bool[V]."""
    carries, edges = problem.compute_seconds.max(axis=1) > 0, problem.graph.edges
    level = problem.graph.levels[edges[:, 1]]
    for here in range(1, int(problem.graph.levels.max(initial=0)) + 1):
        source, target = edges[level == here].T
        carries[target[carries[source]]] = True
    return carries


def _only_readers(pairs: np.ndarray, works: np.ndarray) -> np.ndarray:
    """(unit, reader) of units without work that one unit alone reads, int64[..., 2]."""
    if not len(pairs):
        return pairs
    readers = np.bincount(pairs[:, 0], minlength=len(works))
    return pairs[~works[pairs[:, 0]] & (readers[pairs[:, 0]] == 1)]


def dealt(problem: Problem, devices: Sequence[int], base: int) -> np.ndarray:
    """The branches of the last modules dealt out to some devices, for every number of modules: int16[K, V], none if there are no branches.

    A module lies between two operations that everything passes through; its branches, the longest first, go each to the device that would
    end it first, if they did not wait for each other. Everything else is on ``base``.
    """
    unit, total = unit_of(problem), problem.compute_seconds.min(axis=1)
    rows, row = [], np.full(len(units(problem)), base, dtype=np.int16)
    for module in reversed(modules(problem)):
        load = np.zeros(problem.n_devices)
        for branch in sorted(module, key=lambda nodes: -total[nodes].sum()):
            takes = problem.compute_seconds[branch].sum(axis=0)
            device = min(devices, key=lambda d: load[d] + takes[d])
            load[device] += takes[device]
            row[unit[branch]] = device
        rows.append(row.copy())
    placements = np.array(rows, dtype=np.int16).reshape(-1, len(row))[:, unit]
    return placements[problem.valid(placements)]


def modules(problem: Problem) -> list[list[np.ndarray]]:
    """The branches of each module with more than one: connected operations between two that all others come before or after."""
    works, graph = _carries(problem), problem.graph
    place = np.full(problem.n_nodes, -1)
    order = graph.topological_order[works[graph.topological_order]]
    place[order] = np.arange(len(order))
    inner = graph.edges[works[graph.edges].all(axis=1)]
    passed = np.zeros(len(order) + 1, dtype=np.int64)  # edges that pass over a position
    np.add.at(passed, place[inner[:, 0]] + 1, 1)
    np.add.at(passed, place[inner[:, 1]], -1)
    gates = np.flatnonzero(np.cumsum(passed)[: len(order)] == 0)
    found = []
    for first, last in pairwise(gates.tolist()):
        between = order[first + 1 : last]
        inside = np.isin(inner, between).all(axis=1)
        matrix = coo_array((np.ones(int(inside.sum())), tuple(place[inner[inside]].T - first - 1)), shape=(len(between),) * 2)
        count, label = connected_components(matrix, directed=False)
        if count > 1:
            found.append([between[label == k] for k in range(count)])
    return found
