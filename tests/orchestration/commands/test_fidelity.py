"""``placewright fidelity``: two evaluators on the same placements."""

from __future__ import annotations

import csv
import dataclasses
from pathlib import Path

import numpy as np
import pytest

from envs.problem.errors import InputError
from envs.problem.problem import Problem
from envs.simulators.fifo.evaluator import Simulator
from methods.testing.problems import constrained_toy, random_problem
from orchestration.cli.main import main
from orchestration.commands.fidelity import Fidelity, compare, sample_placements

SWEEP = """
sweep: pair
problems:
  graphs: {layered: {synthetic: {tasks: 12}, seeds: [0, 1]}}
  networks: {two: {synthetic: {devices: 2}}}
methods: [random]
budget: 20
evaluator: {kind: work-conserving, local: true}
"""


def found_of(simulated: list[float], measured: list[float]) -> Fidelity:
    return Fidelity("p", np.array(simulated), np.array(measured), ("mixed",) * len(simulated), len(simulated), ("a", "b"))


def test_correlations_by_hand() -> None:
    found = found_of([1.0, 2.0, 3.0, 4.0], [1.0, 2.0, 3.0, 10.0])
    x, y = found.simulated - found.simulated.mean(), found.measured - found.measured.mean()
    assert found.pearson == pytest.approx(float(x @ y) / float(np.sqrt((x @ x) * (y @ y))))
    assert found.spearman == pytest.approx(1.0)
    assert found_of([1.0, 2.0, 3.0], [6.0, 4.0, 2.0]).spearman == pytest.approx(-1.0)
    assert found_of([1.0, 2.0], [2.0, 4.0]).ratio == 0.5
    assert np.isnan(found_of([1.0, 1.0, 1.0], [1.0, 2.0, 3.0]).pearson)


def test_samples_are_every_device_alone_and_blocks_from_coarse_to_fine() -> None:
    problem = random_problem(40, 3, 0)
    placements = sample_placements(problem, 60, seed=1)
    assert placements.shape == (60, 40) and problem.valid(placements).all()
    assert [set(row.tolist()) for row in placements[:3]] == [{0}, {1}, {2}]
    np.testing.assert_array_equal(placements, sample_placements(problem, 60, seed=1))
    order = problem.graph.topological_order
    changes = (np.diff(placements[3:, order], axis=1) != 0).sum(axis=1)
    assert changes.min() <= 2 and changes.max() >= 12
    tight = constrained_toy()
    assert tight.valid(sample_placements(tight, 20, seed=0)).all()


def test_a_noisy_simulator_agrees_with_the_exact_one() -> None:
    problem = random_problem(20, 3, 0)
    placements = sample_placements(problem, 12, seed=0)
    found = compare(problem, Simulator(), Simulator(noise=0.1), placements)
    assert found.kinds[:3] == problem.network.names and "mixed" in found.kinds[3:]
    assert found.pearson > 0.9 and found.ratio == pytest.approx(1.0, abs=0.2)


def test_the_command_compares_two_kinds_of_evaluator(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sweep = tmp_path / "pair.yaml"
    sweep.write_text(SWEEP)
    out = tmp_path / "out"
    assert main(["fidelity", str(sweep), "--host", "main", "--placements", "9", "--graph", "layered/1", "--output", str(out)]) == 0
    text = capsys.readouterr().out
    assert "Pearson" in text and "Spearman" in text and "layered/1" in text and "layered/0" not in text
    stem = "layered-1-two"
    assert {p.name for p in out.iterdir()} == {f"{stem}.png", f"{stem}.svg", f"{stem}.csv"}
    rows = list(csv.DictReader((out / f"{stem}.csv").open()))
    assert len(rows) == 9 and all(float(r["simulated_seconds"]) > 0 for r in rows)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "no stage of sweep 'pair' measures"),
        (["--host", "simulater"], "did you mean 'simulator'"),
        (["--host", "main", "--graph", "layerd/0"], "did you mean 'layered/0'"),
        (["--host", "main", "--costs", "{x"], "not JSON"),
        (["--host", "main", "--placements", "0"], "at least one placement"),
    ],
)
def test_wrong_requests_are_one_line(arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sweep = tmp_path / "pair.yaml"
    sweep.write_text(SWEEP)
    assert main(["fidelity", str(sweep), "--output", str(tmp_path / "out"), *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1


def test_other_costs_are_the_simulators_alone(tmp_path: Path) -> None:
    problem = random_problem(10, 2, 0)
    placements = sample_placements(problem, 4, seed=0)
    slower = dataclasses.replace(problem, network=dataclasses.replace(problem.network, speed=problem.network.speed / 2))
    found = compare(problem, Simulator(), Simulator(), placements, simulated=slower)
    assert not np.allclose(found.simulated, found.measured)
    assert found.measured == pytest.approx(Simulator().evaluate(problem, placements).seconds)


def test_nothing_runs_on_both() -> None:
    problem = random_problem(10, 2, 0)
    with pytest.raises(InputError, match="none of 1 placements"):
        compare(problem, Simulator(), Simulator(), np.full((1, 10), 1, dtype=np.int16), simulated=_without_memory(problem))


def _without_memory(problem: Problem) -> Problem:
    network = dataclasses.replace(problem.network, memory=np.full(problem.n_devices, 1e-3))
    return dataclasses.replace(problem, network=network)
