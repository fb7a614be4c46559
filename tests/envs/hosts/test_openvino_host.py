"""The OpenVINO host: any placement runs and computes the same, and what goes wrong is an outcome."""

import os
import pickle
import signal
import threading
import time

import numpy as np
import pytest

from envs.graphs.capture import capture
from envs.graphs.openvino_capture import import_openvino
from envs.hosts.measuring import Measuring
from envs.hosts.openvino.devices import parse_devices
from envs.hosts.openvino.execution import segments_of
from envs.hosts.openvino.host import OpenVinoHost
from envs.hosts.openvino.model import agreement
from envs.problem.errors import InputError
from envs.problem.measurement import Evaluator, Outcome
from envs.problem.network import DeviceNetwork
from envs.problem.problem import Problem

TWO = {"a": {"device": "CPU", "threads": 1, "precision": "f32"}, "b": {"device": "CPU", "threads": 2, "precision": "f32"}}
UNLIMITED = {"a": {"device": "CPU", "precision": "f32"}, "b": {"device": "CPU", "precision": "f32", "pin": False}}
QUICK = Measuring(warm_up=0, repetitions=3, average_last=2)


def write_model(path, channels=4):
    """Two branches of convolutions from one input, joined, with a second output that a branch feeds."""
    openvino = import_openvino()
    from openvino import opset13 as ops

    rng = np.random.default_rng(0)

    def convolution(x, name, channels, inner):
        weights = ops.constant(rng.standard_normal((channels, inner, 3, 3)).astype(np.float32))
        made = ops.convolution(x, weights, [1, 1], [1, 1], [1, 1], [1, 1])
        bias = ops.add(made, ops.constant(rng.standard_normal((1, channels, 1, 1)).astype(np.float32)))
        made.set_friendly_name(name)
        bias.set_friendly_name(f"{name}.bias")
        out = ops.relu(bias)
        out.set_friendly_name(f"{name}.relu")
        return out

    x = ops.parameter([1, 3, 8, 8], np.float32, name="x")
    left = convolution(convolution(x, "left0", channels, 3), "left1", 4, channels)
    right = convolution(x, "right0", 4, 3)
    joined = ops.concat([left, right], 1)
    joined.set_friendly_name("join")
    batch = ops.gather(ops.shape_of(joined), ops.constant(np.array([0], dtype=np.int64)), ops.constant(np.int64(0)))
    shape = ops.concat([batch, ops.constant(np.array([-1], dtype=np.int64))], 0)  # known from shapes alone, wherever it is placed
    flat = ops.reshape(joined, shape, False)
    flat.set_friendly_name("flat")
    soft = ops.softmax(flat, 1)
    soft.set_friendly_name("soft")
    openvino.save_model(openvino.Model([ops.result(soft), ops.result(right)], [x], "small"), path)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "small.xml"
    write_model(path)
    return path


def problem_of(model, **network):
    graph = capture(model, cache=False)
    return Problem(graph, DeviceNetwork(("a", "b"), 1e9, 1e9, 1e-5, **network))


def host_of(model, devices=TWO, **options):
    return OpenVinoHost(devices, models={"small": {"file": str(model)}}, **{"mode": "serial", "measuring": QUICK, **options})


def random_valid(problem, n, seed=0):
    return problem.colocate(np.random.default_rng(seed).integers(0, 2, (n, problem.n_nodes)))


@pytest.mark.thorough
@pytest.mark.parametrize("mode", ["serial", "overlapped", "hetero"])
def test_any_placement_runs_and_computes_the_same(model, mode):
    problem = problem_of(model)
    with host_of(model, UNLIMITED if mode == "hetero" else TWO, mode=mode) as host:
        placements = random_valid(problem, 6)
        details = host.details(problem, placements)
        again = host.details(problem, placements[-1:])[0]
        first, last = (host.outputs(problem, placements[i]) for i in (0, -1))
    assert isinstance(host, Evaluator)
    for d in details:
        assert d.outcome == Outcome.OK, d.note
        assert d.agreement.relative < 1e-5
        assert d.agreement.cosine == pytest.approx(1.0)
        assert d.samples.shape == (3,)
        assert d.seconds == d.samples[-2:].mean() > 0
        assert d.compile_seconds > 0
    assert agreement(first, last).relative < 1e-5
    assert len({d.segments for d in details}) > 1
    assert again.compile_seconds == 0.0, "compiled before"


@pytest.mark.thorough
def test_precision_of_a_device_shows_in_the_outputs(model):
    problem = problem_of(model)
    if "BF16" not in import_openvino().Core().get_property("CPU", "OPTIMIZATION_CAPABILITIES"):
        pytest.skip("this CPU has no bf16")
    half = {**TWO, "b": {"device": "CPU", "threads": 1, "precision": "bf16"}}
    everything = np.repeat(np.array([[0], [1]], dtype=np.int16), problem.n_nodes, axis=1)
    with host_of(model, half) as host:
        exact, rounded = host.details(problem, everything)
        assert any("b: CPU(threads=1 precision=bf16) on " in line for line in host.describe())
        chosen = host.choice(problem, ["b", "a"])
        unplaced = host.choice(problem, ["a", "b"], "AUTO")
    assert exact.agreement.relative < 1e-5 < rounded.agreement.relative < 0.05
    assert chosen.agreement.relative == pytest.approx(rounded.agreement.relative), "the first device supports everything"
    assert unplaced.outcome == Outcome.OK
    both = {**half, "a": {"device": "CPU", "threads": 1, "precision": "bf16", "pin": False}}
    with host_of(model, both, mode="overlapped") as host:
        for d in host.details(problem, random_valid(problem, 3)):
            assert d.outcome == Outcome.OK, d.note
            assert 1e-5 < d.agreement.relative < 0.05
    with host_of(model, half, tolerance=1e-5) as strict:
        outcome = strict.evaluate(problem, everything)
    assert outcome.outcome.tolist() == [Outcome.OK, Outcome.INVALID]
    assert "outputs differ from the unplaced model's" in outcome.notes[1]


def test_outcomes_of_placements_that_cannot_run(model):
    problem = problem_of(model)
    refusing = {**TWO, "b": {"device": "CPU", "threads": 1, "refuses": ["Softmax"]}}
    soft = np.zeros((3, problem.n_nodes), dtype=np.int16)
    soft[1, problem.graph.names.index("soft")] = 1
    soft[2, 0] = 7
    with host_of(model, refusing) as host:
        m = host.evaluate(problem, soft)
        assert m.outcome.tolist() == [Outcome.OK, Outcome.INVALID, Outcome.INVALID]
        assert m.notes[1] == "device 'b' cannot run operation 'soft' of type Softmax"
        assert np.isinf(m.objective[1:]).all() and np.isnan(m.seconds[1:]).all()
        full = problem_of(model, memory=[1.0, 1e9])
        assert host.evaluate(full, soft[:1]).outcome.tolist() == [Outcome.OUT_OF_MEMORY]
    with host_of(model, measuring=Measuring(0, 3, cut_off=1e-9)) as host:
        m = host.evaluate(problem, soft[:1])
    assert m.outcome.tolist() == [Outcome.TOO_SLOW]
    assert "a run took" in m.notes[0]


@pytest.mark.thorough
def test_a_plugin_that_dies_twice_is_the_placements_fault_and_the_host_goes_on(model):
    problem = problem_of(model)
    endless = Measuring(0, 10**9, time_limit=500.0)
    placement = np.zeros((1, problem.n_nodes), dtype=np.int16)
    with host_of(model, measuring=endless) as host:
        stop = threading.Event()

        def crash():
            seen: dict[int, float] = {}
            while not stop.wait(0.05):
                process = host._process
                if process is not None and host._prepared:
                    begun = seen.setdefault(process.popen.pid, time.monotonic())
                    if time.monotonic() - begun > 0.5 and process.alive:
                        os.kill(process.popen.pid, signal.SIGSEGV)

        thread = threading.Thread(target=crash)
        thread.start()
        try:
            m = host.evaluate(problem, placement)
        finally:
            stop.set()
            thread.join()
        assert m.outcome.tolist() == [Outcome.INVALID]
        assert m.notes[0] == "a plugin died twice over the placement (SIGSEGV)"
        host.measuring = QUICK
        host.close()
        assert host.evaluate(problem, placement).outcome.tolist() == [Outcome.OK]


@pytest.mark.thorough
def test_each_limit_ends_what_it_limits_and_the_host_goes_on(model):
    problem = problem_of(model)
    placements = random_valid(problem, 4)
    with host_of(model, measuring=Measuring(0, 10**9, time_limit=0.5), keep_compiled=2) as host:
        slow = host.details(problem, placements[:1])[0]
        assert slow.outcome == Outcome.TOO_SLOW
        assert "the limit is 0.5 s" in slow.note
        host.measuring = QUICK
        taken = [d.compile_seconds > 0 for d in host.details(problem, placements[[0, 1, 2, 1, 0]])]
        assert taken == [False, True, True, False, True], "two compiled placements are kept, the least recent goes first"
        host.compile_limit = -4.9999  # with the grace that a limit has, 0.1 ms
        late = host.details(problem, placements[3:])[0]
        assert late.outcome == Outcome.TOO_SLOW
        assert "was killed" in late.note
        host.compile_limit = 60.0
        assert host.details(problem, placements[3:])[0].outcome == Outcome.OK


def test_limits_and_checks_are_part_of_the_protocol(model):
    hurried = Measuring(0, 3, time_limit=1.0, average_last=2)
    changes = ({}, {"tolerance": 0.1}, {"input_seed": 1}, {"compile_limit": 1.0}, {"memory_limit": 1e10}, {"measuring": hurried})
    assert len({host_of(model, **more).protocol for more in changes}) == len(changes)


def test_what_a_plugin_does_not_support_is_invalid_by_name(model, monkeypatch):
    from envs.hosts.openvino import child
    from envs.hosts.openvino.devices import parse_devices

    problem = problem_of(model)
    host = host_of(model)
    path, shapes = host._ir(problem.graph)
    measuring = child._Child(parse_devices(TWO), "serial", QUICK, 0.05, 4, None, 0)

    class Core:
        """As the real one, but its second device says that it cannot run Softmax."""

        def query_model(self, model, device):
            found = real.query_model(model, device)
            return {k: v for k, v in found.items() if device != measuring.targets[1] or k != "soft"}

        def __getattr__(self, name):
            return getattr(real, name)

    real, measuring.core = measuring.core, Core()
    assert measuring.prepare("key", path, shapes, problem.graph) is None
    placement = np.zeros(problem.n_nodes, dtype=np.int16)
    assert "outcome" not in measuring.compile("key", placement)
    placement[problem.graph.names.index("soft")] = 1
    row = measuring.compile("key", placement)
    assert (row["outcome"], row["note"]) == (Outcome.INVALID, "device 'b' cannot run operation 'soft' of type Softmax")
    host.close()


@pytest.mark.slow
@pytest.mark.parametrize("gigabytes", [0.6, 0.9])
def test_too_little_memory_is_an_outcome(gigabytes):
    graph = capture("resnet-50")
    problem = Problem(graph, DeviceNetwork(("a", "b"), 1e9, 1e9, 1e-5))
    with OpenVinoHost(TWO, "serial", measuring=QUICK, memory_limit=gigabytes * 1e9) as host:
        d = host.details(problem, random_valid(problem, 1))[0]
    assert d.outcome == Outcome.OUT_OF_MEMORY, d.note


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["serial", "overlapped", "hetero"])
@pytest.mark.parametrize("name", ["resnet-50", "inception-v3", "bert-base"])
def test_any_placement_of_the_papers_models_runs_and_computes_the_same(name, mode):
    """Operation by operation at random, in blocks, and all on one device."""
    options = {"length": 16} if name == "bert-base" else {}
    graph = capture(name, **options)
    problem = Problem(graph, DeviceNetwork(("a", "b"), 1e9, 1e9, 1e-5))
    rng, n = np.random.default_rng(0), problem.n_nodes
    turn = np.empty(n, dtype=np.int64)
    turn[graph.topological_order] = np.arange(n)
    drawn = (
        [rng.integers(0, 2, n) for _ in range(2)] + [rng.integers(0, 2, k)[turn * k // n] for k in (4, 20)] + [np.ones(n, dtype=np.int64)]
    )
    devices = UNLIMITED if mode == "hetero" else TWO
    with OpenVinoHost(devices, mode, models={name: {"model": name, **options}}, measuring=QUICK) as host:
        details = host.details(problem, problem.colocate(np.stack(drawn)))
    for d in details:
        assert d.outcome == Outcome.OK, d.note
        assert d.agreement.relative < 1e-4
    assert max(d.segments for d in details) > 20


def test_a_result_that_nothing_computes(tmp_path):
    openvino = import_openvino()
    from openvino import opset13 as ops

    x = ops.parameter([1, 4], np.float32, name="x")
    made = ops.relu(x)
    results = [ops.result(made), ops.result(x)]
    path = tmp_path / "through.xml"
    openvino.save_model(openvino.Model(results, [x], "through"), path)
    problem = problem_of(path)
    with OpenVinoHost(TWO, "overlapped", models={"through": {"file": str(path)}}, measuring=QUICK) as host:
        d = host.details(problem, random_valid(problem, 2))[1]
    assert d.outcome == Outcome.OK, d.note
    assert d.agreement.relative == 0


def test_wrong_requests_are_errors(model, tmp_path):
    problem = problem_of(model)
    placement = np.zeros((1, problem.n_nodes), dtype=np.int16)
    other = Problem(problem.graph, DeviceNetwork(("x", "y"), 1e9, 1e9, 0.0))
    host = host_of(model)
    with pytest.raises(InputError, match="has devices x, y, but the host has a, b"):
        host.evaluate(other, placement)
    with pytest.raises(InputError, match="does not know which model graph 'small'"):
        OpenVinoHost(TWO, "serial").evaluate(problem, placement)
    write_model(tmp_path / "other.xml", channels=5)
    wrong = OpenVinoHost(TWO, "serial", models={"small": {"file": str(tmp_path / "other.xml")}})
    with pytest.raises(InputError, match="graph 'small' is not that of the host's model 'other'"):
        wrong.evaluate(problem, placement)
    with pytest.raises(InputError, match=r"device 'a' is GPU\.7, which OpenVINO does not find here; it finds CPU"):
        host_of(model, {"a": "GPU.7", "b": "CPU"}).evaluate(problem, placement)
    wrong.close()
    with pytest.raises(InputError, match="device 'a' has a limit of threads, which HETERO forgets"):
        host_of(model, mode="hetero")
    assert pickle.loads(pickle.dumps(host)) == host
    host.close()


@pytest.mark.parametrize(
    ("devices", "message"),
    [
        ({}, "devices are"),
        ({"a": {"device": "CPU", "thread": 1}}, "unknown setting 'thread'; did you mean 'threads'"),
        ({"a": "cpu"}, "stands for 'cpu'"),
        ({"a": {"device": "CPU", "threads": 0}}, "threads = 0"),
        ({"a": {"device": "CPU", "precision": "f64"}}, "'f64'"),
        ({"a": {"device": "CPU", "pin": 1}}, "pin = 1"),
        ({"a": "GPU.1", "b": "GPU.1"}, "'a' and 'b' are both GPU.1"),
        ({"a": {"device": "CPU", "refuses": "Softmax"}}, "must be a list"),
    ],
)
def test_descriptions_of_devices_are_checked(devices, message):
    with pytest.raises(InputError, match=message):
        parse_devices(devices)


@pytest.mark.parametrize("early", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_pieces_are_convex_and_on_one_device(seed, early):
    from methods.testing.problems import random_graph

    rng = np.random.default_rng(seed)
    graph = random_graph(30, rng)
    placement = rng.integers(0, 3, 30)
    nodes = rng.random(30) < 0.9
    nodes[np.isin(np.arange(30), graph.edges[:, 0])] |= True  # only leaves are left out, as a model's outputs are
    piece = segments_of(graph, placement, nodes, early)
    assert ((piece >= 0) == nodes).all()
    inside = nodes[graph.edges].all(axis=1)
    source, target = piece[graph.edges[inside]].T
    assert (source <= target).all(), "pieces are numbered in an order in which they can run"
    for k in range(piece.max() + 1):
        assert len(set(placement[piece == k].tolist())) == 1
    crosses = placement[graph.edges[inside, 0]] != placement[graph.edges[inside, 1]]
    assert not (crosses & (source == target)).any()
    if early:
        read = np.isin(graph.edges[inside, 0], graph.edges[inside][crosses, 0])
        assert (source[read] < target[read]).all(), "a piece goes on behind a result that another device waits for"


def test_agreement_by_hand():
    found = agreement([np.array([3.0, 0.0])], [np.array([0.0, 4.0])])
    assert (found.mse, found.cosine, found.l2, found.relative) == (12.5, 0.0, 5.0, 1.25)
    both = agreement([np.array([np.nan, 1.0])], [np.array([np.nan, 1.0])])
    assert both.l2 == 0.0
    assert np.isnan(agreement([np.array([np.nan])], [np.array([1.0])]).l2)
