"""The compiled FIFO simulator: a discrete-event kernel over CSR arrays. Same semantics and same bits as the SimPy reference.

An event is a task that ends or a transfer that arrives; ties break by (time, sequence number of scheduling). Only the last
arrival of each task goes through the heap: it is the maximum of its inputs' (time, sequence), known when the last parent ends.

It runs as plain Python too, with the same bits (NUMBA_DISABLE_JIT=1): so records are read by their fields' names, as NumPy does, and the
ids of events are brought to 64 bits.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numba
import numpy as np

from envs.problem.graph import frozen
from envs.problem.problem import Problem, is_valid
from envs.simulators.live_memory import holds_too_much
from envs.simulators.noise import noise_factor, row_key

# One task's running state side by side, so that an arrival touches one cache line instead of four.
TASK = np.dtype(
    [("ready", np.float64), ("key", np.int64), ("missing", np.int32), ("device", np.uint16), ("next", np.int32), ("seconds", np.float64)],
    align=True,
)
OK, INVALID, OUT_OF_MEMORY = 0, 1, 2  # envs.problem.measurement.Outcome as plain numbers for compiled code


class KernelArrays(NamedTuple):
    """What the kernel reads of a problem, contiguous and in outgoing-edge order."""

    pointer: np.ndarray
    """Where each task's outgoing edges begin, int64[V + 1]."""
    target: np.ndarray
    """Consumer of each outgoing edge, uint32[E] (compiled code spares a check for negative indices)."""
    edge_bytes: np.ndarray
    """Bytes of each outgoing edge, float64[E]."""
    indegree: np.ndarray
    """int32[V]."""
    seconds: np.ndarray
    """float64[V, D]."""
    delay: np.ndarray
    """float64[D, D]."""
    seconds_per_byte: np.ndarray
    """float64[D, D]."""
    feasible: np.ndarray
    """bool[V, D]."""
    leaders: np.ndarray
    """int64[V]."""
    need: np.ndarray
    """Bytes of memory each task holds, float64[V]."""
    memory: np.ndarray
    """Bytes of memory each device has, float64[D]."""
    output: np.ndarray
    """Bytes of each task's output if outputs are freed (`envs.simulators.live_memory`), float64[V]; otherwise empty."""


class Scratch(NamedTuple):
    """What one run writes to as it goes; made once for a batch."""

    times: np.ndarray
    """Heap of events: when, float64[V + 1]."""
    keys: np.ndarray
    """Heap of events: which, int64[V + 1]."""
    task: np.ndarray
    """`TASK`[V]."""
    queue_head: np.ndarray
    """First waiting task of each device, or -1, int32[D]."""
    queue_tail: np.ndarray
    """Last waiting task of each device, int32[D]."""
    busy: np.ndarray
    """bool[D]."""


@lru_cache(maxsize=256)
def kernel_arrays(problem: Problem) -> KernelArrays:
    """The kernel's view of ``problem``, made once per process and content."""
    graph = problem.graph
    pointer, ids = graph.out_edges
    return KernelArrays(
        pointer=pointer,
        target=frozen(graph.edges[ids, 1], np.uint32),
        edge_bytes=frozen(graph.edge_bytes[ids], np.float64),
        indegree=frozen(np.bincount(graph.edges[:, 1], minlength=graph.n_nodes), np.int32),
        seconds=problem.compute_seconds,
        delay=problem.network.delay,
        seconds_per_byte=problem.network.seconds_per_byte,
        feasible=problem.feasible,
        leaders=problem.leaders,
        need=problem.held_bytes,
        memory=problem.network.memory,
        output=graph.output_bytes if problem.network.live_memory and np.isfinite(problem.network.memory).any() else np.empty(0),
    )


@numba.njit(cache=True, nogil=True)
def check(placement, arrays, used):
    """The outcome code of one placement int16[V] before it runs; ``used`` float64[D] is scratch."""
    feasible, leaders, need, memory = arrays.feasible, arrays.leaders, arrays.need, arrays.memory
    if not is_valid(placement, feasible, leaders):
        return INVALID
    used[:] = 0.0
    for i in range(placement.size):
        used[placement[i]] += need[i]
    for d in range(memory.size):
        if used[d] > memory[d]:
            return OUT_OF_MEMORY
    return OK


@numba.njit(cache=True, nogil=True)
def rise(times, keys, hole, time, key):
    """Puts an event into the ``hole`` of the heap ordered by (time, key), or above it."""
    while hole > 0:
        parent = (hole - 1) >> 1
        if times[parent] < time or (times[parent] == time and keys[parent] < key):
            break
        times[hole], keys[hole] = times[parent], keys[parent]
        hole = parent
    times[hole], keys[hole] = time, key


@numba.njit(cache=True, nogil=True)
def sink(times, keys, size, time, key):
    """Replaces the root of a heap of ``size`` events by an event.

    The hole sinks to a leaf by the smaller child, chosen without a branch, and the event rises from there: what a heap's
    time goes into is one unpredictable branch a level.
    """
    hole = 0
    child = 1
    while child + 1 < size:
        left, right = times[child], times[child + 1]
        if left == right:
            child += keys[child + 1] < keys[child]
        else:
            child += right < left
        times[hole], keys[hole] = times[child], keys[child]
        hole = child
        child = 2 * hole + 1
    if child < size:
        times[hole], keys[hole] = times[child], keys[child]
        hole = child
    rise(times, keys, hole, time, key)


@numba.njit(cache=True, nogil=True)
def run(placement, arrays, sigma, stream, traced, start, finish, scratch):
    """Simulates one valid placement; fills ``start`` and ``finish`` float64[V] if ``traced``; returns the makespan in seconds.

    An event is its time and a key ``sequence << 32 | id``; ids below V are tasks that end, the others tasks (+ V) that become
    runnable.
    """
    times, keys, task, queue_head, queue_tail, busy = scratch
    pointer, target, edge_bytes, indegree = arrays.pointer, arrays.target, arrays.edge_bytes, arrays.indegree
    seconds, delay, seconds_per_byte = arrays.seconds, arrays.delay, arrays.seconds_per_byte
    n = placement.size
    for i in range(n):
        task[i]["ready"] = -1.0
        task[i]["missing"] = indegree[i]
        task[i]["device"] = placement[i]
        task[i]["seconds"] = seconds[i, placement[i]]
    queue_head[:] = -1
    busy[:] = False
    size = 0
    sequence = 0
    now = 0.0
    entry = 0  # entry tasks become runnable at 0 in index order, before any event
    while True:
        if entry < n:
            while entry < n and indegree[entry] > 0:
                entry += 1
            if entry == n:
                continue
            arrived = entry
            entry += 1
            from_heap = False
        elif size == 0:
            return now
        else:
            now = times[0]
            ident = keys[0] & 0xFFFFFFFF
            arrived = ident - n
            from_heap = True
        if arrived >= 0:  # a task became runnable: it starts, or it joins its device's queue
            device = task[arrived]["device"]
            begin = arrived
            if busy[device]:
                begin = -1
                task[arrived]["next"] = -1
                if queue_head[device] < 0:
                    queue_head[device] = arrived
                else:
                    task[queue_tail[device]]["next"] = arrived
                queue_tail[device] = arrived
        else:  # a task ended: its device takes the next in its queue first, then the outputs leave
            device = task[ident]["device"]
            begin = queue_head[device]
            if begin >= 0:
                queue_head[device] = task[begin]["next"]
        busy[device] = busy[device] & (arrived >= 0) | (begin >= 0)
        if begin >= 0:
            duration = task[begin]["seconds"]
            if sigma > 0.0:
                duration *= noise_factor(stream, begin, sigma)
            end = now + duration
            if traced:
                start[begin] = now
                finish[begin] = end
            if from_heap:  # the new event takes the place of the one that caused it
                sink(times, keys, size, end, sequence << 32 | np.int64(begin))
            else:
                rise(times, keys, size, end, sequence << 32 | np.int64(begin))
                size += 1
            sequence += 1
        elif from_heap:
            size -= 1
            sink(times, keys, size, times[size], keys[size])
        if arrived < 0:
            for e in range(pointer[ident], pointer[ident + 1]):
                v = target[e]
                child = task[v]
                other = child["device"]
                transfer = delay[device, other] + edge_bytes[e] * seconds_per_byte[device, other]
                if sigma > 0.0:
                    transfer *= noise_factor(stream, n + e, sigma)
                at = now + transfer
                if at >= child["ready"]:
                    child["ready"] = at
                    child["key"] = sequence << 32 | np.int64(n + v)
                sequence += 1
                child["missing"] -= 1
                if child["missing"] == 0:
                    rise(times, keys, size, child["ready"], child["key"])
                    size += 1


@numba.njit(cache=True, nogil=True)
def run_batch(placements, arrays, sigma, key, first, traced, outcome, makespan, start, finish):
    """Checks and simulates the rows of ``placements`` int16[B, V]; ``start``/``finish`` have B rows if ``traced``, else one."""
    n, d = arrays.seconds.shape
    frees = arrays.output.size > 0
    used = np.empty(d)
    scratch = Scratch(
        times=np.empty(n + 1),
        keys=np.empty(n + 1, dtype=np.int64),
        task=np.empty(n, dtype=TASK),
        queue_head=np.empty(d, dtype=np.int32),
        queue_tail=np.empty(d, dtype=np.int32),
        busy=np.empty(d, dtype=np.bool_),
    )
    for b in range(placements.shape[0]):
        placement = placements[b]
        outcome[b] = check(placement, arrays, used)
        row = b if traced else 0
        if outcome[b] == OK:
            stream = row_key(key, first + b)
            makespan[b] = run(placement.view(np.uint16), arrays, sigma, stream, traced or frees, start[row], finish[row], scratch)
            if frees and holds_too_much(placement, arrays, sigma, stream, start[row], finish[row], used):
                outcome[b] = OUT_OF_MEMORY
        if outcome[b] != OK:
            makespan[b] = np.nan
            start[row] = np.nan
            finish[row] = np.nan
