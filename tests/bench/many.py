"""What a trial costs in sweeps of many: trials that do nothing, here and in Ray Tune, in the same run; and what is left of them costs
whoever looks at it. Each is measured in a process of its own."""

from __future__ import annotations

import multiprocessing
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from tests.bench import overhead

COUNTS = (1_000, 10_000, 100_000)
LONGEST = 300.0
"""Seconds that a count may take Ray Tune, judged by its rate before; else it is stopped after as long as we took, at most `CUT`."""
CUT = 900.0
LOOKS = {"status": ("status",), "report": ("report",)}
"""Commands that are asked about the folder that a sweep leaves."""
T = TypeVar("T")


@dataclass(frozen=True)
class Run:
    """So many trials of one program."""

    trials: int
    """Those that ended."""
    of: int
    wall: float
    cpu: float
    """Seconds of the driver's process."""
    most: float
    """Most memory that it had, bytes."""
    last: float
    """Trials a second in the last tenth of those that ended."""


@dataclass(frozen=True)
class Left:
    """What a sweep of so many trials costs before its first and after its last."""

    trials: int
    begin: float
    tracked: float
    ledger: float
    """Bytes."""
    looks: dict[str, tuple[float, float]]
    """Of each of `LOOKS`: CPU seconds and most bytes."""


def table(counts: list[int]) -> list[str]:
    """Lines of Markdown: both programs at each count, in turn, and what our sweeps leave."""
    ours, left, theirs = [], [], []
    for count in counts or COUNTS:
        run, rest = _apart(_here, count)
        print("Placewright", run, rest, flush=True)
        ours.append(run)
        left.append(rest)
        guess = theirs[-1].wall / theirs[-1].trials * count if theirs else 0.0
        theirs.append(_apart(_tune, count, min(run.wall, CUT) if guess > LONGEST else None))
        print("Ray Tune", theirs[-1], flush=True)
    return lines(ours, left, theirs)


def lines(ours: list[Run], left: list[Left], theirs: list[Run]) -> list[str]:
    """The table of what was measured."""
    found = [
        "| program | trials ended | wall | trials/s | in the last tenth | driver's CPU a trial | driver's most memory |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, runs in (("Placewright", ours), ("Ray Tune", theirs)):
        for r in runs:
            ended = f"{r.trials:,}" + ("" if r.trials == r.of else f" of {r.of:,}, cut off")
            cells = (ended, f"{r.wall:,.1f} s", f"{r.trials / r.wall:,.1f}", f"{r.last:,.1f}", f"{r.cpu / max(1, r.trials) * 1e3:.2f} ms")
            found.append(f"| {name} | {' | '.join(cells)} | {r.most / 2**20:,.0f} MiB |")
    looks = " | ".join(f"`{name}`: CPU, memory" for name in LOOKS)
    found += [
        "",
        f"| trials | read and expanded, CPU | MLflow had all after | ledger | {looks} |",
        "|---|---|---|---|" + "---|" * len(LOOKS),
    ]
    for rest in left:
        seen = " | ".join(f"{cpu:,.1f} s, {most / 2**20:,.0f} MiB" for cpu, most in rest.looks.values())
        cells = (f"{rest.trials:,}", f"{rest.begin:.2f} s", f"{rest.tracked:.1f} s", f"{rest.ledger / 1e6:,.0f} MB")
        found.append(f"| {' | '.join(cells)} | {seen} |")
    return found


def _apart(action: Callable[..., T], *arguments: object) -> T:
    """What it gives in a process of its own, whose memory is its own too."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(action, *arguments).result()


def _here(count: int) -> tuple[Run, Left]:
    with tempfile.TemporaryDirectory() as name:
        cost = overhead.run(count, Path(name))
        run = Run(count, count, cost.wall, cost.cpu, _most(), cost.last)
        looks = {name_: _looked(words, Path(name)) for name_, words in LOOKS.items()}
        ledger = (Path(name) / "nothing" / "ledger.jsonl").stat().st_size
        return run, Left(count, cost.begin, cost.tracked, float(ledger), looks)


def _looked(words: tuple[str, ...], output: Path) -> tuple[float, float]:
    """CPU seconds and most bytes of a command about the sweep there."""
    command = [sys.executable, "-m", "orchestration.cli.main", *words, "nothing", "--output", str(output)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    if status:
        raise RuntimeError(f"{' '.join(command)} ended with {os.waitstatus_to_exitcode(status)}")
    return used.ru_utime + used.ru_stime, used.ru_maxrss * 1024.0


def _tune(count: int, seconds: float | None) -> Run:
    """Ray Tune, stopped after so many seconds if any are given; the CPU time is with stopping."""
    import ray

    from orchestration.driver.ray_start import start_ray

    os.environ["RAY_AIR_NEW_OUTPUT"] = "0"
    start_ray(None, None)
    try:
        from ray import tune

        class NoOp(tune.Trainable):
            """Scores nothing and ends after one result."""

            def step(self) -> dict:
                return {"makespan": 0.0, "done": True}

            def save_checkpoint(self, checkpoint_dir: str) -> None:
                """There is no state."""

            def reset_config(self, new_config: dict) -> bool:
                return True

        class Ends(tune.Callback):
            """When trials ended."""

            def __init__(self) -> None:
                self.times: list[float] = []

            def on_trial_complete(self, iteration: int, trials: list, trial: object, **info: object) -> None:
                self.times.append(time.perf_counter())

        with tempfile.TemporaryDirectory() as folder:
            ends = Ends()
            tuner = tune.Tuner(
                NoOp, param_space={"seed": tune.randint(0, 1 << 30)},  # a grid is copied whole for each of its points
                tune_config=tune.TuneConfig(metric="makespan", mode="min", reuse_actors=True, time_budget_s=seconds, num_samples=count),
                run_config=tune.RunConfig(storage_path=str(Path(folder)), verbose=0, callbacks=[ends]),
            )  # fmt: skip
            wall, cpu = time.perf_counter(), time.process_time()
            tuner.fit()
            took, cpu = time.perf_counter() - wall, time.process_time() - cpu
            if seconds is not None:  # stopping takes it long, and what ended meanwhile is left out too
                ends.times, took = [t for t in ends.times if t - wall <= seconds], min(took, seconds)
            ended = len(ends.times)
            run = Run(ended, count, took, cpu, _most(), overhead.last_rate(ends.times))
    finally:
        ray.shutdown()
    if seconds is None and ended != count:
        raise RuntimeError(f"Ray Tune ended {ended} of {count} trials")
    return run


def _most() -> float:
    """The most memory that this process has had, bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024.0
