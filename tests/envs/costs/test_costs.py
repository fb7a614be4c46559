import dataclasses
import json
import pickle

import numpy as np
import pytest

from envs.costs.device_profiles import DeviceProfiles
from envs.costs.operation_times import OperationTimes, graph_signature
from envs.costs.profiled import ProfiledCosts
from envs.costs.roofline import EFFICIENCY, RooflineCosts
from envs.hosts.openvino import profiling
from envs.hosts.openvino.profiling import profile_model
from envs.networks.named import named_network
from envs.problem.cost_model import CostModel, LinearCosts
from envs.problem.errors import InputError
from envs.problem.graph import ComputationGraph
from envs.problem.network import DeviceNetwork
from envs.problem.problem import Problem
from envs.sources import costs as source_costs
from envs.sources.costs import make_costs


def tiny(**changes):
    """Parameter -> MatMul (weights 400 bytes) -> Relu -> Reshape -> Result."""
    content = {
        "names": ("x", "w", "product", "relu", "view", "out"),
        "op_types": ("Parameter", "Constant", "MatMul", "Relu", "Reshape", "Result"),
        "flops": [0, 0, 8e6, 1e3, 0, 0],
        "output_bytes": [100, 0, 200, 200, 200, 0],
        "parameter_bytes": [0, 400, 0, 0, 0, 0],
        "edges": [(0, 2), (1, 2), (2, 3), (3, 4), (4, 5)],
        "edge_bytes": [100, 400, 200, 200, 200],
    }
    return ComputationGraph(**{**content, **changes})


def two_devices():
    return DeviceNetwork(
        ("c", "g"), [1e9, 1e10], 1e9, 0.0, memory_bandwidth=[1e5, 1e6], launch_overhead=[0.5, 0.25], kinds=("cpu", "gpu"), name="two"
    )


def times_of(graph, seconds):
    return OperationTimes(graph.names, seconds, graph_signature(graph), (("model", "tiny"),))


def test_roofline_by_hand():
    seconds = RooflineCosts({"cpu": {"MatMul": 0.5}, "gpu": {"*": 0.25}}).compute_seconds(tiny(), two_devices())
    product = [max(8e6 / 5e8, 700 / 1e5) + 0.5, max(8e6 / 2.5e9, 700 / 1e6) + 0.25]
    relu = [max(1e3 / 1e9, 400 / 1e5) + 0.5, max(1e3 / 2.5e9, 400 / 1e6) + 0.25]
    assert seconds == pytest.approx(np.array([[0, 0], [0, 0], product, relu, [0, 0], [0, 0]]))


def test_efficiency_falls_back_from_type_to_kind_to_any():
    costs = RooflineCosts({"cpu": {"MatMul": 0.5}, "*": {"MatMul": 0.4, "*": 0.3}})
    assert costs.efficiencies(("MatMul", "Relu"), ("cpu", "tpu")).tolist() == [[0.5, 0.4], [0.3, 0.3]]
    with pytest.raises(InputError, match="efficiency of 'MatMul' on 'cpu' is 0"):
        RooflineCosts({"cpu": {"MatMul": 0}})


def test_work_on_unbounded_memory_is_linear_up_to_efficiency():
    graph = tiny(op_types=("A", "A", "A", "A", "A", "A"))
    network = DeviceNetwork(("a", "b"), [2.0, 4.0], 1.0, 0.0)
    assert RooflineCosts({}).compute_seconds(graph, network) == pytest.approx(LinearCosts().compute_seconds(graph, network))


def test_hashes_tell_costs_apart():
    graph = tiny()
    table = times_of(graph, [0, 0, 2, 1, 0, 0])
    costs = [
        LinearCosts(), RooflineCosts(), make_costs({"kind": "roofline", "efficiency": {"gpu": {"MatMul": 0.5}}}), ProfiledCosts(table),
        ProfiledCosts(times_of(graph, [0, 0, 2, 1.5, 0, 0])), ProfiledCosts(table, reference_speed=1e9),
    ]  # fmt: skip
    assert len({c.content_hash for c in costs}) == len(costs)
    assert all(isinstance(c, CostModel) for c in costs)
    for c in costs:
        again = pickle.loads(pickle.dumps(c))
        assert again.content_hash == c.content_hash, "workers see the same model"
    assert make_costs("roofline").content_hash == RooflineCosts().content_hash


def test_measured_times_come_back_on_the_measured_device_and_scale_to_others():
    graph, table = tiny(flops=[0, 0, 8e7, 1e3, 0, 0]), times_of(tiny(), [0, 0, 2.0, 1.0, 0, 0])
    same = DeviceNetwork(("c",), [1e9], 1.0, 0.0, memory_bandwidth=[1e5], kinds=("cpu",))
    costs = ProfiledCosts(table, reference_speed=1e9, reference_memory_bandwidth=1e5)
    assert costs.compute_seconds(graph, same)[:, 0] == pytest.approx(table.seconds)
    faster = dataclasses.replace(same, speed=np.array([4e9]), memory_bandwidth=np.array([2e5]), launch_overhead=np.array([0.5]))
    # The product is bound by arithmetic on both (4 x faster), the Relu by memory (2 x faster).
    assert costs.compute_seconds(graph, faster)[:, 0] == pytest.approx([0, 0, 2.0 / 4 + 0.5, 1.0 / 2 + 0.5, 0, 0])


def test_a_table_of_another_graph_is_refused():
    costs = ProfiledCosts(times_of(tiny(), [0, 0, 2, 1, 0, 0]))
    other = tiny(names=("x", "w", "product", "relu", "view", "end"))
    with pytest.raises(InputError, match="measured on 'tiny'"):
        Problem(other, two_devices(), costs)
    resized = tiny(flops=[0, 0, 9e6, 1e3, 0, 0], colocation=[-1, 0, 0, -1, -1, -1])
    assert costs.compute_seconds(resized, two_devices()).shape == (6, 2), "sizes and groups may differ"


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("rooflin", "did you mean 'roofline'"),
        ({"efficiency": {}}, "unknown cost model None"),
        (3, "unknown cost model None"),
        ({"kind": "linear", "speed": 2}, "unknown key 'speed' of linear costs"),
        ({"kind": "roofline", "eficiency": {}}, "did you mean 'efficiency'"),
        ({"kind": "roofline", "efficiency": {"gpu": 0.5}}, "must map kinds"),
        ({"kind": "roofline", "efficiency": {"gpu": {"MatMul": 2}}}, "at most 1"),
        ({"kind": "profiled"}, "need a model"),
        ({"kind": "profiled", "table": "a.json", "model": "resnet-50"}, "both table and 'model'"),
        ({"kind": "profiled", "table": "no-such.json"}, "cannot read the table"),
        ({"kind": "profiled", "model": "resnet50"}, "did you mean 'resnet-50'"),
        ({"kind": "profiled", "model": "resnet-50", "repeats": "many"}, "whole number"),
        ({"kind": "profiled", "model": "resnet-50", "repeats": 0}, "at least one repeat"),
        ({"kind": "profiled", "model": "resnet-50", "options": {"threads": 2}}, "beside options, not in them"),
        ({"kind": "profiled", "model": "resnet-50", "options": {"depth": 2}}, "no option 'depth'"),
        ({"kind": "profiled", "model": "resnet-50", "precision": "f8"}, "f32, bf16"),
        ({"kind": "profiled", "model": "resnet-50", "reference_speed": -1}, "positive number"),
        ({"kind": "profiled", "model": "resnet-50", "devices": ["cpu"]}, "must map the network's devices"),
        ({"kind": "profiled", "devices": {"cpu": {}}}, "need a model"),
        ({"kind": "profiled", "model": "resnet-50", "devices": {"cpu": {"thread": 1}}}, "did you mean 'threads'"),
        ({"kind": "profiled", "model": "resnet-50", "devices": {"cpu": {}}, "threads": 1}, "into each of the devices"),
    ],
)
def test_bad_specs_give_one_line(spec, message, monkeypatch):
    monkeypatch.setattr(profiling, "_load", lambda key: times_of(tiny(), np.zeros(6)))
    with pytest.raises(InputError, match=message) as caught:
        make_costs(spec)
    assert "\n" not in str(caught.value)


def test_spec_efficiencies_lie_over_the_defaults():
    costs = make_costs({"kind": "roofline", "efficiency": {"gpu": {"MatMul": 0.5}, "tpu": {"*": 0.9}}})
    assert costs.efficiencies(("MatMul", "Convolution"), ("gpu", "tpu")).tolist() == [[0.5, 0.9], [EFFICIENCY["gpu"]["Convolution"], 0.9]]


def test_tables_are_kept_as_files(tmp_path):
    graph = tiny()
    table = times_of(graph, [0, 0, 0.1 + 0.2, 1e-7, 0, 0])
    table.save(tmp_path / "t.json")
    costs = make_costs({"kind": "profiled", "table": str(tmp_path / "t.json")})
    assert costs.times.content_hash == table.content_hash
    for text in (
        "",
        "{}",
        "[]",
        json.dumps({"signature": "a", "seconds": {"x": "fast"}}),
        json.dumps({"signature": "a", "seconds": {"x": -1}}),
    ):
        (tmp_path / "bad.json").write_text(text)
        with pytest.raises(InputError):
            OperationTimes.read(tmp_path / "bad.json")


def test_fused_time_is_shared_and_nothing_is_lost():
    # One runtime node fuses product and relu; the MatMul is not named by it (as OpenVINO does); a reorder belongs to the relu.
    graph = tiny()
    position = {name: i for i, name in enumerate(graph.names)}
    medians = {"relu": 8.0, "product___relu": 1.0, "stray": 1.0, "x": 0.0}
    seconds = profiling._shares(graph, position, medians, {"relu": ["relu"], "product___relu": [], "x": ["x"]})
    assert seconds.sum() == pytest.approx(10.0)
    assert seconds[2] > seconds[3] > 1.0 and not seconds[[0, 1, 4, 5]].any()


def test_profiling_measures_once(tmp_path, monkeypatch):
    import torch
    from torch import nn

    from envs.graphs import openvino_capture, torch_capture
    from envs.graphs.capture import capture

    monkeypatch.setenv("PLACEWRIGHT_CACHE", str(tmp_path / "cache"))
    torch.manual_seed(0)
    module = nn.Sequential(nn.Conv2d(3, 16, 3), nn.ReLU(), nn.Conv2d(16, 16, 3, groups=4), nn.Flatten(), nn.Linear(16 * 28 * 28, 10))
    path = openvino_capture.save_ir(torch_capture.convert_module(module, torch.ones(1, 3, 32, 32)), tmp_path)
    shapes = [(1, 3, 32, 32)]
    table = profile_model(path, repeats=3, input_shapes=shapes)
    graph = capture(path, input_shapes=shapes)
    kinds = np.asarray(graph.op_types)
    assert table.names == graph.names and table.signature == graph_signature(graph)
    assert (table.seconds[kinds == "Convolution"] > 0).all() and (table.seconds[kinds == "MatMul"] > 0).all()
    assert not table.seconds[np.isin(kinds, ("Constant", "Result"))].any()
    monkeypatch.setattr(profiling, "_measure", lambda *_: pytest.fail("measured again"))
    costs = ProfiledCosts(profile_model(path, repeats=3, input_shapes=shapes))
    assert costs.times.content_hash == table.content_hash
    seconds = Problem(graph, named_network("cpu-gpu-4"), costs).compute_seconds
    assert seconds.shape == (graph.n_nodes, 4) and seconds[kinds == "MatMul"].min() > 0


class TestDeviceProfiles:
    def test_every_device_has_its_own_times(self):
        graph = tiny()
        first, second = times_of(graph, [0, 0, 2, 1, 0, 0]), times_of(graph, [0, 0, 1, 3, 0, 0])
        network = two_devices()
        costs = DeviceProfiles({network.names[1]: second, network.names[0]: first})
        np.testing.assert_array_equal(costs.compute_seconds(graph, network), np.stack([first.seconds, second.seconds], axis=1))
        swapped = DeviceProfiles({network.names[0]: second, network.names[1]: first})
        assert costs.content_hash != swapped.content_hash

    def test_a_missing_device_or_another_graph_is_refused(self):
        graph, network = tiny(), two_devices()
        times = times_of(graph, [0, 0, 2, 1, 0, 0])
        with pytest.raises(InputError, match=f"device '{network.names[1]}' .* has no profile"):
            DeviceProfiles({network.names[0]: times}).compute_seconds(graph, network)
        other = tiny(names=("x", "w", "product", "relu", "view", "end"))
        with pytest.raises(InputError, match="was measured on 'tiny', not on graph"):
            DeviceProfiles({name: times for name in network.names}).compute_seconds(other, network)
        with pytest.raises(InputError, match="empty"):
            DeviceProfiles({})

    def test_devices_of_a_spec_are_profiled_as_it_says(self, monkeypatch):
        asked = []
        monkeypatch.setattr(source_costs, "profile_model", lambda source, **k: asked.append((source, k)) or times_of(tiny(), np.zeros(6)))
        devices = {"slow": {"threads": 1, "precision": "bf16"}, "fast": {"device": "GPU.1", "repeats": 5}}
        costs = make_costs({"kind": "profiled", "devices": devices, "options": {"length": 16}}, model="bert-base")
        assert isinstance(costs, DeviceProfiles)
        assert asked == [("bert-base", {**row, "length": 16}) for row in devices.values()]


def test_torch_operations_have_the_share_of_what_they_are_like():
    shares = RooflineCosts().efficiencies(("aten.mm", "aten.convolution_backward", "aten.add"), ("gpu",))[:, 0]
    assert shares.tolist() == [EFFICIENCY["gpu"][k] for k in ("MatMul", "Convolution", "*")]
