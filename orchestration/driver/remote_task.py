"""A trial as a Ray task, on the driver's machine or on one that shares no disk with it: where it works there, and how what it has saved
reaches the driver. How a trial runs belongs to ``orchestration/trials/worker.py``."""

from __future__ import annotations

import contextlib
import hashlib
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import ray

from orchestration.folder.ledger import TrialEnd
from orchestration.folder.lock import holder
from orchestration.rewards.machine_lock import own_folder
from orchestration.specs.files import write_atomic
from orchestration.specs.layout import CHECKPOINT, trial_folder
from orchestration.specs.state_files import previous
from orchestration.specs.trial import Trial, TrialTask
from orchestration.trials.worker import execute, policy_path

SEND_SECONDS = 10.0
"""Checkpoints of a trial that works on a disk of its own are sent to the driver no more often than this."""


class Home(NamedTuple):
    """Where the driver works: how a worker finds out whether it sees the driver's folder."""

    node: str
    folder: str
    mark: str
    """Of this run, as it stands in the folder's lock; empty if there is none."""
    keeper: Any = None
    """Handle of the `Keeper`."""

    def seen_from(self, node: str) -> bool:
        """Whether that node, on which this is called, has the driver's folder."""
        return node == self.node or bool(self.mark and holder(Path(self.folder)).get("run") == self.mark)


class Keeper:
    """An actor on the driver's node that writes checkpoints of trials elsewhere into the sweep's folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def keep(self, trial: str, data: bytes) -> None:
        """Keep the latest checkpoint of a trial, by its content hash; its checksum is looked at by who reads it."""
        path = trial_folder(self._folder, trial) / CHECKPOINT
        with contextlib.suppress(OSError):  # a full disk: a trial needs it only if its node dies
            write_atomic(path, data, previous(path))


class Courier:
    """What a trial on a disk of its own gets from the driver and sends there (`orchestration.trials.worker.Elsewhere`)."""

    def __init__(self, trial: Trial, keeper: Any, policy: list[Any] | None, checkpoint: list[Any] | None) -> None:
        self._trial, self._keeper, self._policy, self._checkpoint = trial.content_hash, keeper, policy, checkpoint
        self._sent_at = 0.0
        self._last: Path | None = None
        """What was saved and not sent."""
        self._sending: Any = None

    def policy(self) -> bytes | None:
        """The parent's policy file."""
        return None if self._policy is None else ray.get(self._policy[0])

    def checkpoint(self) -> bytes | None:
        """The trial's last checkpoint that reached the driver."""
        return None if self._checkpoint is None else ray.get(self._checkpoint[0])

    def saved(self, path: Path) -> None:
        """Send what was saved at ``path``, unless the last one is young or still on its way."""
        self._last = path
        if time.monotonic() - self._sent_at >= SEND_SECONDS and (self._sending is None or self._sending.done()):
            self._send()

    def flush(self) -> None:
        """Send what has not been sent, and wait until it is there."""
        if self._last is not None:
            self._send()
        if self._sending is not None:
            with contextlib.suppress(ray.exceptions.RayError):  # the keeper died, and the driver with it or soon to notice
                self._sending.result()

    def _send(self) -> None:
        if self._keeper is not None and self._last is not None:
            self._sending = self._keeper.keep.remote(self._trial, self._last.read_bytes()).future()
            self._sent_at, self._last = time.monotonic(), None


def scratch(node: str, home: Home) -> Path:
    """Where trials of this run work on a node that does not see the driver's folder: a folder of the user's own in its temporary folder."""
    name = hashlib.sha256(f"{node}/{home.mark}/{home.folder}".encode()).hexdigest()[:16]
    parent = own_folder(Path(tempfile.gettempdir())) / "trials" / name
    parent.mkdir(parents=True, exist_ok=True)
    return parent


def run_task(
    task: TrialTask, sweep: str, tracker: Any, service: Any, policy: list[Any] | None, checkpoint: list[Any] | None, home: Home
) -> tuple[tuple[TrialEnd, bool], bytes | None]:
    """The body of a Ray task: how the trial ended and whether there is a policy file to be sent, and that file."""
    trial, node = task.trial, ray.get_runtime_context().get_node_id()

    last: list[Any] = []

    def report(shown: Trial, snapshot: dict[str, Any]) -> None:
        """Unless the last one is still on its way: a tracker that is slower than its trials must not collect their reports."""
        if tracker is not None and not (last and not ray.wait(last, timeout=0)[0]):
            last[:] = [tracker.live.remote(shown, snapshot)]

    if home.seen_from(node):
        return (execute(task, home.folder, sweep, report, service), False), None
    folder, courier = scratch(node, home), Courier(trial, home.keeper, policy, checkpoint)
    ended = execute(task, str(folder), sweep, report, service, courier)
    if ended.status == "paused":  # it may go on anywhere
        courier.flush()
        return (ended, False), None
    learned = policy_path(folder, trial.content_hash)
    data = learned.read_bytes() if ended.status == "finished" and learned.exists() else None
    if not ended.infrastructure:
        shutil.rmtree(learned.parent, ignore_errors=True)
    return (ended, data is not None), data
