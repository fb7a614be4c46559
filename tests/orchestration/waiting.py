"""A process that asks a sweep's reward service on a cluster, whose simulations are waits of a known time, as it is told to on its standard
input: how many rows a second, and from which nodes. Without cores enough, waits show how work is spread.

    python -m tests.orchestration.waiting ADDRESS FOLDER

It is told ``ask REQUESTS`` and ``until NODES``, and answers with a line of JSON each.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from tests.orchestration.chaos import ROOT
from tests.orchestration.ray_cluster import Nodes

ROWS, ROW_SECONDS, SIMULATORS = 32, 4e-3, 4
"""Of a request; what a row takes; simulators of a node."""
SOURCE = """
import time
import numpy as np
from envs.problem.measurement import BaseEvaluator, Measurements, SIMULATED

class Waiting(BaseEvaluator):
    protocol, deterministic = "waiting", True

    def evaluate(self, problem, placements, seed=0, *, first=0, trace=False):
        time.sleep(len(placements) * ROW_SECONDS)
        value = 1.0 + placements.sum(axis=1)
        return Measurements(np.zeros(len(value), np.int8), value, value, SIMULATED, problem_hash=problem.content_hash,
            placements=placements, seed=seed, protocol="waiting", first=first)
"""


def prepare(folder: Path) -> None:
    """The package that adds the evaluator ``waiting``, for all processes that this one starts."""
    about = folder / "waiting-1.0.dist-info"
    about.mkdir(parents=True)
    (folder / "waiting_simulator.py").write_text(SOURCE.replace("ROW_SECONDS", str(ROW_SECONDS)))
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: waiting\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[placewright.evaluators]\nwaiting = waiting_simulator:Waiting\n")
    os.environ["PYTHONPATH"] = f"{ROOT}:{folder}"


class Asker:
    """The process, from outside."""

    def __init__(self, nodes: Nodes) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.orchestration.waiting", nodes.address], cwd=ROOT, env={**os.environ, **nodes.environment},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def tell(self, *words: object) -> None:
        assert self._process.stdin is not None
        print(*words, file=self._process.stdin, flush=True)

    def answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        for line in self._process.stdout:  # where Ray writes too
            if line.startswith("{"):
                found: dict[str, Any] = json.loads(line)
                return found
        raise RuntimeError("the process that asks has ended")

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)


@contextmanager
def asking(nodes: Nodes) -> Iterator[Asker]:
    """An `Asker` that ends."""
    asker = Asker(nodes)
    try:
        yield asker
    finally:
        asker.close()


def main(address: str) -> None:
    import ray

    from envs.problem.measurement import Request
    from orchestration.driver.ray_start import start_ray
    from orchestration.rewards.client import ServiceClient
    from orchestration.rewards.ray_service import start_service
    from orchestration.specs.sources import build_problem
    from orchestration.specs.trial import EvaluatorSpec
    from tests.orchestration.sweeps_for_tests import problem_spec

    start_ray(address, None)
    service = start_service(SIMULATORS, node=ray.get_runtime_context().get_node_id())
    client, problem, rng = (
        ServiceClient(service, EvaluatorSpec("waiting"), "a trial"),
        build_problem(problem_spec(20)),
        np.random.default_rng(0),
    )

    def ask(requests: int) -> dict[str, Any]:
        asked = [Request(problem, rng.integers(0, 4, (ROWS, 20)).astype(np.int16), 0, i) for i in range(requests)]
        begin = time.perf_counter()
        answers = client.evaluate_many(asked)
        seconds = time.perf_counter() - begin
        right = all((m.seconds == 1 + r.placements.sum(axis=1)).all() for m, r in zip(answers, asked, strict=True))
        return {"rows_per_second": requests * ROWS / seconds, "right": right, **who()}

    def who() -> dict[str, Any]:
        pool = ray.get(service.statistics.remote())["keys"].get("waiting", {"hosts": []})
        return {"nodes": len({h["name"].partition("@")[2] for h in pool["hosts"] if h["measurements"]})}

    def until(nodes: int) -> dict[str, Any]:
        begin = time.perf_counter()
        while (found := ask(16))["nodes"] != nodes and time.perf_counter() - begin < 120:
            pass
        return {**found, "seconds": time.perf_counter() - begin}

    for line in sys.stdin:
        what, number = line.split()
        print(json.dumps((ask if what == "ask" else until)(int(number))), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
