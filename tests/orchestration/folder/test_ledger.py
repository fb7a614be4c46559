import contextlib
import json
import shutil
import sqlite3
from dataclasses import replace

import numpy as np
import pytest

from envs.problem.errors import InputError
from envs.problem.measurement import Rows
from envs.simulators.fifo.evaluator import Simulator
from orchestration.folder.ledger import Ledger, TrialEnd, entries, line, parse, results
from orchestration.rewards.evaluators import InfrastructureError
from orchestration.rewards.measurement_store import MeasurementStore
from orchestration.specs.layout import LEDGER, POLICY, STORE, trial_folder
from orchestration.trials.run_trial import failed, run_trial
from tests.orchestration.little_disk import little_disk
from tests.orchestration.sweeps_for_tests import trial


def ended(t, result):
    return TrialEnd.of(t, result)


@pytest.fixture(scope="module")
def two():
    trials = [trial("heft", 5, seed=s) for s in (0, 1)]
    return [(t, run_trial(t, Simulator())) for t in trials]


def test_what_ended_is_there_again(tmp_path, two):
    with Ledger(tmp_path) as ledger:
        ledger.append([ended(*two[0])])
        ledger.append([ended(*two[1])])
        assert list(entries(tmp_path)) == two, "on disk when `append` returns"
    assert list(results(tmp_path)) == [result for _, result in two]
    with Ledger(tmp_path) as ledger:
        assert set(ledger.entries) == {t.content_hash for t, _ in two}
        assert ledger.read(two[1][0].content_hash) == two[1]


def test_what_is_remembered_while_writing_is_what_a_later_run_reads(tmp_path, two):
    lost = trial("heft", 6)
    with Ledger(tmp_path) as ledger:
        ledger.append([ended(*two[0]), ended(lost, failed(lost, InfrastructureError("host")))])
        before = ledger.entries
    with (tmp_path / LEDGER).open("ab") as file:
        file.write(b'{"spec"')
    with Ledger(tmp_path) as ledger:
        assert ledger.entries == before and ledger.unchecked == 0
        ledger.append([ended(*two[1])])
        assert ledger.read(two[1][0].content_hash) == two[1]
        before = ledger.entries
    with Ledger(tmp_path) as ledger:
        assert ledger.entries == before


def test_a_closed_ledger_writes_nothing(tmp_path, two):
    ledger = Ledger(tmp_path)
    ledger.close()
    with pytest.raises(ValueError, match="closed"):
        ledger.append([ended(*two[0])])


def test_the_driver_is_told_the_best_of_a_trial_and_the_last_line_of_its_error(two):
    t, result = two[0]
    (problem,) = result.problems
    assert (ended(t, result).best, ended(t, result).error) == (((problem.name, problem.objective_name, problem.objective),), "")
    end = ended(t, replace(failed(t, ValueError("x")), traceback="Traceback\n  some line\nValueError: own\n"))
    assert (end.best, end.error) == ((), "ValueError: own")


def test_a_line_with_a_checksum_is_believed_and_one_without_sense_is_not_written(two):
    (a, _), (b, result) = two
    assert parse(line(a, result)) == (a, result), "though it is the result of the other"
    with pytest.raises(InputError, match=r"^a line is damaged"):
        parse("{}")
    with pytest.raises(ValueError, match="JSON"):
        line(b, replace(result, wall_seconds=float("nan")))


def test_a_full_disk_is_a_sentence_and_costs_what_was_not_written(tmp_path, two):
    with Ledger(tmp_path) as ledger:
        ledger.append([ended(*two[0])])
    size = (tmp_path / LEDGER).stat().st_size
    full = pytest.raises(InputError, match=r"ledger\.jsonl cannot be written .*run the sweep again to go on")
    with full, little_disk(size + 100), Ledger(tmp_path) as ledger:
        ledger.append([ended(*two[1])])
    with Ledger(tmp_path) as ledger:
        assert set(ledger.entries) == {two[0][0].content_hash}
        ledger.append([ended(*two[1])])
    assert list(entries(tmp_path)) == two


def test_the_last_line_of_a_trial_counts(tmp_path, two):
    t, result = two[0]
    with Ledger(tmp_path) as ledger:
        ledger.append([ended(t, failed(t, ValueError("first try")))])
        ledger.append([ended(*two[1])])
        ledger.append([ended(t, result)])
    assert list(entries(tmp_path)) == [two[1], two[0]]


@pytest.mark.parametrize("cut", [1, 10, 200])
def test_a_line_torn_by_a_kill_runs_again_and_nothing_else(tmp_path, two, cut):
    with Ledger(tmp_path) as ledger:
        ledger.append(map(lambda e: ended(*e), two))
    path = tmp_path / LEDGER
    path.write_bytes(path.read_bytes()[:-cut])
    assert list(entries(tmp_path)) == two[:1]
    with Ledger(tmp_path) as ledger:
        assert set(ledger.entries) == {two[0][0].content_hash}
        ledger.append([ended(*two[1])])
    assert list(entries(tmp_path)) == two


def test_a_damaged_middle_is_said_and_not_guessed(tmp_path, two):
    with Ledger(tmp_path) as ledger:
        ledger.append(map(lambda e: ended(*e), two))
    path = tmp_path / LEDGER
    path.write_bytes(b"{}\n" + path.read_bytes())
    with pytest.raises(InputError, match=r"line 1 of .*no entry of a ledger.*restore"):
        Ledger(tmp_path)


def test_no_flipped_bit_is_overlooked(tmp_path, two):
    path, rng = tmp_path / LEDGER, np.random.default_rng(0)
    with Ledger(tmp_path) as ledger:
        ledger.append(map(lambda e: ended(*e), two))
    data = path.read_bytes()
    for _ in range(200):
        changed = bytearray(data)
        changed[rng.integers(0, len(data) - 1)] ^= 1 << int(rng.integers(0, 8))  # without the last line end: that is a torn line
        path.write_bytes(changed)
        for read in (lambda: list(entries(tmp_path)), lambda: Ledger(tmp_path)):
            with pytest.raises(InputError, match=r"line [12] of .*ledger.jsonl is damaged"):
                read()


def without_sum(text):
    data = json.loads(text)
    del data["sum"]
    return data


def test_a_ledger_of_before_there_were_checksums_is_read_and_called_unchecked(tmp_path, two):
    old = "".join(json.dumps(without_sum(ended(*e).line)) + "\n" for e in two)
    (tmp_path / LEDGER).write_text(old)
    assert list(entries(tmp_path)) == two
    with Ledger(tmp_path) as ledger:
        assert ledger.unchecked == 2
        ledger.append([ended(*two[0])])
    assert list(entries(tmp_path)) == [two[1], two[0]]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda d: d.update(spec=without_sum(d["other"])["spec"]), "describes trial"),
        (lambda d: d.update(spec={}), "damaged"),
        (lambda d: d["spec"].update(seed="x"), "describes trial"),
        (lambda d: d.update(result={"trial": d["result"]["trial"], "status": "finished"}), "format"),
        (lambda d: d.update(result={}), "lacks 'trial'"),
        (lambda d: d.update(result=3), "damaged"),
    ],
)
def test_without_a_checksum_what_does_not_fit_is_a_sentence(tmp_path, two, change, words):
    data = {**without_sum(ended(*two[0]).line), "other": ended(*two[1]).line}
    change(data)
    data.pop("other")
    (tmp_path / LEDGER).write_text(json.dumps(without_sum(ended(*two[1]).line)) + "\n" + json.dumps(data) + "\n")
    with pytest.raises(InputError, match=rf"line 2 of .*{words}.*runs again"):
        list(entries(tmp_path))


def test_line_ends_of_windows_and_a_folder_in_its_place_are_a_sentence(tmp_path, two):
    with Ledger(tmp_path) as ledger:
        ledger.append([ended(*two[0])])
    path = tmp_path / LEDGER
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    kept = []
    for _ in range(2):  # the lock is given back, whoever keeps the error
        with pytest.raises(InputError, match=r"line 1 of .*CR LF") as error:
            Ledger(tmp_path)
        kept.append(error)
    path.unlink()
    path.mkdir()
    for read in (lambda: list(entries(tmp_path)), lambda: Ledger(tmp_path)):
        with pytest.raises(InputError, match="cannot be opened"):
            read()


def test_one_writer_at_a_time(tmp_path):
    with Ledger(tmp_path), pytest.raises(InputError, match="another run"):
        Ledger(tmp_path)
    Ledger(tmp_path).close()


def test_fresh_keeps_the_old_ledger_aside(tmp_path, two):
    with Ledger(tmp_path) as ledger:
        ledger.append([ended(*two[0])])
    learned = trial_folder(tmp_path, two[0][0].content_hash)
    learned.mkdir(parents=True)
    (learned / POLICY).write_bytes(b"weeks of training")
    for number in (1, 2):
        with Ledger(tmp_path, fresh=True) as ledger:
            assert not ledger.entries
            ledger.append([ended(*two[number - 1])])
        assert (tmp_path / f"ledger.{number}.jsonl").exists()
        assert not (tmp_path / "trials").exists() and not list(tmp_path.glob("*.sqlite"))
    assert (tmp_path / "trials.1" / learned.name / POLICY).read_bytes() == b"weeks of training"
    assert not (tmp_path / "trials.2").exists()


@pytest.mark.parametrize("held", [False, True])
def test_fresh_keeps_what_a_killed_service_measured(tmp_path, held):
    """Its last rows, here all of them, are still in the log of the database: what is there before it is closed."""
    live = MeasurementStore(tmp_path / "live" / STORE)
    for i in range(50):
        placement = np.full((1, 9), i, np.int16)
        live.write(("problem", "protocol", "key"), placement, Rows(np.zeros(1, np.int8), np.ones(1), np.ones(1), "host"))
    for end in ("", "-wal"):
        shutil.copy(tmp_path / "live" / (STORE + end), tmp_path)
    live.close()
    assert (tmp_path / "measurements.sqlite-wal").stat().st_size
    with contextlib.ExitStack() as stack:
        if held:  # by a service that is about to notice that its driver is gone
            reader = stack.enter_context(contextlib.closing(sqlite3.connect(tmp_path / STORE, isolation_level=None)))
            reader.execute("BEGIN")
            reader.execute("SELECT COUNT(*) FROM measurements").fetchone()
        Ledger(tmp_path, fresh=True).close()
        log = {f"measurements.1.sqlite{end}" for end in ("-wal", "-shm")} if held else set()
        assert {p.name for p in tmp_path.glob("measurements*")} == {"measurements.1.sqlite", *log}
    aside = MeasurementStore(tmp_path / "measurements.1.sqlite")
    now = MeasurementStore(tmp_path / STORE)
    assert (len(aside), len(now)) == (50, 0)
    aside.close()
    now.close()


def test_only_failures_of_infrastructure_are_tried_again(tmp_path):
    a, b = trial("heft", 5), trial("heft", 6)
    with Ledger(tmp_path) as ledger:
        ledger.append([ended(a, failed(a, ValueError("own"))), ended(b, failed(b, InfrastructureError("host")))])
        assert ledger.entries[a.content_hash].settled
        assert not ledger.entries[b.content_hash].settled


def test_a_trial_cannot_leave_its_folder(tmp_path):
    with pytest.raises(InputError):
        trial_folder(tmp_path, "../../etc")
