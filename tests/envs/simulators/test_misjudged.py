"""A wrong cost model: what is measured is the true twin, one and the same for everybody."""

import numpy as np
import pytest

from envs.problem.errors import InputError
from envs.simulators.fifo.evaluator import Simulator
from envs.simulators.misjudged import Misjudged, true_problem
from methods.testing.problems import random_problem
from orchestration.rewards.evaluators import build_evaluator
from orchestration.specs.trial import EvaluatorSpec


def test_measures_the_true_problem_and_answers_for_the_one_that_was_asked_about():
    problem = random_problem(20, 3, 0)
    placements = np.random.default_rng(0).integers(0, 3, (5, 20)).astype(np.int16)
    wrong, right = Misjudged(Simulator(), 0.3).evaluate(problem, placements, trace=True), Simulator().evaluate(problem, placements)
    true = Simulator().evaluate(true_problem(problem, 0.3), placements)
    assert wrong.problem_hash == problem.content_hash
    np.testing.assert_array_equal(wrong.objective, true.objective)
    assert (wrong.objective != right.objective).all()
    rows = np.arange(20)
    assert wrong.finish - wrong.start == pytest.approx(true_problem(problem, 0.3).compute_seconds[rows, placements])


def test_factors_are_log_normal_and_drawn_from_the_content_alone():
    one, other = random_problem(200, 8, 1), random_problem(200, 8, 1)
    factors = np.log(true_problem(one, 0.3).compute_seconds / one.compute_seconds)
    np.testing.assert_array_equal(true_problem(other, 0.3).compute_seconds, true_problem(one, 0.3).compute_seconds)
    assert abs(factors.mean()) < 0.03 and factors.std() == pytest.approx(0.3, rel=0.05)
    assert true_problem(one, 0.3).content_hash != one.content_hash


def test_a_sweep_can_ask_for_it_and_impossible_errors_are_refused():
    evaluator = build_evaluator(EvaluatorSpec("simulator", {"cost_error": 0.3, "noise": 0.05}))
    assert "cost_error=0.3" in evaluator.protocol and not evaluator.deterministic
    with pytest.raises(InputError, match="cost_error is 3"):
        build_evaluator(EvaluatorSpec("simulator", {"cost_error": 3.0}))
