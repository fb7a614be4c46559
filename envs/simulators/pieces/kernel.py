"""How a placement falls into pieces, and when they run. Compiled; what pieces are is said in `cut`.

Arrays of a graph are CSR: ``pointer`` and ``source`` of what each node reads, ``out`` and ``target`` of who reads it.
"""

from __future__ import annotations

import numba
import numpy as np


@numba.njit(cache=True, nogil=True)
def _root(parent, v):
    while parent[v] != v:
        parent[v] = parent[parent[v]]
        v = parent[v]
    return v


@numba.njit(cache=True, nogil=True)
def _depths(placement, nodes, graph, early):
    """Which nodes end their piece for a reader elsewhere, and the most such ends on any path to each node."""
    order, pointer, source, _, _ = graph
    read = np.zeros(placement.size, dtype=np.bool_)
    for v in order:
        for e in range(pointer[v], pointer[v + 1]):
            u = source[e]
            if nodes[u] and nodes[v] and placement[u] != placement[v]:
                read[u] = True
    depth = np.zeros(placement.size, dtype=np.int64)
    for v in order:
        if nodes[v]:
            for e in range(pointer[v], pointer[v + 1]):
                u = source[e]
                if nodes[u]:
                    ends = read[u] if early else placement[u] != placement[v]
                    depth[v] = max(depth[v], depth[u] + ends)
    return read, depth


@numba.njit(cache=True, nogil=True)
def cut(placement, nodes, graph, early):
    """Convex pieces on one device each, int64[V]: no path leaves a piece and comes back to it; -1 outside ``nodes`` bool[V].

    A node's depth is the largest number of changes of device on any path to it. Nodes of one device and depth are a piece if they are
    connected or read the same, so edges between pieces always go to a greater depth. Numbers are in an order in which the pieces can run.
    ``early`` also ends a piece behind every node that another device reads, so that the other device need not wait for what its own
    device goes on with.
    """
    _, _, _, out, target = graph
    n = placement.size
    read, depth = _depths(placement, nodes, graph, early)
    parent = np.arange(n)
    for u in range(n):
        if not nodes[u]:
            continue
        for e in range(out[u], out[u + 1]):
            v = target[e]
            if not nodes[v]:
                continue
            ends = read[u] if early else placement[u] != placement[v]
            if not ends:
                if depth[u] == depth[v]:
                    parent[_root(parent, u)] = _root(parent, v)
                continue
            for k in range(out[u], e):  # readers of one result from another piece share a piece, so that they take it over once
                w = target[k]
                apart = read[u] if early else placement[u] != placement[w]
                if nodes[w] and apart and placement[w] == placement[v] and depth[w] == depth[v]:
                    parent[_root(parent, w)] = _root(parent, v)
                    break
    first = np.full(n, np.iinfo(np.int64).max)
    for v in range(n):
        if nodes[v]:
            r = _root(parent, v)
            first[r] = min(first[r], depth[v] * n + v)
    rank = np.full(n, -1, dtype=np.int64)
    count = 0
    for r in np.argsort(first):
        if first[r] == np.iinfo(np.int64).max:
            break
        rank[r] = count
        count += 1
    piece = np.full(n, -1, dtype=np.int64)
    for v in range(n):
        if nodes[v]:
            piece[v] = rank[_root(parent, v)]
    return piece, count


@numba.njit(cache=True, nogil=True)
def loads(placement, piece, count, graph, edge_bytes, seconds):
    """Of each piece: device, seconds of its operations, bytes that enter from other pieces (each result once) and that leave."""
    _, _, _, out, target = graph
    device, work = np.zeros(count, dtype=np.int64), np.zeros(count)
    enter, leave = np.zeros(count), np.zeros(count)
    stamp = np.full(count, -1, dtype=np.int64)
    for u in range(placement.size):
        p = piece[u]
        if p < 0:
            continue
        device[p] = placement[u]
        work[p] += seconds[u, placement[u]]
        most = 0.0
        for e in range(out[u], out[u + 1]):
            q = piece[target[e]]
            if q >= 0 and q != p:
                most = max(most, edge_bytes[e])
                if stamp[q] != u:
                    stamp[q] = u
                    enter[q] += edge_bytes[e]
        leave[p] += most
    return device, work, enter, leave


@numba.njit(cache=True, nogil=True)
def run(placement, piece, count, graph, device, takes, delay, contention, start, finish):
    """When pieces run that take ``takes`` seconds alone, float64[pieces], and ``contention`` times as long beside others."""
    _, _, _, out, target = graph
    missing, ready = np.zeros(count, dtype=np.int64), np.zeros(count)
    for u in range(placement.size):
        for e in range(out[u], out[u + 1]):
            if piece[u] >= 0 and piece[target[e]] >= 0 and piece[u] != piece[target[e]]:
                missing[piece[target[e]]] += 1
    members, heads = _members(piece, count)
    devices = delay.shape[0]
    running, left = np.full(devices, -1, dtype=np.int64), np.zeros(devices)
    waiting = np.ones(count, dtype=np.bool_)
    now, done = 0.0, 0
    while done < count:
        busy = 0
        for d in range(devices):
            if running[d] < 0:
                for p in range(count):
                    if waiting[p] and device[p] == d and missing[p] == 0 and ready[p] <= now:
                        running[d], left[d], start[p], waiting[p] = p, takes[p], now, False
                        break
            busy += running[d] >= 0
        slow = contention if busy > 1 else 1.0
        step = np.inf
        for d in range(devices):
            if running[d] >= 0:
                step = min(step, left[d] * slow)
        for p in range(count):
            if waiting[p] and missing[p] == 0 and ready[p] > now and running[device[p]] < 0:
                step = min(step, ready[p] - now)
        now += step
        for d in range(devices):
            p = running[d]
            if p < 0:
                continue
            left[d] -= step / slow
            if left[d] <= 1e-12:
                running[d] = -1
                finish[p] = now
                done += 1
                for i in range(heads[p], heads[p + 1]):
                    u = members[i]
                    for e in range(out[u], out[u + 1]):
                        q = piece[target[e]]
                        if q >= 0 and q != p:
                            missing[q] -= 1
                            ready[q] = max(ready[q], now + (delay[d, device[q]] if device[q] != d else 0.0))
    return now


@numba.njit(cache=True, nogil=True)
def _members(piece, count):
    """The nodes of each piece, as CSR."""
    heads = np.zeros(count + 1, dtype=np.int64)
    for p in piece:
        if p >= 0:
            heads[p + 1] += 1
    heads = np.cumsum(heads)
    members, at = np.empty(heads[-1], dtype=np.int64), heads[:-1].copy()
    for v in range(piece.size):
        if piece[v] >= 0:
            members[at[piece[v]]] = v
            at[piece[v]] += 1
    return members, heads


@numba.njit(cache=True, nogil=True)
def run_batch(placements, valid, nodes, graph, edge_bytes, seconds, launch, per_byte, delay, contention, early, start, finish):
    """Makespans of the valid rows of ``placements`` int16[B, V], float64[B]; fills ``start`` and ``finish`` if they have rows."""
    made = np.full(len(placements), np.nan)
    for b in range(len(placements)):
        if not valid[b]:
            continue
        placement = placements[b]
        piece, count = cut(placement, nodes, graph, early)
        device, work, enter, leave = loads(placement, piece, count, graph, edge_bytes, seconds)
        takes = work + launch[device] + (enter + leave) * per_byte[device]
        begin, end = np.zeros(count), np.zeros(count)
        made[b] = run(placement, piece, count, graph, device, takes, delay, contention, begin, end)
        if len(start):
            start[b], finish[b] = spread(piece, begin, end, placement, graph[0], seconds)
    return made


@numba.njit(cache=True, nogil=True)
def spread(piece, begin, end, placement, order, seconds):
    """Start and finish of operations that divide the time of their piece by their seconds, float64[V] each; NaN outside of pieces."""
    start, finish = np.full(piece.size, np.nan), np.full(piece.size, np.nan)
    total = np.zeros(begin.size)
    for v in range(piece.size):
        if piece[v] >= 0:
            total[piece[v]] += seconds[v, placement[v]] + 1e-12
    at = begin.copy()
    for v in order:
        p = piece[v]
        if p >= 0:
            start[v] = at[p]
            at[p] += (end[p] - begin[p]) * (seconds[v, placement[v]] + 1e-12) / total[p]
            finish[v] = at[p]
    return start, finish
