"""The driver of a sweep: what runs next, what is done, what must be done again. How a trial runs does not belong here."""

from __future__ import annotations

import contextlib
import signal
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from envs.errors import InputError
from orchestration.checkpoint import safe_name, write_atomic
from orchestration.cluster import Backend, LocalBackend, RayBackend
from orchestration.evaluators import in_worker
from orchestration.ledger import LEDGER, Ledger
from orchestration.progress import Display
from orchestration.tracking import TrackingSpec, check_uri, default_uri, source_tags
from orchestration.trial import Trial

if TYPE_CHECKING:
    from orchestration.definition.sweep import Sweep

HOME = Path(".placewright")
"""Where sweeps leave their directories, if nothing else is said."""
RETRIES = 3
"""How often a trial is tried again after a failure of infrastructure."""
FIRST_PAUSE = 1.0
"""Seconds before the first of these; doubled each time."""
DRAIN_SECONDS = 600.0
"""How long the end of a sweep waits for a tracking server that is down."""


@dataclass(frozen=True)
class SweepRun:
    """How a run of a sweep ended."""

    folder: Path
    tracking_uri: str
    finished: int
    """Trials that ran to their end now."""
    skipped: int
    """Trials that had ended before."""
    failed: int
    """Trials that have no result, now or before; those behind them in the DAG included."""
    files: tuple[Path, ...] = ()
    """The report."""
    notes: tuple[str, ...] = ()


def run_sweep(
    sweep: Sweep,
    *,
    address: str | None = None,
    tracking_uri: str | None = None,
    local: bool = False,
    fresh: bool = False,
    output: Path | None = None,
    cpus: int | None = None,
    simulators: int | None = None,
    console: Console | None = None,
) -> SweepRun:
    """Run everything of a sweep that has not been run, keep it, track it, report it.

    Args:
        address: a Ray cluster; None starts a Ray here.
        tracking_uri: MLflow store; None is SQLite in ``output``.
        local: run without Ray.
        fresh: run everything again.
        output: folder of all sweeps; this one gets a folder of its name in it.
        cpus: CPUs of the Ray started here.
        simulators: processes of the reward service's pool; by default one a CPU, at most 16.

    Raises:
        InputError: if the store or the cluster cannot be used, or another driver runs this sweep.
        KeyboardInterrupt: after a clean stop; running the same command again goes on.
    """
    output = HOME if output is None else output
    folder = output / safe_name(sweep.name)
    uri = tracking_uri or default_uri(output)
    check_uri(uri)
    trials = list({t.content_hash: t for t in sweep.expand()}.values())
    if not trials:
        raise InputError(f"sweep {sweep.name!r} has no trial to run")
    with Ledger(folder, fresh=fresh) as ledger:
        write_atomic(folder / "sweep.yaml", sweep.text.encode())
        work = Work(trials, ledger)
        display = Display(len(trials), work.skipped, console)
        ui = f"mlflow ui --backend-store-uri {uri}" if "://" in uri and not uri.startswith("http") else f"open {uri}"
        if work.complete and (folder / "leaderboard.json").exists():
            display.say(f"all {len(trials)} trials ran before; --fresh runs them again")
        backend: Backend = LocalBackend(folder)
        if not local and not work.complete:
            needs_service = any(not in_worker(t.evaluator) for t in work.waiting)
            backend = RayBackend(folder, address=address, cpus=cpus, simulators=simulators, service=needs_service)
        try:
            with _stoppable():
                backend.begin_tracking(_tracking(sweep, folder, output, uri, tracking_uri is None, len(trials)))
                _run_all(work, backend, ledger, display, sweep.name)
                notes, files = _finish(folder, [t.content_hash for t in trials], display)
                notes += _end_tracking(backend, "FINISHED", [folder / "sweep.yaml", *files], DRAIN_SECONDS)
        except KeyboardInterrupt:
            backend.stop()
            display.say("stopping; run the same command again to go on")
            _end_tracking(backend, "KILLED", [folder / "sweep.yaml"], 10.0)
            raise
        finally:
            backend.close()
        for note in notes:
            display.say(note)
        display.say(f"report in {folder}; MLflow: placewright ui {output} (or: {ui})")
        return SweepRun(folder, uri, display.done, work.skipped, work.failed, tuple(files), tuple(notes))


class Work:
    """The trials of a sweep that still have to run, in an order that respects the DAG."""

    def __init__(self, trials: Sequence[Trial], ledger: Ledger) -> None:
        self.ready: deque[Trial] = deque()
        self.later: list[tuple[float, Trial]] = []
        """Trials to be tried again, and when."""
        self.attempts: dict[str, int] = {}
        self.failed = self.skipped = self.blocked = 0
        self._behind: dict[str, list[Trial]] = {}
        self._done: set[str] = set()
        known = {t.content_hash for t in trials}
        for trial in trials:
            entry = ledger.entries.get(trial.content_hash)
            if entry is not None and entry.settled:
                self.skipped += 1
                if entry.status == "failed":
                    self.failed += 1
                else:
                    self._done.add(trial.content_hash)
        settled = {h for h in known if h in ledger.entries and ledger.entries[h].settled}
        for trial in trials:
            if trial.content_hash in settled:
                continue
            if trial.parent is None or trial.parent in self._done:
                self.ready.append(trial)
            elif trial.parent in settled:
                self._block(trial)
            elif trial.parent in known:
                self._behind.setdefault(trial.parent, []).append(trial)
            else:
                raise InputError(f"trial {trial.short} starts from trial {trial.parent[:12]}, which is not part of the sweep")

    @property
    def waiting(self) -> list[Trial]:
        """Everything not yet handed out."""
        return [*self.ready, *(t for _, t in self.later), *(t for ts in self._behind.values() for t in ts)]

    @property
    def complete(self) -> bool:
        """Whether nothing is left to hand out."""
        return not self.ready and not self.later and not self._behind

    def next(self) -> Trial | None:
        """A trial to run now."""
        now = time.monotonic()
        for i, (when, trial) in enumerate(self.later):
            if when <= now:
                del self.later[i]
                return trial
        return self.ready.popleft() if self.ready else None

    def again(self, trial: Trial) -> bool:
        """Try a trial again later, unless it was tried often enough."""
        count = self.attempts[trial.content_hash] = self.attempts.get(trial.content_hash, 0) + 1
        if count > RETRIES:
            return False
        self.later.append((time.monotonic() + FIRST_PAUSE * 2 ** (count - 1), trial))
        return True

    def ended(self, trial: Trial, failed: bool) -> None:
        """A trial is over; those behind it may run, or cannot."""
        behind = self._behind.pop(trial.content_hash, [])
        if not failed:
            self.ready.extend(behind)
            return
        self.failed += 1
        for child in behind:
            self._block(child)

    def _block(self, trial: Trial) -> None:
        self.failed += 1
        self.blocked += 1
        for child in self._behind.pop(trial.content_hash, []):
            self._block(child)


def _run_all(work: Work, backend: Backend, ledger: Ledger, display: Display, sweep: str) -> None:
    """Hand out and take back until nothing is left."""
    labels = 0
    with display:
        while not work.complete or backend.running():
            for _ in range(backend.room()):
                trial = work.next()
                if trial is None:
                    break
                backend.submit(trial, sweep)
            display.tick(backend.running())
            if not backend.running():
                time.sleep(0.05)  # all that is left waits for its next attempt
                continue
            back = backend.wait()
            kept = [(t, e) for t, e in back if not (e.infrastructure and work.again(t))]
            if kept:
                ledger.append((e.trial, e.status, e.infrastructure, e.line) for _, e in kept)
            for trial, ended in kept:
                work.ended(trial, ended.status == "failed")
                display.ended(trial.label, ended.best, ended.evaluations, ended.status == "failed")
                if ended.status == "failed" and labels < 5:
                    labels += 1
                    display.say(f"failed: {trial.label} on {trial.problem_label}, seed {trial.seed}: {ended.error}")
        display.tick(0)
        if work.blocked:
            display.note = f"{work.blocked} more could not start, because the trial they start from failed"


def _finish(folder: Path, trials: Sequence[str], display: Display) -> tuple[list[str], list[Path]]:
    """Report what ended."""
    from orchestration.report.finish import finish_sweep

    if not (folder / LEDGER).stat().st_size:
        return ["no trial ended"], []
    finished = finish_sweep(folder, trials)
    print(finished.text(width=None, colour=display.console.is_terminal), flush=True)
    return list(finished.notes), list(finished.files)


def _end_tracking(backend: Backend, status: str, artifacts: Sequence[Path], timeout: float) -> list[str]:
    note = backend.end_tracking(status, [str(p.resolve()) for p in artifacts], timeout)
    return [note] if note else []


def _tracking(sweep: Sweep, folder: Path, output: Path, uri: str, own: bool, count: int) -> TrackingSpec:
    artifacts = (output / "mlartifacts").resolve().as_uri() if own or uri.startswith("sqlite") else None
    params: dict[str, Any] = {"trials": str(count), "sweep_hash": sweep.content_hash}
    return TrackingSpec(uri, str(folder.resolve()), sweep.name, artifacts, source_tags(), params)


@contextlib.contextmanager
def _stoppable() -> Iterator[None]:
    """Let SIGTERM stop a run as Ctrl-C does."""

    def stop(_number: int, _frame: object) -> None:
        raise KeyboardInterrupt

    try:
        old = signal.signal(signal.SIGTERM, stop)
    except ValueError:  # not the main thread
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, old)
