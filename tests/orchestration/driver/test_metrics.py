"""What Prometheus is told of a sweep that runs."""

from __future__ import annotations

import json
import re
import socket
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from envs.problem.errors import InputError
from orchestration.commands.status import write_statistics
from orchestration.driver import metrics
from orchestration.driver.metrics import listening, serving
from orchestration.driver.progress import Display
from orchestration.driver.run_sweep import run_sweep
from orchestration.specs.layout import LEDGER, STATE
from tests.orchestration.ray_cluster import free_port
from tests.orchestration.sweeps_for_tests import small_sweep

ROOT = Path(__file__).resolve().parents[3]
POOL = {
    "queued": 3, "served": {}, "hosts": [
        {"name": "h", "pid": 1, "running": 1, "measurements": 40, "faults": 2, "last_fault": "", "quarantined": True, "waiting": False,
         "utilisation": 0.25},
    ],
}  # fmt: skip


@pytest.fixture
def display(tmp_path) -> Display:
    found = Display(10, 2)
    found.done, found.failed, found.pruned, found.evaluations = 3, 1, 1, 700
    (tmp_path / LEDGER).write_text("x" * 90)
    (tmp_path / STATE).write_text(json.dumps({"offset": 60}))
    write_statistics(tmp_path, {"keys": {"dataflow:cpu2": POOL}, "cache": {"hits": 5, "misses": 6}})
    return found


def get(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, ""


def numbers(text: str) -> dict[tuple[str, ...], float]:
    return {
        (s.name, *(v for k, v in sorted(s.labels.items()) if k != "sweep")): s.value
        for family in text_string_to_metric_families(text)
        for s in family.samples
    }


def test_prometheus_is_told_what_the_display_and_the_services_count(tmp_path, display):
    port = free_port()
    with serving(str(port), "s", tmp_path, display):
        assert get(port, "/readyz")[0] == 503 and get(port, "/healthz")[0] == 200 and get(port, "/other")[0] == 404
        with display:
            display.tick(2)
            assert get(port, "/readyz")[0] == get(port, "/healthz")[0] == 200
            told = numbers(get(port, "/metrics")[1])
            display.ticked -= metrics.SILENT_SECONDS + 1
            assert get(port, "/healthz")[0] == get(port, "/readyz")[0] == 503
    states = {"finished": 4, "pruned": 1, "failed": 1, "running": 2, "waiting": 2}
    assert {name[1]: n for name, n in told.items() if name[0] == "placewright_trials"} == states
    key = "dataflow:cpu2"
    assert told[("placewright_requests_queued", key)] == 3 and told[("placewright_host_utilisation", "h", key)] == 0.25
    assert told[("placewright_host_faults_total", "h", key)] == 2 and told[("placewright_measurements_total", "h", key)] == 40
    assert told[("placewright_host_quarantined", "h", key)] == 1 and told[("placewright_cache_rows_total", "hits")] == 5
    assert told[("placewright_evaluations_total",)] == 700 and told[("placewright_tracking_lag_bytes",)] == 30


def test_the_dashboard_asks_for_what_there_is(tmp_path, display):
    port = free_port()
    with serving(str(port), "s", tmp_path, display):
        there = {name[0] for name in numbers(get(port, "/metrics")[1])}
    board = json.loads((ROOT / "infra/monitoring/grafana-dashboard.json").read_text())
    asked = set(re.findall(r"placewright_\w+", json.dumps(board)))
    assert asked == there, "each number has a panel, and each panel its numbers"
    assert len({p["id"] for p in board["panels"]}) == len(board["panels"])


@pytest.mark.parametrize("address", ["x", "0", "host:", "70000", "1:2:y"])
def test_what_is_no_port_is_refused(address):
    with pytest.raises(InputError, match="is no port"):
        listening(address)


def test_a_port_that_is_taken_is_refused(tmp_path, display):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        with pytest.raises(InputError, match="cannot be served"), serving(str(other.getsockname()[1]), "s", tmp_path, display):
            pass


@pytest.mark.thorough
def test_a_sweep_answers_while_it_runs_and_no_longer(tmp_path, monkeypatch):
    port, seen = free_port(), []
    ended = Display.ended

    def look(self, *arguments):
        ended(self, *arguments)
        seen.append(numbers(get(port, "/metrics")[1])[("placewright_trials", "finished")])

    monkeypatch.setattr(Display, "ended", look)
    run = run_sweep(small_sweep(tmp_path), local=True, output=tmp_path / "out", metrics=str(port))
    assert seen == list(range(1, run.finished + 1))
    time.sleep(0.1)
    with pytest.raises(urllib.error.URLError):
        get(port, "/metrics")
