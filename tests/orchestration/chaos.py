"""A sweep under fire: ``python -m tests.orchestration.chaos --seed 1``.

One sweep is run twice: in one process without Ray, undisturbed, and on a Ray cluster of three nodes while simulators, the reward
service, the tracker, workers, whole nodes and the driver are killed (SIGKILL) at random; each dead driver is started again by
the same command, each dead node is replaced. Both must leave the same tables, byte for byte, and each trial exactly one finished
MLflow run. With ``--besides`` the sweep is tracked by a server that is killed and comes back, workers are stopped for a minute
(SIGSTOP), and the disk that it writes to is full for a while (which needs the right to mount one).
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from orchestration.folder.ledger import parse
from orchestration.specs.layout import LEDGER
from orchestration.specs.results import TrialResult
from tests.orchestration.ray_cluster import Nodes, ray_nodes
from tests.orchestration.servers import MlflowServer

ROOT = Path(__file__).resolve().parents[2]
SWEEP = """
sweep: chaos
problems:
  networks: {n4: {synthetic: {devices: 4}, seed: 0}}
  graphs:
    train: {synthetic: {tasks: 8}, seeds: 0..1}
    test: {synthetic: {tasks: 10}, seeds: 10..12}
methods: {random: , local-search: , placeto: {rounds: 2}}
seeds: 0..2
checkpoint_every: 64
propose: 16
budget: 320
stages:
  tune:
    kind: search
    on: train
    methods: [local-search]
    seeds: [0, 1]
    search: {space: {batch: {int: [4, 32]}, critical: [0.5, 0.7, 1.0]}, configurations: 8, sampler: tpe, pruner: median, seed: 0}
  tuned: {kind: search, config_from: tune, on: test}
  baseline: {kind: search, on: test, methods: [random, local-search], seeds: 0..4}
  pretrain: {on: train, methods: [placeto], budget: 96}
  finetune: {from: pretrain, on: test, budget: 96}
  zero-shot: {from: pretrain, on: test}
"""
VICTIMS = {
    "host": ("SimulatorActor",),
    "service": ("ServiceActor",),
    "tracker": ("Tracker",),
    "worker": ("run_task", "IDLE"),
}
"""What kinds of processes Ray calls how, in their titles ``ray::NAME``."""
KILLS = ["host"] * 6 + ["worker"] * 5 + ["driver"] * 4 + ["node"] * 3 + ["service"] * 2 + ["tracker"] * 2
"""What is killed; the seed decides in which order and when."""
BESIDES = ["stop"] * 2 + ["server"] * 2 + ["disk"] * 2
"""What else is done with ``--besides``."""
STOPPED_SECONDS, SERVER_AWAY_SECONDS, FULL_SECONDS = 60.0, 20.0, 20.0
DISK = "64m"
OWN_FAULT, REFUSED = 1, 2
"""Exit codes of a driver that ended with trials that failed or with a full disk, and of one that did not begin or could not write."""


@dataclass
class Report:
    """How it went."""

    seed: int
    trials: int = 0
    kills: collections.Counter[str] = field(default_factory=collections.Counter)
    besides: collections.Counter[str] = field(default_factory=collections.Counter)
    """What else was done (`BESIDES`)."""
    drivers: int = 0
    """Times that the command was started."""
    resumed: int = 0
    """Trials that went on from a checkpoint."""
    seconds: float = 0.0
    faults: list[str] = field(default_factory=list)
    """What is wrong; empty if all is as it must be."""


class Driver:
    """The command that runs the sweep."""

    def __init__(self, sweep: Path, output: Path, environment: dict[str, str], *options: str) -> None:
        self._command = [sys.executable, "-m", "orchestration.cli.main", "run", str(sweep), "--output", str(output), *options]
        self._environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT), **environment}
        self.log = output.parent / f"{output.name}.log"
        self.starts = 0
        self.process: Any = None

    def start(self) -> None:
        with self.log.open("a") as log:
            self.process = subprocess.Popen(self._command, cwd=ROOT, env=self._environment, stdout=log, stderr=log)
        self.starts += 1

    def ended(self) -> int | None:
        return self.process.poll()


class Besides:
    """What is done besides kills, each for a while; `recover` undoes it in time."""

    def __init__(self, folder: Path) -> None:
        self.output = folder
        self.output.mkdir(parents=True, exist_ok=True)
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK}", "tmpfs", str(folder)], check=True)
        self.server = MlflowServer(f"sqlite:///{folder.parent / f'{folder.name}-server.db'}", folder.parent)
        self.server.start()
        self._later: list[tuple[float, str, Callable[[], object]]] = []

    def begin(self, kind: str, rng: random.Random) -> bool:
        """Do it, if it can be done now: one of each kind at a time."""
        if any(kind == pending for _, pending, _ in self._later):
            return False
        if kind == "stop":
            found = victims("worker")
            if not found:
                return False
            process = rng.choice(found)
            with contextlib.suppress(psutil.Error):
                process.suspend()
            self._undo(kind, STOPPED_SECONDS, lambda: _resume(process))
        elif kind == "server":
            self.server.kill()
            self._undo(kind, SERVER_AWAY_SECONDS, self.server.start)
        else:
            filler = self.output / "filler"
            with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
                for size in (1 << 20, 1 << 12, 1):
                    with contextlib.suppress(OSError):
                        while True:
                            file.write(b"x" * size)
            self._undo(kind, FULL_SECONDS, lambda: filler.unlink(missing_ok=True))
        return True

    def _undo(self, kind: str, seconds: float, how: Callable[[], object]) -> None:
        self._later.append((time.monotonic() + seconds, kind, how))

    def recover(self, all_: bool = False) -> bool:
        """Undo what is due; whether nothing is left to be undone."""
        for one in list(self._later):
            if all_ or one[0] <= time.monotonic():
                self._later.remove(one)
                one[2]()
        return not self._later

    def close(self) -> None:
        self.recover(all_=True)
        self.server.kill()
        subprocess.run(["umount", "--lazy", str(self.output)], check=False)


def _resume(process: psutil.Process) -> None:
    with contextlib.suppress(psutil.Error):
        process.resume()


def lines(folder: Path) -> int:
    """Trials in the ledger."""
    path = folder / LEDGER
    return path.read_bytes().count(b"\n") if path.exists() else 0


def victims(kind: str) -> list[psutil.Process]:
    """Processes of the cluster under this process, of one kind."""
    found = []
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            title = " ".join(process.cmdline())
            if title.startswith(tuple(f"ray::{name}" for name in VICTIMS[kind])):
                found.append(process)
    return found


def kill_one(kind: str, rng: random.Random, nodes: Nodes, driver: Driver) -> bool:
    """Kill something of a kind, if there is one."""
    if kind == "driver":
        driver.process.kill()
        driver.process.wait()
        driver.start()
        return True
    if kind == "node":
        nodes.kill(rng.randrange(nodes.workers))
        nodes.add()
        return True
    found = victims(kind)
    if not found:
        return False
    with contextlib.suppress(psutil.Error):
        rng.choice(found).kill()
        return True
    return False


def disturb(nodes: Nodes, driver: Driver, folder: Path, report: Report, patience: float, besides: Besides | None = None) -> None:
    """Kill at random as the sweep goes on, start again what ended too early, return when the sweep is done."""
    rng = random.Random(report.seed)
    kills = list(KILLS) + (BESIDES if besides else [])
    rng.shuffle(kills)
    deadline = time.monotonic() + patience
    due = rng.randrange(3)
    while time.monotonic() < deadline:
        code = driver.ended()
        sound = besides is None or besides.recover()
        if code == 0 and not kills:
            return
        if code is not None:
            if code == 0:
                report.faults.append(f"the sweep ended after {report.kills.total()} kills, before the last one")
                return
            if not sound:  # it could not begin again
                time.sleep(0.2)
                continue
            if code not in (OWN_FAULT, -9) and not (besides and code == REFUSED):
                report.faults.append(f"the driver ended with {code}: {driver.log.read_text()[-2000:]}")
                return
            driver.start()
        # By progress, not by time: so a busy machine gets as far between two kills as an idle one.
        if kills and lines(folder) >= due:
            kind = kills[-1]
            if besides.begin(kind, rng) if besides and kind in BESIDES else kill_one(kind, rng, nodes, driver):
                (report.besides if kind in BESIDES else report.kills)[kills.pop()] += 1
                now = time.strftime("%X")
                done = "begun" if kind in BESIDES else "killed"
                print(f"{now} seed {report.seed}: {kind} {done} at {lines(folder)} trials, {len(kills)} to go", file=sys.stderr)
                due = lines(folder) + rng.randrange(4)
                time.sleep(rng.uniform(0.0, 3.0))
        time.sleep(0.2)
    report.faults.append(f"not done after {patience:.0f} s: {driver.log.read_text()[-2000:]}")


def check(expected: Path, folder: Path, report: Report, store: str | None = None) -> None:
    """Everything that must hold of the disturbed run, which is tracked in ``store``, by default the one beside it."""
    for name in ("runs.csv", "leaderboard.csv"):
        if (expected / name).read_bytes() != (folder / name).read_bytes():
            report.faults.append(f"{name} differs")
    undisturbed, disturbed = recorded(expected), recorded(folder)
    report.trials = len(undisturbed)
    report.resumed = sum(r.resumed > 0 for rs in disturbed.values() for r in rs)
    if undisturbed.keys() != disturbed.keys():
        report.faults.append("other trials ran")
    for trial, (result,) in undisturbed.items():
        ended = [r for r in disturbed.get(trial, []) if not r.infrastructure]
        if len(ended) != 1:
            report.faults.append(f"trial {trial[:12]} ended {len(ended)} times")
        elif ended[0].content() != result.content():
            report.faults.append(f"trial {trial[:12]} has another result")
        elif sum(ended[0].outcomes.values()) != ended[0].evaluations:
            report.faults.append(f"trial {trial[:12]} counts {ended[0].evaluations} evaluations but has {sum(ended[0].outcomes.values())}")
    check_tracking(store or f"sqlite:///{folder.parent / 'mlflow.db'}", disturbed, report)


def recorded(folder: Path) -> dict[str, list[TrialResult]]:
    """Every line of the ledger, by trial; not only the last one of each."""
    found = collections.defaultdict(list)
    for raw in (folder / LEDGER).read_bytes().splitlines():
        result = parse(raw)[1]
        found[result.trial].append(result)
    return dict(found)


def check_tracking(store: str, results: dict[str, list[TrialResult]], report: Report) -> None:
    """In MLflow each trial has exactly one finished run, with as many evaluations; nothing is still running."""
    import mlflow

    client = mlflow.MlflowClient(store)
    experiment = client.get_experiment_by_name("chaos")
    runs = list(client.search_runs([experiment.experiment_id], "tags.kind != 'sweep'", max_results=10_000))
    finished = collections.defaultdict(list)
    for run in runs:
        if run.info.status == "FINISHED":
            finished[run.data.tags["trial"]].append(run)
    running = [r for r in runs if r.info.status == "RUNNING"]
    if running:
        report.faults.append(f"{len(running)} runs are still running")
    if finished.keys() != results.keys():
        report.faults.append(f"{len(results.keys() - finished.keys())} trials have no finished run")
    for trial, own in finished.items():
        if len(own) != 1:
            report.faults.append(f"trial {trial[:12]} has {len(own)} finished runs")
        for run in own:
            if run.data.metrics["evaluations"] != results[trial][-1].evaluations:
                report.faults.append(f"run {run.info.run_id} shows {run.data.metrics['evaluations']} evaluations")


def undisturbed_run(folder: Path) -> Path:
    """The sweep in one process, without Ray; returns its directory."""
    sweep = folder / "chaos.yaml"
    sweep.write_text(SWEEP)
    driver = Driver(sweep, folder / "local", {}, "--local")
    driver.start()
    if driver.process.wait() != 0:
        raise RuntimeError(driver.log.read_text()[-4000:])
    return folder / "local" / "chaos"


def chaos(seed: int, folder: Path, expected: Path, patience: float = 3000.0, besides: bool = False) -> Report:
    """Run the sweep of ``expected`` once more, under fire."""
    report, begin, output = Report(seed), time.monotonic(), folder / f"seed-{seed}"
    with contextlib.ExitStack() as stack:
        more = stack.enter_context(contextlib.closing(Besides(output))) if besides else None
        nodes = stack.enter_context(ray_nodes(workers=2))
        store = ["--tracking-uri", more.server.uri] if more else []
        driver = Driver(folder / "chaos.yaml", output, nodes.environment, "--address", nodes.address, *store)
        driver.start()
        try:
            disturb(nodes, driver, output / "chaos", report, patience, more)
        finally:
            if driver.ended() is None:
                driver.process.kill()
                driver.process.wait()
        report.drivers, report.seconds = driver.starts, time.monotonic() - begin
        said = driver.log.read_text()
        report.faults += [f"the driver says {what!r}" for what in ("please report", "Traceback") if what in said]
        if driver.ended() == 0:
            check(expected, output / "chaos", report, *store[1:])
    return report


def main() -> int:
    """Run, say how it went; 1 if something is wrong."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seed", type=int, action="append", help="seed of the kills; may be repeated (0)")
    parser.add_argument("--besides", action="store_true", help="stop workers, fill the disk and kill the tracking server, too")
    parser.add_argument("--folder", type=Path, help="where to leave everything; by default a temporary folder")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the cluster ends with this process
    folder = args.folder or Path(tempfile.mkdtemp(prefix="placewright-chaos-"))
    folder.mkdir(parents=True, exist_ok=True)
    print(f"everything lies in {folder}", flush=True)
    expected = undisturbed_run(folder)
    wrong = False
    for seed in args.seed or [0]:
        report = chaos(seed, folder, expected, besides=args.besides)
        print(
            json.dumps({**vars(report), "kills": dict(report.kills), "besides": dict(report.besides), "total": report.kills.total()}),
            flush=True,
        )
        wrong |= bool(report.faults)
    return int(wrong)


if __name__ == "__main__":
    sys.exit(main())
