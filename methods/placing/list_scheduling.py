"""Priorities and list schedules as compiled kernels over CSR arrays. No search and no randomness belong here.

A list schedule is a heuristic's own plan: it may use gaps and orders that the device's FIFO queue later does not, so its
makespan is not the measured one. Terms follow Topcuoglu, Hariri and Wu, "Performance-Effective and Low-Complexity Task
Scheduling for Heterogeneous Computing", IEEE TPDS 13(3), 2002; section numbers below are of that paper.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numba
import numpy as np

from envs.problem.problem import Problem


class Tasks(NamedTuple):
    """A problem as plain arrays for the kernels; CSR edges in stored order."""

    order: np.ndarray
    """Topological order, int64[V]."""
    in_pointer: np.ndarray
    parents: np.ndarray
    """Producer of each incoming edge, int32[E], grouped by consumer."""
    in_bytes: np.ndarray
    out_pointer: np.ndarray
    children: np.ndarray
    """Consumer of each outgoing edge, int32[E], grouped by producer."""
    out_bytes: np.ndarray
    out_edges: np.ndarray
    """Edge id of each outgoing edge, int64[E]."""
    seconds: np.ndarray
    """float64[V, D]."""
    feasible: np.ndarray
    """bool[V, D]."""
    delay: np.ndarray
    seconds_per_byte: np.ndarray
    leaders: np.ndarray
    """First node of each node's co-location group, int64[V]."""
    group_need: np.ndarray
    """Bytes of a whole co-location group, at its leader, float64[V]; 0 elsewhere."""
    memory: np.ndarray
    """float64[D]."""
    follows: np.ndarray
    """Which nodes take no part in planning but go where their group goes (see `followers`), bool[V]."""
    there: np.ndarray
    """Nodes whose output is wherever it is wanted from the beginning: followers, and `free_entries` where they are, bool[V]."""


@lru_cache(maxsize=16)
def tasks_of(problem: Problem, entries_everywhere: bool = False) -> Tasks:
    """The kernels' view of ``problem``, made once; with or without its `free_entries` on every device."""
    graph, network = problem.graph, problem.network
    (in_pointer, incoming), (out_pointer, outgoing) = graph.in_edges, graph.out_edges
    need, follows = np.bincount(problem.leaders, weights=problem.held_bytes, minlength=graph.n_nodes), followers(problem)
    return Tasks(
        graph.topological_order, in_pointer, graph.edges[incoming, 0], graph.edge_bytes[incoming], out_pointer,
        graph.edges[outgoing, 1], graph.edge_bytes[outgoing], outgoing, problem.compute_seconds, problem.feasible,
        network.delay, network.seconds_per_byte, problem.leaders, need, network.memory, follows,
        follows | free_entries(problem) if entries_everywhere else follows,
    )  # fmt: skip


def free_entries(problem: Problem) -> np.ndarray:
    """Inputs: nodes without a producer that cost nothing, bool[V]. In DOPPLER's systems they are on every device (Algorithm 1)."""
    entries = np.bincount(problem.graph.edges[:, 1], minlength=problem.n_nodes) == 0
    return entries & (problem.compute_seconds == 0).all(axis=1)


def followers(problem: Problem) -> np.ndarray:
    """The nodes that leave the choice of a device to the rest of their co-location group, bool[V].

    They cost nothing anywhere, need no input but from such nodes, and feed only their own group: the weights of a layer, say.
    Served in their turn, they would fix the group's device before anything is known of it.
    """
    graph, lead = problem.graph, problem.leaders
    (producers, consumers), n = graph.edges.T, graph.n_nodes
    inside = lead[producers] == lead[consumers]
    follows = (problem.compute_seconds.max(axis=1) == 0) & (np.bincount(producers, minlength=n) > 0)
    follows[producers[~inside]] = False
    while True:  # once for every step of the longest chain of candidates
        spoilt = consumers[~follows[producers]]
        if not follows[spoilt].any():
            return follows
        follows[spoilt] = False


@dataclass(frozen=True, eq=False)
class ListSchedule:
    """Who runs where and when: device int16[V], start and finish seconds float64[V]."""

    device: np.ndarray
    start: np.ndarray
    finish: np.ndarray

    @property
    def makespan(self) -> float:
        """Seconds until the last finish."""
        return float(self.finish.max())


def mean_costs(problem: Problem) -> tuple[np.ndarray, np.ndarray]:
    """Mean compute seconds float64[V] over feasible devices and mean transfer seconds float64[E] (equations 2 and 4).

    A transfer is averaged over all pairs of two *different* feasible devices of producer and consumer; if there is no such
    pair, or both belong to one co-location group, they must share a device and the transfer is free.
    """
    feasible = problem.feasible.astype(np.float64)
    compute = (problem.compute_seconds * feasible).sum(axis=1) / feasible.sum(axis=1)
    source, target = feasible[problem.graph.edges[:, 0]], feasible[problem.graph.edges[:, 1]]
    pairs = source.sum(axis=1) * target.sum(axis=1) - (source * target).sum(axis=1)
    totals = [((source @ link) * target).sum(axis=1) for link in (problem.network.delay, problem.network.seconds_per_byte)]
    transfer = (totals[0] + problem.graph.edge_bytes * totals[1]) / np.maximum(pairs, 1.0)
    together = problem.leaders[problem.graph.edges[:, 0]] == problem.leaders[problem.graph.edges[:, 1]]
    return compute, np.where((pairs > 0) & ~together, transfer, 0.0)


def upward_ranks(problem: Problem, compute: np.ndarray | None = None, transfer: np.ndarray | None = None) -> np.ndarray:
    """Longest path from each node to an exit, its own cost included, float64[V] (equation 7); mean costs if none are given."""
    mean = mean_costs(problem)
    return _upward(tasks_of(problem), mean[0] if compute is None else compute, mean[1] if transfer is None else transfer)


def downward_ranks(problem: Problem) -> np.ndarray:
    """Longest path from an entry to each node, its own cost excluded, by mean costs, float64[V] (equation 9)."""
    return _downward(tasks_of(problem), *mean_costs(problem))


def by_rank(problem: Problem, rank: np.ndarray) -> np.ndarray:
    """Nodes by falling upward rank, int64[V]; ties in topological order, so that parents always come first."""
    position = np.empty(problem.n_nodes, dtype=np.int64)
    position[problem.graph.topological_order] = np.arange(problem.n_nodes)
    return np.lexsort((position, -rank))


def ready_order(problem: Problem, priority: np.ndarray, ties: np.ndarray | None = None) -> np.ndarray:
    """The order in which a ready list serves nodes by falling ``priority``, ties by rising ``ties`` (or index), int64[V]."""
    turn = np.empty(problem.n_nodes, dtype=np.int64)
    turn[np.lexsort((np.arange(problem.n_nodes) if ties is None else ties, -priority))] = np.arange(problem.n_nodes)
    return _ready_order(tasks_of(problem), turn)


def critical_path(
    problem: Problem, entries_everywhere: bool, ties: np.ndarray | None = None, devices: np.ndarray | None = None, earliest: str = "start"
) -> ListSchedule:
    """DOPPLER's critical path: of the ready nodes that of the longest path to an exit, where it can start earliest, without gaps.

    Args:
        problem: what to schedule.
        entries_everywhere: whether the `free_entries` are on every device; then their edges cost nothing on paths either.
        ties: order of nodes of equal priority, float64[V]; by index if None.
        devices: see `list_schedule`.
        earliest: see `list_schedule`.
    """
    transfer = mean_costs(problem)[1]
    if entries_everywhere:
        transfer = np.where(free_entries(problem)[problem.graph.edges[:, 0]], 0.0, transfer)
    order = ready_order(problem, upward_ranks(problem, transfer=transfer), ties)
    return list_schedule(problem, order, devices=devices, insertion=False, earliest=earliest, entries_everywhere=entries_everywhere)


def list_schedule(
    problem: Problem,
    order: np.ndarray,
    *,
    pinned: np.ndarray | None = None,
    devices: np.ndarray | None = None,
    insertion: bool = True,
    earliest: str = "finish",
    entries_everywhere: bool = False,
) -> ListSchedule:
    """Places nodes in ``order`` (parents first) on the device of their earliest finish or start (section 4.1).

    Co-location: the first node of a group that is not one of its `followers` decides for all. Memory: devices without room
    for the whole group are skipped; if none has room, the one with the most room is taken, and the placement overflows.

    Args:
        problem: what to schedule.
        order: int64[V].
        pinned: device each node must use if it has room, int16[V]; -1 is free.
        devices: order in which devices are tried, int64[V, D] or [1, D]; the first of equally good ones wins. Default: by index.
        insertion: whether gaps between scheduled tasks may be used.
        earliest: what to minimise, ``"finish"`` or ``"start"``.
        entries_everywhere: whether the `free_entries` are on every device, so that moving them takes no time.
    """
    v, d = problem.n_nodes, problem.n_devices
    schedule = ListSchedule(np.empty(v, dtype=np.int16), np.empty(v), np.empty(v))
    fixed = np.full(v, -1, dtype=np.int16) if pinned is None else pinned.astype(np.int16)
    tried = np.arange(d)[None, :] if devices is None else np.ascontiguousarray(devices, dtype=np.int64)
    tasks = tasks_of(problem, entries_everywhere)
    _list_schedule(tasks, order, fixed, tried, insertion, earliest == "start", schedule.device, schedule.start, schedule.finish)
    return schedule


def heft(problem: Problem) -> ListSchedule:
    """Heterogeneous Earliest Finish Time with insertion (section 4.1); ties go to the lowest device index."""
    return list_schedule(problem, by_rank(problem, upward_ranks(problem)))


def cpop(problem: Problem) -> ListSchedule:
    """Critical Path on a Processor with insertion (section 4.2).

    The critical path is walked from the entry of the highest priority through the child of the highest priority; its
    processor is the one that may run most of the path and, among those, runs that part fastest.
    """
    up = upward_ranks(problem)
    priority = up + downward_ranks(problem)
    path = _critical_path(tasks_of(problem), priority)
    able = problem.feasible[path]
    total = np.where(able, problem.compute_seconds[path], 0.0).sum(axis=0)
    processor = int(np.lexsort((total, -able.sum(axis=0)))[0])
    pinned = np.full(problem.n_nodes, -1, dtype=np.int16)
    pinned[path[able[:, processor]]] = processor
    return list_schedule(problem, ready_order(problem, priority), pinned=pinned)


def planned(problem: Problem, placement: np.ndarray) -> ListSchedule:
    """A schedule of a whole placement int16[V] by upward rank without gaps: an estimate where no measured trace is at hand."""
    return list_schedule(problem, by_rank(problem, upward_ranks(problem)), pinned=placement, insertion=False)


def planned_chain(problem: Problem, placement: np.ndarray) -> np.ndarray:
    """`critical_chain` of a placement int16[V] as `planned` estimates its schedule, int64[L]."""
    schedule = planned(problem, placement)
    return critical_chain(problem, placement, schedule.start, schedule.finish)


def earliest_finish_device(problem: Problem, node: int, placement: np.ndarray, start: np.ndarray, finish: np.ndarray) -> int:
    """Where ``node`` (with its group) would finish first if all others kept their times, by index among equals.

    It is ready on a device when its last input arrives, and waits there for every task that was ready before it (FIFO, as
    GiPH Appendix B.5). Devices without room for its group are left out; if no other has room it stays.
    """
    return int(_eft_device(tasks_of(problem), node, placement.astype(np.int16), start, finish))


def critical_chain(problem: Problem, placement: np.ndarray, start: np.ndarray, finish: np.ndarray) -> np.ndarray:
    """The nodes that fix the makespan of a traced placement, first to last, int64[L].

    Walks back from the last finish: to the parent whose output arrived last if the node began on its arrival, otherwise to
    the task that occupied the device before.
    """
    return _critical_chain(tasks_of(problem), placement.astype(np.int16), start, finish, np.lexsort((finish, start, placement)))


@numba.njit(cache=True, nogil=True)
def _upward(tasks, compute, transfer):
    rank = np.zeros(compute.size)
    for i in range(compute.size - 1, -1, -1):
        v = tasks.order[i]
        longest = 0.0
        for e in range(tasks.out_pointer[v], tasks.out_pointer[v + 1]):
            longest = max(longest, transfer[tasks.out_edges[e]] + rank[tasks.children[e]])
        rank[v] = compute[v] + longest
    return rank


@numba.njit(cache=True, nogil=True)
def _downward(tasks, compute, transfer):
    rank = np.zeros(compute.size)
    for u in tasks.order:
        for e in range(tasks.out_pointer[u], tasks.out_pointer[u + 1]):
            v = tasks.children[e]
            rank[v] = max(rank[v], rank[u] + compute[u] + transfer[tasks.out_edges[e]])
    return rank


@numba.njit(cache=True, nogil=True)
def _critical_path(tasks, priority):
    v = -1
    for i in range(priority.size):
        if tasks.in_pointer[i] == tasks.in_pointer[i + 1] and (v < 0 or priority[i] > priority[v]):
            v = i
    path = [v]
    while tasks.out_pointer[v] < tasks.out_pointer[v + 1]:
        best = tasks.children[tasks.out_pointer[v]]
        for e in range(tasks.out_pointer[v] + 1, tasks.out_pointer[v + 1]):
            if priority[tasks.children[e]] > priority[best]:
                best = tasks.children[e]
        v = best
        path.append(v)
    return np.array(path)


@numba.njit(cache=True, nogil=True)
def _ready_order(tasks, turn):
    n = turn.size
    node = np.empty(n, dtype=np.int64)
    node[turn] = np.arange(n)
    waiting = tasks.in_pointer[1:] - tasks.in_pointer[:-1]
    heap = [turn[v] for v in range(n) if waiting[v] == 0]
    heapq.heapify(heap)
    order = np.empty(n, dtype=np.int64)
    for i in range(n):
        v = node[heapq.heappop(heap)]
        order[i] = v
        for e in range(tasks.out_pointer[v], tasks.out_pointer[v + 1]):
            child = tasks.children[e]
            waiting[child] -= 1
            if waiting[child] == 0:
                heapq.heappush(heap, turn[child])
    return order


@numba.njit(cache=True, nogil=True)
def _slot(starts, finishes, count, ready, length, insertion):
    """The earliest begin >= ready of a free slot, and its place among the device's ``count`` tasks sorted by start."""
    if count == 0:
        return ready, 0
    if not insertion or ready >= finishes[count - 1]:
        return max(ready, finishes[count - 1]), count
    low, high = 0, count
    while low < high:  # the first task that ends after `ready`
        middle = (low + high) >> 1
        if finishes[middle] > ready:
            high = middle
        else:
            low = middle + 1
    begin = ready
    for i in range(low, count):
        if begin + length <= starts[i]:
            return begin, i
        begin = max(begin, finishes[i])
    return begin, count


@numba.njit(cache=True, nogil=True)
def _book(starts, finishes, count, place, begin, end):
    """Puts a task into its `_slot` of a device; those after it move on by one place."""
    for i in range(count, place, -1):
        starts[i], finishes[i] = starts[i - 1], finishes[i - 1]
    starts[place], finishes[place] = begin, end


@numba.njit(cache=True, nogil=True)
def _ready_time(tasks, v, k, device, finish):
    ready = 0.0
    for e in range(tasks.in_pointer[v], tasks.in_pointer[v + 1]):
        u = tasks.parents[e]
        if not tasks.there[u]:
            at = finish[u] + (tasks.delay[device[u], k] + tasks.in_bytes[e] * tasks.seconds_per_byte[device[u], k])
            ready = max(ready, at)
    return ready


@numba.njit(cache=True, nogil=True)
def _must_use(tasks, v, pinned, home, used):
    """The one device that ``v`` has to use, or -1 if any with room will do."""
    lead = tasks.leaders[v]
    if home[lead] >= 0:
        return home[lead]
    need = tasks.group_need[lead]
    k = pinned[v]
    if k >= 0 and used[k] + need <= tasks.memory[k]:
        return np.int64(k)
    roomiest = -1
    for k in range(used.size):
        if tasks.feasible[v, k]:
            if used[k] + need <= tasks.memory[k]:
                return -1
            if roomiest < 0 or tasks.memory[k] - used[k] > tasks.memory[roomiest] - used[roomiest]:
                roomiest = k
    return roomiest


@numba.njit(cache=True, nogil=True)
def _list_schedule(tasks, order, pinned, devices, insertion, by_start, device, start, finish):
    n, d = tasks.seconds.shape
    starts, finishes = np.empty((d, n)), np.empty((d, n))
    count, used, home = np.zeros(d, dtype=np.int64), np.zeros(d), np.full(n, -1, dtype=np.int64)
    for v in order:
        if tasks.follows[v]:
            continue
        lead = tasks.leaders[v]
        need = tasks.group_need[lead]
        only = _must_use(tasks, v, pinned, home, used)
        best, best_key, best_begin, best_place = -1, np.inf, 0.0, 0
        for j in range(d):
            k = devices[v % devices.shape[0], j]
            if only >= 0:
                if k != only:
                    continue
            elif not tasks.feasible[v, k] or used[k] + need > tasks.memory[k]:
                continue
            ready = _ready_time(tasks, v, k, device, finish)
            begin, place = _slot(starts[k], finishes[k], count[k], ready, tasks.seconds[v, k], insertion)
            key = begin if by_start else begin + tasks.seconds[v, k]
            if best < 0 or key < best_key:
                best, best_key, best_begin, best_place = k, key, begin, place
        if home[lead] < 0:
            home[lead] = best
            used[best] += need
        device[v], start[v], finish[v] = best, best_begin, best_begin + tasks.seconds[v, best]
        _book(starts[best], finishes[best], count[best], best_place, start[v], finish[v])
        count[best] += 1
    for v in range(n):
        if tasks.follows[v]:
            device[v], start[v], finish[v] = home[tasks.leaders[v]], 0.0, 0.0


@numba.njit(cache=True, nogil=True)
def _eft_device(tasks, v, device, start, finish):
    n, d = tasks.seconds.shape
    lead, home = tasks.leaders[v], device[v]
    used, ready = np.zeros(d), np.empty(n)
    for i in range(n):
        used[device[i]] += tasks.group_need[i]
        ready[i] = _ready_time(tasks, i, device[i], device, finish)
    begin = np.empty(d)
    for k in range(d):
        begin[k] = _ready_time(tasks, v, k, device, finish)
    arrival = begin.copy()
    for i in range(n):  # whatever was ready earlier on a device is served first
        k = device[i]
        if tasks.leaders[i] != lead and ready[i] <= arrival[k] and finish[i] > begin[k]:
            begin[k] = finish[i]
    best = home
    for k in range(d):
        if tasks.feasible[v, k] and (k == home or used[k] + tasks.group_need[lead] <= tasks.memory[k]):
            here, there = begin[best] + tasks.seconds[v, best], begin[k] + tasks.seconds[v, k]
            if there < here or (there == here and k < best):
                best = k
    return best


@numba.njit(cache=True, nogil=True)
def _critical_chain(tasks, device, start, finish, by_device):
    n = device.size
    before = np.full(n, -1, dtype=np.int64)
    for i in range(1, n):
        if device[by_device[i]] == device[by_device[i - 1]]:
            before[by_device[i]] = by_device[i - 1]
    v = np.argmax(finish)
    chain = [v]
    while len(chain) < n:
        latest, at = np.int64(-1), -1.0
        for e in range(tasks.in_pointer[v], tasks.in_pointer[v + 1]):
            u = tasks.parents[e]
            arrival = finish[u] + (tasks.delay[device[u], device[v]] + tasks.in_bytes[e] * tasks.seconds_per_byte[device[u], device[v]])
            if arrival > at:
                latest, at = np.int64(u), arrival
        if at < start[v] * (1 - 1e-9) and before[v] >= 0:
            latest = before[v]
        if latest < 0:
            break
        v = latest
        chain.append(v)
    return np.array(chain[::-1])
