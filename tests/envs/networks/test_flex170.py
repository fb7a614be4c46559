"""The HSDAG paper's machine: costs whose totals are its published times."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import yaml

from envs.costs.roofline import RooflineCosts
from envs.costs.totals import TotalCosts
from envs.networks.flex170 import ONE_DEVICE
from envs.networks.named import named_network
from envs.problem.errors import InputError
from envs.problem.graph import ComputationGraph
from envs.problem.problem import Problem
from envs.simulators.fifo.evaluator import Simulator
from envs.sources.costs import make_costs


def graph(name="resnet-50"):
    return ComputationGraph(
        names=("x", "conv", "relu", "end"), op_types=("Parameter", "Convolution", "Relu", "Result"), flops=[0, 1e9, 1e5, 0],
        output_bytes=[6e5, 3e6, 3e6, 0], edges=[(0, 1), (1, 2), (2, 3)], edge_bytes=[6e5, 3e6, 3e6], name=name,
    )  # fmt: skip


@pytest.mark.parametrize("name", sorted(ONE_DEVICE))
@pytest.mark.parametrize("network", ["i9-flex170", "i9-uhd770-flex170"])
def test_one_device_takes_the_times_of_table_2(name, network):
    network = named_network(network)
    problem = Problem(graph(name), network, TotalCosts(ONE_DEVICE, RooflineCosts()))
    everything = np.repeat(np.arange(network.n_devices, dtype=np.int16)[:, None], 4, axis=1)
    seconds = dict(zip(network.names, Simulator().evaluate(problem, everything).seconds, strict=True))
    for device, published in ONE_DEVICE[name].items():
        assert seconds[device] == pytest.approx(published)
    if "igpu" in seconds:
        assert seconds["igpu"] > max(ONE_DEVICE[name].values()), "the paper leaves it out because it is always slower"


def test_the_sweeps_take_the_same_times():
    written = yaml.safe_load((Path(__file__).parents[3] / "sweeps/hsdag/parts/paper-costs.yaml").read_text())
    for name, row in written["costs"]["seconds"].items():
        assert row == {device: ONE_DEVICE[name][device] for device in ("cpu", "gpu")}


def test_operations_keep_the_proportions_of_the_roofline():
    network = named_network("i9-flex170")
    plain = RooflineCosts().compute_seconds(graph(), network)
    scaled = TotalCosts(ONE_DEVICE, RooflineCosts()).compute_seconds(graph(), network)
    np.testing.assert_allclose(scaled[1] / scaled[2], plain[1] / plain[2])
    assert (scaled[[0, 3]] == 0).all()


def test_wrong_times_are_errors():
    network = named_network("i9-flex170")
    with pytest.raises(InputError, match="no times of graph 'resnet'; did you mean 'resnet-50'"):
        TotalCosts(ONE_DEVICE, RooflineCosts()).compute_seconds(dataclasses.replace(graph(), name="resnet"), network)
    with pytest.raises(InputError, match="'tpu'"):
        TotalCosts({"resnet-50": {"tpu": 0.1}}, RooflineCosts()).compute_seconds(graph(), network)
    with pytest.raises(InputError, match=r"0 s on 'cpu'; it must be a positive number"):
        make_costs({"kind": "totals", "seconds": {"a": {"cpu": 0}}})
    with pytest.raises(InputError, match="must map graphs to devices to times"):
        make_costs({"kind": "totals", "seconds": 0.1})
    spec = {"kind": "totals", "seconds": {name: dict(row) for name, row in ONE_DEVICE.items()}}
    assert make_costs(spec).content_hash == TotalCosts(ONE_DEVICE, RooflineCosts()).content_hash
    assert make_costs({**spec, "efficiency": {"gpu": {"Relu": 0.5}}}).content_hash != TotalCosts(ONE_DEVICE, RooflineCosts()).content_hash
