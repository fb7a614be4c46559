"""Real measurements under fire: ``python -m tests.orchestration.chaos_real``.

A sweep measures placements on this machine through the reward service on Ray. The process that measures is killed twice in the middle of a
measurement, the host's process once, and once the host is stopped until its lease has ended and another process has its place; then the
stopped one may go on. Each placement of the budget must have been measured once, in the order in which its trial asked, and no more.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from envs.problem.measurement import Measurements, Wrapper
from envs.simulators.fifo.evaluator import Simulator
from orchestration.folder.ledger import entries
from orchestration.specs.trial import EvaluatorSpec, Trial
from orchestration.trials.run_trial import run_trial
from tests.orchestration.chaos import Driver, lines

LOG = "COUNTED_LOG"
"""Environment variable: where `Counted` notes what it measures."""
COUNTED = '''"""Measures as the engine does, and notes every placement."""

import os

from envs.hosts.engine.host import Engine


class Counted(Engine):
    """The engine, with a note before and after each measurement."""

    def _row(self, problem, placement):
        note("begin", placement)
        row = super()._row(problem, placement)
        note(f"end {int(row['outcome'])}", placement)
        return row


def note(what, placement):
    file = os.open(os.environ["COUNTED_LOG"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(file, f"{what} {placement.tobytes().hex()} {os.getpid()}\\n".encode())
    os.close(file)
'''
SWEEP = """
sweep: real
problems:
  graphs: {{small: {{sharded: chainmm, size: 64, element_bytes: 4}}}}
  networks: {{two: {{file: two.json}}}}
methods: [random]
seeds: 0..2
propose: 4
budget: {budget}
evaluator:
  kind: counted
  devices: ["cpu:{core}", "cpu:{core}"]
  measuring: {{warm_up: 0, repetitions: 3, time_limit: {limit}}}
  prepare_limit: {prepare}
"""
NETWORK = """{"format": "placewright/1", "network": {"name": "two", "devices": [{"name": "a", "speed": 1e9}, {"name": "b", "speed": 1e9}],
"links": {"bandwidth": 1e9, "delay": 0.03}}}"""
BUDGET, LIMIT, PREPARE = 12, 20.0, 60.0
FAULTS = {3: "measuring process", 9: "measuring process", 15: "stopped host", 24: "host"}
"""What is done after how many measurements."""


@dataclass
class Report:
    """How it went."""

    faults: list[str] = field(default_factory=list)
    done: Counter[str] = field(default_factory=Counter)
    measured: int = 0
    """Placements of the budget."""
    begun: int = 0
    """Measurements that were begun, with those that were cut off."""
    seconds: float = 0.0


class Asked(Wrapper):
    """Keeps what it is asked for."""

    def __init__(self) -> None:
        self.inner = Simulator()
        self.placements: list[str] = []

    def evaluate(self, problem: Any, placements: np.ndarray, seed: int = 0, *, first: int = 0, trace: bool = False) -> Measurements:
        self.placements += [p.tobytes().hex() for p in placements]
        return self.inner.evaluate(problem, placements, seed, first=first, trace=trace)


def asked(trial: Trial) -> list[str]:
    """What a trial whose method looks at no measurement asks for, in order."""
    evaluator = Asked()
    run_trial(replace(trial, evaluator=EvaluatorSpec()), evaluator)
    return evaluator.placements


def prepare(folder: Path) -> dict[str, str]:
    """The sweep, its network, and a package that adds the evaluator; what the driver's environment needs."""
    core = min(os.sched_getaffinity(0))
    (folder / "real.yaml").write_text(SWEEP.format(core=core, budget=BUDGET, limit=LIMIT, prepare=PREPARE))
    (folder / "two.json").write_text(NETWORK)
    about = folder / "plugin" / "counted-1.0.dist-info"
    about.mkdir(parents=True)
    (about.parent / "counted.py").write_text(COUNTED)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: counted\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[placewright.evaluators]\ncounted = counted:Counted\n")
    sys.path.append(str(about.parent))
    root = Path(__file__).resolve().parents[2]
    return {LOG: str(folder / "counted.log"), "PYTHONPATH": f"{root}:{about.parent}"}


def notes(folder: Path) -> list[list[str]]:
    """What was noted so far, in order."""
    path = folder / "counted.log"
    return [line.split() for line in path.read_text().splitlines()] if path.exists() else []


def measuring(driver: Driver) -> psutil.Process | None:
    """The process that measures, if there is one and it is at it."""
    for process in psutil.Process(driver.process.pid).children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if "envs.hosts.engine.child" in process.cmdline():
                return process
    return None


def strike(kind: str, driver: Driver, folder: Path) -> list[psutil.Process]:
    """Do it as soon as a measurement is going on; what was stopped and is to go on when its lease has ended."""
    while driver.ended() is None:
        process, said = measuring(driver), notes(folder)
        if process is not None and said and said[-1][0] == "begin":
            with contextlib.suppress(psutil.Error):
                host = process.parent()
                if kind == "stopped host" and host is not None:
                    host.suspend()
                    return [host]
                (process if kind == "measuring process" or host is None else host).kill()
                return []
        time.sleep(0.02)
    return []


def disturb(driver: Driver, folder: Path, report: Report, patience: float) -> None:
    """Strike as measurements end, until the sweep is done."""
    deadline, left, stopped = time.monotonic() + patience, dict(FAULTS), []
    while driver.ended() is None and time.monotonic() < deadline:
        ended = sum(note[0] == "end" for note in notes(folder))
        due = min(left, default=None)
        if due is not None and ended >= due:
            kind = left.pop(due)
            stopped += [(p, ended) for p in strike(kind, driver, folder)]
            report.done[kind] += 1
            print(f"{time.strftime('%X')} {kind} after {ended} measurements", file=sys.stderr)
        for process, before in list(stopped):
            if ended > before:  # another has its place
                with contextlib.suppress(psutil.Error):
                    process.resume()
                stopped.remove((process, before))
        time.sleep(0.1)
    if driver.ended() != 0:
        report.faults.append(f"the driver ended with {driver.ended()}: {driver.log.read_text()[-2000:]}")
    if left or stopped:
        report.faults.append(f"not all was done: {left}, {stopped}")


def check(folder: Path, report: Report) -> None:
    """Every placement of the budget measured once, in the order asked; everything that was begun either ended or was cut off."""
    said, out = notes(folder), folder / "out" / "real"
    ended = [note[2] for note in said if note[0] == "end" and note[1] == "0"]
    report.begun = sum(note[0] == "begin" for note in said)
    found = list(entries(out))
    for trial, result in found:
        wanted = asked(trial)
        report.measured += len(wanted)
        own, best = set(wanted), np.array(result.problems[0].placement, dtype=np.int16).tobytes().hex()
        if [p for p in ended if p in own] != [*wanted, best]:  # the best once more in the end, for its timeline
            counts = Counter(ended)
            report.faults.append(
                f"seed {trial.seed}: asked for {len(wanted)}, measured {[counts[p] for p in wanted]} times or in another order"
            )
        if result.outcomes != {"OK": BUDGET} or result.evaluations != BUDGET:
            report.faults.append(f"seed {trial.seed}: {result.outcomes} of {result.evaluations} evaluations")
    if len(found) != 3 or len(ended) != report.measured + len(found):
        report.faults.append(f"{len(found)} trials ended, {len(ended)} measurements for {report.measured} placements")


def chaos_real(folder: Path, patience: float = 1500.0) -> Report:
    """Run it in ``folder``."""
    report, begin = Report(), time.monotonic()
    driver = Driver(folder / "real.yaml", folder / "out", prepare(folder))
    driver.start()
    try:
        disturb(driver, folder, report, patience)
    finally:
        if driver.ended() is None:
            driver.process.terminate()
            driver.process.wait()
    report.seconds = time.monotonic() - begin
    if lines(folder / "out" / "real"):
        check(folder, report)
    return report


def main() -> int:
    """Run, say how it went; 1 if something is wrong."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--folder", type=Path, help="where to leave everything; by default a temporary folder")
    args = parser.parse_args()
    folder = args.folder or Path(tempfile.mkdtemp(prefix="placewright-chaos-"))
    folder.mkdir(parents=True, exist_ok=True)
    report = chaos_real(folder)
    print(json.dumps({**vars(report), "done": dict(report.done)}), flush=True)
    return int(bool(report.faults))


if __name__ == "__main__":
    sys.exit(main())
