"""A sweep's folder at a URL: what another machine takes up there, and who may write."""

from __future__ import annotations

import contextlib
import json
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import closing
from pathlib import Path

import fsspec
import platformdirs
import psutil
import pytest

from envs.problem.errors import InputError
from orchestration.analysis.load import sweep_folder
from orchestration.commands.status import sweep_status
from orchestration.driver.run_sweep import run_sweep
from orchestration.folder import mirror as module
from orchestration.folder.ledger import entries
from orchestration.folder.mirror import Mirror, assembled, driven, mirrored, stop
from orchestration.folder.remote import Remote, output_folder, output_view, url_of
from tests.orchestration.chaos import ROOT
from tests.orchestration.sweeps_for_tests import small_sweep


@pytest.fixture(autouse=True)
def quick(monkeypatch, tmp_path):
    """Seconds that matter to people alone, and a home folder of the test's own."""
    monkeypatch.setattr(module, "SILENT_SECONDS", 0.3)
    monkeypatch.setattr(module.time, "sleep", lambda _seconds, sleep=time.sleep: sleep(0.01))
    monkeypatch.setattr(platformdirs, "user_cache_path", lambda *_a, **_k: tmp_path / "cache")
    fsspec.filesystem("memory").store.clear()


@pytest.fixture(params=["file", "memory"])
def url(request, tmp_path) -> str:
    return f"file://{tmp_path}/bucket" if request.param == "file" else "memory://bucket"


def begun(url: str, folder: Path, **options) -> Mirror:
    mirror = Mirror(url, folder, lambda _line: None)
    mirror.claim()
    folder.mkdir(exist_ok=True, parents=True)
    for name, content in options.items():
        (folder / f"{name}.jsonl").write_text(content)
    mirror.begin()
    return mirror


def test_another_machine_finds_what_was_sent(url, tmp_path):
    one, other = tmp_path / "one", tmp_path / "other"
    mirror = begun(url, one, ledger="a\n")
    (one / "trials" / "t1").mkdir(parents=True)
    (one / "trials" / "t1" / "policy.safetensors").write_bytes(b"learned")
    with (one / "ledger.jsonl").open("a") as ledger:
        ledger.write("b\nhalf a li")
    with closing(sqlite3.connect(one / "measurements.sqlite")) as store:
        store.execute("PRAGMA journal_mode=WAL")
        store.execute("CREATE TABLE rows (x)")
        store.execute("INSERT INTO rows VALUES (7)")
        store.commit()
        mirror.sync()  # while the database is open, and its row still in the log
    (one / "ledger.lock").write_text("mine")
    assert mirror.close() is None
    second = begun(url, other)
    assert (other / "ledger.jsonl").read_text() == "a\nb\n"
    assert (other / "trials" / "t1" / "policy.safetensors").read_bytes() == b"learned"
    with closing(sqlite3.connect(other / "measurements.sqlite")) as store:
        assert store.execute("SELECT x FROM rows").fetchall() == [(7,)]
    assert not (other / "ledger.lock").exists() and second.epoch == 2
    second.close()


def test_the_same_machine_keeps_what_was_not_sent(url, tmp_path):
    """Killed before the last lines were sent: they are in the folder, which nobody else has gone on from."""
    mirror = begun(url, tmp_path / "one", ledger="a\n")
    mirror._stop.set()  # as if killed
    (tmp_path / "one" / "ledger.jsonl").write_text("a\nb\n")
    again = begun(url, tmp_path / "one")
    assert (tmp_path / "one" / "ledger.jsonl").read_text() == "a\nb\n"
    again.close()
    third = begun(url, tmp_path / "third")
    assert (tmp_path / "third" / "ledger.jsonl").read_text() == "a\nb\n"
    third.close()
    (tmp_path / "one" / "ledger.jsonl").write_text("a\nb\nstale\n")
    begun(url, tmp_path / "one").close()
    assert (tmp_path / "one" / "ledger.jsonl").read_text() == "a\nb\n", "another driver went on without that line"


def test_what_a_driver_sends_after_it_was_taken_for_dead_is_void(url, tmp_path, monkeypatch):
    stopped = []
    monkeypatch.setattr(module.os, "kill", lambda pid, number: stopped.append(number))
    monkeypatch.setattr(module, "runs_here", lambda _driver: False)
    old = begun(url, tmp_path / "old", ledger="a\n")
    new = begun(url, tmp_path / "new")
    for folder, line in ((tmp_path / "old", "late\n"), (tmp_path / "new", "b\n")):
        with (folder / "ledger.jsonl").open("a") as ledger:
            ledger.write(line)
    old.sync()
    new.sync()
    old.sync()
    remote = Remote(url)
    assert assembled(remote, remote.files(), "ledger.jsonl")[1]() == b"a\nb\n"
    old._keep_beating()
    assert stopped == [signal.SIGTERM] and "process" in old.taken
    assert old.close() is None and json.loads(remote.read("driver.json"))["epoch"] == new.epoch
    new.close()


def test_a_second_driver_is_refused_while_the_first_writes(url, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "SILENT_SECONDS", 30.0)
    monkeypatch.setattr(module, "BEAT_SECONDS", 0.05)
    first = begun(url, tmp_path / "one")
    with pytest.raises(InputError, match=r"the driver that is process \d+ of .* is writing to"):
        Mirror(url, tmp_path / "two", lambda _line: None).claim()
    first.close()
    begun(url, tmp_path / "two").close()


def test_a_driver_is_stopped_through_its_url(url, tmp_path, monkeypatch):
    stopped = []
    monkeypatch.setattr(module.os, "kill", lambda pid, number: stopped.append(number))
    monkeypatch.setattr(module, "BEAT_SECONDS", 0.05)
    monkeypatch.setattr(module, "url_of", lambda _home: url.rpartition("/")[0])
    with pytest.raises(InputError, match="no driver is running"):
        stop(url, 1.0)
    mirror = begun(url, tmp_path / "one", ledger="")
    assert driven(tmp_path, url.rpartition("/")[2])
    assert not stop(url, 0.5) and stopped == [signal.SIGTERM], "it was told, and goes on"
    mirror.close()
    assert not driven(tmp_path, url.rpartition("/")[2])
    later = begun(url, tmp_path / "one")
    threading.Timer(0.3, later.close).start()
    assert stop(url, 20.0)
    assert not any("cancel" in name for name in Remote(url).files())
    silent = begun(url, tmp_path / "one")
    silent._stop.set()
    for thread in silent._threads:
        thread.join()
    with pytest.raises(InputError, match=r"said nothing for 0\.3 s; it may have died"):
        stop(url, 0.3)


def test_a_driver_that_is_silent_is_taken_for_dead(url, tmp_path, monkeypatch):
    monkeypatch.setattr(module.socket, "gethostname", lambda: "a machine that is gone")
    begun(url, tmp_path / "one", ledger="a\n")._stop.set()
    monkeypatch.undo()
    monkeypatch.setattr(module, "SILENT_SECONDS", 0.1)
    said: list[str] = []
    mirror = Mirror(url, tmp_path / "two", said.append)
    mirror.claim()
    assert "did not say that it ended" in said[0] and "taking up" in said[1]
    assert (tmp_path / "two" / "ledger.jsonl").read_text() == "a\n"
    mirror.close()


def test_what_a_fresh_run_sets_aside_is_set_aside_there_too(url, tmp_path):
    folder = tmp_path / "one"
    mirror = begun(url, folder, ledger="a\nb\n")
    (folder / "trials" / "t").mkdir(parents=True)
    (folder / "trials" / "t" / "checkpoint.safetensors").write_bytes(b"old")
    mirror.close()
    again = Mirror(url, folder, lambda _line: None)
    again.claim()
    (folder / "ledger.jsonl").rename(folder / "ledger.1.jsonl")
    (folder / "trials").rename(folder / "trials.1")
    (folder / "ledger.jsonl").write_text("")
    again.begin()
    again.close()
    begun(url, tmp_path / "two").close()
    assert (tmp_path / "two" / "ledger.jsonl").read_text() == ""
    assert (tmp_path / "two" / "ledger.1.jsonl").read_text() == "a\nb\n"
    assert not (tmp_path / "two" / "trials").exists() and (tmp_path / "two" / "trials.1" / "t").is_dir()


def test_many_parts_are_put_together(url, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "MOST_PARTS", 5)
    mirror = begun(url, tmp_path / "one", ledger="")
    for i in range(8):
        with (tmp_path / "one" / "ledger.jsonl").open("a") as ledger:
            ledger.write(f"{i}\n")
        mirror.sync()
    mirror.close()
    begun(url, tmp_path / "two").close()
    remote = Remote(url)
    size, read, parts = assembled(remote, remote.files(), "ledger.jsonl")
    assert read() == b"".join(b"%d\n" % i for i in range(8)) and size == 16 and len(parts) == 1


def test_a_url_that_cannot_be_reached_costs_no_result(tmp_path, monkeypatch):
    said: list[str] = []
    monkeypatch.setattr(module, "END_SECONDS", 0.05)
    with mirrored(tmp_path / "one", "memory://bucket", said.append) as begin:
        (tmp_path / "one" / "ledger.jsonl").write_text("a\n")
        begin()

        def away(*_arguments):
            raise OSError("no route to host")

        monkeypatch.setattr(Remote, "write", away)
        (tmp_path / "one" / "ledger.jsonl").write_text("a\nb\n")
    assert "memory://bucket/one lacks what ended last (no route to host)" in said[0]
    monkeypatch.undo()
    monkeypatch.setattr(module, "SILENT_SECONDS", 0.1)
    monkeypatch.setattr(module, "runs_here", lambda _driver: False)
    begun("memory://bucket/one", tmp_path / "one").close()
    begun("memory://bucket/one", tmp_path / "two").close()
    assert (tmp_path / "two" / "ledger.jsonl").read_text() == "a\nb\n"


def test_names_that_lead_out_of_the_folder_are_refused(tmp_path):
    fsspec.filesystem("memory").pipe_file("/bucket/a/../../evil", b"x")
    with pytest.raises(InputError, match="leads out of"):
        Remote("memory://bucket").fetch(["../evil"], tmp_path / "one")


@pytest.mark.parametrize(("url", "what"), [("nope://x", "Protocol not known"), ("s3://bucket", "needs the package s3fs")])
def test_a_url_that_nothing_here_knows_is_wrong_input(tmp_path, url, what):
    if url.startswith("s3") and "s3fs" in sys.modules:
        pytest.skip("s3fs is here")
    with pytest.raises(InputError, match=what):
        Remote(url)


def test_an_output_url_stands_for_a_folder_of_this_machine():
    folder, view = output_folder("memory://bucket/lab/"), output_view("memory://bucket/lab")
    assert url_of(folder) == url_of(view) == "memory://bucket/lab" and folder != view
    assert folder == output_folder("memory://bucket/lab") != output_folder("memory://bucket/other")
    assert output_folder("some/folder") == Path("some/folder") and url_of(Path("some/folder")) is None


@pytest.mark.thorough
def test_a_sweep_at_a_url_goes_on_where_its_folder_is_gone(tmp_path):
    sweep = small_sweep(tmp_path)
    output = output_folder("memory://bucket")
    first = run_sweep(sweep, local=True, output=output)
    shutil.rmtree(output)
    output = output_folder("memory://bucket")
    again = run_sweep(sweep, local=True, output=output)
    assert (again.finished, again.skipped) == (0, first.finished)
    view = output_view("memory://bucket")
    folder = sweep_folder("small", view)
    assert len(list(entries(folder))) == first.finished and not (folder / "trials").exists()
    status = sweep_status(sweep, folder)
    assert not status.active and sum(sum(c.values()) for c in status.stages.values()) == first.finished


SWEEP = """
sweep: away
problems:
  networks: {n4: {synthetic: {devices: 4}, seed: 0}}
  graphs: {a: {synthetic: {tasks: 20}, seed: 0}}
methods: [local-search, random]
seeds: 0..3
checkpoint_every: 2000
budget: 30000
evaluator: {kind: simulator, local: true}
stages:
  tune:
    kind: search
    methods: [local-search]
    search: {space: {batch: {int: [4, 32]}}, configurations: 4, sampler: tpe, seed: 0}
  tuned: {kind: search, config_from: tune}
"""


def switch_off(driver: subprocess.Popen[bytes]) -> None:
    """End a driver as its machine would: its Ray and its workers too, which write to its folder for a moment longer."""
    processes = psutil.Process(driver.pid).children(recursive=True) if driver.poll() is None else []
    driver.kill()
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    driver.wait()
    psutil.wait_procs(processes, 30)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_killed_driver_is_taken_up_from_the_url_to_the_same_tables(tmp_path):
    """SIGKILL, and everything that it left on its machine is deleted, MLflow's store too."""
    path = tmp_path / "away.yaml"
    path.write_text(SWEEP)
    bucket = f"file://{tmp_path}/bucket"

    def drive(machine: str, *options: str) -> subprocess.Popen[bytes]:
        import os

        environment = {**os.environ, "PYTHONPATH": str(ROOT), "XDG_CACHE_HOME": str(tmp_path / machine)}
        command = [sys.executable, "-m", "orchestration.cli.main", "run", str(path), *options]
        with (tmp_path / "log").open("ab") as log:
            return subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=log, stderr=log)

    def sent() -> int:
        """Lines of the ledger at the URL."""
        remote = Remote(f"{bucket}/away")
        return assembled(remote, remote.files(), "ledger.jsonl")[1]().count(b"\n")

    for machine in ("a", "b"):
        before = sent()
        driver = drive(machine, "--output", bucket)
        deadline = time.monotonic() + 300
        while time.monotonic() < deadline and driver.poll() is None and sent() < before + 2:
            time.sleep(0.5)
        switch_off(driver)
        shutil.rmtree(tmp_path / machine)
    driver = drive("c", "--output", bucket)
    assert driver.wait() == 0, (tmp_path / "log").read_text()[-4000:]
    assert drive("d", "--local", "--output", str(tmp_path / "whole")).wait() == 0
    for name in ("runs.csv", "leaderboard.csv"):
        assert (tmp_path / "bucket" / "away" / name).read_bytes() == (tmp_path / "whole" / "away" / name).read_bytes(), name
