"""Five studies in the queue of a real cluster: order, dependency, priority, time, and cancelled from another process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.orchestration.ray_cluster import ray_nodes

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]
ROOT = Path(__file__).resolve().parents[3]
SWEEP = """
sweep: {name}
problems:
  networks: {{n4: {{synthetic: {{devices: 4}}, seed: 0}}}}
  graphs: {{a: {{synthetic: {{tasks: 12}}, seed: 0}}}}
methods: [local-search]
budget: {budget}
evaluator: {{kind: simulator, local: true}}
"""


def test_five_studies_run_as_declared_and_can_be_cancelled_from_another_process(tmp_path):
    with ray_nodes(workers=0, cpus=2) as nodes:
        environment = {**os.environ, **nodes.environment, "PYTHONPATH": str(ROOT)}

        def command(*words: str) -> list[str]:
            return [sys.executable, "-m", "orchestration.cli.main", *words, "--address", nodes.address]

        def queue(*words: str) -> dict[str, dict[str, Any]]:
            done = subprocess.run(command("queue", *words, "--format", "json"), cwd=ROOT, env=environment, check=True, capture_output=True)
            return {s["name"]: s for s in json.loads(done.stdout)}

        def until(name: str, state: str) -> dict[str, dict[str, Any]]:
            deadline = time.monotonic() + 300
            while (found := queue()).get(name, {}).get("state") != state:
                assert time.monotonic() < deadline, (name, state, found)
                time.sleep(1)
            return found

        def run(name: str, state: str, *words: str, budget: int = 50) -> subprocess.Popen[bytes]:
            path = tmp_path / f"{name}.yaml"
            path.write_text(SWEEP.format(name=name, budget=budget))
            with (tmp_path / f"{name}.log").open("wb") as log:
                driver = subprocess.Popen(
                    command("run", str(path), "--output", str(tmp_path / "out"), *words), cwd=ROOT, env=environment, stdout=log, stderr=log
                )
            until(name, state)
            return driver

        drivers = {"hold": run("hold", "running", "--priority", "1", budget=50_000_000)}
        drivers["low"] = run("low", "waiting", "--priority", "0", "--user", "ann")
        drivers["high"] = run("high", "waiting", "--priority", "5")
        drivers["then"] = run("then", "waiting", "--priority", "9", "--after", "low")
        drivers["late"] = run("late", "waiting", "--at", f"@{time.time() + 3600:.0f}")
        assert list(queue()) == ["hold", "then", "high", "low", "late"], "in the order of their priorities"
        queue("cancel", "late")
        assert drivers["late"].wait(120) == 130
        queue("cancel", "hold")
        assert drivers["hold"].wait(120) == 130, (tmp_path / "hold.log").read_text()[-2000:]
        found = until("then", "finished")
        for name in ("low", "high", "then"):
            assert drivers[name].wait(120) == 0
        assert found["high"]["ended"] <= found["low"]["began"] and found["low"]["ended"] <= found["then"]["began"]
        assert found["hold"]["state"] == found["late"]["state"] == "cancelled" and found["late"]["runs"] == 0
