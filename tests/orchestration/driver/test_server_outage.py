"""A sweep tracked by a real MLflow server on a real PostgreSQL, both of which go away in the middle of it."""

import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import mlflow
import pytest

from orchestration.folder.ledger import parse, results
from orchestration.specs.layout import LEDGER
from orchestration.tracking.run_contents import result_metrics
from tests.orchestration.servers import mlflow_server, postgres

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]

OUTAGE_SECONDS = 60.0

SWEEP = """
sweep: outage
problems:
  networks: {n4: {synthetic: {devices: 4}, seed: 0}}
  graphs: {a: {synthetic: {tasks: 60}, seed: 0}, b: {synthetic: {tasks: 60}, seed: 1}}
methods: [random, local-search]
seeds: 0..24
evaluator: {kind: simulator, local: true}
budget: {seconds: 2}
"""
"""By time, so that it lasts longer than the outage on any machine."""
TRIALS = 100


def lines(folder: Path) -> list[tuple[int, str]]:
    """(offset, trial) of every whole line of the ledger."""
    found, offset = [], 0
    path = folder / LEDGER
    for raw in path.read_bytes().splitlines(keepends=True) if path.exists() else []:
        if raw.endswith(b"\n"):
            found.append((offset, parse(raw)[1].trial))
        offset += len(raw)
    return found


def tracked(client: mlflow.MlflowClient) -> list[mlflow.entities.Run]:
    """All child runs, by their place in the ledger."""
    experiment = client.get_experiment_by_name("outage")
    if experiment is None:
        return []
    found, token = [], None
    while True:
        page = client.search_runs([experiment.experiment_id], "tags.kind != 'sweep'", max_results=1000, page_token=token)
        found += page
        token = page.token
        if not token:
            return sorted(found, key=lambda r: int(r.data.tags.get("ledger", -1)))


class Watch:
    """Looks at the server again and again: what it holds is always the beginning of the ledger, without a gap."""

    def __init__(self, client: mlflow.MlflowClient, folder: Path) -> None:
        self.client, self.folder, self.looks = client, folder, 0

    def ended(self) -> int:
        runs = [r for r in tracked(self.client) if r.info.status == "FINISHED"]
        seen = [r.data.tags["trial"] for r in runs]
        assert seen == [trial for _, trial in lines(self.folder)][: len(seen)]
        self.looks += 1
        return len(seen)

    def until(self, count: int, process: subprocess.Popen, patience: float = 600.0) -> int:
        deadline = time.monotonic() + patience
        while (ended := self.ended()) < count and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.3)
        return ended


def test_nothing_is_missing_after_server_and_database_were_away(tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")
    (tmp_path / "outage.yaml").write_text(SWEEP)
    folder = tmp_path / "out" / "outage"
    with postgres() as database, mlflow_server(database.uri, tmp_path) as server:
        client = mlflow.MlflowClient(server.uri)
        command = [sys.executable, "-m", "orchestration.cli.main", "run", str(tmp_path / "outage.yaml"), "--local"]
        command += ["--output", str(tmp_path / "out"), "--tracking-uri", server.uri]
        with (tmp_path / "said").open("w") as said, subprocess.Popen(command, stdout=said, stderr=said) as process:
            watch = Watch(client, folder)
            assert watch.until(5, process) >= 5, (tmp_path / "said").read_text()
            server.kill()
            before = len(lines(folder))
            time.sleep(OUTAGE_SECONDS)
            with pytest.raises(urllib.error.URLError):
                urllib.request.urlopen(server.uri + "/health", timeout=5)
            during = len(lines(folder))
            assert during > before, "trials must not wait for the server"
            server.start()
            assert watch.until(during, process) >= min(during, TRIALS)
            running = process.poll() is None
            database.restart()
            assert running, "the sweep ended before the database was restarted; give it more trials"
            watch.until(TRIALS, process)
            assert process.wait(timeout=600) == 0, (tmp_path / "said").read_text()
        runs = tracked(client)
        assert [(int(r.data.tags["ledger"]), r.data.tags["trial"]) for r in runs] == lines(folder)
        assert len(runs) == len({r.data.tags["trial"] for r in runs}) == TRIALS
        assert {r.info.status for r in runs} == {"FINISHED"}
        recorded = {r.trial: r for r in results(folder)}
        for run in runs[::5]:
            expected = [(v, step) for key, v, _, step in result_metrics(recorded[run.data.tags["trial"]]) if key == "best_makespan"]
            history = client.get_metric_history(run.info.run_id, "best_makespan")
            assert sorted((m.step, m.value) for m in history) == sorted({(step, v) for v, step in expected})
        check_parent(client, runs[0].data.tags["mlflow.parentRunId"], folder, tmp_path)


def check_parent(client: mlflow.MlflowClient, parent: str, folder: Path, tmp_path: Path) -> None:
    """The sweep's own run has ended, and the report lies on the server's disk, having gone through the server."""
    run = client.get_run(parent)
    assert run.info.status == "FINISHED" and run.info.artifact_uri.startswith("mlflow-artifacts:/")
    back = Path(client.download_artifacts(parent, "leaderboard.csv", str(tmp_path)))
    assert back.read_bytes() == (folder / "leaderboard.csv").read_bytes()
    (stored,) = (tmp_path / "artifacts").rglob("leaderboard.csv")
    assert stored.read_bytes() == back.read_bytes()


def test_a_server_called_by_a_name_it_does_not_list_refuses(tmp_path):
    """What the compose file sets `--allowed-hosts` for."""
    with mlflow_server(f"sqlite:///{tmp_path}/mlflow.db", tmp_path, "--allowed-hosts", "mlflow:5000") as server:
        url = server.uri + "/api/2.0/mlflow/experiments/get-by-name?experiment_name=Default"
        with urllib.request.urlopen(urllib.request.Request(url, headers={"Host": "mlflow:5000"}), timeout=60) as answer:
            assert answer.status == 200
        with pytest.raises(urllib.error.HTTPError, match="403"):
            urllib.request.urlopen(urllib.request.Request(url, headers={"Host": "evil.example.org"}), timeout=60)
