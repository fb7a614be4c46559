"""The memory of a trial's own process: each protocol its own, and only of what is the same every time."""

from dataclasses import replace

import numpy as np
import pytest

from envs.problem.errors import InputError
from envs.simulators.fifo.evaluator import Simulator
from envs.simulators.relocation import Relocating
from orchestration.rewards.wrappers import Cached
from orchestration.specs.sources import build_problem
from tests.orchestration.sweeps_for_tests import problem_spec


def test_two_protocols_that_share_a_table_share_no_measurement():
    problem = build_problem(problem_spec(10))
    batch = np.random.default_rng(0).integers(0, 4, (5, 10)).astype(np.int16)
    often, seldom = (Relocating(Simulator(), frequency) for frequency in (10.0, 1.0))
    first, second = Cached(often), Cached(seldom)
    second.table = first.table
    for cached, plain in ((first, often), (second, seldom), (first, often)):
        np.testing.assert_array_equal(cached.evaluate(problem, batch).objective, plain.evaluate(problem, batch).objective)
    assert (first.table.hits, first.table.misses) == (5, 10)


def test_a_request_that_cannot_be_answered_leaves_nothing_behind():
    problem = build_problem(problem_spec(10))
    energy, batch = replace(problem, objective="energy"), np.zeros((1, 10), dtype=np.int16)
    cached = Cached(Relocating(Simulator(), 1.0))
    for _ in range(2):
        with pytest.raises(InputError, match="minimises energy"):
            cached.evaluate(energy, batch)
    with pytest.raises(InputError, match="int16 device indices"):
        cached.evaluate(problem, batch.astype(np.int64) + 2**17)
