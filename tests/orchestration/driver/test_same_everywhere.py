"""One sweep of every kind of method gives the same to the last byte, wherever and beside whatever it runs."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from orchestration.folder.ledger import entries
from tests.orchestration.chaos import Driver
from tests.orchestration.ray_cluster import ray_nodes

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]

BUSY = 4
SWEEP = """
sweep: same
problems:
  networks: {n3: {synthetic: {devices: 3}, seed: 0}}
  graphs: {a: {synthetic: {tasks: 16}, seed: 0}, b: {synthetic: {tasks: 20, hardware_types: 0}, seed: 1}}
methods: {heft: , metis: , cp-sat: {deterministic_time: 0.2, slice: 0.1}, random: , local-search: , placeto: {rounds: 1}}
seeds: [0, 1]
checkpoint_every: 16
propose: 8
budget: 48
evaluator: {kind: simulator, noise: 0.1}
stages:
  plain: {kind: search}
  tune:
    kind: search
    methods: [local-search]
    search: {space: {batch: {int: [2, 16]}}, configurations: 4, sampler: tpe, pruner: median, seed: 0}
  tuned: {kind: search, config_from: tune}
"""


@pytest.fixture
def load() -> Iterator[None]:
    """Processes that keep all processors busy."""
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(BUSY)]
    yield
    for process in busy:
        process.kill()
        process.wait()


def content(folder: Path) -> dict[str, Any]:
    """What every trial's record says that its specification alone decides, blocks of proposals among it."""
    found = {trial.content_hash: result.content() for trial, result in entries(folder)}
    assert all(problem["proposed"] for one in found.values() for problem in one["problems"])
    return found


def ran(sweep: Path, output: Path, environment: dict[str, str], *options: str) -> Path:
    driver = Driver(sweep, output, environment, *options)
    driver.start()
    assert driver.process.wait() == 0, driver.log.read_text()[-4000:]
    return output / "same"


def test_without_ray_on_one_worker_and_on_two_under_load_all_bytes_are_the_same(tmp_path: Path, load: None) -> None:
    sweep = tmp_path / "same.yaml"
    sweep.write_text(SWEEP)
    local = ran(sweep, tmp_path / "local", {}, "--local")
    expected = content(local)
    assert len(expected) >= 32
    for workers in (1, 2):
        with ray_nodes(workers=0, cpus=workers) as nodes:
            folder = ran(sweep, tmp_path / f"ray-{workers}", nodes.environment, "--address", nodes.address)
        for name in ("runs.csv", "leaderboard.csv"):
            assert (folder / name).read_bytes() == (local / name).read_bytes(), (name, workers)
        found = content(folder)
        assert json.dumps(found, sort_keys=True) == json.dumps(expected, sort_keys=True)
