"""Plans count what a sweep will run and price it at measured rates, or else at reference rates."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from envs.problem.errors import InputError
from methods.contract import registry
from orchestration.commands.planning.plan import duration, make_plan, render
from orchestration.commands.planning.rates import Rates
from orchestration.commands.planning.reference import PATH, Reference, measure, shipped
from orchestration.definition.sweep import load_sweep
from orchestration.folder.ledger import Ledger, TrialEnd
from orchestration.rewards.evaluators import build_evaluator
from orchestration.specs import sources
from orchestration.specs.results import TrialResult
from orchestration.specs.trial import EvaluatorSpec, FrozenDict
from orchestration.trials.run_trial import run_trial

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
    assert "measured neither here nor for reference, so not counted: toy-learner" in text
    assert f"from reference rates measured on {shipped().measured_on}: simulator " in text


def test_hours_from_a_rates_file(path: Path, tmp_path: Path) -> None:
    Rates({"toy-learner": 3.6}, {"simulator": 0.5}).to_file(tmp_path / "rates.json")
    plan = make_plan(load_sweep(path), Rates.from_file(tmp_path / "rates.json"))
    assert sum(s.learner_seconds or 0 for s in plan.stages) == pytest.approx(3.6 * 5266)
    assert "learners 5.3 h, simulator 43.9 min" in render(plan)
    assert "reference" not in render(plan)


def test_rates_from_earlier_runs(path: Path, tmp_path: Path) -> None:
    sweep = load_sweep(path)
    trials = [t for t in sweep.expand() if t.stage == "finetune"][:2]
    with Ledger(tmp_path / "runs" / "study") as ledger:
        for trial, seconds in zip(trials, (1.0, 3.0), strict=True):
            used = 10 if seconds > 1 else 3  # one ended early
            result = TrialResult(trial.content_hash, "finished", evaluations=used, learner_seconds=seconds, evaluation_seconds=0.1)
            ledger.append([TrialEnd.of(trial, result)])
    rates = Rates.from_runs(tmp_path / "runs")
    expected = (1.0 / 3 + 3.0 / 10) / 2
    assert rates.learner["toy-learner"] == pytest.approx(expected), "of what was used: the median of 3 evaluations in 1 s and 10 in 3 s"
    assert rates.evaluator["simulator"] == pytest.approx((0.1 / 3 + 0.1 / 10) / 2)
    assert not rates.ends.get("toy-learner"), "one of two ended early, which is not most"
    plan = {s.name: s for s in make_plan(sweep, rates).stages}
    assert plan["pretrain"].learner_seconds == pytest.approx(6 * 100 * expected)
    assert plan["pretrain"].measured == ("simulator", "toy-learner") and not plan["pretrain"].from_reference
    assert "at measured rates: learners" in render(make_plan(sweep, rates))


def test_hosts_of_one_kind_have_rates_of_their_own(path: Path, tmp_path: Path) -> None:
    trials = [
        replace(t, evaluator=EvaluatorSpec("dataflow", FrozenDict({"host": host})))
        for t, host in zip(load_sweep(path).expand(), ("slow", "fast"), strict=False)
    ]
    with Ledger(tmp_path / "runs" / "study") as ledger:
        for trial, seconds in zip(trials, (5.0, 1.0), strict=True):
            spent = seconds * 10
            result = TrialResult(trial.content_hash, "finished", evaluations=10, evaluation_seconds=spent)
            ledger.append([TrialEnd.of(trial, result)])
    rates = Rates.from_runs(tmp_path / "runs")
    assert rates.evaluator["dataflow:slow"] == pytest.approx(5.0) and rates.evaluator["dataflow:fast"] == pytest.approx(1.0)


def test_rates_hold_no_start_up(path: Path, tmp_path: Path) -> None:
    trials = [t for t in load_sweep(path).expand() if t.stage == "pretrain"]
    alike = [replace(trials[0], seed=seed) for seed in range(5)]
    with Ledger(tmp_path / "runs" / "study") as ledger:
        for k, trial in enumerate(alike):  # the first of a process loads what the others find loaded
            spent = 60.0 if k == 0 else 1.0
            ledger.append([TrialEnd.of(trial, TrialResult(trial.content_hash, "finished", evaluations=100, learner_seconds=spent))])
    assert Rates.from_runs(tmp_path / "runs").learner["toy-learner"] == pytest.approx(0.01)


def test_counts_what_methods_use_and_not_their_caps(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text("""
sweep: used
problems:
  graphs: {layered: {synthetic: {tasks: 12}, seeds: 0..2}}
  networks: {two: {synthetic: {devices: 2}}}
methods:
  heft:
  metis: {runs: 3}
  single-device:
  one: {method: single-device, device: d0}
  random:
  cp-sat: {deterministic_time: 0.05}
seeds: [0, 1]
evaluator: {kind: simulator, local: true}
stages:
  plain: {kind: search, budget: 1000}
  confirmed: {kind: search, budget: {evaluations: 10, confirm: 6}, methods: [heft, random]}
""")
    sweep = load_sweep(tmp_path / "s.yaml")
    reference = Reference("a test", (10,), ends={"cp-sat": 7.0})
    first = {s.name: s.evaluations for s in make_plan(sweep, reference=reference).stages}
    assert first["plain"] == 6 * (1 + 3 + 2 + 1 + 1000 + 7)
    used: Counter[str] = Counter()
    with Ledger(tmp_path / "runs" / "used") as ledger:
        for trial in sweep.expand():
            result = run_trial(trial, build_evaluator(trial.evaluator))
            ledger.append([TrialEnd.of(trial, result)])
            used[trial.stage] += result.evaluations
    again = {s.name: s.evaluations for s in make_plan(sweep, Rates.from_runs(tmp_path / "runs"), reference).stages}
    assert again["confirmed"] == used["confirmed"] == first["confirmed"]
    assert again["plain"] == pytest.approx(used["plain"], abs=6), "cp-sat's mean is rounded"


def test_one_problem_is_searched_and_placed_at_once(path: Path) -> None:
    path.write_text(SWEEP.replace("pretrain: {hold_out: each}", "pretrain: {per: all}"))
    plan = {s.name: s.evaluations for s in make_plan(load_sweep(path)).stages}
    assert (plan["pretrain"], plan["zero-shot"]) == (200, 6)
    path.write_text(
        SWEEP.replace("pretrain: {hold_out: each}", "pretrain: {on: layered/0}").replace(
            "{from: pretrain}", "{from: pretrain, on: layered/0}"
        )
    )
    plan = {s.name: s.evaluations for s in make_plan(load_sweep(path)).stages}
    assert (plan["pretrain"], plan["zero-shot"]) == (200, 2)


def test_a_graph_that_is_not_captured_is_planned_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLACEWRIGHT_CACHE", str(tmp_path / "empty"))
    monkeypatch.setattr(sources, "_graph", None)
    (tmp_path / "s.yaml").write_text(
        "sweep: s\nproblems: {graphs: [resnet-50], networks: [cpu-gpu-4]}\nmethods: [heft, single-device]\nbudget: 500\n"
    )
    plan = make_plan(load_sweep(tmp_path / "s.yaml"))
    assert plan.evaluations == 501, "how many devices there are is not known without a problem"
    assert plan.stages[0].from_reference == ("heft", "simulator", "single-device")


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


def test_reference_rates_lie_on_lines_of_logarithms() -> None:
    reference = Reference("a test", (10, 100, 1000), {"heft": [1e-3, 1e-2, 1e-2]})
    assert reference.rate("learner", "heft", 31.6227766) == pytest.approx(10**-2.5)
    assert reference.rate("learner", "heft", 500) == pytest.approx(1e-2)
    assert reference.rate("learner", "heft", 1) == pytest.approx(1e-4), "beyond the sizes the line goes on"
    assert reference.rate("learner", "heft", None) == pytest.approx(1e-2), "an unknown size counts as the largest"
    assert reference.rate("learner", "other", 10) is None


def test_settings_that_decide_how_long_an_evaluation_takes(path: Path) -> None:
    methods = "{cp-sat: null, quick: {method: cp-sat, deterministic_time: 0.5}}"
    path.write_text(SWEEP[: SWEEP.index("stages:")].replace("[toy-learner]", methods))
    plan = make_plan(load_sweep(path), reference=Reference("a test", (10, 20), {"cp-sat": [1.0, 1.0]}, ends={"cp-sat": 4.0}))
    assert plan.stages[0].learner_seconds == pytest.approx(6 * 4 * (1 + 0.25))


def test_every_method_of_the_package_has_a_reference_rate() -> None:
    found = shipped()
    assert set(found.learner) == set(registry.modules()) - {"toy-learner"}, "run `make rates`"
    assert all(len(values) == len(found.operations) and min(values) > 0 for values in (*found.learner.values(), *found.evaluator.values()))
    assert "simulator" in found.evaluator and found.measured_on


@pytest.mark.slow
def test_reference_rates_are_measured_by_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    found = measure(["heft", "random"], 0.05)
    assert set(found.learner) == {"heft", "random"} and set(found.evaluator) == set(shipped().evaluator)
    assert not found.ends, "both say themselves when they end"
    assert "heft on 20 operations" in capsys.readouterr().out
    assert set(json.loads(PATH.read_text())) == set(vars(found))
