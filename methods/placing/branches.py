"""Whole branches: as groups for moves, with what only they read, and dealt out to devices. What scores placements is not known here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from envs.graphs.grouping import joined
from envs.problem.problem import Problem
from methods.placing.constraints import unit_of, units


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
