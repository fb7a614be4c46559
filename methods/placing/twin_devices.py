"""Devices that differ in nothing but their index. No search and no networks belong here."""

from __future__ import annotations

import numpy as np

from envs.problem.problem import Problem
from methods.placing.coarsening import CoarseGraph


def alike(problem: Problem) -> np.ndarray:
    """For every device the first one that it can change places with, so that nothing changes, int64[D]."""
    network, n = problem.network, problem.n_devices
    tables = (problem.compute_seconds.T, problem.feasible.T, network.memory)
    out = np.arange(n)
    for j in range(n):
        for i in range(j):
            swapped = np.arange(n)
            swapped[[i, j]] = j, i
            links = all((m[np.ix_(swapped, swapped)] == m).all() for m in (network.delay, network.bandwidth))
            if links and all(np.array_equal(t[i], t[j]) for t in tables):
                out[j] = i
                break
    return out


class Twins:
    """Which of the placements that differ only by devices which are `alike` stands for all of them.

    Each unit has a place, the share of the graph's work that is before it, layer by layer and in topological order within one.
    Of alike devices the one whose work has the lower mean place comes first.
    """

    def __init__(self, problem: Problem, coarse: CoarseGraph, work: np.ndarray) -> None:
        kinds = alike(problem)
        self.sets = [devices for first in np.unique(kinds) if len(devices := np.flatnonzero(kinds == first)) > 1]
        self.devices, self.work = problem.n_devices, work
        order = np.lexsort((np.arange(coarse.n_nodes), problem.graph.layer[coarse.last]))
        self.place = np.empty(coarse.n_nodes)
        self.place[order] = np.cumsum(work[order]) / work.sum()

    def relabel(self, actions: np.ndarray) -> np.ndarray:
        """Decisions [B, N] with alike devices in order; unused ones come last."""
        out = actions.copy()
        for row in out:
            total = np.bincount(row, weights=self.work, minlength=self.devices)
            mean = np.bincount(row, weights=self.work * self.place, minlength=self.devices) / np.where(total > 0, total, 1.0)
            mean[total == 0] = np.inf
            new = np.arange(len(mean))
            for devices in self.sets:
                new[devices[np.argsort(mean[devices], kind="stable")]] = devices
            row[:] = new[row]
        return out
