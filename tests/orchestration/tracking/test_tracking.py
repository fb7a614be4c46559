import base64
import contextlib
import json
import sqlite3
import subprocess
import sys
import time
import zlib
from dataclasses import replace

import pytest

from envs.problem.errors import InputError
from envs.simulators.fifo.evaluator import Simulator
from orchestration.analysis.comparison import compare
from orchestration.analysis.load import load_sweep_record
from orchestration.cli.main import main
from orchestration.folder.ledger import Ledger, TrialEnd
from orchestration.report.tracked import tracked_summary
from orchestration.specs.results import CurvePoint
from orchestration.tracking import run_contents
from orchestration.tracking import tracker as tracking
from orchestration.tracking.database import Database
from orchestration.tracking.run_contents import Ended, grid, reached, result_metrics, sampled
from orchestration.tracking.stale import close_stale
from orchestration.tracking.store_checks import check_uri, default_uri
from orchestration.tracking.summary import VIEW, landing, shortened
from orchestration.tracking.tracker import Tracker, TrackingSpec
from orchestration.trials.run_trial import failed, run_trial
from tests.orchestration.sweeps_for_tests import small_sweep, trial


@pytest.fixture(scope="module")
def some():
    trials = [trial("random", 200, seed=s) for s in range(3)]
    return [(t, run_trial(t, Simulator())) for t in trials]


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """One migrated store for the module: migrations take seconds."""
    folder = tmp_path_factory.mktemp("store")
    return folder, default_uri(folder)


def spec(store, folder):
    root, uri = store
    return TrackingSpec(uri, str(folder), f"sweep-{folder.name}", (root / "artifacts").as_uri(), {"git_commit": "abc"}, {"trials": "3"})


def record(ledger, t, result):
    ledger.append([TrialEnd.of(t, result)])


def runs(store, sweep):
    """(status, tags) of the child runs of a sweep, oldest first."""
    with sqlite3.connect(store[0] / "mlflow.db") as db:
        found = []
        for run, status in db.execute("select run_uuid, status from runs order by rowid").fetchall():
            tags = dict(db.execute("select key, value from tags where run_uuid = ?", (run,)))
            if tags.get("sweep") == sweep and "trial" in tags:
                found.append((run, status, tags))
        return found


def test_the_ledger_becomes_runs_under_one_parent(tmp_path, store, some):
    tracker = Tracker(spec(store, tmp_path))
    with Ledger(tmp_path) as ledger:
        parent = tracker.begin()
        for t, result in some:
            record(ledger, t, result)
        bad = trial("heft", 3)
        record(ledger, bad, failed(bad, ValueError("no luck"), "s", time.time()))
        assert tracker.end("FINISHED", []) is None
    found = runs(store, tracker.spec.sweep)
    assert [status for _, status, _ in found] == ["FINISHED"] * 3 + ["FAILED"]
    for (run, _, tags), (t, result) in zip(found, some, strict=False):
        expected = {
            "method": "random", "graph": "g20-0", "network": "n4", "seed": str(t.seed), "stage": "main", "trial": t.content_hash,
            "mlflow.parentRunId": parent, "git_commit": "abc",
        }  # fmt: skip
        assert expected.items() <= tags.items()
        with sqlite3.connect(store[0] / "mlflow.db") as db:
            curve = db.execute("select step, value from metrics where run_uuid = ? and key = 'best_makespan' order by step", (run,))
            assert curve.fetchall() == [(p.evaluations, p.best) for p in sampled(result.problems[0].curve)]
    assert list((store[0] / "artifacts").rglob("traceback.txt"))


def test_many_at_a_time_leave_what_the_client_leaves_one_by_one(tmp_path, store, some, monkeypatch):
    """All of a run but its id, its artifacts' folder and the second in which it was written; not-a-number and infinite values too."""
    t, result = some[0]
    odd = replace(result, report={"nan": float("nan"), "inf": float("inf"), "low": -float("inf"), "one": 1.0})
    again = replace(t, seed=77)

    def left(name: str) -> dict[str, list]:
        (tmp_path / name).mkdir()
        tracker = Tracker(spec(store, tmp_path / name))
        batch = [Ended(t, odd, 0), Ended(again, replace(result, trial=again.content_hash), 40)]
        batch += [Ended(other, r, 80 + i) for i, (other, r) in enumerate(some[1:])]
        tracker.begin()
        tracker._send_all(batch)
        tracker.end("FINISHED")
        found: dict[str, list] = {}
        with sqlite3.connect(store[0] / "mlflow.db") as db:
            for run, _, tags in runs(store, tracker.spec.sweep):
                own = {k: v.replace(f"sweep-{name}", "") for k, v in tags.items() if k != "mlflow.parentRunId"}
                about = [c[1] for c in db.execute("pragma table_info(runs)") if c[1] not in ("run_uuid", "artifact_uri", "experiment_id")]
                row = db.execute(f"select {', '.join(about)} from runs where run_uuid = ?", (run,)).fetchone()
                parts = [sorted(own.items()), row]
                for table in ("params", "metrics", "latest_metrics"):
                    columns = [c[1] for c in db.execute(f"pragma table_info({table})") if c[1] != "run_uuid"]
                    parts.append(sorted(db.execute(f"select {', '.join(columns)} from {table} where run_uuid = ?", (run,)).fetchall()))
                assert tracker._client.get_run(run).info.artifact_uri.endswith(f"{run}/artifacts")
                found[tags["trial"]] = parts
        return found

    together = left("together")
    monkeypatch.setattr(Database, "of", staticmethod(lambda *_: None))
    monkeypatch.setattr(tracking, "SENDERS", 1)
    assert len(together) == 4 and all(parts[3] for parts in together.values())
    assert left("singly") == together


def test_tables_that_take_no_run_of_ours_get_them_from_the_client(tmp_path, store, some):
    """As those of a later MLflow might. What is only away is tried again, not given up."""
    tracker = Tracker(spec(store, tmp_path))
    tracker.begin()
    with sqlite3.connect(store[0] / "mlflow.db") as db:
        db.execute("create trigger odd before insert on runs when new.status <> 'RUNNING' begin select raise(abort, 'no column x'); end")
    try:
        assert tracker._send_until_it_works([Ended(t, result, i) for i, (t, result) in enumerate(some)])
    finally:
        with sqlite3.connect(store[0] / "mlflow.db") as db:
            db.execute("drop trigger odd")
    (note,) = tracker.notes()
    assert "one by one" in note and "no column x" in note
    tracker.end("FINISHED")
    assert sorted(tags["trial"] for _, _, tags in runs(store, tracker.spec.sweep)) == sorted(r.trial for _, r in some)
    assert Database.is_away(ConnectionError()) and not Database.is_away(ValueError())


def test_the_pages_show_what_came_out_without_a_click_too_many(tmp_path, store, some):
    """Description, numbers and curves of the methods, inputs, and every trial beside what is known; sent twice it is there once."""
    heft = trial("heft", 3)
    tracker = Tracker(replace(spec(store, tmp_path), tags={"mlflow.user": "ann", "mlflow.source.name": "s.yaml"}))
    with Ledger(tmp_path) as ledger:
        parent = tracker.begin()
        for t, result in [*some, (heft, run_trial(heft, Simulator()))]:
            record(ledger, t, result)
        loaded = load_sweep_record(tmp_path)
        comparison = compare(loaded.collection)
        summary = tracked_summary(loaded, comparison, "Two methods on one graph")
        assert tracker.end("FINISHED", summary=summary) is None
        again = Tracker(tracker.spec)
        assert again.begin() == parent and again.end("FINISHED", summary=summary) is None
    client = tracker._client
    run, experiment = client.get_run(parent), client.get_experiment_by_name(tracker.spec.sweep)
    for note in (run.data.tags["mlflow.note.content"], experiment.tags["mlflow.note.content"]):
        assert note.startswith("Two methods on one graph\n") and "| heft |" in note and "simulated" in note
    assert experiment.tags["mlflow.experimentKind"] == "custom_model_development" and run.data.tags["mlflow.user"] == "ann"
    (row,) = [s for s in comparison.standings if s.method == "random"]
    assert run.data.metrics["iqm/random"] == row.iqm.value and run.data.metrics["gap_to_bound/random"] == row.gap_to_bound
    assert {"gap_to_best/heft", "invalid/heft", "failed/heft"} <= run.data.metrics.keys()
    curve = client.get_metric_history(parent, "best_over_best_known/random")
    assert len({m.step for m in curve}) == len(curve) > 5 and curve[-1].step == 200
    assert {(i.dataset.name, i.tags[0].value) for i in run.inputs.dataset_inputs} == {("g20-0", "graph"), ("n4", "network")}
    (problem,) = comparison.problems
    for child, _, tags in runs(store, tracker.spec.sweep):
        data = client.get_run(child).data
        assert {"method", "graph", "network", "stage", "seed", "evaluator", "propose"} <= data.params.keys() and "batch" not in data.params
        best = data.metrics["best_makespan"]
        assert data.metrics["best_over_best_known"] == best / problem.best and data.metrics["best_over_bound"] == best / problem.bound
        if tags["method"] == "random":
            steps = [m.step for m in client.get_metric_history(child, "best_over_bound")]
            assert len(steps) == len(set(steps)) > 2 and max(steps) == 200


def test_a_view_by_method_is_there_and_ours_to_find(tmp_path, store):
    tracker = Tracker(spec(store, tmp_path))
    tracker.begin()
    tracker.end("KILLED")
    tags = tracker._client.get_experiment(tracker._experiment).tags
    view = json.loads(tags[f"mlflow.sharedViewState.{VIEW}"])
    packed = view["state"].removeprefix("deflate;")
    assert json.loads(zlib.decompress(base64.b64decode(packed)))["groupBy"]["groupByKeys"] == [{"mode": "param", "groupByData": "method"}]
    assert landing("http://h:1", "7").startswith("http://h:1/#/experiments/7/runs?workflowType=machine_learning&viewStateShareKey=")


def test_a_description_is_cut_between_its_lines():
    note = shortened("\n".join(f"| {i} | {'x' * 90} |" for i in range(200)))
    assert len(note) < 8000 and "leaderboard.md" in note.splitlines()[-1] and note.splitlines()[-3].endswith("|")


def test_a_killed_tracker_leaves_one_finished_run_a_trial(tmp_path, store, some):
    with Ledger(tmp_path) as ledger:
        first = Tracker(spec(store, tmp_path))
        first.begin()
        record(ledger, *some[0])
        assert first.drain(300)
        first.live(some[1][0], {"evaluations": 10, "wall_seconds": 1.0, "best": {"best_makespan": 2.0}})
        deadline = time.monotonic() + 300
        while len(runs(store, first.spec.sweep)) < 2 and time.monotonic() < deadline:
            time.sleep(0.02)
        first._stop.set()  # killed: it neither ends its runs nor notes how far it came
        first._thread.join()
        state = json.loads((tmp_path / "tracking.json").read_text())
        (tmp_path / "tracking.json").write_text(json.dumps({**state, "offset": 0}))
        for t, result in some[1:]:
            record(ledger, t, result)
        second = Tracker(spec(store, tmp_path))
        assert second.begin() == state["parent"]
        assert second.end("FINISHED") is None
    found = runs(store, second.spec.sweep)
    finished = [tags["trial"] for _, status, tags in found if status == "FINISHED"]
    assert sorted(finished) == sorted(t.content_hash for t, _ in some)
    assert [s for _, s, _ in found].count("KILLED") == 1 and len(found) == 4


def test_a_trial_that_began_long_before_the_others_is_not_sent_twice(tmp_path, store, some):
    with Ledger(tmp_path) as ledger:
        first = Tracker(spec(store, tmp_path))
        parent = first.begin()
        record(ledger, *some[0])
        assert first.drain(300)
        before = json.loads((tmp_path / "tracking.json").read_text())
        long, result = some[1]
        record(ledger, long, replace(result, started_at=result.started_at - 5000, wall_seconds=5000.0))
        assert first.end("FINISHED") is None
        for _ in range(101):  # of trials that began later
            first._client.create_run(first._experiment, tags={"mlflow.parentRunId": parent})
        (tmp_path / "tracking.json").write_text(json.dumps(before))  # killed after it closed the run, before it noted that
        second = Tracker(spec(store, tmp_path))
        assert second.begin() == parent and second.end("FINISHED") is None
    finished = [tags["trial"] for _, status, tags in runs(store, second.spec.sweep) if status == "FINISHED"]
    assert sorted(finished) == sorted(t.content_hash for t, _ in some[:2])


def test_a_fresh_start_closes_what_a_killed_driver_left_open(tmp_path, store, some):
    Ledger(tmp_path).close()
    first = Tracker(spec(store, tmp_path))
    parent = first.begin()
    first.live(some[0][0], {"evaluations": 10, "wall_seconds": 1.0, "best": {"best_makespan": 2.0}})
    deadline = time.monotonic() + 300
    while not first._open and time.monotonic() < deadline:
        time.sleep(0.02)
    first._stop.set()  # killed
    first._thread.join()
    Ledger(tmp_path, fresh=True).close()
    second = Tracker(spec(store, tmp_path))
    assert second.begin() != parent
    assert second.end("FINISHED") is None
    assert second._client.get_run(parent).info.status == "KILLED"
    assert [status for _, status, _ in runs(store, second.spec.sweep)] == ["KILLED"]


def test_a_live_trial_ends_in_the_run_it_began(tmp_path, store, some):
    t, result = some[0]
    with Ledger(tmp_path) as ledger:
        tracker = Tracker(spec(store, tmp_path))
        tracker.begin()
        early = result.problems[0].curve[0]
        tracker.live(t, {"evaluations": early.evaluations, "wall_seconds": 0.1, "best": {"best_makespan": early.best}})
        deadline = time.monotonic() + 300
        while not tracker._open and time.monotonic() < deadline:
            time.sleep(0.02)
        record(ledger, t, result)
        assert tracker.end("FINISHED") is None
    ((run, status, _),) = runs(store, tracker.spec.sweep)
    with sqlite3.connect(store[0] / "mlflow.db") as db:
        steps = [s for (s,) in db.execute("select step from metrics where run_uuid = ? and key = 'best_makespan' order by step", (run,))]
    assert status == "FINISHED" and steps == [p.evaluations for p in sampled(result.problems[0].curve)]


def test_nothing_is_lost_while_the_store_is_away(tmp_path, store, some, monkeypatch):
    monkeypatch.setattr(tracking, "RETRY_SECONDS", (0.01,))
    with Ledger(tmp_path) as ledger:
        tracker = Tracker(spec(store, tmp_path))
        tracker.begin()
        real, down = tracker._send_all, [True]

        def flaky(*args, **kwargs):
            if down[0]:
                raise ConnectionError("server is away")
            return real(*args, **kwargs)

        monkeypatch.setattr(tracker, "_send_all", flaky)
        for t, result in some:
            record(ledger, t, result)
        deadline = time.monotonic() + 300
        while not tracker.error and time.monotonic() < deadline:
            time.sleep(0.02)
        assert not tracker.drain(0.1) and "server is away" in tracker.error
        down[0] = False
        assert tracker.end("FINISHED") is None
    found = runs(store, tracker.spec.sweep)
    assert [(s, tags["trial"]) for _, s, tags in found] == [("FINISHED", t.content_hash) for t, _ in some]


def test_what_ended_goes_before_live_reports_and_of_those_only_the_latest(tmp_path, some, monkeypatch):
    """5,000 running trials and 20 that ended, then one more that ends amid the reports."""
    sent = []
    running = [replace(some[0][0], seed=1000 + i) for i in range(5000)]
    over = [(replace(some[0][0], seed=s), some[0][1]) for s in range(21)]
    over = [(t, replace(result, trial=t.content_hash)) for t, result in over]
    tracker = Tracker(TrackingSpec("", str(tmp_path), "s"))
    with Ledger(tmp_path) as ledger:

        def show(trial, snapshot):
            sent.append((trial.seed, snapshot["evaluations"]))
            if len(sent) == 100:
                record(ledger, *over[20])
            if len(sent) == 5021:
                tracker._stop.set()

        monkeypatch.setattr(tracker, "_show", show)
        monkeypatch.setattr(tracker, "_send", lambda one: sent.append((one.trial.seed, "ended")))
        for evaluations in (10, 20, 30):
            for t in (*running, over[3][0]):
                tracker.live(t, {"evaluations": evaluations, "wall_seconds": 1.0, "best": {}})
        for t, result in over[:20]:
            record(ledger, t, result)
        tracker._follow()
    assert sorted(sent[:20]) == [(s, "ended") for s in range(20)]
    last = sent.index((20, "ended"))
    assert last <= 100 + tracking.LIVE_BATCH
    assert sent[20:last] + sent[last + 1 :] == [(1000 + i, 30) for i in range(5000)], "no report of a trial that has ended"


def test_nothing_kills_the_thread(tmp_path, store, some, monkeypatch):
    """A damaged line, a full disk for its own note, a store that raises what nobody expects."""
    monkeypatch.setattr(tracking, "RETRY_SECONDS", (0.01,))
    with Ledger(tmp_path) as ledger:
        tracker = Tracker(spec(store, tmp_path))
        tracker.begin()
        full, odd, send = [True], [True], tracker._send_all

        def save():
            if full[0]:
                raise OSError(28, "No space left on device")

        def sends(*args):
            if odd.pop():
                odd.append(False)
                raise RecursionError("odd")
            odd.append(False)
            send(*args)

        monkeypatch.setattr(tracker, "_save_state", save)
        monkeypatch.setattr(tracker, "_send_all", sends)
        record(ledger, *some[0])
        ledger._file.write(b'{"half": "a line"}\r\n')
        ledger._file.flush()
        record(ledger, *some[1])
        assert tracker.drain(60) and tracker._thread.is_alive()
        (note,) = tracker.notes()
        assert "not sent to MLflow" in note and "CR LF" in note
        assert tracker.end("FINISHED") and tracker._client.get_run(tracker._parent).info.status == "FINISHED"
    finished = [tags["trial"] for _, status, tags in runs(store, tracker.spec.sweep) if status == "FINISHED"]
    assert finished == [some[0][0].content_hash, some[1][0].content_hash]


@pytest.mark.parametrize("left", [None, 0, 1])
def test_a_ledger_that_lost_lines_leaves_one_finished_run_a_trial(tmp_path, store, some, left):
    with Ledger(tmp_path) as ledger:
        first = Tracker(spec(store, tmp_path))
        parent = first.begin()
        for t, result in some:
            record(ledger, t, result)
        assert first.end("FINISHED") is None
    path = tmp_path / "ledger.jsonl"
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[: left or 0]))
    if left is None:
        path.unlink()
    with Ledger(tmp_path) as ledger:
        second = Tracker(spec(store, tmp_path))
        assert second.begin() == parent
        (note,) = second.notes()
        assert f"{3 - (left or 0)} trials that the ledger has lost" in note
        for t, result in some[left or 0 :]:
            record(ledger, t, result)
        assert second.end("FINISHED") is None
        third = Tracker(spec(store, tmp_path))
        third.begin()
        assert third.end("FINISHED") is None and not third.notes()
    found = runs(store, second.spec.sweep)
    finished = [tags["trial"] for _, status, tags in found if status == "FINISHED"]
    assert sorted(finished) == sorted(t.content_hash for t, _ in some)
    assert {(status, tags["status"]) for _, status, tags in found if status != "FINISHED"} == {("KILLED", "superseded")}


@pytest.mark.parametrize(
    "command",
    [None, ["status", "small.yaml", "--output", "."], ["cancel", "small.yaml", "--output", "."], ["report", "sweep", "--output", "."]],
)
def test_runs_of_a_dead_driver_are_closed_by_whoever_looks(tmp_path, store, some, command, monkeypatch):
    folder = tmp_path / "sweep"
    small_sweep(tmp_path)
    monkeypatch.chdir(tmp_path)
    with Ledger(folder):
        tracker = Tracker(spec(store, folder))
        parent = tracker.begin()
        tracker._show(some[0][0], {"evaluations": 10, "wall_seconds": 1.0, "best": {"best_makespan": 2.0}})
        assert close_stale(tmp_path) == 0, "a driver holds the folder"
        tracker._stop.set()  # killed
        tracker._thread.join()
    if command is None:
        assert close_stale(tmp_path) == 2
    else:
        main(command)
    assert close_stale(tmp_path) == 0
    assert tracker._client.get_run(parent).info.status == "KILLED"
    assert {status for _, status, _ in runs(store, tracker.spec.sweep)} == {"KILLED"}


@pytest.mark.parametrize(
    ("uri", "word"),
    [
        ("", "scheme"),
        ("sqlit:///x.db", "sqlite"),
        ("mlruns", "scheme"),
        ("sqlite://", "file"),
        ("sqlite:////proc/nowhere/mlflow.db", "folder"),
        ("http://", "host"),
        ("http://localhost:99999", "port"),
        ("http://127.0.0.1:9", "does not answer"),
        ("postgresql://", "host"),
    ],
)
def test_an_unusable_uri_is_one_clear_line(uri, word):
    with pytest.raises(InputError, match=word) as caught:
        check_uri(uri)
    assert "\n" not in str(caught.value) and repr(uri) in str(caught.value)


def test_a_database_that_is_none_is_one_clear_line(tmp_path):
    (tmp_path / "mlflow.db").write_text("this is no database, " * 100)
    with pytest.raises(InputError, match="cannot be opened"):
        check_uri(default_uri(tmp_path))


def test_a_database_with_a_damaged_page_is_one_clear_line(tmp_path):
    path = tmp_path / "mlflow.db"
    with contextlib.closing(sqlite3.connect(path)) as database, database:
        database.execute("CREATE TABLE runs (id TEXT PRIMARY KEY, name TEXT)")
        database.executemany("INSERT INTO runs VALUES (?, ?)", ((str(i), "x" * 100) for i in range(500)))
    check_uri(default_uri(tmp_path))
    data = bytearray(path.read_bytes())
    data[5 * 4096 : 5 * 4096 + 100] = bytes(100)  # the first page, with the schema, is sound
    path.write_bytes(data)
    with pytest.raises(InputError, match=r"mlflow\.db' cannot be opened .*; move the file away or choose another"):
        check_uri(default_uri(tmp_path))


def test_curves_share_their_steps(some):
    assert grid(60) == [1, 2, 3, 5, 10, 20, 30, 50, 60] and grid(50) == [1, 2, 3, 5, 10, 20, 30, 50] and grid(1) == [1]
    assert grid(200, 6) == [1, 3, 10, 30, 100, 200] and grid(200, 3) == [1, 200] and grid(200, 4) == [1, 10, 100, 200]
    assert len(grid(10**9)) < run_contents.TRACKED_POINTS
    curve = [CurvePoint(4, 9.0, 0.0, 4), CurvePoint(7, 5.0, 3.0, 7), CurvePoint(27, 5.0, 23.0, 27)]
    assert [p[:3] for p in sampled(curve)] == [(5, 9.0, 1.0), (10, 5.0, 6.0), (20, 5.0, 16.0), (27, 5.0, 23.0)]
    for evaluations, found in ((2, (2, None)), (4, (3, None)), (8, (5, 9.0)), (29, (20, 5.0)), (30, (30, 5.0))):
        assert reached(curve, evaluations) == found
    others = [m for _, result in some for m in result_metrics(result) if m[0] == "best_makespan"]
    assert {step for _, _, _, step in others} <= {*grid(1000), *(r.evaluations for _, r in some)}
    names = [(name, step) for name, _, _, step in result_metrics(some[0][1])]
    assert len(names) == len(set(names))


def test_an_end_before_the_beginning_is_through_is_no_error(store, tmp_path):
    assert Tracker(spec(store, tmp_path)).end("KILLED") is None


@pytest.mark.slow
def test_two_sweeps_that_begin_at_once_make_one_store(tmp_path):
    program = (
        "import sys; from pathlib import Path; from orchestration.tracking.store_checks import default_uri\n"
        "from orchestration.tracking.tracker import Tracker, TrackingSpec\n"
        "root = Path(sys.argv[1]); folder = root / sys.argv[2]; folder.mkdir()\n"
        "(folder / 'ledger.jsonl').touch()\n"
        "Tracker(TrackingSpec(default_uri(root), str(folder), sys.argv[2], (root / 'artifacts').as_uri(), {}, {})).begin()\n"
    )
    both = [subprocess.Popen([sys.executable, "-c", program, str(tmp_path), name]) for name in ("one", "two")]
    assert [one.wait(timeout=500) for one in both] == [0, 0]
    with sqlite3.connect(tmp_path / "mlflow.db") as db:
        assert {name for (name,) in db.execute("select name from experiments")} >= {"one", "two"}
