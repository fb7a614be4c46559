"""The DOPPLER paper's machines: one-device times, ideal scaling, links."""

import numpy as np
import pytest

from envs.costs import make_costs
from envs.costs_calibrated import CalibratedCosts
from envs.errors import InputError
from envs.graphs.sharded import sharded
from envs.networks.gpus import ONE_DEVICE
from envs.networks.named import named_network
from envs.problem import Problem
from envs.simulators.work_conserving_evaluator import WorkConservingSimulator


@pytest.mark.parametrize("network", ["p100-4", "v100-8"])
@pytest.mark.parametrize("name", ONE_DEVICE["p100"])
def test_one_device_takes_the_papers_time(network, name):
    network = named_network(network)
    times = ONE_DEVICE[network.kinds[0]]
    problem = Problem(sharded(name), network, make_costs({"kind": "calibrated", "seconds": times}))
    found = WorkConservingSimulator().evaluate(problem, np.zeros((1, problem.n_nodes), dtype=np.int16))
    assert found.ok.all()
    np.testing.assert_allclose(found.seconds, times[name], rtol=1e-12)


def test_meshes_of_eight():
    bandwidth = named_network("v100-8").bandwidth
    assert (bandwidth == 22e9).sum() == 8 * 4 and (bandwidth == 11e9).sum() == 8 * 3
    np.testing.assert_array_equal(bandwidth, bandwidth.T)
    assert (named_network("p100-4-8gb").memory == 8e9).all()


def test_calibrated_costs_check_their_input():
    with pytest.raises(InputError, match="must be a positive number"):
        CalibratedCosts({"ffnn": -1.0})
    with pytest.raises(InputError, match="must be a positive number"):
        make_costs("calibrated")
    with pytest.raises(InputError, match="no one-device time of graph 'chainmm'"):
        Problem(sharded("chainmm"), named_network("p100-4"), CalibratedCosts({"ffnn": 1.0}))
