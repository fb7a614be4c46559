"""What was measured for real is measured once, also after a restart; leases that ended are refused."""

import contextlib
import shutil
import sqlite3
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from envs.problem.columns import Column
from envs.problem.errors import InputError
from envs.problem.measurement import Outcome, Rows, join_rows
from orchestration.rewards.measurement_store import MeasurementStore, _read_value, _stored, measurement_context
from orchestration.rewards.measurement_table import MeasurementTable
from orchestration.rewards.messages import Answer
from orchestration.rewards.ray_service import SimulatorActor, StaleLease
from orchestration.rewards.service import RewardService
from orchestration.specs.canonical import canonical
from orchestration.specs.layout import STORE
from orchestration.specs.sources import build_problem
from tests.orchestration.rewards.test_service import FakeHost, ask, right, rows
from tests.orchestration.sweeps_for_tests import problem_spec
from tests.orchestration.virtual_time import run


def serve(path, host, *asks, key="host"):
    async def main():
        store = MeasurementStore(path)
        service = RewardService(store=store)
        service.add_hosts(key, [host], always_cache=True)
        answers = [await service.evaluate(a) for a in asks]
        store.close()
        return answers

    return run(main())


def test_measurements_survive_a_restart(tmp_path):
    first, second, other = FakeHost("first"), FakeHost("second"), FakeHost("other")
    a = ask(rows(10))
    serve(tmp_path / STORE, first, a)
    mixed = ask(np.concatenate([rows(3, 5), rows(10), rows(10)[:2]]))
    (answer,) = serve(tmp_path / STORE, second, mixed)
    assert right(answer, mixed) and sum(second.measured.values()) == 3
    assert answer.rows.host == "first+second"
    (alone,) = serve(tmp_path / STORE, second, ask(rows(2, 5)))
    assert alone.rows.host == "second", "each row knows what measured it"
    (again,) = serve(tmp_path / STORE, other, ask(rows(10), key="other"), key="other")
    assert sum(other.measured.values()) == 10 and right(again, a), "another key is another machine"


@pytest.mark.parametrize("part", ["problem_hash", "protocol"])
def test_what_another_problem_or_protocol_measured_is_not_taken(tmp_path, part):
    host, a = FakeHost(), ask(rows(5))
    b = replace(a, **{part: "another"})
    serve(tmp_path / STORE, host, a, b, a)
    assert set(host.measured.values()) == {2}, "nor from the table in memory"
    serve(tmp_path / STORE, host, b, a)
    assert set(host.measured.values()) == {2}, "but each from the store that survived"
    alone = FakeHost()
    serve(tmp_path / STORE, alone, replace(a, **{part: "a third"}))
    assert set(alone.measured.values()) == {1}


def test_a_measurement_depends_on_every_part_of_its_context():
    parts = ("problem", "protocol", "dataflow", "machine")
    changed = [tuple("another" if i == k else part for i, part in enumerate(parts)) for k in range(4)]
    contexts = [measurement_context(*p) for p in (parts, *changed, (*parts[:3], ""))]
    assert len(set(contexts)) == 6


def test_the_store_keeps_everything_but_what_is_not_known(tmp_path):
    store, placements = MeasurementStore(tmp_path / STORE), rows(3)
    outcome = np.array([Outcome.OK, Outcome.TOO_SLOW, Outcome.INFRASTRUCTURE], dtype=np.int8)
    samples = (np.array([0.1, 0.2]), np.empty(0), np.empty(0))
    seconds, objective = np.array([0.1, np.nan, np.nan]), np.array([0.1, np.inf, np.inf])
    store.write(("p", "protocol", "k"), placements, Rows(outcome, seconds, objective, "h", samples, ("", "late", "gone")))
    found, kept = store.read(("p", "protocol", "k"), placements)
    assert found.tolist() == [True, True, False] and len(store) == 2
    assert kept[1].seconds.shape == (1,) and np.isnan(kept[1].seconds[0])
    kept = join_rows(kept)
    assert kept.outcome.tolist() == [Outcome.OK, Outcome.TOO_SLOW] and kept.seconds[0] == 0.1 and np.isnan(kept.seconds[1])
    assert kept.objective[1] == np.inf and kept.notes == ("", "late") and kept.samples[0].tolist() == [0.1, 0.2] and kept.host == "h"
    assert store.read(("p", "another", "k"), placements)[1] == []


def test_a_lease_that_has_ended_is_refused():
    host, problem = SimulatorActor(), build_problem(problem_spec())
    host.load(problem)
    placements = np.zeros((1, problem.n_nodes), dtype=np.int16)

    def measure(token):
        return host.measure(problem.content_hash, '{"kind": "simulator", "options": {}}', placements, 0, 0, False, token)

    assert all(isinstance(measure(token), tuple) for token in (7, 7, 9))
    with pytest.raises(StaleLease, match="lease 8 has ended; lease 9"):
        measure(8)


def test_a_restarted_service_has_newer_leases_than_the_one_before(tmp_path):
    first, second = FakeHost(lease=5), FakeHost(lease=5)
    serve(tmp_path / "first.sqlite", first, ask(rows(3)))
    serve(tmp_path / "second.sqlite", second, ask(rows(3)))
    assert first.tokens == sorted(first.tokens) and second.tokens[0] > first.tokens[-1]


def test_a_measuring_process_dies_with_the_host_that_started_it():
    """Even one that never looks up from its measurement."""
    child = "import os; from envs.hosts.child_process import _end_with; p = os.getppid(); print(os.getpid(), flush=True); _end_with(p)"
    host = subprocess.Popen(
        [sys.executable, "-c", f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"],
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert host.stdout is not None
    pid = int(host.stdout.readline())
    assert alive(pid)
    host.kill()
    host.wait()
    host.stdout.close()
    deadline = time.monotonic() + 300
    while alive(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not alive(pid)


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_store_of_an_earlier_version_is_read_and_written(tmp_path):
    with sqlite3.connect(tmp_path / STORE) as old:
        old.execute(
            "CREATE TABLE measurements (context TEXT, placement BLOB, outcome INTEGER, seconds REAL, objective REAL, host TEXT, "
            "samples BLOB, note TEXT, PRIMARY KEY (context, placement)) WITHOUT ROWID"
        )
        old.execute("INSERT INTO measurements VALUES (?, ?, 0, 1.0, 1.0, 'h', NULL, NULL)", (canonical(("p",)), rows(1)[0].tobytes()))
    old.close()
    store, placements = MeasurementStore(tmp_path / STORE), rows(2)
    one, two = (np.full(1, x) for x in (2.0, 0.25))
    store.write(("p",), placements[1:], Rows(np.zeros(1, np.int8), one, one, "h", deviation=two))
    found, known = store.read(("p",), placements)
    assert found.all() and known[0].deviation is None and known[1].deviation == 0.25
    joined = join_rows(known)
    assert np.isnan(joined.deviation[0]) and joined.deviation[1] == 0.25 and joined.compile_seconds is None
    assert joined.take(slice(1, 2)).deviation == 0.25
    store.close()


def test_what_cannot_be_a_store_of_measurements_is_refused_in_one_sentence(tmp_path):
    with sqlite3.connect(tmp_path / STORE) as old:
        old.execute("CREATE TABLE measurements (context TEXT, placement BLOB, outcome INTEGER, host TEXT)")
    old.close()
    with pytest.raises(InputError, match="lacks the column 'seconds'; use the version that wrote it, or move it away"):
        MeasurementStore(tmp_path / STORE)


def test_time_to_compile_is_remembered_by_table_and_store(tmp_path):
    placements, host = rows(3), FakeHost()
    seconds = np.array([0.5, 0.0, 2.0])
    said = Rows(np.zeros(3, np.int8), np.ones(3), np.ones(3), "h", compile_seconds=seconds)
    store, table = MeasurementStore(tmp_path / STORE), MeasurementTable()
    store.write(("p",), placements, said)
    assert join_rows(store.read(("p",), placements)[1]).compile_seconds.tolist() == seconds.tolist()
    with table.reading():
        slots, new = table.slots("p", placements)
        table.fill(slots[new], said)
        assert table.read(slots).compile_seconds.tolist() == seconds.tolist()
        others, _ = table.slots("q", placements)
        table.fill(others, Rows.unknown(3))
        assert table.read(others).compile_seconds is None and table.read(others).samples is None
    store.close()

    async def measured(*_):
        return Answer(said)

    host.measure = measured
    (first, second) = serve(tmp_path / "other.sqlite", host, *[ask(rows(3))] * 2)
    assert first.rows.compile_seconds.tolist() == second.rows.compile_seconds.tolist() == seconds.tolist()


def test_no_damaged_value_passes(tmp_path):
    path, key = tmp_path / STORE, ("problem", "protocol", "key")
    placements = np.random.default_rng(0).integers(0, 4, (20, 8)).astype(np.int16)
    store = MeasurementStore(path)
    store.write(key, placements, Rows(np.zeros(20, np.int8), np.full(20, -0.0), np.arange(20.0), "here"))
    store.close()
    MeasurementStore(path).close()
    for column, value in (
        ("objective", 3.5),
        ("host", "there"),
        ("outcome", 1),
        ("context", "another"),
        ("seconds", None),
        ("checksum", "x"),
    ):
        damaged = tmp_path / f"{column}.sqlite"
        shutil.copy(path, damaged)
        with contextlib.closing(sqlite3.connect(damaged)) as database, database:
            database.execute(f"UPDATE measurements SET {column} = ? WHERE objective = 7", (value,))
        with pytest.raises(InputError, match=rf"{column}.sqlite' is damaged \(the checksum of row \d+ does not fit\); move it away"):
            MeasurementStore(damaged)


@pytest.mark.parametrize("content", [b"no database, but text that goes on for a while", None, b"SQLite format 3\0" + bytes(4080)])
def test_what_is_no_database_is_refused_in_a_sentence(tmp_path, content):
    path = tmp_path / STORE
    if content is None:
        path.mkdir()
    else:
        path.write_bytes(content)
    with pytest.raises(InputError, match=r"measurements.sqlite' is damaged .*move it away"):
        MeasurementStore(path)


def test_rows_of_before_there_were_checksums_are_read(tmp_path):
    path, placements = tmp_path / STORE, np.zeros((1, 4), np.int16)
    store = MeasurementStore(path)
    store.write(("a",), placements, Rows(np.zeros(1, np.int8), np.ones(1), np.ones(1), "here"))
    store.close()
    with contextlib.closing(sqlite3.connect(path)) as database, database:
        database.execute("ALTER TABLE measurements DROP COLUMN checksum")
    store = MeasurementStore(path)
    assert store.read(("a",), placements)[0].all()
    store.close()


def one(**more):
    return Rows(np.zeros(1, np.int8), np.full(1, 0.5), np.full(1, 0.25), "here", (np.array([0.5, 0.5]),), ("note",), **more)


def test_the_file_is_what_earlier_and_later_versions_expect(tmp_path):
    path = tmp_path / "new" / "folder" / STORE
    with contextlib.closing(MeasurementStore(path)) as store:
        store.write(("problem", "protocol", "key"), np.array([[0, 1, 2]], np.int16), one(deviation=np.full(1, 0.125)))
    with contextlib.closing(sqlite3.connect(path)) as database:
        types = {row[1]: row[2] for row in database.execute("PRAGMA table_info(measurements)")}
        (checksum,) = database.execute("SELECT checksum FROM measurements").fetchone()
    texts, reals = ("context", "host", "notes", "checksum"), ("seconds", "objective", "deviation", "compile_seconds")
    expected = {
        **dict.fromkeys(texts, "TEXT"),
        **dict.fromkeys(reals, "REAL"),
        "outcome": "INTEGER",
        "placement": "BLOB",
        "samples": "BLOB",
    }
    assert {name: types.get(name) for name in expected} == expected
    assert checksum == "0c5239563ba8f6df"


def test_rows_are_kept_all_or_none_and_whoever_reads_holds_nothing_up(tmp_path):
    store, batch = MeasurementStore(tmp_path / STORE), rows(3)
    with contextlib.closing(sqlite3.connect(tmp_path / STORE, isolation_level=None)) as other:
        other.execute("CREATE TRIGGER full BEFORE INSERT ON measurements WHEN NEW.objective = 2 BEGIN SELECT RAISE(ABORT, 'full'); END")
        other.execute("BEGIN")
        other.execute("SELECT * FROM measurements").fetchall()
        three = Rows(np.zeros(3, np.int8), np.ones(3), np.arange(3.0), "h")
        with pytest.raises(sqlite3.Error, match="full"):
            store.write(("p",), batch, three)
        assert len(store) == 0
        with ThreadPoolExecutor(1) as thread:  # as an actor's methods
            thread.submit(store.write, ("p",), batch[:2], three.take(slice(0, 2))).result()
        assert len(store) == 2
    store.close()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("SET objective = 3", "row 1 does not fit"),
        ("SET host = CAST(x'ff' AS TEXT)", "UTF-8"),
    ],
)
def test_a_store_that_is_refused_is_not_held_open(tmp_path, change, words):
    with contextlib.closing(MeasurementStore(tmp_path / STORE)) as store:
        store.write(("p",), rows(1), one())
    with contextlib.closing(sqlite3.connect(tmp_path / STORE)) as database, database:
        database.execute(f"UPDATE measurements {change}")
    with pytest.raises(InputError, match=words) as error:
        MeasurementStore(tmp_path / STORE)
    assert error.tb is not None, "who still has the error has all that its frames hold"
    assert [path.name for path in tmp_path.iterdir()] == [STORE], "an open store has its log beside it"


def test_arrays_of_arrays_come_back_in_their_shape():
    c, value = Column(np.float64, tail=(5,)), np.arange(10.0).reshape(2, 5)
    np.testing.assert_array_equal(_read_value(c, _stored(c, value))[0], value)
