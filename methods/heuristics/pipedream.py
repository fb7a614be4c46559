"""PipeDream's splits: stages of consecutive layers by its dynamic program (Narayanan et al., SOSP 2019, section 3.1), without replication.

The graph is made a chain first: in a topological order, what lies between two places that a single output crosses is one layer (operations
that take no time do not count, as their outputs are inputs and masks). A stage's time is that of its layers, and a cut's that of the
outputs that cross it, forward and backward; PipeDream minimises the largest of all these, so it takes transfers to overlap with
computation. Several workers on one stage would need the graph twice, which no placement can say, so a stage has one device. Devices
are taken in order, the fastest first; memory, which the planner does not know, is fitted afterwards.
"""

from __future__ import annotations

import numpy as np

from envs.problem.problem import Problem
from methods.contract.fixed_list import FixedList
from methods.placing.constraints import make_feasible
from methods.placing.list_scheduling import mean_costs
from methods.placing.pipeline import piece_graph


class Pipedream(FixedList):
    """Proposes the split of PipeDream's planner, without replication: one placement."""

    seeded = False

    def placement(self, index: int) -> np.ndarray:
        problem = self.problem
        layer, cut = _layers(problem)
        order = np.argsort(problem.compute_seconds.sum(axis=0), kind="stable")
        seconds = np.zeros((len(cut) + 1, problem.n_devices))
        np.add.at(seconds, layer, problem.compute_seconds[:, order])
        return make_feasible(problem, order[_stages(seconds, cut)[layer]].astype(np.int16)[None, :])[0]


def _layers(problem: Problem) -> tuple[np.ndarray, np.ndarray]:
    """The layer of every node, int64[V], and the mean seconds of what crosses each cut between two layers, float64[L - 1]."""
    graph, pieces = problem.graph, piece_graph(problem)
    n, piece = pieces.count, pieces.of_node
    busy = np.bincount(piece, weights=problem.compute_seconds.max(axis=1), minlength=n) > 0
    ends = np.sort(pieces.edges, axis=1)
    last = np.arange(n)
    np.maximum.at(last, ends[:, 0], ends[:, 1])
    # A place lies after each piece; an output crosses those from its piece to just before its last reader.
    crossing = np.zeros(n + 1, dtype=np.int64)
    np.add.at(crossing, np.flatnonzero(busy), 1)
    np.add.at(crossing, last[busy], -1)
    places = np.flatnonzero(np.cumsum(crossing)[: n - 1] <= 1)
    layer = np.searchsorted(places, piece)
    sent = np.zeros(len(places))
    transfer = mean_costs(problem)[1]
    seen: dict[int, tuple[int, int, float]] = {}
    for (u, v), seconds in zip(graph.edges.tolist(), transfer.tolist(), strict=True):
        low, high, most = seen.get(u, (layer[u], layer[u], 0.0))
        seen[u] = (min(low, layer[v]), max(high, layer[v]), max(most, seconds))
    for low, high, seconds in seen.values():
        sent[low:high] += seconds
    return layer, sent


def _stages(seconds: np.ndarray, cut: np.ndarray) -> np.ndarray:
    """The position in the order of devices of every layer, int64[L], for ``seconds`` float64[L, D] and ``cut`` float64[L - 1]."""
    n, d = seconds.shape
    total = np.concatenate((np.zeros((1, d)), np.cumsum(seconds, axis=0)))
    before = np.concatenate(([0.0], cut))  # what a stage that begins with layer i has to receive
    best = np.full((d + 1, n + 1), np.inf)
    begin = np.zeros((d + 1, n + 1), dtype=np.int64)
    best[0, 0] = 0.0
    for k in range(1, d + 1):
        best[k], begin[k] = best[k - 1], np.arange(n + 1)  # nothing for this device
        for j in range(1, n + 1):
            load = np.maximum(np.maximum(best[k - 1, :j], before[:j]), total[j, k - 1] - total[:j, k - 1])
            i = int(np.argmin(load))
            if load[i] < best[k, j]:
                best[k, j], begin[k, j] = load[i], i
    stage, j = np.empty(n, dtype=np.int64), n
    for k in range(d, 0, -1):
        stage[begin[k, j] : j] = k - 1
        j = int(begin[k, j])
    return stage
