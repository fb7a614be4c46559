"""One trial in a worker: its evaluator, its live reports, its record. The same function runs in the driver's process and as
a Ray task. What runs when does not belong here."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from envs.graphs import capture
from envs.problem.errors import InputError
from envs.problem.measurement import Evaluator
from orchestration.folder.ledger import TrialEnd
from orchestration.rewards.evaluators import InfrastructureError, build_evaluator, in_worker, simulates
from orchestration.specs.files import write_atomic
from orchestration.specs.layout import CHECKPOINT, POLICY, trial_folder
from orchestration.specs.sources import count_nodes
from orchestration.specs.state_files import Damaged, damaged, load_latest, load_state, previous, state_of
from orchestration.specs.trial import ProblemSpec, Trial, TrialTask
from orchestration.tracking.run_contents import reached
from orchestration.trials.output_capture import capturing
from orchestration.trials.progress import Progress
from orchestration.trials.run_trial import evaluations, failed, run_trial

LIVE_SECONDS = 5.0
"""A running trial reports this often; shorter trials only at their end."""


class CaptureEnd(NamedTuple):
    """What became of the capture of a graph."""

    operations: int
    seconds: float
    error: str = ""
    """Why there is no graph, in one sentence; empty if there is one."""


Report = Callable[[Trial, dict[str, Any]], object]


class Elsewhere(Protocol):
    """The driver, of a trial that works on a disk of its own."""

    def policy(self) -> bytes | None:
        """The file of what the trial's parent learned; None if there is none."""
        ...

    def checkpoint(self) -> bytes | None:
        """The file that the trial left wherever it ran before; None if there is none."""
        ...

    def saved(self, path: Path) -> None:
        """A checkpoint was written."""
        ...


class LiveRecorder:
    """Shows long trials while they run."""

    def __init__(self, trial: Trial, report: Report, driver: Elsewhere | None = None) -> None:
        self._trial, self._report, self._last, self._driver = trial, report, time.monotonic(), driver

    def saved(self, path: Path) -> None:
        """Tell a driver elsewhere."""
        if self._driver is not None:
            self._driver.saved(path)

    def progress(self, state: Progress) -> None:
        """Report, if the last report is old enough."""
        if time.monotonic() - self._last < LIVE_SECONDS:
            return
        self._last = time.monotonic()
        one = len(state.problems) == 1
        best, step = {}, 0
        for spec, problem in zip(self._trial.problems, state.problems, strict=True):
            step, value = reached(problem.curve, state.evaluations)
            if value is not None:
                best[f"best_{spec.objective}" if one else f"best_{spec.objective}/{spec.label}"] = value
        self._report(self._trial, {"evaluations": step, "wall_seconds": state.wall_seconds, "best": best})


def execute(task: TrialTask, folder: str, sweep: str, report: Report, service: Any = None, driver: Elsewhere | None = None) -> TrialEnd:
    """Run a trial to its end or pause, whatever happens; failures become records.

    Args:
        folder: the sweep's directory, or one of this machine in its place, with checkpoint and policy, and the parent's policy.
        service: handle of the reward service; None measures in this process.
        driver: where the sweep's directory is, if not here: asked for what this machine lacks, and told what was saved.
    """
    trial, started = task.trial, time.time()
    with capturing() as output:
        try:
            root = Path(folder)
            policy = None
            if trial.parent is not None:
                policy = _load_policy(policy_path(root, trial.parent), driver)
            if driver is not None and (data := driver.checkpoint()) is not None:
                _adopt(trial_folder(root, trial.content_hash) / CHECKPOINT, data)
            result = run_trial(
                trial, _evaluator(trial, service, root), LiveRecorder(trial, report, driver),
                checkpoint_dir=trial_folder(root, trial.content_hash), parent_policy=policy, until=task.until, sweep=sweep,
            )  # fmt: skip
        except (Exception, SystemExit) as error:
            result = replace(failed(trial, error, sweep, started), log=output.text or None)
    return TrialEnd.of(trial, result)


def _adopt(path: Path, data: bytes) -> None:
    """Put a checkpoint from elsewhere at ``path``, unless the one there is sound and got further."""
    try:
        sent = evaluations(state_of(data, path))
    except InputError:  # damaged on its way: from the beginning, or what lies here, the result is the same
        return
    here, _ = load_latest(path)
    if here is None or evaluations(here) < sent:
        write_atomic(path, data, previous(path))


def _load_policy(path: Path, driver: Elsewhere | None) -> dict[str, Any] | None:
    """What a parent learned, from this machine's disk or else from elsewhere; None if it left nothing.

    Raises:
        InfrastructureError: if the file is damaged; it is set aside, and the driver finds that it must be made again.
    """
    if not path.exists() and driver is not None and (data := driver.policy()) is not None:
        write_atomic(path, data)
    try:
        if path.exists():
            return load_state(path)
    except Damaged:
        path.replace(damaged(path))
    if damaged(path).exists():
        raise InfrastructureError(f"policy {path} was found damaged and is set aside; the trial that left it is to run again")
    return None


def policy_path(folder: Path, trial_hash: str) -> Path:
    """Where a trial leaves what it learned, for those that start from it."""
    return trial_folder(folder, trial_hash) / POLICY


def _evaluator(trial: Trial, service: Any, folder: Path) -> Evaluator:
    if in_worker(trial.evaluator) or (service is None and simulates(trial.evaluator.kind)):
        return build_evaluator(trial.evaluator)
    if service is None:
        from orchestration.rewards.local_service import LocalHost, sweep_store

        return LocalHost(trial.evaluator, sweep_store(folder))
    from orchestration.rewards.client import ServiceClient

    return ServiceClient(service, trial.evaluator, trial.content_hash, priority=trial.priority)


def capture_graph(spec: ProblemSpec) -> CaptureEnd:
    """Capture a problem's graph and keep it on this machine's disk, whatever happens; the trials on it say what went wrong."""
    begin, logger = time.perf_counter(), logging.getLogger(capture.__name__)
    silent, logger.disabled = logger.disabled, True  # who asked says it
    try:
        return CaptureEnd(count_nodes(spec), time.perf_counter() - begin)
    except Exception as error:
        return CaptureEnd(0, time.perf_counter() - begin, (str(error).strip().splitlines() or [type(error).__name__])[0])
    finally:
        logger.disabled = silent


def lost(trial: Trial, reason: str, sweep: str) -> TrialEnd:
    """The record of a trial whose worker or node died."""
    return TrialEnd.of(trial, failed(trial, InfrastructureError(reason), sweep, time.time()))
