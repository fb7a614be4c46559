import io
import json
import os

import numpy as np
import pytest
from rich.console import Console

from envs.problem.errors import InputError
from orchestration.analysis.load import load_sweep_record
from orchestration.cli.main import main
from orchestration.commands import remeasure
from orchestration.driver.run_sweep import run_sweep
from orchestration.rewards.evaluators import build_evaluator
from tests.orchestration.sweeps_for_tests import small_sweep

NOISY = """
sweep: noisy
problems:
  networks: {n4: {synthetic: {devices: 4}, seed: 0}}
  graphs: {a: {synthetic: {tasks: 20}, seed: 0}}
methods: [random, heft]
budget: 40
seeds: [0, 1]
evaluators: {noisy: {kind: simulator, noise: 0.2}}
stages:
  noisy: {kind: search, evaluator: noisy}
  again: {kind: search, evaluator: noisy, methods: [heft], budget: 2}
  exact: {kind: search}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("remeasure")
    with pytest.MonkeyPatch.context() as patch:
        from orchestration.report import finish

        patch.setattr(finish, "_write_plots", lambda *_: [])
        patch.setattr(finish, "PLACEMENTS_UP_TO", 0)
        return run_sweep(small_sweep(folder, NOISY), local=True, output=folder / "out", console=Console(file=io.StringIO())).folder


def test_every_distinct_best_placement_is_measured_in_each_round(folder):
    (contest,) = remeasure.contests(load_sweep_record(folder))
    assert [c.names for c in contest.candidates] == [["heft (again)", "heft (noisy)"], ["random (noisy)"]], "exact times do not vary"
    calls = []
    remeasure.measure_in_turn([contest], 5, seed=3, done=lambda: calls.append([len(c.values) for c in contest.candidates]))
    assert calls[:4] == [[1, 0], [1, 1], [1, 2], [2, 2]], "the second round begins with the second candidate"
    for c in contest.candidates:
        expected = build_evaluator(c.evaluator).evaluate(contest.problem, np.repeat(c.placement[None, :], 5, axis=0), 3)
        assert c.values == expected.objective.tolist() and len(set(c.values)) == 5


def test_every_seed_can_have_its_own_best(folder):
    (contest,) = remeasure.contests(load_sweep_record(folder), each_seed=True)
    assert [(c.names, c.seed) for c in contest.candidates] == [
        (["heft (again)", "heft (noisy)"], 0),
        (["random (noisy)"], 0),
        (["random (noisy)"], 1),
    ]


def test_the_ratio_is_of_the_same_round(folder):
    (contest,) = remeasure.contests(load_sweep_record(folder))
    one, other = contest.candidates
    one.values, other.values = [1.0, 2.0, 3.0, 4.0, 5.0], [1.1, 2.2, 3.3, 4.4, 5.5]
    ratio = contest.against(other, one)
    assert (ratio.value, ratio.low, ratio.high) == pytest.approx((0.1, 0.1, 0.1)), "a drift of both is no difference"
    other.values[0] = float("inf")
    other.notes["out of luck"] = None
    table = remeasure.table(contest, "heft")
    assert table.columns[-1] == "against heft (again)" and table.rows[1][-1] == "–"
    assert any("1 round failed: out of luck" in note for note in table.notes)


def test_a_stage_can_measure_what_others_found(folder, capsys):
    arguments = ["remeasure", str(folder), "--on", "noisy", "--rounds", "3", "--baseline", "heft"]
    assert main(arguments) == 0
    out = capsys.readouterr().out
    assert "random (exact)" in out and "against heft (" in out and "measured by simulator:fifo noise=0.2" in out
    (problem,) = json.loads((folder / "remeasured.json").read_text())
    assert {n for c in problem["candidates"] for n in c["methods"]} >= {"heft (exact)", "random (noisy)", "random (exact)"}
    lines = (folder / "remeasured.csv").read_text().splitlines()
    assert len(lines) == 1 + sum(len(c["values"]) for c in problem["candidates"])
    assert (folder / "plots" / "remeasured.png").stat().st_size > 5000


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--on", "nosy"], "no result of stage 'nosy'; did you mean 'noisy'"),
        (["--on", "exact"], "measuring again would change nothing"),
        (["--methods", "hft"], "no result of method 'hft'; did you mean 'heft'"),
        (["--rounds", "1"], "rounds is 1"),
    ],
)
def test_wrong_arguments_are_refused_in_one_line(folder, capsys, arguments, message):
    assert main(["remeasure", str(folder), *arguments]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.slow
def test_real_placements_are_measured_again(tmp_path):
    core = f"cpu:{min(os.sched_getaffinity(0))}"
    text = f"""
sweep: real
problems:
  networks: {{two: {{synthetic: {{devices: 2}}, seed: 0}}}}
  graphs: {{chain: {{sharded: chainmm, size: 64}}}}
methods: [round-robin, heft]
budget: 1
evaluator: {{kind: dataflow, devices: ["{core}", "{core}"], emulate_links: false, measuring: {{warm_up: 0, repetitions: 2}}}}
"""
    done = run_sweep(small_sweep(tmp_path, text), local=True, output=tmp_path / "out", console=Console(file=io.StringIO()))
    (contest,) = remeasure.contests(load_sweep_record(done.folder))
    remeasure.measure_in_turn([contest], 4)
    assert all(len(set(c.values)) > 1 and min(c.values) > 0 for c in contest.candidates)
    with pytest.raises(InputError, match="at least 2"):
        remeasure.measure_in_turn([contest], 1)
