"""Co-location coarsening (HSDAG Appendix G): units of a problem, and chains of them, become nodes. No features and no learning here."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numba
import numpy as np

from envs.problem.problem import Problem
from methods.placing.constraints import unit_of, units


@dataclass(frozen=True, eq=False)
class CoarseGraph:
    """A graph of N groups of operations that are placed together."""

    group: np.ndarray
    """Group of every operation, int64[V]; groups are numbered in topological order (of their last members)."""
    edges: np.ndarray
    """Distinct directed edges between groups, int64[E, 2], without loops."""
    last: np.ndarray
    """The member of every group that comes last in topological order, int64[N]: its output is the group's."""

    @property
    def n_nodes(self) -> int:
        """N, the number of groups."""
        return len(self.last)

    @cached_property
    def size(self) -> np.ndarray:
        """Operations in every group, int64[N]."""
        return np.bincount(self.group, minlength=self.n_nodes)

    def allowed(self, feasible: np.ndarray) -> np.ndarray:
        """Which devices all members of a group may use, bool[N, D], from the operations' ``feasible`` bool[V, D]."""
        refused = np.zeros((self.n_nodes, feasible.shape[1]), dtype=bool)
        np.logical_or.at(refused, self.group, ~feasible)
        return ~refused


@numba.njit(cache=True, nogil=True)
def components(n, edges):  # type: ignore[no-untyped-def]
    """Connected component of each of ``n`` nodes joined by ``edges`` [E, 2] in either direction, int64[n], in the order of first nodes."""
    parent = np.arange(n)
    for e in range(len(edges)):
        u, v = edges[e, 0], edges[e, 1]
        while parent[u] != u:
            parent[u] = parent[parent[u]]
            u = parent[u]
        while parent[v] != v:
            parent[v] = parent[parent[v]]
            v = parent[v]
        parent[max(u, v)] = min(u, v)
    label, count = np.empty(n, np.int64), 0
    for v in range(n):  # a root is the first of its nodes, and a parent comes before its children
        if parent[v] == v:
            label[v] = count
            count += 1
        else:
            label[v] = label[parent[v]]
    return label


def distinct(edges: np.ndarray, n: int) -> np.ndarray:
    """The different edges of [E, 2] between ``n`` nodes, sorted, loops left out, int64[E', 2]."""
    kept = edges[edges[:, 0] != edges[:, 1]].astype(np.int64)
    keys = np.unique(kept[:, 0] * n + kept[:, 1])
    return np.stack((keys // n, keys % n), axis=1)


def _merges(edges: np.ndarray, feasible: np.ndarray) -> np.ndarray:
    """Which of the distinct ``edges`` [E, 2] join a node's only child to that child's only parent (Appendix G), bool[E].

    Both must be ``feasible`` bool[N, D] on the same devices.
    """
    n = len(feasible)
    only_child = np.bincount(edges[:, 0], minlength=n) == 1
    only_parent = np.bincount(edges[:, 1], minlength=n) == 1
    alike = (feasible[edges[:, 0]] == feasible[edges[:, 1]]).all(axis=1)
    return only_child[edges[:, 0]] & only_parent[edges[:, 1]] & alike


Chains = Literal["none", "units", "operations"]
"""What is merged where it makes a chain: nothing, the problem's units, or its operations before they are joined to units."""


def coarsen(problem: Problem, chains: Chains = "none") -> CoarseGraph:
    """The groups that HSDAG places.

    The problem's own units (co-location groups) always become one node each. In a chain a node joins its parent if it is the parent's
    sole child and has no other parent, provided that both may use the same devices. ``operations`` takes the graph as it is, as the
    paper does: a weight is a parent, so that a convolution is never merged with what is before it. ``units`` contracts the units
    first; a weight then belongs to its reader, and chains are longer.
    """
    heads, group = units(problem), unit_of(problem)
    if chains == "units":
        edges = distinct(group[problem.graph.edges], len(heads))
        group = components(len(heads), edges[_merges(edges, problem.feasible[heads])])[group]
    elif chains == "operations":
        edges = distinct(problem.graph.edges, problem.n_nodes)
        together = np.stack((np.arange(problem.n_nodes), heads[group]), axis=1)
        group = components(problem.n_nodes, np.concatenate((edges[_merges(edges, problem.feasible)], together)))
    n = int(group.max()) + 1
    position = np.empty(problem.n_nodes, dtype=np.int64)
    position[problem.graph.topological_order] = np.arange(problem.n_nodes)
    latest = np.full(n, -1)
    np.maximum.at(latest, group, position)
    order = np.argsort(latest)
    rank = np.empty(n, dtype=np.int64)
    rank[order] = np.arange(n)
    group = rank[group]
    return CoarseGraph(group, distinct(group[problem.graph.edges], n), problem.graph.topological_order[latest[order]])
