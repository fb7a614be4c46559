"""The driver of a sweep: what runs next, what is done, what must be done again. How a trial runs does not belong here."""

from __future__ import annotations

import contextlib
import json
import signal
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from envs.graphs.capture import beginning
from envs.problem.errors import InputError
from orchestration.analysis.load import remembered
from orchestration.analysis.notes import reason
from orchestration.driver.agenda import Agenda
from orchestration.driver.backends import Backend, LocalBackend, RayBackend
from orchestration.driver.metrics import serving
from orchestration.driver.progress import Display
from orchestration.folder.definition_copy import save_definition
from orchestration.folder.ledger import Ledger
from orchestration.folder.lock import holder
from orchestration.folder.mirror import mirrored
from orchestration.folder.remote import url_of
from orchestration.rewards.evaluators import in_worker
from orchestration.rewards.fair_queue import NOBODY, Share
from orchestration.rewards.measurement_store import MeasurementStore
from orchestration.specs.canonical import canonical
from orchestration.specs.files import safe_name, write_atomic
from orchestration.specs.layout import HOME, LEDGER, POLICY, RUNS, SEARCHES, STORE, trial_folder
from orchestration.specs.secrets import masked, resolved_uri, secret
from orchestration.tracking.provenance import source_tags
from orchestration.tracking.store_checks import check_uri, default_uri
from orchestration.tracking.summary import NOTE, SweepSummary
from orchestration.tracking.tracker import TrackingSpec

if TYPE_CHECKING:
    from orchestration.definition.searches import SearchSpec
    from orchestration.definition.sweep import Sweep
    from orchestration.report.finish import Finished

MOST_SAID = 5
"""Failures that are told while the sweep runs; `placewright status` lists all."""
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
    retry_failed: bool = False,
    output: Path | None = None,
    cpus: int | None = None,
    simulators: int | None = None,
    share: Share = NOBODY,
    metrics: str | None = None,
    console: Console | None = None,
) -> SweepRun:
    """Run everything of a sweep that has not been run, keep it, track it, report it.

    Args:
        address: a Ray cluster; None starts a Ray here.
        tracking_uri: MLflow store, or where its URI stands (`resolved_uri`); None is SQLite in ``output``.
        local: run without Ray.
        fresh: run everything again; the ledger, studies and measurements so far are set aside.
        retry_failed: also run the trials again that failed for reasons of their own.
        output: folder of all sweeps; this one gets a folder of its name in it. One of `orchestration.folder.remote.output_folder` is
            mirrored at its URL.
        cpus: CPUs of the Ray started here.
        simulators: processes of the reward service's pool on each node; by default one a CPU, at most 16.
        metrics: ``PORT`` or ``HOST:PORT`` where Prometheus is answered while it runs; see `orchestration.driver.metrics.serving`.
        share: whose run this is, and what part of a cluster's measuring hardware it gets while others want it too.

    Raises:
        InputError: if the store or the cluster cannot be used, or another driver runs this sweep.
        KeyboardInterrupt: after a clean stop; running the same command again goes on.
    """
    output = HOME if output is None else output
    folder = output / safe_name(sweep.name)
    uri = default_uri(output) if tracking_uri is None else resolved_uri(tracking_uri)
    check_uri(uri)
    with mirrored(folder, url_of(output), _print) as begin, Ledger(folder, fresh=fresh) as ledger:
        begin()
        before = (folder / RUNS).read_text(encoding="utf-8") if fresh and (folder / RUNS).exists() else ""
        definition = _defined(folder, sweep)
        studies = _Studies(folder, sweep)
        agenda = Agenda(sweep, ledger, studies.open, retry_failed=retry_failed)
        _check_begin(agenda, sweep.name, folder)
        display = Display(agenda.total, agenda.skipped, agenda.open_trials, console)
        _say_what_was(agenda, ledger, display)
        backend: Backend = LocalBackend(folder)
        if not local and not agenda.complete:
            display.say("starting Ray on this machine" if address is None else f"connecting to Ray at {address}")
            needs_service = any(not in_worker(t.evaluator) for t in agenda.open_trials)
            share = replace(share, sweep=f"{folder.name} {str(holder(folder).get('run', ''))[:8]}")
            backend = RayBackend(folder, address=address, cpus=cpus, simulators=simulators, service=needs_service, share=share)
        spec = _tracking(sweep, folder, output, uri, tracking_uri is None, agenda)
        with _watched(metrics, sweep.name, folder, display):
            notes, files, origin = _run_tracked(sweep, folder, agenda, backend, display, spec, definition, before)
        for note in notes:
            display.say(note)
        display.say(f"report in {folder}{f' ({origin})' if origin else ''}; MLflow: {_where_to_look(output, uri)}")
        return SweepRun(folder, uri, display.done, agenda.skipped, agenda.failed, tuple(files), tuple(notes))


def _defined(folder: Path, sweep: Sweep) -> list[Path]:
    """Keep the definition and the policies that it names; the files that may be shown to others."""
    for policy in sweep.policies:  # as if a trial of this sweep had learned it
        write_atomic(trial_folder(folder, policy.digest) / POLICY, policy.data)
    return [path for path in save_definition(folder, sweep) if not secret(path.read_text(encoding="utf-8"))]


def _watched(metrics: str | None, sweep: str, folder: Path, display: Display) -> contextlib.AbstractContextManager[None]:
    """What answers Prometheus, if anything is to."""
    return contextlib.nullcontext() if metrics is None else serving(metrics, sweep, folder, display)


def _say_what_was(agenda: Agenda, ledger: Ledger, display: Display) -> None:
    """What is to be known of earlier runs before this one begins."""
    if ledger.unchecked:
        where = ledger.folder / LEDGER
        display.say(f"{ledger.unchecked} lines of {where} are from before there were checksums, so they are not checked")
    if agenda.complete and (ledger.folder / "leaderboard.json").exists():
        failed = f" ({agenda.failed} failed; retry --failed runs those again)" if agenda.failed else ""
        display.say(f"all {agenda.total} trials ran before{failed}; --fresh runs them again")


def _print(line: str) -> None:
    print(line, flush=True)


def _where_to_look(output: Path, uri: str) -> str:
    """What shows the runs in MLflow."""
    if uri.startswith("http"):
        return f"open {masked(uri)}"
    command = "placewright ui" if output == HOME else f"placewright ui --output {output}"
    return command if uri == default_uri(output) else f"mlflow ui --backend-store-uri {masked(uri)}"


def _run_tracked(
    sweep: Sweep,
    folder: Path,
    agenda: Agenda,
    backend: Backend,
    display: Display,
    spec: TrackingSpec,
    definition: Sequence[Path],
    before: str,
) -> tuple[list[str], list[Path], str]:
    """Run, report (what `_finish` gives) and track. However it ends, nothing is left running, in MLflow neither."""
    try:
        with _stoppable():
            for note in backend.check(agenda.open_trials):
                display.say(note)
            display.say("opening the store of MLflow" + ("" if _exists(spec.uri) else ", a new one: its tables take some seconds"))
            for note in backend.begin_tracking(spec):
                display.say(note)
            _run_all(agenda, backend, display, sweep.name)
            notes, files, finished = _finish(folder, agenda, display, sweep.whole, before)
            summary = None
            if finished is not None:
                try:
                    summary = finished.summary(sweep.description)
                except Exception as error:  # nothing optional costs a result
                    notes.append(f"no summary for MLflow: {reason(error)}")
            display.say("sending the rest to MLflow: curves beside what is known, and the report")
            notes += _end_tracking(backend, "FINISHED", [*definition, *files], DRAIN_SECONDS, summary)
            return notes, files, "" if finished is None else finished.comparison.collection.origin
    except KeyboardInterrupt:
        backend.stop()
        display.say("stopping; run the same command again to go on")
        _end_tracking(backend, "KILLED", definition, 10.0)
        raise
    except BaseException:
        with contextlib.suppress(Exception):  # what went wrong first is what counts
            _end_tracking(backend, "FAILED", definition, 10.0)
        raise
    finally:
        backend.close()


class _Studies:
    """Opens the storage of studies when the first search needs it: Optuna takes half a second to import."""

    def __init__(self, folder: Path, sweep: Sweep) -> None:
        """Open the storages of all searches, those too that begin after hours; InputError if one cannot be opened."""
        self._arguments = (folder, sweep.name)
        self._studies: Any = None
        if any(stage.search is not None for stage in sweep.stages):
            expansion = sweep.expansion()
            for spec in (*expansion.searches, *expansion.waiting_searches):
                self._made().reach(spec)

    def open(self, spec: SearchSpec, keep: int | None) -> Any:
        return self._made().open(spec, keep)

    def _made(self) -> Any:
        from orchestration.search.studies import Studies

        if self._studies is None:
            self._studies = Studies(*self._arguments)
        return self._studies


def _run_all(agenda: Agenda, backend: Backend, display: Display, sweep: str) -> None:
    """Hand out and take back until nothing is left."""
    said = 0
    with display:
        while not agenda.complete or backend.busy():
            _capture(agenda, backend, display)
            while (task := agenda.next(backend.room)) is not None:
                backend.submit(task, sweep)
            for note in agenda.notes:
                display.say(note)
            agenda.notes.clear()
            display.total = agenda.total
            display.tick(backend.running(), agenda.next_pause(), backend.waiting())
            if not backend.busy():
                time.sleep(0.05)  # all that is left waits for its next attempt
                continue
            agenda.returned(backend.wait())
            for trial, end in agenda.ended:
                display.ended(trial, end)
                if end.status == "failed" and said < MOST_SAID:
                    said += 1
                    display.say(f"failed: {trial.label} on {trial.problem_label}, seed {trial.seed}: {end.error}")
                for note in end.notes:
                    display.say(f"{trial.label} on {trial.problem_label}, seed {trial.seed}: {note}")
            agenda.ended.clear()
        agenda.end()
        display.total = agenda.total
        display.tick(0, None)
        if agenda.blocked:
            display.note = f"{agenda.blocked} more could not start, because what they start from failed"


def _capture(agenda: Agenda, backend: Backend, display: Display) -> None:
    """Take back what was captured and hand out what is missing, and say so: it is slow, and the next time it is not."""
    for spec, found in backend.captured():
        name = display.captured(spec)
        if found.error:
            display.say(f"{name} could not be captured: {found.error}")
        else:
            display.say(f"captured {name}: {found.operations:,} operations in {found.seconds:.0f} s")
        agenda.captured(spec)
    while backend.capture_room(agenda.ready) > 0 and (wanted := agenda.next_capture()) is not None:
        backend.capture(wanted)
        display.say(f"{beginning(display.capturing(wanted))}; trials on other graphs run meanwhile")


def _finish(
    folder: Path, agenda: Agenda, display: Display, whole: Sweep | None, before: str
) -> tuple[list[str], list[Path], Finished | None]:
    """Report what ended (notes, files and the report, if there is one), by other parts of the ``whole`` sweep too if this was one.

    Args:
        before: the table of runs of the last time, if all was run anew.
    """
    from orchestration.report.finish import finish_sweep, report_changes

    if not (folder / LEDGER).stat().st_size:
        return ["no trial ended"], [], None
    files = []
    if agenda.searches:
        files.append(folder / SEARCHES)
        text = json.dumps([s.describe() for s in agenda.searches.values()], indent=1)
        write_atomic(files[0], text.encode())
    others = [] if whole is None else [*(t.content_hash for t in whole.expand()), *(remembered(folder) or ())]
    display.say("writing the report: tables, plots and pages")
    try:
        finished = finish_sweep(folder, [*agenda.counted, *others])
        print(finished.text(width=None, colour=display.console.is_terminal), flush=True)
        if before:
            changed, text = report_changes(folder, before)
            files.append(changed)
            print(text, flush=True)
    except Exception as error:  # the trials are in the ledger, whatever is wrong with their report
        return [f"no report: {reason(error)}; `placewright report {folder}` tries again"], files, None
    return list(finished.notes), [*files, *finished.files], finished


def _check_begin(agenda: Agenda, sweep: str, folder: Path) -> None:
    """InputError if there is nothing to run, or what was measured before is damaged."""
    if not agenda.total:
        raise InputError(f"sweep {sweep!r} has no trial to run")
    if (folder / STORE).exists() and not agenda.complete:
        MeasurementStore(folder / STORE).close()


def _exists(uri: str) -> bool:
    """Whether there is a store; taken for granted where it is no file."""
    return not uri.startswith("sqlite:///") or Path(uri.removeprefix("sqlite:///")).exists()


def _end_tracking(
    backend: Backend, status: str, artifacts: Sequence[Path], timeout: float, summary: SweepSummary | None = None
) -> list[str]:
    note = backend.end_tracking(status, [str(p.resolve()) for p in artifacts], timeout, summary)
    return [note] if note else []


def _tracking(sweep: Sweep, folder: Path, output: Path, uri: str, own: bool, agenda: Agenda) -> TrackingSpec:
    artifacts = (output / "mlartifacts").resolve().as_uri() if own or uri.startswith("sqlite") else None
    params: dict[str, Any] = {"trials": str(agenda.total), "sweep_hash": sweep.content_hash}
    for search in agenda.searches.values():
        about = search.describe()
        prefix = f"search.{about['stage']}.{about['method']}"
        params |= {f"{prefix}.{key}": canonical(about[key]) for key in ("sampler", "pruner")}
        params |= {f"{prefix}.optuna": about["optuna"], f"{prefix}.configurations": str(search.spec.settings.configurations)}
    tags = {**source_tags(), "mlflow.source.name": str(sweep.path), **({NOTE: sweep.description} if sweep.description else {})}
    return TrackingSpec(uri, str(folder.resolve()), sweep.name, artifacts, tags, params)


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
