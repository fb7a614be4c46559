"""List schedules guided by a bias on every device of every node and by a priority, many at once as compiled code. Nothing learns here.

Each has a plan, as every list schedule has: when it ends by the times that it gave to nodes as it placed them, one after another. It knows
nothing of queues, in which nodes that come earlier than planned go first, and times no node twice.
"""

from __future__ import annotations

import heapq
from typing import NamedTuple

import numba
import numpy as np

from envs.problem.problem import Problem
from methods.placing.list_scheduling import Tasks, _book, _must_use, _ready_time, _slot, tasks_of


class Guidance(NamedTuple):
    """What a policy says about one problem, B times."""

    bias: np.ndarray
    """Seconds added to the finish of a node on a device when its device is chosen, and to nothing else, float64[B, V, D]."""
    priority: np.ndarray
    """The ready node with the largest is served next, seconds float64[B, V]."""
    patience: np.ndarray
    """How much of the time at which a node becomes ready is taken off its priority, float64[B]."""
    dearer: np.ndarray
    """Factor on the seconds of all transfers, float64[B]."""
    gaps: np.ndarray
    """Whether gaps between scheduled nodes are used, bool[B]."""


class Guided(NamedTuple):
    """Schedules under some guidance."""

    placement: np.ndarray
    """int16[B, V]."""
    planned: np.ndarray
    """When the last node ends by the schedule's own plan, seconds float64[B]."""


def guided_schedules(problem: Problem, believed: np.ndarray, factors: np.ndarray, guidance: Guidance) -> Guided:
    """Schedules whose nodes go where their finish plus their bias is least.

    Factors and dearer transfers change what is chosen; the plan is timed by what is believed.

    Args:
        problem: what is placed.
        believed: seconds of every node on every device, float64[V, D].
        factors: on them, float64[B, V, D] or [B, 1, 1].
        guidance: B of them.
    """
    found = Guided(np.empty(guidance.priority.shape, dtype=np.int16), np.empty(len(guidance.priority)))
    as_believed = (guidance.dearer == 1.0) & (factors == 1.0).all(axis=(1, 2))
    tasks = tasks_of(problem)._replace(seconds=np.ascontiguousarray(believed))
    _guided(tasks, np.ascontiguousarray(np.broadcast_to(factors, guidance.bias.shape)), as_believed, *guidance, *found)
    return found


@numba.njit(cache=True, nogil=True)
def _guided(tasks, factors, as_believed, bias, priority, patience, dearer, gaps, found, planned):
    n, d = tasks.seconds.shape
    starts, finishes = np.empty((2, d, n)), np.empty((2, d, n))
    finish = np.empty((2, n))  # as chosen by, and as planned
    for b in range(priority.shape[0]):
        varied = Tasks(
            tasks.order, tasks.in_pointer, tasks.parents, tasks.in_bytes, tasks.out_pointer, tasks.children, tasks.out_bytes,
            tasks.out_edges, tasks.seconds * factors[b], tasks.feasible, tasks.delay * dearer[b], tasks.seconds_per_byte * dearer[b],
            tasks.leaders, tasks.group_need, tasks.memory, tasks.follows, tasks.there,
        )  # fmt: skip
        plan = finish[0] if as_believed[b] else finish[1]
        _one(varied, tasks, as_believed[b], bias[b], priority[b], patience[b], gaps[b], starts, finishes, finish[0], plan, found[b])
        planned[b] = plan.max()


@numba.njit(cache=True, nogil=True)
def _one(varied, tasks, as_believed, bias, priority, patience, gaps, starts, finishes, finish, plan, device):
    n, d = tasks.seconds.shape
    count, used, home = np.zeros(d, dtype=np.int64), np.zeros(d), np.full(n, -1, dtype=np.int64)
    free = np.full(n, -1, dtype=np.int16)
    waiting = tasks.in_pointer[1:] - tasks.in_pointer[:-1]
    heap = [(-priority[v], np.int64(v)) for v in range(n) if waiting[v] == 0]
    heapq.heapify(heap)
    while len(heap) > 0:
        _, v = heapq.heappop(heap)
        finish[v], plan[v] = 0.0, 0.0
        if not tasks.follows[v]:
            lead = tasks.leaders[v]
            need = tasks.group_need[lead]
            only = int(_must_use(tasks, v, free, home, used))
            best, best_key, best_begin, best_place = -1, np.inf, 0.0, 0
            for k in range(d):
                if only >= 0:
                    if k != only:
                        continue
                elif not tasks.feasible[v, k] or used[k] + need > tasks.memory[k]:
                    continue
                ready = _ready_time(varied, v, k, device, finish)
                begin, place = _slot(starts[0, k], finishes[0, k], count[k], ready, varied.seconds[v, k], gaps)
                key = begin + varied.seconds[v, k] + bias[v, k]
                if best < 0 or key < best_key:
                    best, best_key, best_begin, best_place = k, key, begin, place
            if home[lead] < 0:
                home[lead] = best
                used[best] += need
            device[v], finish[v] = best, best_begin + varied.seconds[v, best]
            _book(starts[0, best], finishes[0, best], count[best], best_place, best_begin, finish[v])
            if not as_believed:
                ready = _ready_time(tasks, v, best, device, plan)
                begin, place = _slot(starts[1, best], finishes[1, best], count[best], ready, tasks.seconds[v, best], gaps)
                plan[v] = begin + tasks.seconds[v, best]
                _book(starts[1, best], finishes[1, best], count[best], place, begin, plan[v])
            count[best] += 1
        for e in range(tasks.out_pointer[v], tasks.out_pointer[v + 1]):
            child = tasks.children[e]
            waiting[child] -= 1
            if waiting[child] == 0:
                ready = 0.0
                for i in range(tasks.in_pointer[child], tasks.in_pointer[child + 1]):
                    ready = max(ready, finish[tasks.parents[i]])
                heapq.heappush(heap, (patience * ready - priority[child], np.int64(child)))
    for u in range(n):
        if tasks.follows[u]:
            device[u] = home[tasks.leaders[u]]
