"""Tracking: the one writer to MLflow. It follows the sweep's ledger, so trials never wait for it and nothing is lost while a
server is down: what has not been sent is still in the ledger. What is reported in tables and plots does not belong here.

A parent run a sweep, a child run a trial (tag ``mlflow.parentRunId``); flat tags carry the meaning, so that runs can be
filtered without the nesting.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import logging
import os
import threading
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from sqlalchemy.exc import SQLAlchemyError

from envs.problem.errors import InputError
from orchestration.folder.ledger import parse
from orchestration.specs.layout import LEDGER, STATE
from orchestration.specs.secrets import masked
from orchestration.specs.trial import Trial
from orchestration.tracking.policies import register
from orchestration.tracking.provenance import package_versions, quiet_environment
from orchestration.tracking.run_contents import Ended, result_metrics, trial_params, trial_tags
from orchestration.tracking.store_checks import alone_at, fast_sqlite
from orchestration.tracking.summary import SweepSummary, prepared, send_parent, send_relative

if TYPE_CHECKING:
    from orchestration.tracking.database import Database

BATCH_METRICS, BATCH_PARAMS = 1000, 100
"""MLflow's own limits for one call."""
LEDGER_CHECK_SECONDS = 0.1
RETRY_SECONDS = (0.5, 1.0, 2.0, 5.0)
"""Pauses while a server is down; the last one repeats."""
ENDED_BATCH = 100
"""Trials that ended are sent so many at a time, at most; also how many lines may have been sent that nobody has noted."""
SENDERS = 4
"""Trials that are sent to a server side by side."""
LIVE_BATCH = 16
"""Live reports that are sent before the ledger is looked at again."""


@dataclass(frozen=True)
class TrackingSpec:
    """Where a sweep is tracked, and what its parent run carries."""

    uri: str
    folder: str
    """The sweep's directory, with its ledger."""
    sweep: str
    """Name of the sweep; also of the experiment."""
    artifacts: str | None = None
    """Where artifacts of a database store lie; None lets the server decide."""
    tags: Mapping[str, str] = field(default_factory=dict)
    params: Mapping[str, str] = field(default_factory=dict)


class Tracker:
    """Follows one sweep's ledger into MLflow from a thread of its own.

    `begin` opens the store (and is the only one to create or migrate it), `live` shows a trial that is still running,
    `drain` waits until all of the ledger has been sent, `end` closes the parent run.
    """

    def __init__(self, spec: TrackingSpec) -> None:
        self.spec = spec
        self.error: str | None = None
        self._folder = Path(spec.folder)
        self._offset = 0
        self._database: Database | None = None
        """The store's tables, if it is no server."""
        self._parent = ""
        self._sent: set[tuple[str, int]] = set()
        self._open: dict[str, tuple[str, list[int]]] = {}
        self._live: dict[str, tuple[Trial, dict[str, Any]]] = {}
        """The latest report of every running trial; who has waited longest comes first."""
        self._live_lock = threading.Lock()
        self._over: set[str] = set()
        """Trials whose end has been sent: a report that comes later would open a run that nobody closes."""
        self._last = ""
        """Checksum of the last line that was sent."""
        self._is_open = True
        """Whether runs may be left RUNNING; the note of it outlives this process."""
        self._notes: list[str] = []
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def begin(self) -> str:
        """Open the store, close what an earlier run left open, start following; returns the parent run's id.

        Called again it does nothing but answer, which shows that the tracker lives.

        Raises:
            InputError: if the store cannot be opened.
        """
        if self._thread is not None and self._thread.is_alive():
            return self._parent
        quiet_environment()

        from orchestration.tracking import database

        self._refusal = database.REFUSAL
        logging.getLogger("mlflow").setLevel(logging.CRITICAL)  # it prints the traceback of what is raised anyway
        logging.getLogger("alembic").setLevel(logging.ERROR)
        if self.spec.uri.startswith("sqlite"):
            fast_sqlite()
        try:
            with alone_at(self.spec.uri):
                self._client = database.client(self.spec.uri)
                self._experiment = prepared(self._client, self.spec.sweep, self.spec.artifacts)
            self._database = database.Database.of(self._client, self._experiment)
            self._parent = self._open_parent()
            self._close_orphans()
        except (database.REFUSAL, SQLAlchemyError, OSError, ImportError) as error:
            raise InputError(
                f"tracking store {masked(self.spec.uri)!r} cannot be opened ({_first_line(error)}); repair it or choose another "
                "--tracking-uri"
            ) from None
        self._thread = threading.Thread(target=self._follow, name="tracker", daemon=True)
        self._thread.start()
        return self._parent

    def _open_parent(self) -> str:
        """The parent run of an earlier run in this directory, or a new one."""
        state = self._read_state()
        run = self._find_run(state["parent"]) if state and state["uri"] == masked(self.spec.uri) else None
        if state and run and run.info.lifecycle_stage == "active":
            self._parent, self._last = state["parent"], state.get("last", "")
            self._client.update_run(self._parent, status="RUNNING")
            found = _line_before(self._folder / LEDGER, state["offset"])
            if found is None or (found and self._last and found != self._last):
                self._follow_ledger()
            else:
                self._offset = state["offset"]
            self._save_state()
            return self._parent
        tags = {"sweep": self.spec.sweep, "kind": "sweep", "mlflow.runName": self.spec.sweep, **self.spec.tags}
        self._parent = self._client.create_run(self._experiment, tags=tags).info.run_id
        self._log(self._parent, [], {**package_versions(), **self.spec.params})
        self._save_state()
        return self._parent

    def _read_state(self) -> dict[str, Any] | None:
        """What `_save_state` wrote; None if there is nothing sound."""
        with contextlib.suppress(OSError, ValueError):
            state = json.loads((self._folder / STATE).read_text())
            if isinstance(state, dict) and isinstance(state.get("offset"), int) and {"uri", "parent"} <= set(state):
                return state
        return None

    def _follow_ledger(self) -> None:
        """What was sent is no longer what the ledger holds: keep the runs of lines that are there, and send the rest again."""
        there, offset, path = {}, 0, self._folder / LEDGER
        for raw in path.open("rb") if path.exists() else ():
            with contextlib.suppress(InputError):
                there[offset] = parse(raw)[1].trial
            offset += len(raw)
        lost = 0
        for run in self._search(f"{_under(self._parent)} and tags.ledger LIKE '%'"):
            at, trial = int(run.data.tags["ledger"]), run.data.tags.get("trial", "")
            if run.info.status not in ("FINISHED", "FAILED"):
                continue
            if there.get(at) == trial:
                self._sent.add((trial, at))
            else:
                lost += 1
                self._client.set_tag(run.info.run_id, "status", "superseded")
                self._client.update_run(run.info.run_id, status="KILLED")
        self._last = ""
        if lost:
            self._notes.append(
                f"MLflow held {lost} trials that the ledger has lost or holds elsewhere; their runs are marked KILLED, with the tag "
                "status: superseded, and the ledger is sent again"
            )

    def _find_run(self, run_id: str) -> Any:
        """The run, or None if there is none; other trouble with the store is raised, or a second parent would be made."""
        try:
            return self._client.get_run(run_id)
        except self._refusal as error:
            if getattr(error, "error_code", "") != "RESOURCE_DOES_NOT_EXIST":
                raise
            return None

    def _save_state(self) -> None:
        state = {"uri": masked(self.spec.uri), "parent": self._parent, "offset": self._offset, "last": self._last, "open": self._is_open}
        path = self._folder / STATE
        part = path.with_suffix(".part")
        part.write_text(json.dumps(state))
        part.replace(path)

    def _close_orphans(self) -> None:
        """End the runs that a killed driver left open, here and before a fresh start; find those that it closed without noting it."""
        for path in self._folder.glob(f"{Path(STATE).stem}.*{Path(STATE).suffix}"):
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
                state = json.loads(path.read_text())
                if state["uri"] == masked(self.spec.uri) and self._find_run(state["parent"]) is not None:
                    self._close_children(state["parent"])
                    if self._client.get_run(state["parent"]).info.status == "RUNNING":
                        self._client.set_terminated(state["parent"], "KILLED")
        self._close_children(self._parent)
        path, offset = self._folder / LEDGER, self._offset
        if not path.exists():
            return
        with path.open("rb") as file:
            file.seek(offset)
            for raw in itertools.islice(file, ENDED_BATCH):  # those behind them were not begun before these were noted
                found = self._search(f"{_under(self._parent)} and tags.ledger = '{offset}'")
                closed = {run.data.tags.get("trial", "") for run in found if run.info.status in ("FINISHED", "FAILED")}
                self._sent.update((trial, offset) for trial in closed)
                offset += len(raw)

    def _close_children(self, parent: str) -> None:
        for run in self._search(f"{_under(parent)} and attributes.status = 'RUNNING'"):
            self._client.set_tag(run.info.run_id, "status", "interrupted")
            self._client.set_terminated(run.info.run_id, "KILLED")

    def _search(self, where: str) -> list[Any]:
        found: list[Any] = []
        token = None
        while True:
            page = self._client.search_runs([self._experiment], where, max_results=1000, page_token=token)
            found += page
            token = page.token
            if not token:
                return found

    def notes(self) -> list[str]:
        """What was found wrong, in sentences."""
        return list(self._notes)

    def live(self, trial: Trial, snapshot: dict[str, Any]) -> None:
        """Show how a running trial gets on: ``evaluations``, ``wall_seconds`` and ``best`` by metric name.

        Only the latest report of a trial is kept, and only those are sent for which there is time beside the trials that ended.
        """
        with self._live_lock:
            self._live[trial.content_hash] = (trial, snapshot)

    def drain(self, timeout: float) -> bool:
        """Wait until the ledger as it is now has been sent; False if that takes longer than ``timeout`` seconds."""
        path = self._folder / LEDGER
        size = path.stat().st_size if path.exists() else 0
        deadline = time.monotonic() + timeout
        while self._offset < size:
            if time.monotonic() > deadline or self._thread is None or not self._thread.is_alive():
                return False
            time.sleep(0.02)
        return True

    def end(self, status: str, artifacts: Sequence[str] = (), timeout: float = 600.0, summary: SweepSummary | None = None) -> str | None:
        """Send the rest, the summary and the artifacts, close what is open; a sentence if not all could be sent.

        Before ``begin`` is through there is nothing to send; what it left open, the next run of the sweep closes.
        """
        if self._thread is None:
            return None
        complete = self.drain(timeout)
        self._stop.set()
        self._thread.join(timeout=30)
        notes = self._close_runs(status, artifacts if complete else (), summary if complete else None)
        if not complete:
            reason = masked((self.error or "it is slow").strip().splitlines()[-1])
            notes.insert(0, f"tracking is behind ({reason}); the ledger keeps what is missing and running the sweep again sends it")
        return "; ".join(notes) or None

    def _close_runs(self, status: str, artifacts: Sequence[str], summary: SweepSummary | None) -> list[str]:
        """Send summary and artifacts and leave no run RUNNING; sentences about what did not work."""
        notes = []
        try:
            if summary is not None:
                send_parent(self._client, self._experiment, self._parent, summary, self._log)
                children = self._search(_under(self._parent))
                send_relative(children, summary, self._log)
                ended = {r.data.tags.get("trial", ""): r.info.run_id for r in children if r.info.status == "FINISHED"}
                register(self._client, self._experiment, self._folder, summary.learned, ended)
            for artifact in artifacts:
                path = Path(artifact)
                sub = path.parent.relative_to(self._folder) if path.is_relative_to(self._folder) else Path()
                if path.exists():
                    self._client.log_artifact(self._parent, str(path), None if sub == Path() else str(sub))
        except Exception as error:  # a store fails in many ways, and none of them may cost the end of a sweep
            notes.append(f"summary or artifacts could not be sent ({_first_line(error)}); running the sweep again sends them")
        try:
            for run_id, _ in self._open.values():
                self._client.set_terminated(run_id, "KILLED")
            self._client.set_terminated(self._parent, status)
            self._is_open = False
            self._save_state()
        except Exception as error:
            notes.append(f"runs could not be closed ({_first_line(error)}); placewright run, status or ui closes them later")
        return notes

    def _follow(self) -> None:
        """The thread: what ended comes first, then some live reports. Whatever happens, it goes on until it is stopped."""
        while not self._stop.is_set():
            try:
                if not self._send_ended() and not self._send_live():
                    self._stop.wait(LEDGER_CHECK_SECONDS)
            except Exception:  # such as a ledger that cannot be read just now
                self.error = traceback.format_exc()
                self._stop.wait(RETRY_SECONDS[-1])

    def _send_ended(self) -> bool:
        """All lines that the ledger has by now; whether there was one."""
        path, worked = self._folder / LEDGER, False
        if path.exists():
            with path.open("rb") as file:
                file.seek(self._offset)
                while not self._stop.is_set() and (lines := list(itertools.islice(_whole_lines(file), ENDED_BATCH))):
                    self._persist(lines)
                    worked = True
        return worked

    def _send_live(self) -> bool:
        """The reports that have waited longest; whether there was one."""
        with self._live_lock:
            some = [self._live.pop(key) for key in list(itertools.islice(self._live, LIVE_BATCH))]
        for trial, snapshot in some:
            if trial.content_hash not in self._over and not self._stop.is_set():
                with contextlib.suppress(Exception):  # a lost glimpse of a running trial is no loss
                    self._show(trial, snapshot)
        return bool(some)

    def _persist(self, lines: Sequence[bytes]) -> None:
        """Send some lines, however long the store is away. A line that is damaged is passed over and noted."""
        batch, offset = [], self._offset
        for raw in lines:
            try:
                trial, result = parse(raw, f"the line at byte {offset} of {self._folder / LEDGER}")
            except InputError as error:
                self._notes.append(f"not sent to MLflow: {error}")
            else:
                self._over.add(result.trial)
                batch.append(Ended(trial, result, offset))
            offset += len(raw)
        if not self._send_until_it_works(batch):
            return
        self._sent.difference_update(one.key for one in batch)
        self._offset = offset
        self._last = _line_sum(lines[-1])
        with contextlib.suppress(OSError):  # a full disk: the next start finds in the store what was sent
            self._save_state()

    def _send_until_it_works(self, batch: Sequence[Ended]) -> bool:
        """Whether it did, before the tracker was stopped."""
        pauses = 0
        while not self._stop.is_set():
            try:
                self._send_all([one for one in batch if one.key not in self._sent])
                self.error = None
                return all(one.key in self._sent for one in batch)
            except Exception:  # a store fails in many ways: full disk, restart, network; only time tells
                self.error = traceback.format_exc()
                self._stop.wait(RETRY_SECONDS[min(pauses, len(RETRY_SECONDS) - 1)])
                pauses += 1
        return False

    def _send_all(self, batch: Sequence[Ended]) -> None:
        """Into a database together, but for those that have a run; to a server side by side, those of one trial one after the other."""
        if self._database is not None:
            self._write_together(self._database, [one for one in batch if one.trial.content_hash not in self._open and not one.texts])
            return self._send_some(batch)
        of: dict[str, list[Ended]] = {}
        for one in batch:
            of.setdefault(one.result.trial, []).append(one)
        if len(of) == 1:
            return self._send_some(*of.values())
        with ThreadPoolExecutor(SENDERS) as pool:
            for call in [pool.submit(self._send_some, some) for some in of.values()]:
                call.result()

    def _write_together(self, database: Database, fresh: Sequence[Ended]) -> None:
        """Runs that do not exist yet. If the tables are not as we know them, these and all later ones go through the client."""
        try:
            database.write(fresh, [self._tags(one.trial) for one in fresh])
        except Exception as error:
            if database.is_away(error):
                raise
            self._database = None
            self._notes.append(f"runs are sent to MLflow one by one, as its tables take no others ({_first_line(error)})")
        else:
            self._sent.update(one.key for one in fresh)

    def _send_some(self, batch: Sequence[Ended]) -> None:
        for one in batch:
            if one.key not in self._sent and not self._stop.is_set():
                self._send(one)
                self._sent.add(one.key)

    def _show(self, trial: Trial, snapshot: dict[str, Any]) -> None:
        run_id, shown = self._run(trial, time.time() - snapshot["wall_seconds"])
        now, evaluations = int(time.time() * 1000), int(snapshot["evaluations"])
        if shown and evaluations <= shown[-1]:
            return
        values = {**snapshot["best"], "evaluations": evaluations, "wall_seconds": snapshot["wall_seconds"]}
        self._log(run_id, [(key, float(value), now, evaluations) for key, value in values.items()], {})
        shown.append(evaluations)

    def _tags(self, trial: Trial) -> dict[str, str]:
        """What a trial's run carries from its beginning."""
        tags = trial_tags(trial, self.spec.sweep)
        tags["mlflow.parentRunId"] = self._parent
        tags.update({k: v for k, v in self.spec.tags.items() if k.startswith(("git_", "mlflow.source", "mlflow.user"))})
        return tags

    def _run(self, trial: Trial, started_at: float) -> tuple[str, list[int]]:
        """The trial's open run, made if need be, and the steps it shows already."""
        key = trial.content_hash
        if key not in self._open:
            run = self._client.create_run(self._experiment, start_time=int(started_at * 1000) or None, tags=self._tags(trial))
            self._open[key] = (run.info.run_id, [])
        return self._open[key]

    def _send(self, one: Ended) -> None:
        trial, result = one.trial, one.result
        run_id, shown = self._run(trial, result.started_at)
        steps = set(shown)
        metrics = [m for m in result_metrics(result) if m[3] not in steps or (m[0] not in _CURVES and not m[0].startswith("best_"))]
        self._log(run_id, metrics, trial_params(trial), one.tags)
        for name, text in one.texts.items():
            self._client.log_text(run_id, text, name)
        self._client.set_terminated(run_id, one.status, one.end)
        del self._open[trial.content_hash]

    def _log(
        self, run_id: str, metrics: Sequence[tuple[str, float, int, int]], params: Mapping[str, str], tags: Mapping[str, str] | None = None
    ) -> None:
        """Everything in as few calls as MLflow's limits allow."""
        from mlflow.entities import Metric, Param, RunTag

        left = [Param(k, v) for k, v in params.items()]
        points = [Metric(*m) for m in metrics]
        labels = [RunTag(k, v) for k, v in (tags or {}).items()]
        while left or points or labels:
            now = min(len(points), BATCH_METRICS - BATCH_PARAMS)
            self._client.log_batch(run_id, metrics=points[:now], params=left[:BATCH_PARAMS], tags=labels)
            points, left, labels = points[now:], left[BATCH_PARAMS:], []


_CURVES = ("evaluations", "wall_seconds")


def _whole_lines(file: IO[bytes]) -> Iterator[bytes]:
    """Those that are there to their end."""
    for raw in iter(file.readline, b""):
        if not raw.endswith(b"\n"):
            file.seek(-len(raw), os.SEEK_CUR)
            return
        yield raw


def _line_sum(raw: bytes) -> str:
    return hashlib.sha256(raw).hexdigest()[:16]


def _line_before(path: Path, offset: int) -> str | None:
    """Checksum of the line that ends at ``offset``; empty at the beginning, None if no line ends there."""
    if offset == 0:
        return ""
    if not path.exists() or path.stat().st_size < offset:
        return None
    with path.open("rb") as file:
        start = 0
        for raw in file:
            start += len(raw)
            if start >= offset:
                return _line_sum(raw) if start == offset else None
    return None


def _first_line(error: BaseException) -> str:
    return masked((str(error).strip() or type(error).__name__).splitlines()[0])


def _under(parent: str) -> str:
    """The filter of a parent run's children."""
    return f"tags.`mlflow.parentRunId` = '{parent}'"
