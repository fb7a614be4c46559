"""A sweep of 200 trials that do next to nothing, tracked in MLflow: ours against Ray Tune with its MLflow callback."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from tests.bench.figure import Figure, at_least, seconds

TRIALS = 200
SWEEP = f"""
sweep: no-op
problems:
  graphs:
    tiny: {{synthetic: {{tasks: 4}}, seed: 0}}
  networks:
    pair: {{synthetic: {{devices: 2}}, seed: 0}}
methods:
  random:
seeds: 0..{TRIALS - 1}
budget: 1
"""


def measure() -> list[Figure]:
    """Both with Ray already running on 2 CPUs and a fresh SQLite store each; ours includes leaderboard and plots."""
    import ray

    from orchestration.driver.ray_start import start_ray

    start_ray(None, 2)
    try:
        with tempfile.TemporaryDirectory() as folder:
            ours = seconds(lambda: _ours(Path(folder) / "ours"))
            tune = seconds(lambda: _tune(Path(folder) / "tune", reuse=False))
            reused = seconds(lambda: _tune(Path(folder) / "reused", reuse=True))
    finally:
        ray.shutdown()
    rate = f"{TRIALS / ours:.1f} against {TRIALS / tune:.2f} trials/s"
    return [
        at_least(f"{TRIALS} no-op trials with tracking, over Ray Tune (one process a trial, its default)", tune / ours, "×", 10, rate),
        at_least("the same, over Ray Tune with actors reused", reused / ours, "×", 1, f"{TRIALS / reused:.2f} trials/s"),
    ]


def _ours(folder: Path) -> None:
    from rich.console import Console

    from orchestration.definition.sweep import load_sweep
    from orchestration.driver.run_sweep import run_sweep

    folder.mkdir(parents=True)
    (folder / "no-op.yaml").write_text(SWEEP)
    with open(os.devnull, "w") as quiet:
        done = run_sweep(load_sweep(folder / "no-op.yaml"), output=folder, console=Console(file=quiet))
    if done.finished != TRIALS or done.failed:
        raise RuntimeError(f"{done.finished} of {TRIALS} trials finished, {done.failed} failed")


def _tune(folder: Path, reuse: bool) -> None:
    os.environ["RAY_AIR_NEW_OUTPUT"] = "0"
    from ray import tune
    from ray.air.integrations.mlflow import MLflowLoggerCallback

    class NoOp(tune.Trainable):
        """Scores nothing and ends after one result."""

        def setup(self, config: dict) -> None:
            self.seed = config["seed"]

        def step(self) -> dict:
            return {"makespan": float(self.seed)}

        def save_checkpoint(self, checkpoint_dir: str) -> None:
            """Tune saves every trial's last state; there is none."""

        def reset_config(self, new_config: dict) -> bool:
            self.seed = new_config["seed"]
            return True

    folder.mkdir(parents=True)
    callback = MLflowLoggerCallback(tracking_uri=f"sqlite:///{folder}/mlflow.db", experiment_name="no-op")
    tuner = tune.Tuner(
        NoOp,
        param_space={"seed": tune.grid_search(list(range(TRIALS)))},
        tune_config=tune.TuneConfig(metric="makespan", mode="min", reuse_actors=reuse),
        run_config=tune.RunConfig(storage_path=str(folder), callbacks=[callback], verbose=0, stop={"training_iteration": 1}),
    )
    if tuner.fit().num_terminated != TRIALS:
        print("Ray Tune did not finish all trials", file=sys.stderr)
