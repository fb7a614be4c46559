"""Noise and failures put on measurements: of which rows, and how much, is part of what a sweep's results mean."""

from dataclasses import replace

import numpy as np
import pytest

from envs.problem.errors import InputError
from envs.problem.measurement import Outcome
from envs.simulators.fifo.evaluator import Simulator
from orchestration.rewards.wrappers import CutOff, Failing, Noisy
from orchestration.specs.sources import build_problem
from tests.orchestration.sweeps_for_tests import problem_spec

BATCH = np.random.default_rng(0).integers(0, 4, (6, 10)).astype(np.int16)


@pytest.fixture(scope="module")
def problem():
    return build_problem(problem_spec(10))


@pytest.mark.parametrize(("wrapper", "name"), [(Noisy, "measurement_noise"), (Failing, "fail")])
def test_scale_and_rate_lie_between_0_and_1(wrapper, name):
    for share in (0.0, 1.0, 1.5, float("nan")):
        with pytest.raises(InputError, match=rf"{name} is {share}; it must be in \(0, 1\)"):
            wrapper(Simulator(), share)
    wrapper(Simulator(), 0.5)


def test_noise_of_a_row_is_the_same_in_every_version(problem):
    plain, request = Simulator().evaluate(problem, BATCH), (problem, BATCH, 3)
    found = Noisy(Simulator(), 0.2).evaluate(*request, first=5)
    normal = [-0.889382, 0.324034, -1.138655, 0.246006, 0.315985, -1.244538]
    for name in ("seconds", "objective"):
        np.testing.assert_allclose(np.log(getattr(found, name) / getattr(plain, name)) / 0.2, normal, atol=1e-6)
    assert found.start is None


def test_which_rows_fail_is_the_same_in_every_version(problem):
    failing = Failing(Simulator(), 0.4)
    failed = [(failing.evaluate(problem, BATCH, 3, first=5).outcome == Outcome.INFRASTRUCTURE).astype(int).tolist() for _ in range(3)]
    assert failed == [[0, 1, 0, 0, 0, 1], [0, 0, 1, 0, 0, 0], [0, 1, 0, 0, 0, 1]]


@pytest.mark.parametrize("make", [lambda: Noisy(Simulator(noise=0.1), 0.2), lambda: Failing(Simulator(noise=0.1), 0.3)])
def test_unasked_the_seed_is_0_rows_count_from_0_and_there_is_no_trace(problem, make):
    given, said = make().evaluate(problem, BATCH), make().evaluate(problem, BATCH, 0, first=0, trace=False)
    np.testing.assert_array_equal(given.objective, said.objective)
    np.testing.assert_array_equal(given.outcome, said.outcome)
    assert (given.seed, given.first, given.start) == (0, 0, None)


def test_what_takes_too_long_is_given_up(problem):
    plain = Simulator().evaluate(problem, BATCH)
    limit = float(np.median(plain.seconds))
    found = CutOff(Simulator(), limit).evaluate(problem, BATCH)
    late = plain.seconds >= limit
    assert 0 < late.sum() < len(late) and (found.outcome == np.where(late, Outcome.TOO_SLOW, Outcome.OK)).all()
    np.testing.assert_array_equal(found.objective, np.where(late, np.inf, plain.objective))
    with pytest.raises(InputError, match="cut_off is 0; it must be above 0"):
        CutOff(Simulator(), 0)


def test_a_failed_row_keeps_nothing_that_was_measured(problem):
    class Repeating(Simulator):
        def evaluate(self, *request, **more):
            found = super().evaluate(*request, **more)
            return replace(found, samples=tuple(np.full(2, s) for s in found.seconds), deviation=np.ones(len(found)))

    found = Failing(Repeating(), 0.5).evaluate(problem, BATCH, trace=True)
    failed = found.outcome == Outcome.INFRASTRUCTURE
    assert failed.any() and not failed.all()
    assert [len(s) for s in found.samples] == np.where(failed, 0, 2).tolist()
    for values in (found.seconds, found.deviation, found.start[:, 0], found.finish[:, 0]):
        np.testing.assert_array_equal(np.isnan(values), failed)
    np.testing.assert_array_equal(np.isinf(found.objective), failed)
