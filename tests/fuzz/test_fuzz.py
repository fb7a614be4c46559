"""Nothing that is malformed or hostile brings a command down, and what judges that sees it when something does."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.fuzz import cases as kinds
from tests.fuzz import harness
from tests.fuzz.cases import KINDS, Case, Kind
from tests.fuzz.harness import BAD, cases, fuzz, judge, table
from tests.fuzz.worker import Ended


@pytest.mark.slow
def test_a_thousand_hostile_inputs_do_no_harm(tmp_path: Path) -> None:
    verdicts = fuzz(tmp_path, 7, cases(1000))
    assert len(verdicts) >= 1000
    wrong = [str(v) for v in verdicts if v.verdict in BAD]
    assert not wrong, "\n".join([*wrong, table(verdicts)])


def test_every_kind_is_drawn() -> None:
    drawn = cases(1000)
    assert len(drawn) >= 1000 and {kind for kind, _ in drawn} == set(KINDS)


@pytest.mark.parametrize(
    ("code", "said", "verdict"),
    [
        (0, "done", "accepted"),
        (2, "placewright: hostile.yaml:3: no such method 'x'", "refused"),
        (2, "placewright: node 'abc' lacks flops", "refused"),
        (2, "placewright: something is wrong", "unnamed"),
        (1, "placewright: KeyError: 'a' (unexpected; PLACEWRIGHT_DEBUG=1 shows where, please report it)", "unexpected"),
        (1, "Traceback (most recent call last):", "traceback"),
        (1, "hostile.yaml: 1 trial failed", "named"),
        (1, "1 trial failed", "failed"),
    ],
)
def test_what_is_thought_of_an_end(code: int, said: str, verdict: str) -> None:
    case = Case([["validate", "x"]], ("hostile.yaml",), '{"name": "abc"}')
    assert judge("sweep", 0, Ended(code, said, False, 0.1, case)).verdict == verdict


def test_another_table_is_seen_unless_it_is_told() -> None:
    case = Case([["run", "x"]], ("ledger.jsonl",))
    assert judge("ledger", 0, Ended(0, "done", False, 0.1, case, ["runs.csv"])).verdict == "another table"
    assert judge("ledger", 0, Ended(0, "ledger.jsonl lacks a line", False, 0.1, case, ["runs.csv"])).verdict == "accepted"


def test_a_hang_and_a_crash_are_met_and_the_next_input_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def spin(*_: object) -> Case:
        while True:
            pass

    def die(*_: object) -> Case:
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError

    made = {"spin": spin, "die": die, "sound": lambda *_: Case([["--version"]], ())}
    monkeypatch.setattr(kinds, "KINDS", {name: Kind(1, make) for name, make in made.items()})
    monkeypatch.setattr("tests.fuzz.worker.prepare", lambda home: None)
    monkeypatch.setattr(harness, "CPU_LIMIT", 0.5)
    verdicts = fuzz(tmp_path, 0, [("sound", 0), ("spin", 0), ("sound", 1), ("die", 0), ("sound", 2)])
    assert [v.verdict for v in verdicts] == ["accepted", "hang", "accepted", "crash", "accepted"]
