"""The machines of DOPPLER (one-device times, ideal scaling, links) and of GDP and Mars (published times, what does not fit)."""

from pathlib import Path

import numpy as np
import pytest
import yaml

from envs.costs.calibrated import CalibratedCosts
from envs.graphs.capture import capture
from envs.graphs.sharded import sharded
from envs.networks.gpus import ONE_DEVICE
from envs.networks.named import named_network
from envs.problem.errors import InputError
from envs.problem.problem import Problem
from envs.simulators.fifo.evaluator import Simulator
from envs.simulators.work_conserving.evaluator import WorkConservingSimulator
from envs.sources.costs import make_costs
from methods.placing.one_go import layers_over_devices


@pytest.mark.parametrize("kind", ONE_DEVICE)
def test_sweeps_use_the_papers_times(kind):
    part = Path(__file__).parents[3] / "sweeps" / "doppler" / "parts" / f"{kind}-costs.yaml"
    assert yaml.safe_load(part.read_text())["seconds"] == ONE_DEVICE[kind]


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


GDP = Path(__file__).parents[3] / "sweeps" / "gdp" / "parts"
MARS = Path(__file__).parents[3] / "sweeps" / "mars" / "parts"


def step(folder, name, network, costs="roofline"):
    options = dict(yaml.safe_load((folder / "graphs.yaml").read_text())[name])
    return Problem(capture(options.pop("model"), name=name, **options), named_network(network), make_costs(costs))


def seconds(problem, order):
    return float(Simulator().evaluate(problem, layers_over_devices(problem, order)[None], 0).objective[0])


def test_the_host_runs_what_needs_it_and_holds_more():
    network = named_network("p100-host-4")
    assert network.kinds == ("gpu",) * 4 + ("cpu",) and network.live_memory
    assert [("cpu" in s) for s in network.supports] == [False] * 4 + [True]
    assert network.memory[0] < 12e9 < network.memory[-1]
    assert (network.speed[:-1] > 5 * network.speed[-1]).all()


@pytest.mark.slow
@pytest.mark.parametrize(("name", "human"), [("rnnlm-2", 0.257), ("transformer-xl-2", 0.473), ("wavenet-2x18", 0.376)])
def test_the_human_expert_takes_the_time_of_gdps_table_1(name, human):
    totals = yaml.safe_load((GDP / "costs.yaml").read_text())
    problem = step(GDP, name, "p100-host-2", totals)
    assert seconds(problem, "blocks") == pytest.approx(human, rel=0.03)


@pytest.mark.slow
def test_inception_takes_mars_time_on_one_gpu_where_bert_does_not_fit():
    assert seconds(step(MARS, "inception-v3", "p100-host-4"), "one") == pytest.approx(0.071, rel=0.02)
    bert = step(MARS, "bert", "p100-host-4")
    assert np.isinf(seconds(bert, "one")) and np.isfinite(seconds(bert, "blocks"))
