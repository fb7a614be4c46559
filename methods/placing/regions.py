"""Random regions of a graph: operations near each other by what crossing their edges costs. What is done with one is not known here."""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import dijkstra

from envs.problem.problem import Problem
from methods.placing.coarsening import CoarseGraph
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
