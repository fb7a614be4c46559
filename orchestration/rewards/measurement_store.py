"""The store of what was measured for real: it survives restarts and has one writer, the sweep's reward service. What is looked up
in memory first is ``orchestration/rewards/measurement_table.py``."""

from __future__ import annotations

import sqlite3
from collections.abc import Hashable
from pathlib import Path

import numpy as np

from envs.problem.measurement import Outcome
from orchestration.rewards.measurement_table import Rows
from orchestration.specs.canonical import canonical

_TABLE = """CREATE TABLE IF NOT EXISTS measurements (
    context TEXT, placement BLOB, outcome INTEGER, seconds REAL, objective REAL, host TEXT, samples BLOB, note TEXT, deviation REAL,
    PRIMARY KEY (context, placement)) WITHOUT ROWID"""


def measurement_context(problem_hash: str, protocol: str, key: str, machine: str) -> tuple[str, ...]:
    """What a real measurement depends on besides its placement. Keys are different machines; ``machine`` is the fingerprint if
    the key (``dataflow``) names none."""
    return (problem_hash, protocol, key, machine) if machine else (problem_hash, protocol, key)


class MeasurementStore:
    """Rows by context (problem, protocol, key) and the exact bytes of the placement, in a SQLite file."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        # An actor's methods may run in different threads, one at a time.
        self._connection = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
        self._connection.execute("PRAGMA journal_mode=WAL")
        self._connection.execute("PRAGMA synchronous=NORMAL")
        self._connection.execute(_TABLE)
        if "deviation" not in [column[1] for column in self._connection.execute("PRAGMA table_info(measurements)")]:
            self._connection.execute("ALTER TABLE measurements ADD COLUMN deviation REAL")  # a store of an earlier version

    def read(self, context: Hashable, placements: np.ndarray) -> tuple[np.ndarray, list[Rows]]:
        """Which of int16[B, V] placements are known, bool[B], and the row of each of these in order."""
        name, found = canonical(context), np.zeros(len(placements), dtype=bool)
        rows: list[Rows] = []
        for i, placement in enumerate(placements):
            row = self._connection.execute(
                "SELECT outcome, seconds, objective, host, samples, note, deviation FROM measurements WHERE context = ? AND placement = ?",
                (name, placement.tobytes()),
            ).fetchone()
            if row is not None:
                found[i] = True
                outcome, seconds, objective, host, samples, note, deviation = row
                rows.append(
                    Rows(
                        np.array([outcome], dtype=np.int8), np.array([np.nan if seconds is None else seconds]),
                        np.array([np.inf if objective is None else objective]), host,
                        None if samples is None else (np.frombuffer(samples),), None if note is None else (note,),
                        None if deviation is None else np.array([deviation]),
                    )
                )  # fmt: skip
        return found, rows

    def write(self, context: Hashable, placements: np.ndarray, rows: Rows) -> None:
        """Keep rows; those of which nothing is known are left out, and what was measured before stands."""
        name = canonical(context)
        values = [
            (
                name, placement.tobytes(), int(rows.outcome[i]), _finite(rows.seconds[i]), _finite(rows.objective[i]), rows.host,
                None if rows.samples is None else np.ascontiguousarray(rows.samples[i], dtype=np.float64).tobytes(),
                None if rows.notes is None else rows.notes[i],
                None if rows.deviation is None else _finite(rows.deviation[i]),
            )
            for i, placement in enumerate(placements)
            if rows.outcome[i] != Outcome.INFRASTRUCTURE
        ]  # fmt: skip
        self._connection.execute("BEGIN")
        try:
            self._connection.executemany("INSERT OR IGNORE INTO measurements VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", values)
            self._connection.execute("COMMIT")
        except sqlite3.Error:
            self._connection.execute("ROLLBACK")
            raise

    def __len__(self) -> int:
        return int(self._connection.execute("SELECT COUNT(*) FROM measurements").fetchone()[0])

    def close(self) -> None:
        """Let another open it."""
        self._connection.close()


def _finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
