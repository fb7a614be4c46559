"""Nothing is lost with a machine: trials on nodes that do not see the driver's folder."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace

import pytest

from orchestration.driver import remote_task
from orchestration.driver.remote_task import Courier, Home, Keeper, scratch
from orchestration.folder.ledger import Ledger, entries
from orchestration.folder.lock import holder
from orchestration.specs.layout import CHECKPOINT, trial_folder
from orchestration.specs.state_files import load_state, save_state
from orchestration.specs.trial import TrialTask
from orchestration.trials.run_trial import evaluations
from orchestration.trials.worker import execute
from tests.orchestration.ray_cluster import Nodes, ray_nodes
from tests.orchestration.sweeps_for_tests import trial

ROOT = Path(__file__).resolve().parents[3]


class Handle:
    """The handle of a `Keeper` that lives here; what it was asked last is on its way until `arrive`."""

    def __init__(self, folder: Path) -> None:
        self.keeper, self.sent = Keeper(folder), 0
        self.keep = SimpleNamespace(remote=self._keep)

    def _keep(self, *arguments):
        self.last: Future[None] = Future()
        self.arguments, self.sent = arguments, self.sent + 1
        return SimpleNamespace(future=lambda: self.last)

    def arrive(self):
        self.keeper.keep(*self.arguments)
        self.last.set_result(None)


def state(done: int) -> dict:
    return {"runner": {"evaluations": done}, "method": {}}


def test_checkpoints_go_to_the_driver_every_so_often_and_one_at_a_time(tmp_path, monkeypatch):
    one, now = trial(), [100.0]
    monkeypatch.setattr(remote_task.time, "monotonic", lambda: now[0])
    handle = Handle(tmp_path / "driver")
    courier, path = Courier(one, handle, None, None), tmp_path / CHECKPOINT
    kept = trial_folder(tmp_path / "driver", one.content_hash) / CHECKPOINT
    for seconds, arrives, sent in ((0, False, 1), (60, True, 1), (5, False, 2), (5, False, 2)):
        now[0] += seconds
        save_state(path, state(int(now[0])))
        courier.saved(path)
        assert handle.sent == sent, now
        if arrives:
            handle.arrive()
    handle.arrive()
    now[0] += 1
    save_state(path, state(7))
    courier.saved(path)
    courier._send()  # as `flush` does, which waits for it
    handle.arrive()
    assert evaluations(load_state(kept)) == 7


def test_a_trial_goes_on_from_whatever_got_furthest(tmp_path):
    """The checkpoint that the driver has, or one of the machine's own; a damaged one counts for nothing."""
    one = trial("local-search", 400, checkpoint_every=50)
    whole = execute(TrialTask(one), str(tmp_path / "whole"), "s", lambda *_: None)
    path = trial_folder(tmp_path / "far", one.content_hash) / CHECKPOINT
    execute(TrialTask(one, until=200), str(tmp_path / "far"), "s", lambda *_: None)
    far = path.read_bytes()
    execute(TrialTask(one, until=80), str(tmp_path / "near"), "s", lambda *_: None)
    early = (trial_folder(tmp_path / "near", one.content_hash) / CHECKPOINT).read_bytes()

    def resumed(folder: str, sent: bytes) -> int:
        driver = Courier(one, None, None, None)
        driver.checkpoint = lambda: sent
        seen: list[int] = []
        driver.saved = lambda path: seen.append(evaluations(load_state(path)))
        ended = execute(TrialTask(one), str(tmp_path / folder), "s", lambda *_: None, driver=driver)
        assert ended.best == whole.best and ended.evaluations == 400
        return seen[0]

    assert resumed("near", far) > 200, "what the driver has got further"
    assert resumed("new", early) > 80
    assert resumed("damaged", far[:-1]) < 120, "from the beginning"


def test_a_worker_knows_the_driver_s_folder_by_its_lock(tmp_path):
    with Ledger(tmp_path / "here"):
        mark = holder(tmp_path / "here")["run"]
        home = Home("driver", str(tmp_path / "here"), mark)
        assert home.seen_from("driver") and home.seen_from("other"), "a shared folder"
        assert not home._replace(mark="elsewhere").seen_from("other") and not home._replace(mark="").seen_from("other")
        assert home._replace(mark="").seen_from("driver")
    with Ledger(tmp_path / "here"):
        assert not home.seen_from("other"), "the folder of another run"


def test_every_node_and_run_has_a_scratch_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.setattr(remote_task.tempfile, "gettempdir", lambda: str(tmp_path))
    home = Home("driver", "/data/s", "a")
    folders = {scratch("n1", home), scratch("n2", home), scratch("n1", home._replace(mark="b")), scratch("n1", home)}
    assert len(folders) == 3 and all(f.is_dir() and tmp_path in f.parents for f in folders)


LONG = """
sweep: long
problems:
  networks: {n4: {synthetic: {devices: 4}, seed: 0}}
  graphs: {a: {synthetic: {tasks: 20}, seed: 0}}
methods: [local-search]
seeds: [0, 1, 2]
checkpoint_every: 5000
budget: 400000
evaluator: {kind: simulator, local: true}
"""
APART = """
import sys
from orchestration.driver import backends
from orchestration.cli.main import main
backends.holder = lambda folder: {"run": "on another disk"}
sys.exit(main(sys.argv[1:]))
"""
"""The command, whose workers do not find its folder's mark: as if they had another disk."""


def drive(nodes: Nodes, sweep: Path, output: Path) -> subprocess.Popen[bytes]:
    environment = {**os.environ, **nodes.environment, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", APART, "run", str(sweep), "--output", str(output), "--address", nodes.address]
    with (output.parent / "driver.log").open("ab") as log:
        return subprocess.Popen(command, cwd=ROOT, env=environment, stdout=log, stderr=log)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_trial_of_a_killed_node_goes_on_elsewhere(tmp_path):
    sweep, folder = tmp_path / "long.yaml", tmp_path / "out" / "long"
    sweep.write_text(LONG)
    with ray_nodes(workers=2, cpus=1) as nodes:
        driver = drive(nodes, sweep, tmp_path / "out")
        deadline = time.monotonic() + 300
        while len(list(folder.glob(f"trials/*/{CHECKPOINT}"))) < 3 and time.monotonic() < deadline:
            time.sleep(0.2)
        time.sleep(12)  # each was sent twice
        before = {p.parent.name: evaluations(load_state(p)) for p in folder.glob(f"trials/*/{CHECKPOINT}")}
        nodes.kill(0)
        assert driver.wait() == 0, (tmp_path / "driver.log").read_text()[-4000:]
    found = {t.content_hash: r for t, r in entries(folder)}
    assert len(before) == len(found) == 3 and all(r.status == "finished" for r in found.values())
    assert [r.resumed for r in sorted(found.values(), key=lambda r: r.resumed)] == [0, 0, 1]
    assert min(before.values()) > 10_000
    local = tmp_path / "local"
    command = [sys.executable, "-m", "orchestration.cli.main", "run", str(sweep), "--output", str(local), "--local"]
    subprocess.run(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=True, capture_output=True)
    for name in ("runs.csv", "leaderboard.csv"):
        assert (folder / name).read_bytes() == (local / "long" / name).read_bytes(), name
