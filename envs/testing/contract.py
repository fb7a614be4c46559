"""The contract of evaluators as a suite of tests. A package with an evaluator of its own runs it by a class of a few lines::

    class TestBusiestDevice(EvaluatorContract):
        def make(self):
            return BusiestDevice()

        def others(self):
            return [BusiestDevice(launch=0.5)]

What one evaluator alone promises, such as which times it gives, is tested beside that evaluator.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
import pytest

from envs.problem.columns import columns
from envs.problem.errors import InputError
from envs.problem.measurement import Evaluator, Measurements, Outcome, Request, Rows
from envs.problem.problem import Problem
from envs.testing.problems import mixed_placements, small_problem, valid_placements, without_memory

ATTEMPTS = 50
"""How often a row that failed for reasons of infrastructure is asked for."""


class EvaluatorContract:
    """What every evaluator must do. One that measures for real (it has `Evaluator.lease_seconds`) need not give the same times twice.

    All tests but those of failures share one evaluator, which is closed and used again on the way; each row that fails for reasons of
    infrastructure is asked for again, as whoever uses an evaluator does.
    """

    rows: ClassVar[int] = 6
    """Valid placements in a batch."""
    limits_memory: ClassVar[bool] = True
    """Whether it knows that devices run out of memory."""

    def make(self) -> Evaluator:
        """A new evaluator, always with the same settings."""
        raise NotImplementedError(f"{type(self).__name__} must say what to test: def make(self)")

    def others(self) -> Sequence[Evaluator]:
        """Evaluators of other settings, each of which changes what a measurement means; none if there are no such settings."""
        return ()

    def problem(self) -> Problem:
        """A problem that it can measure."""
        return small_problem()

    def broken(self) -> Evaluator | None:
        """A new evaluator that fails for reasons of infrastructure at least once in the first batch; None if it cannot."""
        return None

    def repair(self, evaluator: Evaluator) -> None:
        """Take away what makes `broken` fail every time; nothing if the next attempt may succeed by itself."""

    @pytest.fixture(scope="class")
    @classmethod
    def evaluator(cls) -> Iterator[Evaluator]:
        """The evaluator under test."""
        made = cls().make()
        yield made
        made.close()

    @pytest.fixture
    def batch(self) -> np.ndarray:
        """Valid and invalid placements, int16[B, V]."""
        return mixed_placements(self.problem(), self.rows)

    def test_has_the_face_of_an_evaluator(self, evaluator: Evaluator) -> None:
        assert isinstance(evaluator, Evaluator)
        assert evaluator.fingerprint and isinstance(evaluator.fingerprint, str)
        assert all(isinstance(flag, bool) for flag in (evaluator.deterministic, evaluator.traces))
        assert repeats(evaluator) or evaluator.lease_seconds > 0  # type: ignore[operator]
        assert evaluator.queue_seconds >= 0
        evaluator.check_machine()
        lines = evaluator.describe()
        assert not isinstance(lines, str) and all(line and isinstance(line, str) for line in lines)

    def test_the_protocol_says_how_it_measures(self, evaluator: Evaluator) -> None:
        before, problem = evaluator.protocol, self.problem()
        assert before and isinstance(before, str) and "\n" not in before
        ask(evaluator, Request(problem, valid_placements(problem, 1), 0, 0))
        assert evaluator.protocol == before == self.make().protocol
        protocols = [before, *(other.protocol for other in self.others())]
        assert len(set(protocols)) == len(protocols), "two settings that measure differently have one protocol"

    @pytest.mark.parametrize("trace", [False, True])
    def test_every_column_has_its_shape_and_type(self, evaluator: Evaluator, batch: np.ndarray, trace: bool) -> None:
        request, given = Request(self.problem(), batch, 3, 5, trace), batch.copy()
        found = ask(evaluator, request)
        np.testing.assert_array_equal(batch, given, "the request was written to")
        check_request(found, request, evaluator)
        check_columns(found, len(batch), request.problem.n_nodes)
        check_values(found)

    def test_what_cannot_run_is_an_outcome(self, evaluator: Evaluator, batch: np.ndarray) -> None:
        problem = self.problem()
        found = ask(evaluator, Request(problem, batch, 0, 0))
        np.testing.assert_array_equal(found.outcome == Outcome.INVALID, ~problem.valid(batch))
        assert found.ok[problem.valid(batch)].all(), "a valid placement of the contract's problem must run"

    def test_too_little_memory_is_an_outcome(self, evaluator: Evaluator, batch: np.ndarray) -> None:
        if not self.limits_memory:
            pytest.skip("knows no limits of memory")
        problem = self.problem()
        found = ask(evaluator, Request(without_memory(problem), batch, 0, 0))
        expected = np.where(problem.valid(batch), Outcome.OUT_OF_MEMORY, Outcome.INVALID)
        np.testing.assert_array_equal(found.outcome, expected)
        check_columns(found, len(batch), problem.n_nodes)
        check_values(found)

    def test_a_row_does_not_depend_on_its_batch(self, evaluator: Evaluator, batch: np.ndarray) -> None:
        problem = self.problem()
        whole = ask(evaluator, Request(problem, batch, 7, 10))
        for cuts in ([0, 1, 4, len(batch)], range(len(batch) + 1)):
            for begin, end in pairwise(cuts):
                part = ask(evaluator, Request(problem, batch[begin:end], 7, 10 + begin))
                check_same(part, whole.take(slice(begin, end)), repeats(evaluator))

    def test_the_seed_matters_just_where_the_evaluator_says_so(self, evaluator: Evaluator, batch: np.ndarray) -> None:
        problem = self.problem()
        assert repeats(evaluator) or not evaluator.deterministic, "real times are never the same for every seed"
        here = ask(evaluator, Request(problem, batch, 0, 0))
        for seed, first in ((1, 0), (2**62, 0), (0, 100)):
            there = ask(evaluator, Request(problem, batch, seed, first))
            check_same(here, there, evaluator.deterministic)
            if repeats(evaluator) and not evaluator.deterministic:
                assert (here.objective[here.ok] != there.objective[there.ok]).any(), f"stream ({seed}, {first}) gives what (0, 0) gives"

    def test_a_trace_is_made_on_request_alone(self, evaluator: Evaluator, batch: np.ndarray) -> None:
        problem = self.problem()
        without, found = (ask(evaluator, Request(problem, batch, 0, 0, trace)) for trace in (False, True))
        of_trace = [name for name, c in columns(Rows).items() if c.of_trace]
        assert all(getattr(without, name) is None for name in of_trace)
        dropped: dict[str, Any] = dict.fromkeys(of_trace)
        check_same(without, replace(found, **dropped), repeats(evaluator))
        if not evaluator.traces:
            assert all(getattr(found, name) is None for name in of_trace)
            return
        assert found.start is not None and found.finish is not None
        ran = np.isfinite(found.finish)
        np.testing.assert_array_equal(ran, np.isfinite(found.start))
        np.testing.assert_array_equal(ran.any(axis=1), found.ok)
        assert (found.start[ran] >= 0).all() and (found.finish[ran] >= found.start[ran]).all()

    def test_many_requests_are_answered_as_each_alone(self, evaluator: Evaluator, batch: np.ndarray) -> None:
        problem = self.problem()
        requests = [
            Request(problem, batch, 0, 0), Request(problem, batch[2:4], 1, 7), Request(problem, batch[2:], 0, 2, trace=True),
            *([Request(without_memory(problem), batch, 1, 0)] if self.limits_memory else []),
        ]  # fmt: skip
        answers = evaluator.evaluate_many(requests)
        assert len(answers) == len(requests)
        for request, found in zip(requests, answers, strict=True):
            check_request(found, request, evaluator)
            check_same(settle(evaluator, request, found), ask(evaluator, request), repeats(evaluator))
        assert evaluator.evaluate_many([]) == []

    def test_placements_of_another_length_are_an_error_every_time(self, evaluator: Evaluator, batch: np.ndarray) -> None:
        problem = self.problem()
        for wrong in (batch[:, 1:], batch[0], batch[:, 1:]):
            with pytest.raises(InputError):
                evaluator.evaluate(problem, wrong)

    def test_an_empty_batch_has_an_empty_answer(self, evaluator: Evaluator, batch: np.ndarray) -> None:
        found = evaluator.evaluate(self.problem(), batch[:0])
        assert len(found) == 0
        check_columns(found, 0, batch.shape[1])

    def test_closes_twice_and_measures_again(self, evaluator: Evaluator, batch: np.ndarray) -> None:
        request = Request(self.problem(), batch[:1], 0, 0)
        before = ask(evaluator, request)
        evaluator.close()
        evaluator.close()
        check_same(before, ask(evaluator, request), repeats(evaluator))
        unused = self.make()
        unused.close()

    def test_a_failure_of_infrastructure_carries_no_time_and_can_be_asked_again(self, evaluator: Evaluator, batch: np.ndarray) -> None:
        broken, problem = self.broken(), self.problem()
        if broken is None:
            pytest.skip("cannot fail for reasons of infrastructure")
        some = batch if repeats(broken) else batch[:1]  # each may cost the start of a process
        request = Request(problem, some, 0, 0, trace=True)
        try:
            found = broken.evaluate(problem, some, trace=True)
            assert (found.outcome == Outcome.INFRASTRUCTURE).any()
            check_columns(found, len(some), problem.n_nodes)
            check_values(found)
            self.repair(broken)
            check_same(ask(broken, request), ask(evaluator, request), repeats(evaluator))
        finally:
            broken.close()


def repeats(evaluator: Evaluator) -> bool:
    """Whether the same request gives the same times: so it must be unless they are measured for real."""
    return evaluator.lease_seconds is None


def ask(evaluator: Evaluator, request: Request) -> Measurements:
    """A measurement of every row of ``request``."""
    found = evaluator.evaluate(request.problem, request.placements, request.seed, first=request.first, trace=request.trace)
    return settle(evaluator, request, found)


def settle(evaluator: Evaluator, request: Request, found: Measurements) -> Measurements:
    """``found`` with every row that failed for reasons of infrastructure asked for again, until it is measured."""
    for row in np.flatnonzero(found.outcome == Outcome.INFRASTRUCTURE).tolist():
        part, where = found, slice(row, row + 1)
        for _ in range(ATTEMPTS):
            part = evaluator.evaluate(
                request.problem, request.placements[where], request.seed, first=request.first + row, trace=request.trace
            )
            if part.outcome[0] != Outcome.INFRASTRUCTURE:
                break
        else:
            pytest.fail(f"row {row} failed {ATTEMPTS} times for reasons of infrastructure: {part.notes}")
        found = found.put(where, part)
    return found


def check_request(found: Measurements, request: Request, evaluator: Evaluator) -> None:
    """A measurement says what was asked and who measured."""
    assert (found.problem_hash, found.seed, found.first) == (request.problem.content_hash, request.seed, request.first)
    assert (found.protocol, found.host) == (evaluator.protocol, evaluator.fingerprint)
    np.testing.assert_array_equal(found.placements, request.placements)


def check_columns(found: Measurements, count: int, nodes: int) -> None:
    """Every declared column has its type, and its shape for ``count`` rows of ``nodes`` operations."""
    for name, c in columns(Measurements).items():
        values = getattr(found, name)
        if values is None:
            assert c.optional, f"{name} is lacking"
        elif c.numbers:
            wide = c.of_trace or name == "placements"
            assert values.shape == ((count, nodes) if wide else (count,)), f"{name} has shape {values.shape}"
            assert values.dtype == c.dtype, f"{name} is of {values.dtype}"
        else:
            assert isinstance(values, tuple) and len(values) == count, f"{name} must be a tuple of {count}"
            for value in values:
                if c.dtype is str:
                    assert isinstance(value, str)
                else:
                    assert value.dtype == c.dtype and value.shape[1:] == c.tail, f"{name} has a row of {value.dtype}{value.shape}"


def check_values(found: Measurements) -> None:
    """What ran has times and an objective; what did not has none, and a note where the evaluator gives notes at all."""
    ok, failed = found.ok, found.outcome == Outcome.INFRASTRUCTURE
    assert set(found.outcome.tolist()) <= set(Outcome)
    assert np.isfinite(found.seconds[ok]).all() and (found.seconds[ok] >= 0).all() and np.isnan(found.seconds[~ok]).all()
    assert np.isfinite(found.objective[ok]).all() and np.isposinf(found.objective[~ok]).all()
    if found.deviation is not None:
        assert not (found.deviation < 0).any() and np.isnan(found.deviation[~ok]).all()
    if found.compile_seconds is not None:
        assert (found.compile_seconds >= 0).all()
    if found.samples is not None:
        assert all(len(found.samples[i]) for i in np.flatnonzero(ok)) and not any(len(found.samples[i]) for i in np.flatnonzero(failed))
    if found.notes is not None:
        assert all(found.notes[i] for i in np.flatnonzero(~ok)), "a row that is not OK has an empty note"
    for times in (found.start, found.finish):
        assert times is None or np.isnan(times[~ok]).all(), "a row that did not run has a trace"


def check_same(a: Measurements, b: Measurements, times: bool) -> None:
    """Two measurements of the same placements agree in every column; only in their outcomes unless ``times`` repeat."""
    for name in columns(Measurements) if times else ("placements", "outcome"):
        left, right = getattr(a, name), getattr(b, name)
        assert (left is None) == (right is None), f"only one of the two has {name}"
        for x, y in zip(left, right, strict=True) if left is not None else ():
            np.testing.assert_array_equal(x, y, name)
