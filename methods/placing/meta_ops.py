"""Algorithm 4 of DOPPLER (Appendix A): placing a sharded graph meta-op by meta-op. The method: ``methods/heuristics/enumerative.py``."""

from __future__ import annotations

import itertools
from functools import lru_cache

import numpy as np
from scipy.optimize import linear_sum_assignment

from envs.problem.errors import InputError
from envs.problem.graph import frozen
from envs.problem.problem import Problem
from methods.placing.constraints import make_feasible

MOST_PERMUTED = 8
"""Devices whose permutations are tried at most: 8! = 40,320 for every group of operations."""


@lru_cache(maxsize=64)
def enumerate_meta_ops(problem: Problem, free_inputs: bool = True, literal: bool = False) -> np.ndarray:
    """DOPPLER's EnumerativeOptimizer (Algorithm 4): meta-op by meta-op the cheapest assignment, int16[V], read-only.

    Args:
        problem: what is placed.
        free_inputs: whether moving nodes without a producer costs nothing, as in Algorithm 1.
        literal: whether permutations of the devices are tried and the first of equals is kept, as printed; else the cheapest balanced
            assignment is solved for, and the one of equals that evens out the load is taken.

    Raises:
        InputError: if permutations of more than `MOST_PERMUTED` devices would have to be tried.
    """
    graph, d = problem.graph, problem.n_devices
    indegree = np.bincount(graph.edges[:, 1], minlength=graph.n_nodes)
    pointer, ids = graph.in_edges
    placement = np.zeros(graph.n_nodes, dtype=np.int16)
    load = np.zeros(d)
    whole = problem.compute_seconds.sum()
    for group in _groups(problem):
        cost = np.zeros((len(group), d))
        for row, v in enumerate(group):
            for e in ids[pointer[v] : pointer[v + 1]]:
                u = graph.edges[e, 0]
                if not (free_inputs and indegree[u] == 0):
                    home = placement[u]
                    cost[row] += problem.network.delay[home] + graph.edge_bytes[e] * problem.network.seconds_per_byte[home]
        if literal:
            placement[group] = _first_permutation(cost)
            continue
        # Only ties are decided by this: it is far below the differences between sums of transfer times.
        ties = 1e-9 * cost.max() * (load + problem.compute_seconds[group]) / whole if whole > 0 and cost.max() > 0 else load + 0.0 * cost
        placement[group] = _assign(cost + ties, problem.feasible[group])
        np.add.at(load, placement[group], problem.compute_seconds[group, placement[group]])
    return frozen(make_feasible(problem, placement[None, :])[0], np.int16)


@lru_cache(maxsize=1)
def _permutations(d: int) -> np.ndarray:
    """Of d devices in lexicographic order, int16[d!, d], read-only; every group of a graph tries the same ones."""
    return frozen(list(itertools.permutations(range(d))), np.int16)


def _first_permutation(cost: np.ndarray) -> np.ndarray:
    """The first permutation of the devices of least cost, int16[k]; operation i of k > D, which the paper has not, takes entry i modulo D.

    Sums within a billionth of each other are equal: in another order of addition they would be.
    """
    k, d = cost.shape
    if d > MOST_PERMUTED:
        raise InputError(f"permutations of {d} devices are too many to try", f"at most {MOST_PERMUTED}, or leave 'literal' false")
    turns = np.zeros((min(k, d), d))
    np.add.at(turns, np.arange(k) % d, cost)
    tried = _permutations(d)
    total = turns[np.arange(len(turns)), tried[:, : len(turns)]].sum(axis=1)
    first = int(np.argmax(total <= total.min() * (1 + 1e-9)))
    return tried[first, np.arange(k) % d]


def _assign(cost: np.ndarray, feasible: np.ndarray) -> np.ndarray:
    """The cheapest way to spread k operations over D devices with at most ceil(k / D) on each, int16[k]; cost is float64[k, D]."""
    k, d = cost.shape
    slots = np.tile(np.arange(d), -(-k // d))
    # A device it may not use is worse than any other choice, but never infinite: repair comes later.
    forbidden = 1.0 + k * (cost.max(initial=0.0) + 1.0)
    _, column = linear_sum_assignment(np.where(feasible, cost, forbidden)[:, slots])
    return slots[column].astype(np.int16)


def _groups(problem: Problem) -> list[np.ndarray]:
    """ShardOps and ReduceOps of every meta-op, in an order in which every producer comes before its consumers.

    Inside a meta-op, the depth below its ShardOps tells the steps of its reduction apart. Meta-ops are ordered by the lowest
    level of their nodes, which is topological for graphs made by sharding; if it is not for some graph, the depths of whole
    levels are used instead, so that inputs are always placed first.
    """
    graph = problem.graph
    meta = np.where(graph.meta_op >= 0, graph.meta_op, graph.meta_op.max(initial=-1) + 1 + graph.levels)
    inside = meta[graph.edges[:, 0]] == meta[graph.edges[:, 1]]
    depth = np.zeros(graph.n_nodes, dtype=np.int64)
    order = np.argsort(graph.levels[graph.edges[:, 0]], kind="stable")
    for u, v in graph.edges[order[inside[order]]]:
        depth[v] = max(depth[v], depth[u] + 1)
    first = np.full(meta.max() + 1, np.iinfo(np.int64).max)
    np.minimum.at(first, meta, graph.levels)
    keys = (depth, meta, first[meta])
    ordered = np.lexsort(keys)
    position = np.empty(graph.n_nodes, dtype=np.int64)
    position[ordered] = np.arange(graph.n_nodes)
    if (position[graph.edges[:, 0]] > position[graph.edges[:, 1]]).any():
        keys = (depth, meta, graph.levels.astype(np.int64))
        ordered = np.lexsort(keys)
    same = np.all([np.diff(key[ordered]) == 0 for key in keys], axis=0)
    return np.split(ordered, np.flatnonzero(~same) + 1)
