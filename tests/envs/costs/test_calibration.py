"""Calibration: from traces of a system whose costs are known, those costs."""

import numpy as np
import pytest

from envs.graphs.sharded import sharded
from envs.hosts.engine.calibration import calibrated
from envs.problem.errors import InputError
from envs.problem.network import DeviceNetwork
from envs.problem.problem import Problem
from envs.simulators.fifo.evaluator import Simulator
from envs.simulators.work_conserving.evaluator import WorkConservingSimulator
from orchestration.commands.agreement import shared_processors


class Elsewhere:
    """Another problem's simulator, whatever problem is asked about."""

    def __init__(self, truth: Problem) -> None:
        self.truth = truth

    def evaluate(self, problem, placements, seed=0, *, first=0, trace=False):
        return WorkConservingSimulator().evaluate(self.truth, placements, seed, first=first, trace=trace)


@pytest.mark.thorough
@pytest.mark.parametrize("alone", [False, True])
def test_recovers_costs_and_links(alone):
    graph = sharded("llama-block", sequence=64, width=64, hidden=64, heads=4)
    bandwidth, delay = np.random.default_rng(0).uniform(1e9, 2e9, (3, 3)), np.random.default_rng(1).uniform(1e-5, 2e-5, (3, 3))
    truth = Problem(graph, DeviceNetwork(("x", "y", "z"), [1e9, 2e9, 3e9], bandwidth, delay))
    guess = Problem(graph, DeviceNetwork(("x", "y", "z"), 5e9, 1e8, 0.0))
    found = calibrated(guess, Elsewhere(truth), alone=alone)
    np.testing.assert_allclose(found.compute_seconds, truth.compute_seconds, rtol=1e-6, atol=1e-12)
    np.testing.assert_allclose(found.network.bandwidth, truth.network.bandwidth, rtol=1e-6)
    np.testing.assert_allclose(found.network.delay, truth.network.delay, rtol=1e-5)


def test_needs_traces():
    graph = sharded("ffnn", batch=64, width=8, hidden=64)
    problem = Problem(graph, DeviceNetwork(("x", "y"), 1e9, 1e9, 0.0))
    with pytest.raises(InputError, match="traces no transfers"):
        calibrated(problem, Simulator())


def test_devices_of_one_name_share_a_processor():
    assert shared_processors(("cpu:0", "cpu:1")) == ()
    assert shared_processors(("cpu:0", "cpu:1", "cpu:0")) == (0, 1, 0)
