"""How long it takes until trials that ended are in MLflow while thousands run: ``python -m tests.orchestration.tracking.test_lag``."""

from __future__ import annotations

import sys
import tempfile
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from envs.simulators.fifo.evaluator import Simulator
from orchestration.folder.ledger import Ledger, TrialEnd
from orchestration.tracking.tracker import Tracker, TrackingSpec
from orchestration.trials.run_trial import run_trial
from tests.orchestration.servers import MlflowServer
from tests.orchestration.sweeps_for_tests import trial

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]
RUNNING, ENDED, REPORT_SECONDS, LIMIT_SECONDS = 5000, 20, 5.0, 10.0


def lag(folder: Path, uri: str, artifacts: str | None, before: float = 20.0) -> dict[str, float]:
    """Seconds until all of 20 trials that end are sent, while 5,000 others report every five seconds; and how much else was sent."""
    one = trial("random", 200)
    result = run_trial(one, Simulator())
    running = [replace(one, seed=s) for s in range(RUNNING)]
    stop = threading.Event()
    with Ledger(folder) as ledger:
        tracker = Tracker(TrackingSpec(uri, str(folder), "lag", artifacts))
        tracker.begin()

        def report() -> None:
            step = 0
            while not stop.is_set():
                step += 100
                for i, t in enumerate(running):
                    tracker.live(t, {"evaluations": step, "wall_seconds": step / 100.0, "best": {"best_makespan": 1.0}})
                    if i % 50 == 0 and stop.wait(REPORT_SECONDS * 50 / RUNNING):
                        return

        thread = threading.Thread(target=report)
        thread.start()
        time.sleep(before)
        shown = len(tracker._open)
        began = time.monotonic()
        ledger.append(TrialEnd.of(t, replace(result, trial=t.content_hash)) for t in running[-ENDED:])
        complete = tracker.drain(120)
        seconds = time.monotonic() - began
        stop.set()
        thread.join()
        tracker._stop.set()
        tracker._thread.join(60)
    return {"seconds": seconds, "complete": float(complete), "live runs a second": shown / before}


def test_what_ended_is_in_mlflow_within_ten_seconds_while_5000_run(tmp_path):
    server = MlflowServer(f"sqlite:///{tmp_path}/server.db", tmp_path)
    server.start()
    try:
        found = lag(tmp_path / "sweep", server.uri, None)
    finally:
        server.kill()
    assert found["complete"] and found["seconds"] < LIMIT_SECONDS, found


if __name__ == "__main__":
    for kind in sys.argv[1:] or ("sqlite", "http"):
        with tempfile.TemporaryDirectory() as name:
            root = Path(name)
            store = f"sqlite:///{root}/mlflow.db"
            server = MlflowServer(store, root)
            if kind == "http":
                server.start()
            try:
                print(kind, lag(root / "lag", server.uri if kind == "http" else store, None if kind == "http" else (root / "a").as_uri()))
            finally:
                server.kill()
