"""The content cache: what a placement measured once need not be measured again. No queues and no hosts belong here."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from envs.problem.columns import Column, columns
from envs.problem.measurement import Rows

_FIRST_SLOTS = 1024
_ENTRY_BYTES = 200
"""Rough size of one entry without its placement: key object, dict slot, values."""


def kept_columns() -> dict[str, Column]:
    """What of a row is remembered: all but its trace, which whoever wants one gets measured."""
    return {name: c for name, c in columns(Rows).items() if not c.of_trace}


class MeasurementTable:
    """Rows by content, in memory: the context (problem, protocol) and the exact bytes of the placement are the key.

    A slot is handed out when its content is first asked for and is pending until `fill`; asking again gives the same slot,
    so equal requests in flight are measured once. Slots stay good inside `reading`. A table that has grown past
    ``limit_bytes`` starts empty again as soon as nobody reads: a cache may forget.
    """

    def __init__(self, limit_bytes: int = 256 << 20) -> None:
        self.limit_bytes = limit_bytes
        self.hits = 0
        self.misses = 0
        self._readers = 0
        self._columns = kept_columns()
        self._reset()

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Keep all slots good from `slots` until `read`."""
        if self._bytes > self.limit_bytes and not self._readers:
            self._reset()
        self._readers += 1
        try:
            yield
        finally:
            self._readers -= 1

    def _reset(self) -> None:
        self._index: dict[Hashable, dict[bytes, int]] = {}
        self._bytes = 0
        self._size = 0
        self._done = np.zeros(_FIRST_SLOTS, dtype=bool)
        self._host = np.empty(_FIRST_SLOTS, dtype=np.int32)
        self._hosts: list[str] = []
        self._numbers = {name: c.lacking(_FIRST_SLOTS) for name, c in self._columns.items() if c.numbers}
        # of numbers that only some rows have: which have
        self._having = {name: np.zeros(_FIRST_SLOTS, dtype=bool) for name, c in self._columns.items() if c.numbers and c.optional}
        self._others: dict[str, dict[int, Any]] = {name: {} for name, c in self._columns.items() if not c.numbers}

    def slots(self, context: Hashable, placements: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Slots of int16[B, V] placements, int64[B], and which of them this call made (and must measure), bool[B]."""
        index = self._index.setdefault(context, {})
        size = self._size
        keys = _keys(placements)
        slots = np.empty(len(keys), dtype=np.int64)
        new = np.zeros(len(keys), dtype=bool)
        for row, key in enumerate(keys):
            slot = index.get(key)
            if slot is None:
                index[key] = slot = size
                size += 1
                new[row] = True
            slots[row] = slot
        made = size - self._size
        self.misses += made
        self.hits += len(keys) - made
        self._bytes += made * (placements.shape[1] * 2 + _ENTRY_BYTES)
        self._grow(size)
        return slots, new

    def _grow(self, size: int) -> None:
        self._size = size
        capacity = len(self._done)
        if size > capacity:
            more = max(size - capacity, capacity)
            self._done = np.concatenate([self._done, np.zeros(more, dtype=bool)])
            self._host = np.concatenate([self._host, np.empty(more, dtype=np.int32)])
            self._numbers = {name: np.concatenate([old, self._columns[name].lacking(more)]) for name, old in self._numbers.items()}
            self._having = {name: np.concatenate([old, np.zeros(more, dtype=bool)]) for name, old in self._having.items()}

    def done(self, slots: np.ndarray) -> np.ndarray:
        """Which slots hold a measurement, bool[B]."""
        return self._done[slots]

    def fill(self, slots: np.ndarray, rows: Rows) -> None:
        """Store the measurements of pending slots."""
        if rows.host not in self._hosts:
            self._hosts.append(rows.host)
        self._host[slots] = self._hosts.index(rows.host)
        for name, c in self._columns.items():
            values = getattr(rows, name)
            if c.numbers and values is not None:
                self._numbers[name][slots] = values
            if c.numbers and c.optional:
                self._having[name][slots] = values is not None
            if not c.numbers and values is not None:
                self._others[name].update(zip(slots.tolist(), values, strict=True))
        self._done[slots] = True

    def retract(self, context: Hashable, placements: np.ndarray) -> None:
        """Make the table ask again for these placements: their measurement failed for reasons of infrastructure."""
        index = self._index.get(context, {})
        for key in _keys(placements):
            index.pop(key, None)

    def read(self, slots: np.ndarray) -> Rows:
        """The measurements of done slots, in order."""
        hosts = "+".join(sorted({self._hosts[i] for i in np.unique(self._host[slots])}))
        return Rows(host=hosts, **{name: self._column(name, c, slots) for name, c in self._columns.items()})

    def _column(self, name: str, c: Column, slots: np.ndarray) -> Any:
        """One column of what is in ``slots``; None if none of them has it."""
        if c.numbers:
            return self._numbers[name][slots] if not c.optional or self._having[name][slots].any() else None
        values, empty = self._others[name], c.lacking(1)[0]
        if not values or values.keys().isdisjoint(names := slots.tolist()):
            return None
        return tuple(values.get(slot, empty) for slot in names)


def _keys(placements: np.ndarray) -> list[bytes]:
    """The bytes of every row of int16[B, V]."""
    return np.ascontiguousarray(placements).view(f"V{placements.shape[1] * 2}").ravel().tolist()
