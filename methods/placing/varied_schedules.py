"""List schedules of varied costs, many at once as compiled code: the space that problem-space search searches. No search belongs here.

Storer, Wu and Vaccari, "New Search Spaces for Sequencing Problems with Application to Job Shop Scheduling" (Management Science 38(10),
1992): a heuristic is a map from problems to schedules, so schedules can be searched by varying the problem that the heuristic is shown.
"""

from __future__ import annotations

import numba
import numpy as np

from envs.problem.problem import Problem
from methods.placing.list_scheduling import Tasks, _critical_path, _downward, _list_schedule, _ready_order, _upward, mean_costs, tasks_of

HEURISTICS = ("heft", "cpop", "eft")
"""Which node is served next: the one with the longest path to an exit; with the longest path through it, the critical path staying
on one device; or the one with the shortest path from an entry (what is ready first goes first). Each goes where it ends first."""
KINDS = 2 * len(HEURISTICS)
"""Each heuristic with gaps between scheduled nodes used, and without."""


def varied_schedules(
    problem: Problem, factors: np.ndarray, dearer: np.ndarray, kinds: np.ndarray, pinned: np.ndarray | None = None
) -> np.ndarray:
    """Placements int16[B, V], each of one heuristic on its own varied costs.

    Args:
        problem: whose costs are varied.
        factors: on the seconds of every node on every device, float64[B, V, D] or, alike for all devices, [B, V, 1].
        dearer: on the seconds of all transfers, float64[B].
        kinds: index into `HEURISTICS` twice over (then without gaps), int64[B].
        pinned: device that each node keeps, int16[B, V]; -1 is free.
    """
    rows = np.full((len(kinds), problem.n_nodes), -1, dtype=np.int16) if pinned is None else np.ascontiguousarray(pinned, dtype=np.int16)
    found = np.empty_like(rows)
    transfer = mean_costs(problem)[1]
    _schedules(tasks_of(problem), transfer, np.ascontiguousarray(factors), dearer, np.asarray(kinds, dtype=np.int64), rows, found)
    return found


@numba.njit(cache=True, nogil=True)
def _schedules(tasks, transfer, factors, dearer, kinds, pinned, found):
    n, d = tasks.seconds.shape
    start, finish, turn = np.empty(n), np.empty(n), np.empty(n, dtype=np.int64)
    compute, by_index = np.empty(n), np.arange(d).reshape(1, d)
    for b in range(kinds.size):
        seconds = tasks.seconds * factors[b]
        for v in range(n):
            total, count = 0.0, 0
            for k in range(d):
                if tasks.feasible[v, k]:
                    total += seconds[v, k]
                    count += 1
            compute[v] = total / count
        varied = Tasks(
            tasks.order, tasks.in_pointer, tasks.parents, tasks.in_bytes, tasks.out_pointer, tasks.children, tasks.out_bytes,
            tasks.out_edges, seconds, tasks.feasible, tasks.delay * dearer[b], tasks.seconds_per_byte * dearer[b], tasks.leaders,
            tasks.group_need, tasks.memory, tasks.follows, tasks.there,
        )  # fmt: skip
        sent = transfer * dearer[b]
        heuristic, keep = kinds[b] % 3, pinned[b].copy()
        if heuristic == 0:
            priority = _upward(varied, compute, sent)
        elif heuristic == 1:
            priority = _upward(varied, compute, sent) + _downward(varied, compute, sent)
            _keep_path_together(varied, priority, keep)
        else:
            priority = -_downward(varied, compute, sent)
        turn[np.argsort(-priority, kind="mergesort")] = np.arange(n)
        order = _ready_order(varied, turn)
        _list_schedule(varied, order, keep, by_index, kinds[b] < 3, False, found[b], start, finish)


@numba.njit(cache=True, nogil=True)
def _keep_path_together(tasks, priority, pinned):
    """CPOP: the critical path on the device that may run most of it and, among those, runs that part fastest."""
    path = _critical_path(tasks, priority)
    best, most, least = 0, -1, np.inf
    for k in range(tasks.seconds.shape[1]):
        able, total = 0, 0.0
        for v in path:
            if tasks.feasible[v, k]:
                able += 1
                total += tasks.seconds[v, k]
        if able > most or (able == most and total < least):
            best, most, least = k, able, total
    for v in path:
        if tasks.feasible[v, best] and pinned[v] < 0:
            pinned[v] = best
