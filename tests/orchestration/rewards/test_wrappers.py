"""The memory of a trial's own process: each protocol its own, and only of what is the same every time."""

import numpy as np

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
