"""The ledger: the append-only record of a sweep's directory, written by its driver alone. What a trial is does not belong here.

Layout of a sweep's directory::

    sweep.yaml            the definition as it was run
    ledger.jsonl          one line a trial that ended: {"spec": Trial, "result": TrialResult, "sum": checksum of the rest of the
                          line}; the last line of a trial counts
    ledger.lock           held by the one driver that may write; says which process that is
    studies.journal       Optuna's studies, one a search; searches.json tells about them
    measurements.sqlite   what was measured for real, so that it need not be measured again
    tracking.json         the parent run in MLflow, and how much of the ledger is there
    trials/HASH/          checkpoint.safetensors, policy.safetensors
    leaderboard.*, plots/ the report

``--fresh`` keeps what earlier runs left beside the new: ``ledger.1.jsonl``, ``measurements.1.sqlite``, ``trials.1``, ...
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import os
import re
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from envs.problem.errors import InputError
from orchestration.folder.lock import FolderLock
from orchestration.specs.layout import BESIDE, LEDGER, STORE
from orchestration.specs.results import TrialResult
from orchestration.specs.trial import Trial

_SUM = re.compile(rb',"sum":"([0-9a-f]{16})"\}$')


@dataclass(frozen=True)
class Entry:
    """What the ledger remembers in memory of a trial that ended."""

    trial: str
    status: str
    infrastructure: bool
    offset: int
    """Where its line begins, in bytes."""
    number: int
    """Of its line, counted from 1."""
    checked: bool = True
    """Whether its line has a checksum."""

    def where(self, path: Path) -> str:
        """Where the entry stands, for people: file and line."""
        return f"line {self.number} of {path}"

    @property
    def settled(self) -> bool:
        """Whether running the sweep again leaves it alone: all but failures of infrastructure."""
        return not self.infrastructure


@dataclass(frozen=True)
class TrialEnd:
    """How a trial ended or paused, as a worker tells the driver: the ledger's line of it, and what the driver itself looks at."""

    trial: str
    """Content hash."""
    status: str
    """One of `orchestration.specs.results.STATUSES`."""
    infrastructure: bool
    """Whether it failed for reasons that are not its own."""
    line: str
    """See `line`."""
    best: tuple[tuple[str, str, float], ...]
    """(problem, objective name, best objective) of each problem with a valid placement."""
    evaluations: int
    seconds: float
    """Wall time of the trial."""
    error: str
    """Last line of a failed trial's traceback."""
    notes: tuple[str, ...] = ()
    """`TrialResult.notes`."""

    @staticmethod
    def of(trial: Trial, result: TrialResult) -> TrialEnd:
        """From the whole record."""
        best = tuple((p.name, p.objective_name, p.objective) for p in result.problems if p.objective is not None)
        error = (result.traceback or "").strip().splitlines()[-1:] or [""]
        return TrialEnd(
            result.trial, result.status, result.infrastructure, line(trial, result), best, result.evaluations, result.wall_seconds,
            error[0], result.notes,
        )  # fmt: skip


def line(trial: Trial, result: TrialResult) -> str:
    """One line of a ledger, its checksum last."""
    body = json.dumps({"spec": trial.to_json(), "result": result.to_json()}, separators=(",", ":"), allow_nan=False)
    return f'{body[:-1]},"sum":"{_sum(body.encode())}"}}'


def parse(text: str | bytes, where: str = "a line") -> tuple[Trial, TrialResult]:
    """The inverse of `line`.

    Raises:
        InputError: naming ``where``, if it is not what was written. Without a checksum only what does not fit together shows.
    """
    data = _checked(text.encode() if isinstance(text, str) else text, where)
    try:
        trial, result = Trial.from_json(data["spec"]), TrialResult.from_json(data["result"])
        known = "sum" in data or trial.content_hash == result.trial
    except (InputError, KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise _damage(where, str(error) or type(error).__name__) from None
    if not known:
        raise _damage(where, f"it describes trial {trial.short} but has the result of {result.trial[:12]}")
    return trial, result


def _sum(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()[:16]


def _checked(raw: bytes, where: str) -> dict[str, Any]:
    """The JSON of a line whose checksum, if it has one, is right."""
    text = raw.rstrip(b"\n")
    if text.endswith(b"\r"):
        raise _damage(where, "it ends as on Windows, with CR LF; an editor or a file transfer did that")
    found = _SUM.search(text)
    if found and found[1].decode() != _sum(text[: found.start()] + b"}"):
        raise _damage(where, "its checksum does not fit")
    try:
        data: dict[str, Any] = json.loads(text)
        if not {"spec", "result"} <= set(data) <= {"spec", "result", "sum"} or ("sum" in data) != bool(found):
            raise ValueError("it is no entry of a ledger")
        return data
    except (ValueError, TypeError, RecursionError) as error:
        raise _damage(where, str(error)) from None


def _damage(where: str, what: str) -> InputError:
    return InputError(f"{where} is damaged ({what}); restore the file from a copy, or delete the line and its trial runs again")


def entries(folder: Path) -> Iterator[tuple[Trial, TrialResult]]:
    """Every trial that ended in the sweep directory, once, in the order in which they last ended; reads without a lock.

    Raises:
        InputError: if the folder holds no ledger, or a damaged one: its file, line and cure.
    """
    path = folder / LEDGER
    if not path.exists():
        raise InputError(f"{folder} holds no {LEDGER}, so no sweep has run there; `placewright run` makes one")
    with _open(path, "rb") as file:
        last = {entry.trial: entry for entry in _scan(file)}
        for entry in sorted(last.values(), key=lambda e: e.offset):
            file.seek(entry.offset)
            yield parse(file.readline(), entry.where(path))


def results(folder: Path) -> Iterator[TrialResult]:
    """The results of `entries`."""
    for _, result in entries(folder):
        yield result


def _open(path: Path, mode: str) -> IO[bytes]:
    try:
        return path.open(mode)
    except OSError as error:
        raise InputError(f"ledger {path} cannot be opened ({error.strerror}); move away what is there, or restore the file") from None


def _scan(file: IO[bytes]) -> Iterator[Entry]:
    """Every whole line; a torn last line is left out."""
    offset = 0
    for number, raw in enumerate(file, 1):
        if raw.endswith(b"\n"):
            where = f"line {number} of {file.name}"
            data = _checked(raw, where)
            try:
                result: dict[str, Any] = data["result"]
                yield Entry(
                    result["trial"], result["status"], bool(result.get("infrastructure")), offset, number, "sum" in data
                )  # fmt: skip
            except (KeyError, TypeError, AttributeError) as error:
                raise _damage(where, f"its result lacks {error}") from None
        offset += len(raw)


def _numbered(path: Path, number: int) -> Path:
    """``measurements.1.sqlite`` for ``measurements.sqlite``."""
    return path.with_name(f"{path.stem}.{number}{path.suffix}")


def _gather(path: Path) -> list[Path]:
    """Bring all of a SQLite database into its one file; the files of its log that are left beside it all the same.

    A process that was killed leaves in the log what it wrote last, maybe all of it. Should another process have the database
    open still, the log goes with the database instead, wherever that goes.
    """
    if path.exists():
        try:
            with closing(sqlite3.connect(path, timeout=1.0)) as database:
                database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        except sqlite3.DatabaseError:
            pass  # no database, or one in use
    return [log for end in ("-wal", "-shm") if (log := path.with_name(path.name + end)).exists()]


class Ledger:
    """The ledger, opened for writing.

    Raises:
        InputError: if another driver has it open, or the file is damaged in its middle.
    """

    def __init__(self, folder: Path, *, fresh: bool = False) -> None:
        self.folder = folder
        self._lock = FolderLock(folder)
        if fresh:
            self._set_aside()
        path = folder / LEDGER
        self.entries: dict[str, Entry] = {}
        self.unchecked = 0
        """Lines from before there were checksums."""
        self._lines = 0
        try:
            self._file = _open(path, "a+b")
            self._file.seek(0)
            for entry in _scan(self._file):
                self.entries[entry.trial] = entry
                self.unchecked += not entry.checked
                self._lines = entry.number
        except BaseException:
            self._lock.release()
            raise
        self._mend()

    def _set_aside(self) -> None:
        """Start anew; what earlier runs left stays beside the new under the next free number."""
        number = next(n for n in itertools.count(1) if not any(_numbered(self.folder / name, n).exists() for name in BESIDE))
        log = _gather(self.folder / STORE)
        for path in (*(self.folder / name for name in BESIDE), *log):
            if path.exists():
                path.rename(_numbered(path, number))

    def _mend(self) -> None:
        """Cut off a last line that a killed driver did not finish; its trial was not recorded and runs again."""
        if self._file.seek(0, os.SEEK_END):
            self._file.seek(-1, os.SEEK_END)
            if self._file.read(1) != b"\n":  # seldom: all lines are read once more
                self._file.seek(0)
                whole = sum(len(raw) for raw in self._file if raw.endswith(b"\n"))
                self._file.seek(self._file.truncate(whole))

    def append(self, ended: Iterable[TrialEnd]) -> None:
        """Record trials that ended; on disk when this returns."""
        for end in ended:
            self._lines += 1
            self.entries[end.trial] = Entry(end.trial, end.status, end.infrastructure, self._file.tell(), self._lines)
            self._file.write(end.line.encode() + b"\n")
        try:
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            raise InputError(
                f"ledger {self.folder / LEDGER} cannot be written ({error.strerror}); mend that, and run the sweep again to go on"
            ) from error

    def read(self, trial_hash: str) -> tuple[Trial, TrialResult]:
        """The recorded trial; KeyError if it has not ended."""
        entry, path = self.entries[trial_hash], self.folder / LEDGER
        with path.open("rb") as file:
            file.seek(entry.offset)
            return parse(file.readline(), entry.where(path))

    def close(self) -> None:
        """Let another driver write."""
        with contextlib.suppress(OSError):  # what could not be written was told when it was appended
            self._file.close()
        self._lock.release()

    def __enter__(self) -> Ledger:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
