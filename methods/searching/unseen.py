"""Neighbours of a placement that were not proposed before, drawn and remembered in compiled code. What becomes of them is for the search.

A placement is remembered by 64 bits of hash: of a million placements two have the same with probability 3e-8, and then one is not proposed.
"""

from __future__ import annotations

import numba
import numpy as np

from methods.placing.constraints import Fitting, fit_units
from methods.placing.moves import UnitGraph, draw_move

TRIES = 20
"""Times that a neighbour is drawn again if it was proposed before."""
_ROOM = 1 << 10
"""Places of an empty table."""


class Seen:
    """A set of placements."""

    def __init__(self, hashes: np.ndarray | None = None) -> None:
        self._table, self._count = np.zeros(_ROOM, dtype=np.uint64), 0
        if hashes is not None:
            self._reserve(len(hashes))
            self._count = _fill(self._table, hashes)

    def add(self, device: np.ndarray) -> bool:
        """Remembers the placement of units int16[U] on devices; False if it was there before."""
        self._reserve(1)
        new = bool(_note(self._table, device))
        self._count += new
        return new

    def hashes(self) -> np.ndarray:
        """Of all placements, uint64[N], ascending."""
        return np.sort(self._table[self._table != 0])

    def neighbours(
        self, rng: np.random.Generator, graph: UnitGraph, fitting: Fitting, device: np.ndarray, odds: np.ndarray, chain: np.ndarray,
        critical: float, n: int,
    ) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
        """``n`` placements int16[n, U] a move away from ``device`` int16[U] that fit the memory, and the moves' operators int64[n].

        Each is new, if a new one is found in `TRIES`, and is remembered.

        Args:
            rng: what moves are drawn from; it goes on as if they had been drawn one by one in Python.
            graph: of the problem.
            fitting: of the problem.
            device: of every unit in the current placement.
            odds: of the operators, adding up to 1.
            chain: units that a move begins with, with probability ``critical``; otherwise with any.
            critical: see there.
            n: how many.
        """
        self._reserve(n * TRIES)
        found, operators = np.empty((n, len(device)), dtype=np.int16), np.empty(n, dtype=np.int64)
        below = odds.cumsum()  # as Generator.choice does
        self._count += _draw(rng, graph, fitting, self._table, device, below / below[-1], chain, critical, found, operators)
        return found, operators

    def _reserve(self, more: int) -> None:
        """Keeps at least half of the table free."""
        size = len(self._table)
        while size < 2 * (self._count + more):
            size *= 2
        if size > len(self._table):
            table = np.zeros(size, dtype=np.uint64)
            _fill(table, self._table)
            self._table = table


@numba.njit(cache=True, nogil=True)
def _insert(table, key):
    place, last = np.int64(key & np.uint64(len(table) - 1)), len(table) - 1
    while table[place] != 0:
        if table[place] == key:
            return False
        place = (place + 1) & last
    table[place] = key
    return True


@numba.njit(cache=True, nogil=True)
def _fill(table, hashes):
    """Puts in all that are not 0 (an empty place of another table); how many."""
    count = 0
    for key in hashes:
        if key != 0:
            count += _insert(table, key)
    return count


@numba.njit(cache=True, nogil=True)
def _note(table, device):
    """Remembers one placement; whether it is new."""
    key = np.uint64(0xCBF29CE484222325)
    for i in range(0, len(device), 4):  # four devices of 16 bits at a time
        word = np.uint64(0)
        for d in device[i : i + 4]:
            word = (word << np.uint64(16)) | np.uint64(d & 0xFFFF)
        key = (key ^ word) * np.uint64(0x9E3779B97F4A7C15)
        key ^= key >> np.uint64(32)
    return _insert(table, key if key != 0 else np.uint64(1))


@numba.njit(cache=True, nogil=True)
def _draw(rng, graph, fitting, table, current, below, chain, critical, found, operators):
    """Fills ``found`` and ``operators``; how many of them are new."""
    count = 0
    for row in range(len(found)):
        for _ in range(TRIES):
            operators[row] = np.searchsorted(below, rng.random(), side="right")
            device = draw_move(graph, current, operators[row], rng, chain, critical)
            fit_units(device, fitting)
            found[row] = device
            if _note(table, device):
                count += 1
                break
    return count
