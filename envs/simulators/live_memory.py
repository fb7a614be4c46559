"""How many bytes each device holds at once while a placement runs, on networks that free outputs (`DeviceNetwork.live_memory`).

A device holds the parameters of its operations all the time. An output is held on its operation's device from the moment the operation
starts until it has been read by all readers there and has arrived wherever else it is read, and until the end of the run if nothing
reads it. A device that reads an output from elsewhere holds one copy, as large as the largest of the edges that bring it, from the moment
the operation ends until its own last reader ends. What is freed at some time is free for what begins at that time. Bytes are rounded
up, so that sums are exact in any order.
"""

from __future__ import annotations

import numba
import numpy as np

from envs.simulators.noise import noise_factor


@numba.njit(cache=True, nogil=True)
def holds_too_much(placement, arrays, sigma, stream, start, finish, peak):
    """Whether a run int16[V] with ``start`` and ``finish`` float64[V] exceeds a device's memory; fills ``peak`` float64[D].

    ``arrays`` are the problem's `envs.simulators.fifo.kernel.KernelArrays`. Where everything together fits, ``peak`` is that sum and no
    times are looked at.
    """
    pointer, target, edge_bytes = arrays.pointer, arrays.target, arrays.edge_bytes
    delay, seconds_per_byte = arrays.delay, arrays.seconds_per_byte
    parameters, output, memory = arrays.need, arrays.output, arrays.memory
    n, d = placement.size, memory.size
    copied, until = np.zeros(d), np.zeros(d)
    peak[:] = 0.0
    count = 0
    for v in range(n):  # what if nothing were ever freed?
        home = placement[v]
        peak[home] += np.ceil(parameters[v]) + np.ceil(output[v])
        count += output[v] > 0.0
        for e in range(pointer[v], pointer[v + 1]):
            k = placement[target[e]]
            if k != home and edge_bytes[e] > copied[k]:
                count += copied[k] == 0.0
                peak[k] += np.ceil(edge_bytes[e]) - np.ceil(copied[k])
                copied[k] = edge_bytes[e]
        for e in range(pointer[v], pointer[v + 1]):
            copied[placement[target[e]]] = 0.0
    if (peak <= memory).all():
        return False
    begin, end = np.empty(count), np.empty(count)
    size, where = np.empty(count), np.empty(count, dtype=np.int32)
    at = 0
    for v in range(n):
        home = placement[v]
        last = finish[v] if pointer[v + 1] > pointer[v] else np.inf
        for e in range(pointer[v], pointer[v + 1]):
            k = placement[target[e]]
            if k == home:
                last = max(last, finish[target[e]])
                continue
            transfer = delay[home, k] + edge_bytes[e] * seconds_per_byte[home, k]
            if sigma > 0.0:
                transfer *= noise_factor(stream, n + e, sigma)
            last = max(last, finish[v] + transfer)
            copied[k] = max(copied[k], edge_bytes[e])
            until[k] = max(until[k], finish[target[e]])
        for e in range(pointer[v], pointer[v + 1]):
            k = placement[target[e]]
            if copied[k] > 0.0:
                begin[at], end[at], size[at], where[at] = finish[v], until[k], np.ceil(copied[k]), k
                at += 1
            copied[k] = until[k] = 0.0
        if output[v] > 0.0:
            begin[at], end[at], size[at], where[at] = start[v], last, np.ceil(output[v]), home
            at += 1
    return _peaks(placement, parameters, memory, peak, begin, end, size, where)


@numba.njit(cache=True, nogil=True)
def _peaks(placement, parameters, memory, peak, begin, end, size, where):
    """The largest sums of ``size`` over intervals [begin, end) on each device, on top of its parameters."""
    now = np.zeros(memory.size)
    for v in range(placement.size):
        now[placement[v]] += np.ceil(parameters[v])
    peak[:] = now
    opening, closing = np.argsort(begin, kind="mergesort"), np.argsort(end, kind="mergesort")
    free = 0
    for i in opening:
        while free < len(end) and end[closing[free]] <= begin[i]:
            j = closing[free]
            if end[j] > begin[j]:
                now[where[j]] -= size[j]
            free += 1
        if end[i] > begin[i]:
            k = where[i]
            now[k] += size[i]
            peak[k] = max(peak[k], now[k])
    return (peak > memory).any()
