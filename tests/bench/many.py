"""What a trial costs in sweeps of many: trials that do nothing, here and in Ray Tune, in the same run."""

from __future__ import annotations

import os
import resource
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from tests.bench import overhead

COUNTS = (1_000, 10_000, 100_000)
LONGEST = 1200.0
"""Seconds that a count may take, judged by the rate of the one before; else it is left out."""


@dataclass(frozen=True)
class Run:
    """So many trials of one program."""

    trials: int
    wall: float
    cpu: float
    """Seconds of the driver's process."""
    grown: float
    """Bytes by which its most memory grew."""


def table(counts: list[int]) -> list[str]:
    """Lines of Markdown: both programs at each count, in turn."""
    found: dict[str, list[Run]] = {"Placewright": [], "Ray Tune": []}
    for count in counts or COUNTS:
        for name, runs in found.items():
            if runs and runs[-1].wall / runs[-1].trials * count > LONGEST:
                print(f"{name}: {count:,} trials would take longer than {LONGEST / 60:.0f} min", flush=True)
                continue
            runs.append(_here(count) if name == "Placewright" else _tune(count))
            print(name, runs[-1], flush=True)
    lines = ["| program | trials | wall | trials/s | driver's CPU a trial | driver's memory grew by |", "|---|---|---|---|---|---|"]
    for name, runs in found.items():
        for r in runs:
            cells = (f"{r.trials:,}", f"{r.wall:,.1f} s", f"{r.trials / r.wall:,.0f}", f"{r.cpu / r.trials * 1e3:.2f} ms")
            lines.append(f"| {name} | {' | '.join(cells)} | {r.grown / 2**20:,.0f} MiB |")
    return lines


def _here(count: int) -> Run:
    before = _most()
    cost = overhead.run(count)
    return Run(count, cost.wall, cost.cpu, _most() - before)


def _tune(count: int) -> Run:
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

        with tempfile.TemporaryDirectory() as folder:
            before, wall, cpu = _most(), time.perf_counter(), time.process_time()
            tuner = tune.Tuner(
                NoOp, param_space={"seed": tune.grid_search(list(range(count)))},
                tune_config=tune.TuneConfig(metric="makespan", mode="min", reuse_actors=True),
                run_config=tune.RunConfig(storage_path=str(Path(folder)), verbose=0),
            )  # fmt: skip
            ended = tuner.fit().num_terminated
            run = Run(count, time.perf_counter() - wall, time.process_time() - cpu, _most() - before)
    finally:
        ray.shutdown()
    if ended != count:
        raise RuntimeError(f"Ray Tune ended {ended} of {count} trials")
    return run


def _most() -> float:
    """The most memory that this process has had, bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024.0
