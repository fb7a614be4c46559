"""The store of what was measured for real: it survives restarts and has one writer, the sweep's reward service. What is looked up
in memory first is ``orchestration/rewards/measurement_table.py``."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Hashable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from envs.problem.columns import Column
from envs.problem.errors import InputError
from envs.problem.measurement import Outcome, Rows
from orchestration.rewards.measurement_table import kept_columns
from orchestration.specs.canonical import canonical


def measurement_context(problem_hash: str, protocol: str, key: str, machine: str) -> tuple[str, ...]:
    """What a real measurement depends on besides its placement. Keys are different machines; ``machine`` is the fingerprint if
    the key (``dataflow``) names none."""
    return (problem_hash, protocol, key, machine) if machine else (problem_hash, protocol, key)


class MeasurementStore:
    """Rows by context (problem, protocol, key) and the exact bytes of the placement, in a SQLite file, each with a checksum.

    Raises:
        InputError: if the file is no database, or a damaged one, or a row is not what was written, or of another version.
    """

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._columns = kept_columns()
        names = ", ".join(self._columns)
        marks = ", ".join("?" for _ in self._columns)
        self._read = f"SELECT host, {names} FROM measurements WHERE context = ? AND placement = ?"
        self._write = f"INSERT OR IGNORE INTO measurements (context, placement, host, {names}, checksum) VALUES (?, ?, ?, {marks}, ?)"
        try:
            # An actor's methods may run in different threads, one at a time.
            self._connection = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
        except sqlite3.Error as error:
            raise _damage(path, error) from None
        try:
            self._connection.execute("PRAGMA journal_mode=WAL")
            self._connection.execute("PRAGMA synchronous=NORMAL")
            _prepare(self._connection, self._columns, path)
            self._check(path, names)
        except (sqlite3.Error, OverflowError, UnicodeDecodeError) as error:
            self._connection.close()
            raise _damage(path, error) from None
        except InputError:
            self._connection.close()
            raise

    def _check(self, path: Path, names: str) -> None:
        """Every page and every row; a row of before there were checksums has none."""
        (found,) = self._connection.execute("PRAGMA quick_check(1)").fetchone()
        if found != "ok":
            raise _damage(path, found)
        with closing(self._connection.execute(f"SELECT checksum, context, placement, host, {names} FROM measurements")) as rows:
            for number, (checksum, *row) in enumerate(rows, 1):
                if checksum not in (None, _checksum(row, self._columns)):
                    raise _damage(path, f"the checksum of row {number} does not fit")

    def read(self, context: Hashable, placements: np.ndarray) -> tuple[np.ndarray, list[Rows]]:
        """Which of int16[B, V] placements are known, bool[B], and the row of each of these in order."""
        name, found = canonical(context), np.zeros(len(placements), dtype=bool)
        rows: list[Rows] = []
        for i, placement in enumerate(placements):
            row = self._connection.execute(self._read, (name, placement.tobytes())).fetchone()
            if row is not None:
                found[i] = True
                values = {key: _read_value(c, v) for (key, c), v in zip(self._columns.items(), row[1:], strict=True)}
                rows.append(Rows(host=row[0], **values))
        return found, rows

    def write(self, context: Hashable, placements: np.ndarray, rows: Rows) -> None:
        """Keep rows; those of which nothing is known are left out, and what was measured before stands."""
        name, given = canonical(context), {key: getattr(rows, key) for key in self._columns}
        kept = [
            (
                name, placement.tobytes(), rows.host,
                *(None if given[key] is None else _stored(c, given[key][i]) for key, c in self._columns.items()),
            )
            for i, placement in enumerate(placements)
            if rows.outcome[i] != Outcome.INFRASTRUCTURE
        ]  # fmt: skip
        values = [(*row, _checksum(row, self._columns)) for row in kept]
        with self._connection:  # all of them or none
            self._connection.execute("BEGIN")
            self._connection.executemany(self._write, values)

    def __len__(self) -> int:
        return int(self._connection.execute("SELECT COUNT(*) FROM measurements").fetchone()[0])

    def close(self) -> None:
        """Give up the file, which one process may have open at a time."""
        self._connection.close()


RENAMED = {"note": "notes"}
"""Columns of earlier versions that have another name now."""


def _prepare(connection: sqlite3.Connection, kept: Mapping[str, Column], path: Path) -> None:
    """Make the table, or bring one of an earlier version up to date.

    Raises:
        InputError: if it holds what this version does not know, or lacks what every row must have.
    """
    types = {name: _sql_type(c) for name, c in kept.items()}
    described = ", ".join(f"{name} {kind}" for name, kind in types.items())
    connection.execute(
        f"CREATE TABLE IF NOT EXISTS measurements (context TEXT, placement BLOB, host TEXT, {described}, checksum TEXT, "
        "PRIMARY KEY (context, placement)) WITHOUT ROWID"
    )
    for old, new in RENAMED.items():
        if old in (there := _names(connection)) and new not in there:
            connection.execute(f"ALTER TABLE measurements RENAME COLUMN {old} TO {new}")
    there = _names(connection)
    strange = [name for name in there if name not in ("context", "placement", "host", *kept, "checksum")]
    absent = [name for name in ("context", "placement", "host", *kept) if name not in there]
    required = [name for name in absent if name not in kept or not kept[name].optional]
    if strange or required:
        what = f"has a column {strange[0]!r} that this version does not know" if strange else f"lacks the column {required[0]!r}"
        raise InputError(f"the store of measurements {str(path)!r} {what}; use the version that wrote it, or move it away")
    for name in absent:
        connection.execute(f"ALTER TABLE measurements ADD COLUMN {name} {types[name]}")
    if "checksum" not in there:
        connection.execute("ALTER TABLE measurements ADD COLUMN checksum TEXT")


def _checksum(row: Sequence[Any], kept: Mapping[str, Column]) -> str:
    """Of a row (context, placement, host and the values of ``kept``) as SQLite gives it back. A value that it lacks does not count, so
    that a column which a later version adds changes nothing."""
    values = {
        key: value + 0.0 if isinstance(value, float) else value for key, value in zip(kept, row[3:], strict=True) if value is not None
    }
    return hashlib.sha256(repr((*row[:3], sorted(values.items()))).encode()).hexdigest()[:16]


def _damage(path: Path, what: object) -> InputError:
    return InputError(f"the store of measurements {str(path)!r} is damaged ({what}); move it away, and what it held is measured again")


def _names(connection: sqlite3.Connection) -> list[str]:
    return [row[1] for row in connection.execute("PRAGMA table_info(measurements)")]


def _sql_type(c: Column) -> str:
    if not c.numbers:
        return "TEXT" if c.dtype is str else "BLOB"
    return "INTEGER" if np.issubdtype(c.dtype, np.integer) else "REAL"


def _stored(c: Column, value: Any) -> Any:
    """A row's value as SQLite keeps it; a number that is not finite is NULL."""
    if c.dtype is str:
        return value
    if not c.numbers:
        return np.ascontiguousarray(value, dtype=c.dtype).tobytes()
    return value.item() if np.isfinite(value) else None


def _read_value(c: Column, value: Any) -> Any:
    """A batch of one row's value; None if the row lacks it and may."""
    if value is None:
        return None if c.optional else c.lacking(1)
    if c.dtype is str:
        return (value,)
    if not c.numbers:
        return (np.frombuffer(value, dtype=c.dtype).reshape(-1, *(c.tail or ())),)
    return np.array([value], dtype=c.dtype)
