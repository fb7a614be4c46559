"""The compiled recursion over pairs of ideals; `methods.placing.pipeline` says what for."""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np


class Pieces(NamedTuple):
    """Pieces on each kind of device, as arrays; an *output* is one that another piece reads."""

    seconds: np.ndarray
    """float64[P, T]."""
    need: np.ndarray
    """Bytes, float64[P]."""
    allowed: np.ndarray
    """bool[P, T]."""
    memory: np.ndarray
    """float64[T]."""
    own_pointer: np.ndarray
    """CSR of the outputs that each piece makes."""
    own: np.ndarray
    read_pointer: np.ndarray
    """CSR of the outputs that each piece reads."""
    read: np.ndarray
    readers: np.ndarray
    """How many pieces read each output, int64[U]."""
    sending: np.ndarray
    """Seconds that a device which makes an output is busy sending it, float64[U, T]."""
    receiving: np.ndarray
    """Seconds that a device which reads an output of another is busy receiving it, float64[U, T]."""


@numba.njit(cache=True, nogil=True)
def best_splits(pointer, smaller, lacking, pieces, set_pointer, set_before, set_kind, limit):
    """Shortest period of every ideal over every set of devices, float64[S, N], and how: the last step's number and the ideal before it.

    Stages whose operations alone, or with their transfers, take longer than ``limit`` are left out.
    """
    n, sets = pointer.size - 1, set_pointer.size - 1
    p, kinds = pieces.seconds.shape
    value = np.full((sets, n), np.inf)
    step, before = np.full((sets, n), -1, dtype=np.int32), np.full((sets, n), -1, dtype=np.int32)
    value[:, 0] = 0.0
    seen = np.full(n, -1, dtype=np.int64)
    made, used = np.zeros(pieces.readers.size, dtype=np.bool_), np.zeros(pieces.readers.size, dtype=np.int64)
    at, edge, piece = np.empty(p + 1, dtype=np.int64), np.empty(p + 1, dtype=np.int64), np.empty(p + 1, dtype=np.int64)
    busy, moved, held = np.zeros((p + 1, kinds)), np.zeros((p + 1, kinds)), np.zeros(p + 1)
    able = np.ones((p + 1, kinds), dtype=np.bool_)
    for i in range(1, n):
        for s in range(sets):  # a device may be left empty
            for c in range(set_pointer[s], set_pointer[s + 1]):
                if value[set_before[c], i] < value[s, i]:
                    value[s, i], step[s, i], before[s, i] = value[set_before[c], i], c, i
        depth = 0
        at[0], edge[0] = i, pointer[i]
        while depth >= 0:
            e = edge[depth]
            if e == pointer[at[depth] + 1]:  # back: the piece leaves the stage
                if depth > 0:
                    _take_out(pieces, piece[depth], made, used)
                depth -= 1
                continue
            edge[depth] += 1
            j, q = smaller[e], lacking[e]
            if seen[j] == i:
                continue
            seen[j] = i
            below = depth + 1
            held[below] = held[depth] + pieces.need[q]
            some = False
            for t in range(kinds):
                busy[below, t] = busy[depth, t] + pieces.seconds[q, t]
                fits = held[below] <= pieces.memory[t] and busy[below, t] <= limit
                able[below, t] = able[depth, t] and pieces.allowed[q, t] and fits
                some = some or able[below, t]
            if not some:
                continue  # what is larger is no better
            moved[below] = moved[depth]
            _put_in(pieces, q, made, used, moved[below])
            depth = below
            at[depth], edge[depth], piece[depth] = j, pointer[j], q
            for s in range(sets):
                for c in range(set_pointer[s], set_pointer[s + 1]):
                    t = set_kind[c]
                    if able[depth, t]:
                        load = max(value[set_before[c], j], busy[depth, t] + moved[depth, t])
                        if load < value[s, i] and load <= limit:
                            value[s, i], step[s, i], before[s, i] = load, c, j
        # An empty device may be better still where a smaller set has only now got its value.
        for s in range(sets):
            for c in range(set_pointer[s], set_pointer[s + 1]):
                if value[set_before[c], i] < value[s, i]:
                    value[s, i], step[s, i], before[s, i] = value[set_before[c], i], c, i
    return value, step, before


@numba.njit(cache=True, nogil=True)
def _put_in(pieces, q, made, used, moved):
    """Adds a piece to the stage: its outputs are sent if anyone else reads them, its inputs received if they come from elsewhere."""
    for x in range(pieces.own_pointer[q], pieces.own_pointer[q + 1]):
        u = pieces.own[x]
        if used[u] > 0:
            moved -= pieces.receiving[u]
        if used[u] < pieces.readers[u]:
            moved += pieces.sending[u]
        made[u] = True
    for x in range(pieces.read_pointer[q], pieces.read_pointer[q + 1]):
        u = pieces.read[x]
        used[u] += 1
        if made[u]:
            if used[u] == pieces.readers[u]:
                moved -= pieces.sending[u]
        elif used[u] == 1:
            moved += pieces.receiving[u]


@numba.njit(cache=True, nogil=True)
def _take_out(pieces, q, made, used):
    for x in range(pieces.own_pointer[q], pieces.own_pointer[q + 1]):
        made[pieces.own[x]] = False
    for x in range(pieces.read_pointer[q], pieces.read_pointer[q + 1]):
        used[pieces.read[x]] -= 1
