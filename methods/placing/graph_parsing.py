"""Graph parsing (HSDAG section 2.4, Algorithm 2): edges with scores become groups. Array operations; no networks and no sampling here."""

from __future__ import annotations

import numpy as np
from scipy.sparse import coo_array, csr_array

from methods.placing.coarsening import components, distinct


def undirected(edges: np.ndarray, n: int) -> np.ndarray:
    """The different pairs (lower, higher) that ``edges`` [E, 2] join, sorted, loops left out, int64[E', 2]."""
    return distinct(np.stack((edges.min(axis=1, initial=n), edges.max(axis=1, initial=0)), axis=1), n)


def dominant(n: int, edges: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """Which edges are the highest-scoring edge of at least one of their ends (equation 9), bool[E].

    Args:
        n: number of nodes.
        edges: undirected pairs, int64[E, 2].
        scores: one an edge, [E]; among equals the first edge is the higher.
    """
    ends = edges.T.ravel()
    ids = np.tile(np.arange(len(edges)), 2)
    order = np.lexsort((-ids, np.tile(scores, 2), ends))
    is_last = np.ones(len(ends), dtype=bool)
    is_last[:-1] = ends[order][1:] != ends[order][:-1]
    kept = np.zeros(len(edges), dtype=bool)
    kept[ids[order[is_last]]] = True
    return kept


def parse(n: int, edges: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """The group of every node (equation 10), int64[n]: nodes that dominant edges connect, however far.

    Growing each group from its best edge along dominant edges until nothing is added (Algorithm 2) ends in the connected
    components of the dominant edges. Nodes without an edge stay alone.
    """
    return components(n, edges[dominant(n, edges, scores)])


def pool(edges: np.ndarray, labels: np.ndarray, n: int) -> np.ndarray:
    """Undirected edges of the pooled graph of ``n`` groups, int64[E', 2]: the pattern of X^T A X (equation 11), without loops."""
    return undirected(labels[edges], n)


def normalized_adjacency(n: int, edges: np.ndarray) -> csr_array:
    """D^-1/2 (A + I) D^-1/2 of the symmetric graph of distinct undirected ``edges`` (equation 6), float32 [n, n]."""
    own = np.arange(n)
    rows, columns = np.concatenate((edges.T, edges.T[::-1], np.stack((own, own))), axis=1)
    scale = 1.0 / np.sqrt(np.bincount(rows, minlength=n))
    return coo_array(((scale[rows] * scale[columns]).astype(np.float32), (rows, columns)), shape=(n, n)).tocsr()
