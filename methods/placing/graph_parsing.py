"""Graph parsing (HSDAG section 2.4, Algorithm 2): edges with scores become groups. Array operations; no networks and no sampling here."""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np

from methods.placing.coarsening import components, distinct


def undirected(edges: np.ndarray, n: int) -> np.ndarray:
    """The different pairs (lower, higher) that ``edges`` [E, 2] join, sorted, loops left out, int64[E', 2]."""
    return distinct(np.stack((edges.min(axis=1, initial=n), edges.max(axis=1, initial=0)), axis=1), n)


@numba.njit(cache=True, nogil=True)
def dominant(n, edges, scores):  # type: ignore[no-untyped-def]
    """Which edges are the highest-scoring edge of at least one of their ends (equation 9), bool[E].

    Args:
        n: number of nodes.
        edges: undirected pairs, int64[E, 2].
        scores: one an edge, [E]; among equals the first edge is the higher.
    """
    highest = np.full(n, -1)
    for e in range(len(edges)):
        for v in edges[e]:
            if highest[v] < 0 or scores[e] > scores[highest[v]]:
                highest[v] = e
    kept = np.zeros(len(edges), np.bool_)
    for e in highest:
        if e >= 0:
            kept[e] = True
    return kept


def parse(n: int, edges: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """The group of every node (equation 10), int64[n]: nodes that dominant edges connect, however far.

    Growing each group from its best edge along dominant edges until nothing is added (Algorithm 2) ends in the connected
    components of the dominant edges. Nodes without an edge stay alone.
    """
    found: np.ndarray = components(n, edges[dominant(n, edges, scores)])
    return found


def pool(edges: np.ndarray, labels: np.ndarray, n: int) -> np.ndarray:
    """Undirected edges of the pooled graph of ``n`` groups, int64[E', 2]: the pattern of X^T A X (equation 11), without loops."""
    return undirected(labels[edges], n)


class Adjacency(NamedTuple):
    """D^-1/2 (A + I) D^-1/2 of a symmetric graph (equation 6), its rows one after another: row v is from ``pointer[v]`` to
    ``pointer[v + 1]``."""

    pointer: np.ndarray
    """int64[n + 1]."""
    column: np.ndarray
    """int64[2 E + n], ascending in every row if the edges were sorted."""
    weight: np.ndarray
    """float32[2 E + n]."""


def adjacency(n: int, edges: np.ndarray) -> Adjacency:
    """Of ``n`` nodes and distinct undirected ``edges`` int64[E, 2], as `undirected` gives them."""
    return Adjacency(*_adjacency(n, edges))


@numba.njit(cache=True, nogil=True)
def _adjacency(n, edges):  # type: ignore[no-untyped-def]
    lower, pointer = np.zeros(n, np.int64), np.zeros(n + 1, np.int64)
    for e in range(len(edges)):
        pointer[edges[e, 0] + 1] += 1
        pointer[edges[e, 1] + 1] += 1
        lower[edges[e, 1]] += 1
    scale = np.empty(n)
    for v in range(n):
        scale[v] = 1.0 / np.sqrt(pointer[v + 1] + 1.0)
        pointer[v + 1] += pointer[v] + 1
    column, weight = np.empty(pointer[n], np.int64), np.empty(pointer[n], np.float32)
    before, after = pointer[:-1].copy(), pointer[:-1] + lower
    for v in range(n):
        column[after[v]], weight[after[v]] = v, scale[v] * scale[v]
        after[v] += 1
    for e in range(len(edges)):
        u, v = edges[e]
        column[after[u]], weight[after[u]] = v, scale[u] * scale[v]
        column[before[v]], weight[before[v]] = u, scale[u] * scale[v]
        after[u] += 1
        before[v] += 1
    return pointer, column, weight
