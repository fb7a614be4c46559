"""The content cache: what a placement measured once need not be measured again. No queues and no hosts belong here."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np

from envs.problem.measurement import Measurements

_ENTRY_BYTES = 200
"""Rough size of one entry without its placement: key object, dict slot, values."""


@dataclass(frozen=True)
class Rows:
    """The measured values of B placements, without what a whole batch shares."""

    outcome: np.ndarray
    """`Outcome` codes, int8[B]."""
    seconds: np.ndarray
    """Makespan, seconds, float64[B]."""
    objective: np.ndarray
    """float64[B]."""
    host: str
    """Fingerprints of what measured them, joined by ``+``."""
    samples: tuple[np.ndarray, ...] | None = None
    notes: tuple[str, ...] | None = None
    deviation: np.ndarray | None = None
    """As in `envs.problem.measurement.Measurements`, like the next."""
    compile_seconds: np.ndarray | None = None

    @staticmethod
    def of(measurements: Measurements) -> Rows:
        """The rows of a batch."""
        m = measurements
        return Rows(m.outcome, m.seconds, m.objective, m.host, m.samples, m.notes, m.deviation, m.compile_seconds)

    def cut(self, rows: slice) -> Rows:
        """Some of them."""
        return replace(self, **{key: value[rows] for key in _PER_ROW if (value := getattr(self, key)) is not None})


_PER_ROW = ("outcome", "seconds", "objective", "samples", "notes", "deviation", "compile_seconds")


def join(parts: Sequence[Rows]) -> Rows:
    """Consecutive rows as one; what only some parts have is empty, NaN or 0 in the others."""
    if len(parts) == 1:
        return parts[0]
    hosts = sorted({h for p in parts for h in p.host.split("+") if h})
    samples = notes = None
    if any(p.samples is not None for p in parts):
        empty = np.empty(0)
        samples = tuple(s for p in parts for s in (p.samples if p.samples is not None else (empty,) * len(p.outcome)))
    if any(p.notes is not None for p in parts):
        notes = tuple(s for p in parts for s in (p.notes if p.notes is not None else ("",) * len(p.outcome)))
    outcome, seconds, objective = (np.concatenate([getattr(p, key) for p in parts]) for key in ("outcome", "seconds", "objective"))
    deviation, compiling = _filled(parts, "deviation", np.nan), _filled(parts, "compile_seconds", 0.0)
    return Rows(outcome, seconds, objective, "+".join(hosts), samples, notes, deviation, compiling)


def _filled(parts: Sequence[Rows], key: str, missing: float) -> np.ndarray | None:
    """Values float64[B] of rows that may lack them; None if all do."""
    values = [getattr(p, key) for p in parts]
    if all(v is None for v in values):
        return None
    return np.concatenate([np.full(len(p.outcome), missing) if v is None else v for p, v in zip(parts, values, strict=True)])


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
        self._done = np.zeros(1024, dtype=bool)
        self._outcome = np.empty(1024, dtype=np.int8)
        self._values = np.empty((1024, 3))
        self._host = np.empty(1024, dtype=np.int32)
        self._hosts: list[str] = []
        self._extra: dict[int, tuple[np.ndarray | None, str | None]] = {}

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
            more = max(size, 2 * capacity)
            self._done = np.concatenate([self._done, np.zeros(more - capacity, dtype=bool)])
            for key in ("_outcome", "_values", "_host"):
                old = getattr(self, key)
                setattr(self, key, np.concatenate([old, np.empty((more - capacity, *old.shape[1:]), dtype=old.dtype)]))

    def done(self, slots: np.ndarray) -> np.ndarray:
        """Which slots hold a measurement, bool[B]."""
        return self._done[slots]

    def fill(self, slots: np.ndarray, rows: Rows) -> None:
        """Store the measurements of pending slots."""
        if rows.host not in self._hosts:
            self._hosts.append(rows.host)
        self._outcome[slots] = rows.outcome
        self._values[slots, 0] = rows.seconds
        self._values[slots, 1] = rows.objective
        self._values[slots, 2] = np.nan if rows.deviation is None else rows.deviation
        self._host[slots] = self._hosts.index(rows.host)
        self._done[slots] = True
        if rows.samples is not None or rows.notes is not None:
            for i, slot in enumerate(slots.tolist()):
                self._extra[slot] = (rows.samples[i] if rows.samples else None, rows.notes[i] if rows.notes else None)

    def retract(self, context: Hashable, placements: np.ndarray) -> None:
        """Make the table ask again for these placements: their measurement failed for reasons of infrastructure."""
        index = self._index.get(context, {})
        for key in _keys(placements):
            index.pop(key, None)

    def read(self, slots: np.ndarray) -> Rows:
        """The measurements of done slots, in order."""
        hosts = "+".join(sorted({self._hosts[i] for i in np.unique(self._host[slots])}))
        samples = notes = None
        if self._extra:
            extra = [self._extra.get(slot, (None, None)) for slot in slots.tolist()]
            samples = tuple(np.empty(0) if s is None else s for s, _ in extra)
            notes = tuple(n or "" for _, n in extra)
        seconds, objective, deviation = self._values[slots].T
        return Rows(self._outcome[slots], seconds, objective, hosts, samples, notes, None if np.isnan(deviation).all() else deviation)


def _keys(placements: np.ndarray) -> list[bytes]:
    """The bytes of every row of int16[B, V]."""
    return np.ascontiguousarray(placements).view(f"V{placements.shape[1] * 2}").ravel().tolist()


def measurements(problem_hash: str, placements: np.ndarray, rows: Rows, seed: int, protocol: str, first: int) -> Measurements:
    """Rows together with what their batch shares."""
    return Measurements(
        problem_hash=problem_hash,
        placements=placements,
        outcome=rows.outcome,
        seconds=rows.seconds,
        objective=rows.objective,
        seed=seed,
        protocol=protocol,
        host=rows.host,
        first=first,
        samples=rows.samples,
        notes=rows.notes,
        deviation=rows.deviation,
        compile_seconds=rows.compile_seconds,
    )
