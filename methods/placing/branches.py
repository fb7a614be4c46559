"""Co-location groups for moves of whole branches, and of operations with what only they read. What places them is not known here."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

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
