"""A machine that stands still in the middle of a measurement, so that its lease ends and another has the work, and then answers."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path

import numpy as np
import psutil
import pytest

from tests.orchestration.ray_cluster import ray_nodes

ROOT = Path(__file__).resolve().parents[3]
KEY, ROWS, MEASURING, LEASE = "slow:bench", 12, 1.0, 6.0
"""What measures; placements of the first request; seconds of a measurement and of a lease."""
SOURCE = '''
import os, time
import numpy as np
from envs.problem.measurement import BaseEvaluator, Measurements


class Slow(BaseEvaluator):
    """Takes a second, and tells which process measured which placement."""

    protocol, deterministic, measures_for_real, lease_seconds, fingerprint = "slow", False, True, LEASE, "slow"

    def __init__(self, host=""):
        pass

    def evaluate(self, problem, placements, seed=0, *, first=0, trace=False):
        (number,) = placements[:, :6] @ (1 << np.arange(6))
        note("begin", number)
        time.sleep(MEASURING)
        note("end", number)
        value = np.array([os.getpid() + number / 4096])
        return Measurements(np.zeros(1, np.int8), value, value, "slow", problem_hash=problem.content_hash, placements=placements, seed=seed,
            protocol="slow", first=first)


def note(what, number):
    file = os.open("NOTES", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(file, f"{what} {number} {os.getpid()}\\n".encode())
    os.close(file)
'''


def prepare(folder: Path) -> None:
    """The package that adds the evaluator."""
    about = folder / "package" / "slow-1.0.dist-info"
    about.mkdir(parents=True)
    source = SOURCE.replace("LEASE", str(LEASE)).replace("MEASURING", str(MEASURING)).replace("NOTES", str(folder / "notes"))
    (about.parent / "slow_evaluator.py").write_text(source)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: slow\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[placewright.evaluators]\nslow = slow_evaluator:Slow\n")


def notes(folder: Path) -> list[tuple[str, int, int]]:
    """(begin or end, which placement, process) so far."""
    path = folder / "notes"
    words = [line.split() for line in path.read_text().splitlines()] if path.exists() else []
    return [(what, int(number), int(pid)) for what, number, pid in words]


def wait(what, seconds: float = 120.0):
    deadline = time.monotonic() + seconds
    while not (found := what()):
        assert time.monotonic() < deadline, "it did not come"
        time.sleep(0.05)
    return found


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_what_a_machine_answers_after_its_lease_has_ended_counts_for_nothing(tmp_path, monkeypatch):
    prepare(tmp_path)
    monkeypatch.setenv("PYTHONPATH", f"{ROOT}:{tmp_path / 'package'}")
    with ray_nodes(workers=2, resources={KEY: 1}, apart=True) as nodes:
        asker = subprocess.Popen(
            [sys.executable, __file__, nodes.address], env={**os.environ, **nodes.environment}, cwd=ROOT,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

        def answer() -> dict:
            return next(json.loads(line) for line in asker.stdout if line.startswith("{"))

        def measuring() -> tuple[int, int] | None:
            """Placement and process of what is being measured, once both hosts have measured something."""
            said = notes(tmp_path)
            last = {pid: (what, number) for what, number, pid in said}
            return (
                next(((n, pid) for pid, (what, n) in last.items() if what == "begin"), None) if len(last) == 2 and len(said) > 4 else None
            )

        try:
            number, stopped = wait(measuring, 300)
            machine = [psutil.Process(stopped).parent(), *psutil.Process(stopped).parent().children(recursive=True)]
            for process in machine:
                process.suspend()
            assert ("end", number, stopped) not in notes(tmp_path), "it stands still in the middle"
            first = answer()
            assert ("end", number, stopped) not in notes(tmp_path), "its lease ended and another did its work meanwhile"
            os.kill(stopped, signal.SIGCONT)
            wait(lambda: ("end", number, stopped) in notes(tmp_path))  # and now it answers
            time.sleep(2.0)
            for process in machine:
                process.resume()
            print("more", file=asker.stdin, flush=True)
            second = answer()
        finally:
            asker.stdin.close()
            asker.wait(60)
    values = dict(zip(first["numbers"], first["values"], strict=True))
    assert [round(v % 1 * 4096) for v in first["values"]] == first["numbers"], "every placement has its own measurement"
    assert int(values[number]) != stopped, "and this one that of the host that had the lease"
    assert sum(what == "end" and n == number for what, n, _ in notes(tmp_path)) == 2, "it was measured twice in all"
    assert second["again"] == first["values"], "what is remembered is what was told"
    assert [round(v % 1 * 4096) for v in second["values"]] == second["numbers"]
    assert second["kept"] == {str(n): v for n, v in values.items()} | {
        str(n): v for n, v in zip(second["numbers"], second["values"], strict=True)
    }, "each placement stands once in the store"
    assert second["measured"] == len(values) + len(second["numbers"]), "the late one is not counted"
    assert second["faults"] == 1


def main(address: str) -> None:
    """The process that asks: some placements, and after a line of input the same again, and others."""
    import ray

    from envs.graphs.sharded import sharded
    from envs.problem.network import DeviceNetwork
    from envs.problem.problem import Problem
    from orchestration.driver.ray_start import start_ray
    from orchestration.rewards.client import ServiceClient
    from orchestration.rewards.ray_service import start_service
    from orchestration.specs.layout import STORE
    from orchestration.specs.trial import EvaluatorSpec

    start_ray(address, None)
    folder = Path(tempfile.mkdtemp())
    problem = Problem(sharded("chainmm", size=32, element_bytes=4), DeviceNetwork(("a", "b"), 1e9, 1e8, 1e-5))
    service = start_service(1, folder, ray.get_runtime_context().get_node_id())
    client = ServiceClient(service, EvaluatorSpec("slow", {"host": "bench"}), "a trial")
    rows = np.zeros((2 * ROWS, problem.n_nodes), np.int16)
    rows[:, :6] = np.arange(1, 2 * ROWS + 1)[:, None] >> np.arange(6) & 1
    numbers = list(range(1, 2 * ROWS + 1))
    one = client.evaluate(problem, rows[:ROWS]).seconds.tolist()
    print(json.dumps({"numbers": numbers[:ROWS], "values": one}), flush=True)
    if not sys.stdin.readline():
        return
    again = client.evaluate(problem, rows[:ROWS]).seconds.tolist()
    values = client.evaluate(problem, rows[ROWS:]).seconds.tolist()
    hosts = ray.get(service.statistics.remote())["keys"][KEY]["hosts"]
    with closing(sqlite3.connect(folder / STORE)) as store:
        found = store.execute("SELECT placement, seconds FROM measurements").fetchall()
    kept = {int(np.frombuffer(p, np.int16)[:6] @ (1 << np.arange(6))): v for p, v in found}
    told = {"again": again, "numbers": numbers[ROWS:], "values": values, "kept": kept}
    print(json.dumps({**told, "measured": sum(h["measurements"] for h in hosts), "faults": sum(h["faults"] for h in hosts)}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
