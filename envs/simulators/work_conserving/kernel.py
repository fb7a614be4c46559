"""The compiled simulator of a work-conserving system (DOPPLER, Algorithms 1 and 2). Same bits as the SimPy reference.

A task is an operation (its index v) or a transfer of a result to another device (V + the position, in outgoing-edge order, of
the first edge that wants it). A resource is a device (0..D-1, one slot; devices with the same processors use the first one's) or a link
(D.., as many slots as channels).

Each resource has a queue of ready tasks ordered by (priority, order of becoming ready). Priorities are known beforehand, so they are
counted through (their *rank*): a queue is a list of tasks for every rank, in order of becoming ready, and a bit for every rank that says
whether there are some. Running tasks are a heap ordered by (time of their end, order of starting).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numba
import numpy as np

from envs.problem.compiled import loop, part
from envs.simulators.fifo.kernel import INVALID, OK, OUT_OF_MEMORY, rise, sink
from envs.simulators.noise import noise_factor, row_key


@loop
def duration_factor(stream, counter, sigma):
    """A log-normal factor of mean 1 whose logarithm has standard deviation ``sigma`` (the stochastic duration model)."""
    if sigma == 0.0:
        return 1.0
    u = noise_factor(stream, 2 * counter, 1.0) * 0.5  # uniform in [0, 1)
    w = noise_factor(stream, 2 * counter + 1, 1.0) * 0.5
    normal = math.sqrt(-2.0 * math.log(1.0 - u)) * math.cos(2.0 * math.pi * w)
    return math.exp(sigma * normal - 0.5 * sigma * sigma)


class Queues(NamedTuple):
    """Ready tasks of R resources, of P ranks."""

    first: np.ndarray
    """The next task of each resource, -1 if there is none, int64[R]."""
    rank: np.ndarray
    """Rank of each task, set when it joins, int64[V + E]."""
    turn: np.ndarray
    """When each task joined, int64[V + E]."""
    after: np.ndarray
    """The next task of the same resource and rank, -1 at the end, int64[V + E]."""
    head: np.ndarray
    """The first task of each rank, int32[R, P]; of a meaning only where there is one, as is `tail`."""
    tail: np.ndarray
    """The last task of each rank, int32[R, P]."""
    words: np.ndarray
    """A bit for every rank with a task, uint64[R, P / 64]."""
    lowest: np.ndarray
    """No word before this one has a bit, int64[R]."""


_DE_BRUIJN = np.uint64(0x03F79D71B4CB0A89)
_PLACE = np.zeros(64, dtype=np.int64)
for _k in range(64):
    _PLACE[(int(_DE_BRUIJN) << _k & 0xFFFFFFFFFFFFFFFF) >> 58] = _k


@numba.njit(cache=True, nogil=True)
def _queues(resources, tasks, ranks):
    """Queues without a task."""
    words = (ranks + 63) // 64
    return Queues(
        np.empty(resources, np.int64), np.empty(tasks, np.int64), np.empty(tasks, np.int64), np.empty(tasks, np.int64),
        np.empty((resources, ranks), np.int32), np.empty((resources, ranks), np.int32), np.empty((resources, words), np.uint64),
        np.empty(resources, np.int64),
    )  # fmt: skip


@loop
def _clear(queues):
    queues.first[:] = -1
    queues.words[:] = 0
    queues.lowest[:] = queues.words.shape[1]


@part
def _enqueue(task, resource, rank, sequence, queues):
    """A task that has become ready joins the queue of its resource."""
    word, bit = rank >> 6, np.uint64(1) << np.uint64(rank & 63)
    queues.rank[task], queues.turn[task], queues.after[task] = rank, sequence, -1
    if queues.words[resource, word] & bit:
        queues.after[queues.tail[resource, rank]] = task
    else:
        queues.words[resource, word] |= bit
        queues.head[resource, rank] = task
        queues.lowest[resource] = min(queues.lowest[resource], word)
        if queues.first[resource] < 0 or rank < queues.rank[queues.first[resource]]:
            queues.first[resource] = task
    queues.tail[resource, rank] = task


@part
def _dequeue(resource, queues):
    """Takes the next task out of the queue of a resource that has one."""
    task = queues.first[resource]
    rank, after = queues.rank[task], queues.after[task]
    if after >= 0:
        queues.head[resource, rank] = after
        queues.first[resource] = after
        return task
    words, word = queues.words[resource], queues.lowest[resource]
    words[rank >> 6] &= ~(np.uint64(1) << np.uint64(rank & 63))
    while word < len(words) and words[word] == 0:
        word += 1
    queues.lowest[resource] = word
    queues.first[resource] = -1
    if word < len(words):
        lowest = words[word] & (~words[word] + np.uint64(1))
        queues.first[resource] = queues.head[resource, word * 64 + _PLACE[(lowest * _DE_BRUIJN) >> np.uint64(58)]]
    return task


@loop
def _plan(placement, free, pointer, target, edge_bytes, priority, levels, synchronous, memory_use, scratch, phase_left):
    """Which edges share a transfer, its bytes, priority and phase, transfers of each node, references, and what is held from the start."""
    shared, size, rank, references, missing, held, last, stamp, sends = scratch
    output_bytes, parameter_bytes = memory_use
    n = placement.size
    missing[:] = 0
    sends[:] = 0
    held[:] = 0.0
    stamp[:] = -1
    phase_left[:] = 0
    for v in range(n):
        home = placement[v]
        held[home] += parameter_bytes[v]
        if not free[v]:
            phase_left[2 * levels[v]] += 1
            references[v] = 0  # of consumers that wait; what has none is kept to the end
        for e in range(pointer[v], pointer[v + 1]):
            c = target[e]
            device = placement[c]
            shared[e] = -1
            if free[v]:
                if stamp[device] != v:
                    stamp[device] = v
                    held[device] += output_bytes[v]
                continue
            missing[c] += 1
            if device == home:
                references[v] += 1
                continue
            if stamp[device] != v:
                stamp[device] = v
                last[device] = e
                size[e] = edge_bytes[e]
                rank[e] = priority[v] if synchronous else priority[c]
                references[n + e] = 0
                references[v] += 1
                sends[v] += 1
                phase_left[2 * levels[v] + 1] += 1
            head = last[device]
            shared[e] = head
            references[n + head] += 1
            size[head] = max(size[head], edge_bytes[e])
            if not synchronous:
                rank[head] = min(rank[head], priority[c])


@part
def _release_inputs(v, n, home, placement, source, in_pointer, in_position, free, shared, references, output_bytes, held):
    """An operation has ended: copies of its inputs that nobody else waits for are freed."""
    for i in range(in_pointer[v], in_pointer[v + 1]):
        e = in_position[i]
        u = source[e]
        if not free[u]:
            owner = u if placement[u] == home else n + shared[e]
            references[owner] -= 1
            if references[owner] == 0:
                held[home] -= output_bytes[u]


@part
def _make_ready(
    task, v, n, placement, pointer, target, shared, missing, priority, rank, processor, send_on, devices, sequence, queues
):  # fmt: skip
    """The end of a task makes consumers on its device ready and, of an operation, its transfers; returns the next sequence number.

    ``send_on`` int64[D] is the link resource, counted from the first, of a transfer from the device of v to each device.
    """
    here = -1 if task < n else task - n
    for e in range(pointer[v], pointer[v + 1]):
        if shared[e] == here:
            c = target[e]
            missing[c] -= 1
            if missing[c] == 0:
                _enqueue(c, processor[placement[c]], priority[c], sequence, queues)
                sequence += 1
    if task < n:
        for e in range(pointer[v], pointer[v + 1]):
            if shared[e] == e:
                _enqueue(n + e, devices + send_on[placement[target[e]]], rank[e], sequence, queues)
                sequence += 1
    return sequence


@part
def _costs(task, n, placement, source, target, size, sends, overhead, seconds, delay, seconds_per_byte):
    """The node whose result a task makes or moves, the device that holds it then, and the task's mean duration."""
    if task < n:
        return task, placement[task], seconds[task, placement[task]] + sends[task] * overhead
    v, device = source[task - n], placement[target[task - n]]
    return v, device, delay[placement[v], device] + size[task - n] * seconds_per_byte[placement[v], device]


@part
def _next_phase(phase, phase_left):
    """The first phase from ``phase`` on in which something is left to do, or the last."""
    while phase < phase_left.size - 1 and phase_left[phase] == 0:
        phase += 1
    return phase


@part
def _must_wait(r, rivals, slots, queues):
    """Whether a device that shares some processors with ``r`` is busy, or has a task that comes before the next one of ``r``."""
    if r >= len(rivals):
        return False
    mine = queues.first[r]
    for other in range(len(rivals)):
        if rivals[r, other]:
            if slots[other] == 0:
                return True
            head = queues.first[other]
            if head >= 0:
                here, there = queues.rank[mine], queues.rank[head]
                if there < here or (there == here and queues.turn[head] < queues.turn[mine]):
                    return True
    return False


@loop
def run(placement, arrays, discipline, sigma, stream, start, finish, work):
    """Simulates one valid placement; fills ``start`` and ``finish`` float64[V + E], transfers last; priorities int64[V] are ranks.

    Returns the outcome code and the makespan in seconds.
    """
    (pointer, target, source, edge_bytes, in_pointer, in_position, free, order, levels, seconds, delay, seconds_per_byte,
     output_bytes, parameter_bytes, memory, limited) = arrays  # fmt: skip
    priority, stations, links, channels, synchronous, overhead = discipline
    scratch, phase_left, queues, slots, times, keys = work
    shared, size, rank, references, missing, held, _, _, sends = scratch
    (processor, rivals), (n, devices) = stations, seconds.shape
    _plan(placement, free, pointer, target, edge_bytes, priority, levels, synchronous, (output_bytes, parameter_bytes), scratch, phase_left)
    start[:] = finish[:] = np.nan
    for d in range(devices * limited):
        if held[d] > memory[d]:
            return OUT_OF_MEMORY, np.nan
    _clear(queues)
    slots[:devices], slots[devices:] = 1, channels
    running, sequence, now = 0, 0, 0.0
    phase = _next_phase(0, phase_left)
    for v in order:
        if not free[v] and missing[v] == 0:
            _enqueue(v, processor[placement[v]], priority[v], sequence, queues)
            sequence += 1
    low, high, extra, send = 0, slots.size, -1, -1  # which resources may start something: low..high, then extra, then sends of send
    while True:
        # Dispatch: every resource that this event concerns starts what it can.
        r = low
        edge = pointer[send]  # of no meaning where nothing is sent
        while True:
            if r >= high:
                if extra >= 0:
                    r, extra = extra, -1
                    high = r + 1
                elif send >= 0:
                    while edge < pointer[send + 1] and shared[edge] != edge:
                        edge += 1
                    if edge == pointer[send + 1]:
                        break
                    r = devices + links[placement[send], placement[target[edge]]]
                    high = r + 1
                    edge += 1
                else:
                    break
            while slots[r] > 0 and queues.first[r] >= 0 and not _must_wait(r, rivals, slots, queues):
                task = queues.first[r]
                if synchronous:
                    stage = 2 * levels[task] if task < n else 2 * levels[source[task - n]] + 1
                    if stage != phase:
                        break
                _dequeue(r, queues)
                v, device, mean = _costs(task, n, placement, source, target, size, sends, overhead, seconds, delay, seconds_per_byte)
                if limited:
                    held[device] += output_bytes[v]
                    if held[device] > memory[device]:
                        return OUT_OF_MEMORY, np.nan
                slots[r] -= 1
                start[task] = now
                finish[task] = now + mean * duration_factor(stream, task, sigma)
                rise(times, keys, running, finish[task], sequence << 32 | np.int64(task))
                running += 1
                sequence += 1
            r += 1
        if running == 0:
            return OK, now
        # The next end of a task.
        now, task = times[0], keys[0] & 0xFFFFFFFF
        running -= 1
        sink(times, keys, running, times[running], keys[running])
        v = task if task < n else source[task - n]
        home = placement[v]
        send = -1
        if task < n:
            r = processor[home]
            slots[r] += 1
            if limited:
                _release_inputs(v, n, home, placement, source, in_pointer, in_position, free, shared, references, output_bytes, held)
            low, high, extra, send = (r if rivals.size == 0 else 0), (r + 1 if rivals.size == 0 else devices), -1, v
        else:
            device = placement[target[task - n]]
            r = devices + links[home, device]
            slots[r] += 1
            if limited:
                references[v] -= 1
                if references[v] == 0:
                    held[home] -= output_bytes[v]
            low, high, extra = r, r + 1, processor[device]
        sequence = _make_ready(
            task, v, n, placement, pointer, target, shared, missing, priority, rank, processor, links[home], devices, sequence, queues,
        )  # fmt: skip
        if synchronous:
            phase_left[2 * levels[v] + (0 if task < n else 1)] -= 1
            if phase_left[phase] == 0:  # the barrier: everybody may start
                phase = _next_phase(phase, phase_left)
                low, high, extra, send = 0, slots.size, -1, -1


@numba.njit(cache=True, nogil=True)
def run_batch(placements, valid, arrays, discipline, sigma, key, first, traced, outcome, makespan, start, finish):
    """Simulates the valid rows of ``placements`` uint16[B, V]; ``start``/``finish`` have B rows of V + E if ``traced``, else one."""
    priority, _, links, _, _, _ = discipline
    n, devices = arrays[9].shape
    edges = arrays[1].size
    scratch = (
        np.empty(edges, dtype=np.int64), np.empty(edges), np.empty(edges, dtype=np.int64), np.empty(n + edges, dtype=np.int32),
        np.empty(n, dtype=np.int32), np.empty(devices), np.empty(devices, dtype=np.int64), np.empty(devices, dtype=np.int64),
        np.empty(n, dtype=np.int32),
    )  # fmt: skip
    resources = devices + links.max() + 1
    work = (
        scratch, np.empty(2 * arrays[8].max() + 2, dtype=np.int64), _queues(resources, n + edges, priority.max() + 1),
        np.empty(resources, dtype=np.int64), np.empty(n + edges + 1), np.empty(n + edges + 1, dtype=np.int64),
    )  # fmt: skip
    for b in range(placements.shape[0]):
        row = b if traced else 0
        if valid[b]:
            stream = row_key(key, first + b)
            outcome[b], makespan[b] = run(placements[b], arrays, discipline, sigma, stream, start[row], finish[row], work)
        else:
            outcome[b], makespan[b] = INVALID, np.nan
            start[row] = np.nan
            finish[row] = np.nan
