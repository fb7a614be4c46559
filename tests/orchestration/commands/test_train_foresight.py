"""Training the policies of foresight: what a seed gives, what is kept, and that the method takes it."""

from pathlib import Path

import numpy as np
import pytest

from envs.simulators.fifo.evaluator import Simulator
from methods.foresight.experts import HEURISTICS, load
from methods.foresight.families import LAYERED, Example, collected, layered, perturbed
from methods.foresight.policy import SIZE, initial
from methods.foresight.training import Course, TrainingSettings, choose, evolve, shares
from methods.testing.problems import random_problem
from methods.testing.running import go, make
from orchestration.commands.train_foresight import main, train, write_folder
from orchestration.specs.policies import read_policy

BENCHMARK = Path(__file__).parents[3] / "sweeps" / "benchmark"
TINY = TrainingSettings(generations=12, pairs=6, problems=4, perturbed=8, kept=4, best=1, report=100)


def courses():
    return [Course(Example(LAYERED, random_problem(20, 4, seed, links=1.0)), Simulator()) for seed in range(4)]


def test_a_few_generations_lower_the_makespans_and_a_seed_says_which_parameters():
    given, lines = courses(), []
    found = evolve(given, TINY, 3, lines.append)
    np.testing.assert_array_equal(found, evolve(courses(), TINY, 3, lines.append))
    assert (found != evolve(courses(), TINY, 4, lines.append)).any()
    begin = initial(np.random.default_rng(3))
    assert np.mean([c.gains(begin[None]) for c in given]) == pytest.approx(0.0)
    assert np.mean([c.gains(found[1:]) for c in given]) < -0.01
    assert "generation 12, 576 evaluations" in lines[0]


def test_policies_that_complement_each_other_are_kept_and_the_best_of_every_family():
    gains = np.array([[-0.5, -0.4, 0.0, -0.1], [0.3, -0.1, -0.2, 0.0]])
    assert choose(gains, ["layered", "model"], 2, 0).tolist() == [1, 2]
    assert choose(gains, ["layered", "model"], 2, 1).tolist() == [1, 2, 0]
    assert shares(["layered", "layered", "model", "workflow"]) == pytest.approx([1 / 6, 1 / 6, 1 / 3, 1 / 3])


def test_what_was_trained_can_be_saved_and_the_method_takes_it(tmp_path):
    lines = []
    experts = train(TINY, 0, 1, 4, None, lines.append)
    assert any(line.startswith("left out, 4 layered: ") for line in lines) and "planned, never seen, 24 layered: " in lines[-1]
    experts.save(tmp_path / "policy.npz")
    again, problem = load(tmp_path / "policy.npz"), random_problem(30, 4, 9)
    assert again.thetas.shape == (len(experts.thetas), SIZE) and again.gains.shape == (5, HEURISTICS + len(experts.thetas))
    method = make("foresight", problem)
    method.load_policy(again.state())
    assert np.isfinite(go(method, 20).best)
    write_folder(experts, tmp_path / "policy", 0)
    read = read_policy(str(tmp_path / "policy"))
    assert read.method == "foresight" and read.state["gains"].shape == experts.gains.shape


def test_training_graphs_are_drawn_by_seed_and_collected_ones_are_of_the_training_families():
    assert [e.problem.content_hash for e in layered(2, 5)] == [e.problem.content_hash for e in layered(2, 5)]
    first = next(collected(BENCHMARK))
    other = perturbed(first, 1)
    assert {e.family for e in layered(3, 5, constrained=True)} == {"constrained"} and not layered(3, 5, constrained=True)[
        0
    ].problem.feasible.all()
    assert first.family == other.family == "recurrent" and (other.problem.compute_seconds != first.problem.compute_seconds).any()


def test_bad_settings_are_refused_before_anything_starts(tmp_path, capsys):
    out = str(tmp_path / "p.npz")
    with pytest.raises(SystemExit):
        main(["--runs", "0", "--output", out])
    assert "--runs is 0; it must be above 0" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["--output", str(tmp_path / "none" / "p.npz")])
    assert "does not exist" in capsys.readouterr().err
    assert main(["--benchmark", str(tmp_path), "--output", out]) == 2 and "cluster-8.json" in capsys.readouterr().err
