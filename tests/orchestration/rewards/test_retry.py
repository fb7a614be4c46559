"""What failed for reasons of infrastructure is asked for again, exactly that and with its own random stream."""

from dataclasses import replace

import numpy as np
import pytest

from envs.problem.measurement import Outcome, Request, Rows
from envs.simulators.fifo.evaluator import Simulator
from orchestration.rewards import retry
from orchestration.rewards.evaluators import InfrastructureError
from orchestration.rewards.retry import measure
from orchestration.rewards.wrappers import Noisy
from orchestration.specs.sources import build_problem
from tests.orchestration.sweeps_for_tests import problem_spec

FIRST = 40


class Losing(Simulator):
    """Loses chosen rows of each call; remembers what it was asked for."""

    def __init__(self, *lost, noise=0.3):
        super().__init__(noise=noise)
        object.__setattr__(self, "lost", list(lost))
        object.__setattr__(self, "asked", [])

    def evaluate(self, problem, placements, seed=0, *, first=0, trace=False):
        found = super().evaluate(problem, placements, seed, first=first, trace=trace)
        self.asked.append((first, len(placements)))
        rows = self.lost.pop(0) if self.lost else []
        outcome, seconds, objective = found.outcome.copy(), found.seconds.copy(), found.objective.copy()
        outcome[rows], seconds[rows], objective[rows] = Outcome.INFRASTRUCTURE, np.nan, np.inf
        return replace(found, outcome=outcome, seconds=seconds, objective=objective)


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch):
    monkeypatch.setattr(retry, "MEASUREMENT_PAUSE", 0.0)


@pytest.fixture(scope="module")
def problem():
    return build_problem(problem_spec(12))


def batch(problem, rows=10):
    return np.random.default_rng(0).integers(0, problem.n_devices, (rows, problem.n_nodes)).astype(np.int16)


def test_each_row_asked_for_again_keeps_its_random_stream(problem):
    placements = np.repeat(batch(problem, 1), 10, axis=0)  # equal placements, so that only the stream tells the rows apart
    losing = Losing([2, 3, 7], [1], [])
    (found,) = measure(losing, [Request(problem, placements, 5, FIRST)])
    expected = Simulator(noise=0.3).evaluate(problem, placements, 5, first=FIRST)
    assert len(set(expected.seconds)) == 10
    for key in ("outcome", "seconds", "objective"):
        np.testing.assert_array_equal(getattr(found, key), getattr(expected, key))
    assert losing.asked == [(FIRST, 10), (FIRST + 2, 2), (FIRST + 7, 1), (FIRST + 3, 1)]


def test_several_requests_keep_theirs_apart(problem):
    requests = [Request(problem, batch(problem, n), seed, first) for n, seed, first in ((4, 1, 0), (6, 2, 9))]
    found = measure(Noisy(Losing([0], [4, 5], [], []), 0.1), requests)
    clean = Noisy(Simulator(noise=0.3), 0.1)
    for request, m in zip(requests, found, strict=True):
        np.testing.assert_array_equal(m.seconds, clean.evaluate(problem, request.placements, request.seed, first=request.first).seconds)


def test_a_trace_is_put_together_again(problem):
    (found,) = measure(Losing([0, 9]), [Request(problem, batch(problem), 5, FIRST, trace=True)])
    expected = Simulator(noise=0.3).evaluate(problem, batch(problem), 5, first=FIRST, trace=True)
    np.testing.assert_array_equal(found.start, expected.start)
    np.testing.assert_array_equal(found.finish, expected.finish)


def test_what_never_comes_is_counted(problem):
    losing = Losing(*[[0, 1]] * retry.MEASUREMENT_ATTEMPTS)
    with pytest.raises(InfrastructureError, match=f"2 measurements failed {retry.MEASUREMENT_ATTEMPTS} times"):
        measure(losing, [Request(problem, batch(problem, 2), 5, FIRST)])
    assert len(losing.asked) == retry.MEASUREMENT_ATTEMPTS
    late = Losing(*[[0, 1]] * (retry.MEASUREMENT_ATTEMPTS - 1))
    assert measure(late, [Request(problem, batch(problem, 2), 5, FIRST)])[0].ok.all()


def test_what_only_the_second_attempt_knows_is_there(problem):
    """A row of which nothing was known has no samples and no time to compile; measured again, it has."""

    class Late(Simulator):
        tries = 0

        def evaluate(self, problem, placements, seed=0, *, first=0, trace=False):
            Late.tries += 1
            found = super().evaluate(problem, placements, seed, first=first, trace=trace)
            if Late.tries == 1:
                return found.put(slice(0, 2), Rows.unknown(2))
            samples = tuple(np.full(3, x) for x in found.seconds)
            return replace(found, host="elsewhere", samples=samples, compile_seconds=found.seconds / 2)

    (found,) = measure(Late(), [Request(problem, batch(problem, 3), 5, FIRST)])
    assert [len(s) for s in found.samples] == [3, 3, 0] and found.host == "elsewhere+simulated"
    np.testing.assert_array_equal(found.compile_seconds, [*found.seconds[:2] / 2, 0.0])
