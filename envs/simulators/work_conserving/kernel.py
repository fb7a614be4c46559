"""The compiled simulator of a work-conserving system (DOPPLER, Algorithms 1 and 2). Same bits as the SimPy reference.

A task is an operation (its index v) or a transfer of a result to another device (V + the position, in outgoing-edge order, of
the first edge that wants it). A resource is a device (0..D-1, one slot; devices with the same processors use the first one's) or a link
(D.., as many slots as channels). Each
resource has a queue of ready tasks ordered by (priority, order of becoming ready); running tasks are ordered by (time of their
end, order of starting). All of these are skew heaps over the same two arrays of children, as a task is in one at a time.
"""

from __future__ import annotations

import math

import numba
import numpy as np

from envs.simulators.noise import noise_factor, row_key

OK, INVALID, OUT_OF_MEMORY = 0, 1, 2  # envs.problem.measurement.Outcome as plain numbers for compiled code


@numba.njit(cache=True, nogil=True)
def duration_factor(stream, counter, sigma):
    """A log-normal factor of mean 1 whose logarithm has standard deviation ``sigma`` (the stochastic duration model)."""
    if sigma == 0.0:
        return 1.0
    u = noise_factor(stream, 2 * counter, 1.0) * 0.5  # uniform in [0, 1)
    w = noise_factor(stream, 2 * counter + 1, 1.0) * 0.5
    normal = math.sqrt(-2.0 * math.log(1.0 - u)) * math.cos(2.0 * math.pi * w)
    return math.exp(sigma * normal - 0.5 * sigma * sigma)


@numba.njit(cache=True, nogil=True)
def _merge(a, b, first, second, left, right):
    """The skew heap of two; -1 is empty. Iterative, by threading the merged right path."""
    if a < 0:
        return b
    if b < 0:
        return a
    root = -1
    parent = -1
    while a >= 0:
        if first[b] < first[a] or (first[b] == first[a] and second[b] < second[a]):
            a, b = b, a
        if root < 0:
            root = a
        else:
            left[parent] = a
        parent = a
        # The old left child moves to the right; the merge goes on in what was the right child.
        rest = right[a]
        right[a] = left[a]
        a = rest
    left[parent] = b
    return root


@numba.njit(cache=True, nogil=True)
def _plan(placement, free, pointer, target, edge_bytes, priority, levels, synchronous, memory_use, scratch, phase_left):
    """Which edges share a transfer, its bytes, priority and phase, references, and what is held from the start."""
    shared, size, rank, references, missing, held, last, stamp = scratch
    output_bytes, parameter_bytes = memory_use
    n = placement.size
    missing[:] = 0
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
                phase_left[2 * levels[v] + 1] += 1
            head = last[device]
            shared[e] = head
            references[n + head] += 1
            size[head] = max(size[head], edge_bytes[e])
            if not synchronous:
                rank[head] = min(rank[head], priority[c])


@numba.njit(cache=True, nogil=True)
def _enqueue(task, resource, rank, sequence, queue, first, second, left, right):
    """A task that has become ready joins the queue of its resource."""
    left[task] = right[task] = -1
    first[task], second[task] = rank, sequence
    queue[resource] = _merge(queue[resource], task, first, second, left, right)


@numba.njit(cache=True, nogil=True)
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


@numba.njit(cache=True, nogil=True)
def _make_ready(
    task, v, n, placement, pointer, target, shared, missing, priority, rank, processor, send_on, devices, sequence, queue, heap
):  # fmt: skip
    """The end of a task makes consumers on its device ready and, of an operation, its transfers; returns the next sequence number.

    ``send_on`` int64[D] is the link resource, counted from the first, of a transfer from the device of v to each device.
    """
    first, second, left, right = heap
    here = -1 if task < n else task - n
    for e in range(pointer[v], pointer[v + 1]):
        if shared[e] == here:
            c = target[e]
            missing[c] -= 1
            if missing[c] == 0:
                _enqueue(c, processor[placement[c]], priority[c], sequence, queue, first, second, left, right)
                sequence += 1
    if task < n:
        for e in range(pointer[v], pointer[v + 1]):
            if shared[e] == e:
                _enqueue(n + e, devices + send_on[placement[target[e]]], rank[e], sequence, queue, first, second, left, right)
                sequence += 1
    return sequence


@numba.njit(cache=True, nogil=True)
def _costs(task, n, placement, source, target, size, seconds, delay, seconds_per_byte):
    """The node whose result a task makes or moves, the device that holds it then, and the task's mean duration."""
    if task < n:
        return task, placement[task], seconds[task, placement[task]]
    v, device = source[task - n], placement[target[task - n]]
    return v, device, delay[placement[v], device] + size[task - n] * seconds_per_byte[placement[v], device]


@numba.njit(cache=True, nogil=True)
def _next_phase(phase, phase_left):
    """The first phase from ``phase`` on in which something is left to do, or the last."""
    while phase < phase_left.size - 1 and phase_left[phase] == 0:
        phase += 1
    return phase


@numba.njit(cache=True, nogil=True)
def _must_wait(r, rivals, slots, queue, first, second):
    """Whether a device that shares some processors with ``r`` is busy, or has a task that comes before the next one of ``r``."""
    if r >= len(rivals):
        return False
    mine = queue[r]
    for other in range(len(rivals)):
        if rivals[r, other]:
            if slots[other] == 0:
                return True
            head = queue[other]
            if head >= 0 and (first[head] < first[mine] or (first[head] == first[mine] and second[head] < second[mine])):
                return True
    return False


@numba.njit(cache=True, nogil=True)
def run(placement, arrays, priority, stations, links, channels, synchronous, sigma, stream, start, finish, work):
    """Simulates one valid placement; fills ``start`` and ``finish`` float64[V + E] (operations, then transfers).

    Returns the outcome code and the makespan in seconds.
    """
    (pointer, target, source, edge_bytes, in_pointer, in_position, free, order, levels, seconds, delay, seconds_per_byte,
     output_bytes, parameter_bytes, memory, limited) = arrays  # fmt: skip
    scratch, phase_left, queue, slots, first, second, left, right = work
    shared, size, rank, references, missing, held, _, _ = scratch
    (processor, rivals), (n, devices) = stations, seconds.shape
    _plan(placement, free, pointer, target, edge_bytes, priority, levels, synchronous, (output_bytes, parameter_bytes), scratch, phase_left)
    start[:] = finish[:] = np.nan
    if limited and (held > memory).any():
        return OUT_OF_MEMORY, np.nan
    queue[:], slots[:devices], slots[devices:] = -1, 1, channels
    running, sequence, now = -1, 0, 0.0
    phase = _next_phase(0, phase_left)
    for v in order:
        if not free[v] and missing[v] == 0:
            _enqueue(v, processor[placement[v]], priority[v], sequence, queue, first, second, left, right)
            sequence += 1
    low, high, extra, send = 0, queue.size, -1, -1  # which resources may start something: low..high, then extra, then sends of send
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
            while slots[r] > 0 and queue[r] >= 0 and not _must_wait(r, rivals, slots, queue, first, second):
                task = queue[r]
                if synchronous:
                    stage = 2 * levels[task] if task < n else 2 * levels[source[task - n]] + 1
                    if stage != phase:
                        break
                queue[r] = _merge(left[task], right[task], first, second, left, right)
                v, device, mean = _costs(task, n, placement, source, target, size, seconds, delay, seconds_per_byte)
                if limited:
                    held[device] += output_bytes[v]
                    if held[device] > memory[device]:
                        return OUT_OF_MEMORY, np.nan
                slots[r] -= 1
                start[task] = now
                first[task] = now + mean * duration_factor(stream, task, sigma)
                finish[task] = first[task]
                second[task] = sequence
                sequence += 1
                left[task] = right[task] = -1
                running = _merge(running, task, first, second, left, right)
            r += 1
        if running < 0:
            return OK, now
        # The next end of a task.
        task = running
        running = _merge(left[task], right[task], first, second, left, right)
        now = first[task]
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
            task, v, n, placement, pointer, target, shared, missing, priority, rank, processor, links[home], devices, sequence,
            queue, (first, second, left, right),
        )  # fmt: skip
        if synchronous:
            phase_left[2 * levels[v] + (0 if task < n else 1)] -= 1
            if phase_left[phase] == 0:  # the barrier: everybody may start
                phase = _next_phase(phase, phase_left)
                low, high, extra, send = 0, queue.size, -1, -1


@numba.njit(cache=True, nogil=True)
def run_batch(placements, valid, arrays, discipline, sigma, key, first, traced, outcome, makespan, start, finish):
    """Simulates the valid rows of ``placements`` uint16[B, V]; ``start``/``finish`` have B rows of V + E if ``traced``, else one."""
    priority, stations, links, channels, synchronous = discipline
    n, devices = arrays[9].shape
    edges = arrays[1].size
    scratch = (
        np.empty(edges, dtype=np.int64), np.empty(edges), np.empty(edges), np.empty(n + edges, dtype=np.int32),
        np.empty(n, dtype=np.int32), np.empty(devices), np.empty(devices, dtype=np.int64), np.empty(devices, dtype=np.int64),
    )  # fmt: skip
    resources = devices + links.max() + 1
    work = (
        scratch, np.empty(2 * arrays[8].max() + 2, dtype=np.int64), np.empty(resources, dtype=np.int64),
        np.empty(resources, dtype=np.int64), np.empty(n + edges), np.empty(n + edges, dtype=np.int64),
        np.empty(n + edges, dtype=np.int64), np.empty(n + edges, dtype=np.int64),
    )  # fmt: skip
    for b in range(placements.shape[0]):
        row = b if traced else 0
        if valid[b]:
            stream = row_key(key, first + b)
            outcome[b], makespan[b] = run(
                placements[b], arrays, priority, stations, links, channels, synchronous, sigma, stream, start[row], finish[row], work
            )
        else:
            outcome[b], makespan[b] = INVALID, np.nan
            start[row] = np.nan
            finish[row] = np.nan
