"""Plans count what a sweep will run and price it at measured rates."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from envs.problem.errors import InputError
from orchestration.commands.plan import Rates, duration, make_plan, render
from orchestration.definition.sweep import load_sweep
from orchestration.folder.ledger import Ledger, TrialEnd
from orchestration.specs.results import TrialResult
from orchestration.specs.trial import EvaluatorSpec, FrozenDict

pytestmark = pytest.mark.usefixtures("toy_methods")

SWEEP = """
sweep: study
problems:
  graphs: {layered: {synthetic: {tasks: 12}, seeds: 0..2}}
  networks: {two: {synthetic: {devices: 2}}}
methods: [toy-learner]
seeds: [0, 1]
budget: 100
stages:
  pretrain: {hold_out: each}
  finetune: {from: pretrain, budget: {evaluations: 10}}
  zero-shot: {from: pretrain}
  tune:
    kind: search
    on: layered/0
    search: {space: {steps: {int: [1, 9]}}, configurations: 20}
  final: {kind: search, config_from: tune}
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "s.yaml").write_text(SWEEP)
    return tmp_path / "s.yaml"


def test_counts_trials_and_evaluations(path: Path) -> None:
    plan = make_plan(load_sweep(path))
    counts = {s.name: (s.trials, s.evaluations, s.after) for s in plan.stages}
    assert counts == {
        "pretrain": (6, 600, ()),
        "finetune": (6, 60, ("pretrain",)),
        "zero-shot": (6, 6, ("pretrain",)),
        "tune": (40, 4000, ()),
        "final": (6, 600, ("tune",)),
    }
    assert plan.trials == 64 and plan.evaluations == 5266 and plan.searches
    text = render(plan)
    assert "at most 64 trials, at most 5,266 evaluations" in text
    assert "pretrain -> finetune" in text and "tune -> final" in text and "20 configurations (tpe)" in text
    assert "not measured before: simulator, toy-learner" in text


def test_hours_from_a_rates_file(path: Path, tmp_path: Path) -> None:
    Rates({"toy-learner": 3.6}, {"simulator": 0.5}).to_file(tmp_path / "rates.json")
    plan = make_plan(load_sweep(path), Rates.from_file(tmp_path / "rates.json"))
    assert sum(s.learner_seconds or 0 for s in plan.stages) == pytest.approx(3.6 * 5266)
    assert "learners 5.3 h, simulator 43.9 min" in render(plan)
    assert "not measured before" not in render(plan)


def test_rates_from_earlier_runs(path: Path, tmp_path: Path) -> None:
    sweep = load_sweep(path)
    trials = [t for t in sweep.expand() if t.stage == "finetune"][:2]
    with Ledger(tmp_path / "runs" / "study") as ledger:
        for trial, seconds in zip(trials, (1.0, 3.0), strict=True):
            used = 10 if seconds > 1 else 3  # one ended early
            result = TrialResult(trial.content_hash, "finished", evaluations=used, learner_seconds=seconds, evaluation_seconds=0.1)
            ledger.append([TrialEnd.of(trial, result)])
    rates = Rates.from_runs(tmp_path / "runs")
    assert rates.learner["toy-learner"] == pytest.approx(0.2), "4 s over 20 evaluations"
    assert rates.evaluator["simulator"] == pytest.approx(0.01)
    plan = {s.name: s for s in make_plan(sweep, rates).stages}
    assert plan["finetune"].learner_seconds == pytest.approx(6 * 10 * 0.2)
    assert plan["pretrain"].learner_seconds == pytest.approx(6 * 100 * 0.2)


def test_hosts_of_one_kind_have_rates_of_their_own(path: Path, tmp_path: Path) -> None:
    trials = [
        replace(t, evaluator=EvaluatorSpec("dataflow", FrozenDict({"host": host})))
        for t, host in zip(load_sweep(path).expand(), ("slow", "fast"), strict=False)
    ]
    with Ledger(tmp_path / "runs" / "study") as ledger:
        for trial, seconds in zip(trials, (5.0, 1.0), strict=True):
            spent = seconds * (trial.budget.evaluations or 0)
            result = TrialResult(trial.content_hash, "finished", evaluations=10, evaluation_seconds=spent)
            ledger.append([TrialEnd.of(trial, result)])
    rates = Rates.from_runs(tmp_path / "runs")
    assert rates.evaluator["dataflow:slow"] == pytest.approx(5.0) and rates.evaluator["dataflow:fast"] == pytest.approx(1.0)


def test_wall_time_budget_bounds_the_hours(path: Path) -> None:
    path.write_text(SWEEP.replace("budget: 100\n", "budget: {seconds: 60}\n"))
    plan = {s.name: s for s in make_plan(load_sweep(path)).stages}
    assert plan["pretrain"].evaluations is None and plan["pretrain"].learner_seconds == 360
    assert "by time" in render(make_plan(load_sweep(path)))


@pytest.mark.parametrize("text", ["{", "[]", '{"learner": {"heft": "x"}, "evaluator": {}}', '{"learner": {"heft": -1}, "evaluator": {}}'])
def test_bad_rates_are_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "rates.json").write_text(text)
    with pytest.raises(InputError, match="must hold seconds an evaluation"):
        Rates.from_file(tmp_path / "rates.json")


def test_durations_are_readable() -> None:
    assert [duration(s) for s in (0.5, 90, 600, 7200, 360_000)] == ["0.5 s", "90 s", "10.0 min", "2.0 h", "100.0 h"]
