"""Evaluators that measure for real, from their description in a sweep; what they measure is tested with the hosts."""

import json
import os
import re

import numpy as np
import pytest

from envs.graphs.capture import capture
from envs.graphs.sharded import sharded
from envs.problem.errors import InputError
from envs.problem.measurement import Outcome
from envs.problem.network import DeviceNetwork
from envs.problem.problem import Problem
from envs.simulators.work_conserving.discipline import Discipline
from envs.simulators.work_conserving.evaluator import WorkConservingSimulator
from orchestration.folder.ledger import results
from orchestration.rewards.evaluators import build_evaluator, in_worker
from orchestration.specs.trial import EvaluatorSpec
from tests.envs.hosts.test_openvino_host import write_model

DEVICES = {"a": {"device": "CPU", "threads": 1}, "b": {"device": "CPU", "threads": 1, "refuses": ["Softmax"]}}


def test_a_described_openvino_host_measures(tmp_path):
    path = tmp_path / "small.xml"
    write_model(path)
    models = {"small": {"file": str(path)}}
    spec = EvaluatorSpec("openvino", {"devices": DEVICES, "mode": "serial", "models": models, "measuring": {"repetitions": 6}})
    host = build_evaluator(EvaluatorSpec.from_json(spec.to_json()))
    graph = capture(path, cache=False)
    placements = np.repeat(np.array([[0], [1]], dtype=np.int16), graph.n_nodes, axis=1)
    with host:
        m = host.evaluate(Problem(graph, DeviceNetwork(("a", "b"), 1e9, 1e9, 0.0)), placements)
    assert m.outcome.tolist() == [Outcome.OK, Outcome.INVALID]
    assert len(m.samples[0]) == 6
    assert m.seconds[0] == m.samples[0][-5:].mean(), "the mean of the last five is HSDAG's"
    assert m.protocol.startswith("openvino:serial runs=0+6 last=5 mean within=0.05 ")
    assert m.protocol.endswith(" on a=CPU(threads=1),b=CPU(threads=1 refuses=Softmax)")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "lacks devices"),
        ({"devices": {}}, "devices are"),
        ({"devices": DEVICES, "modes": "hetero"}, "unknown option 'modes' of evaluator 'openvino'; did you mean 'models'"),
        ({"devices": DEVICES, "mode": "heterogeneous"}, "unknown mode 'heterogeneous'"),
        ({"devices": DEVICES}, "limit of threads, which HETERO forgets"),
        ({"devices": DEVICES, "measuring": {"repeats": 3}}, "unknown setting 'measuring.repeats'"),
        ({"devices": DEVICES, "measuring": {"repetitions": 3}}, "average_last is 5"),
    ],
)
def test_wrong_descriptions_are_refused_before_anything_starts(options, message):
    with pytest.raises(InputError, match=message):
        build_evaluator(EvaluatorSpec("openvino", options))


def test_described_work_conserving_simulators_and_engines_agree_with_those_made_by_hand():
    graph = sharded("chainmm", size=32, element_bytes=4)
    problem = Problem(graph, DeviceNetwork(("a", "b"), 1e9, 1e8, 1e-5))
    placements = np.random.default_rng(0).integers(0, 2, (3, graph.n_nodes)).astype(np.int16)
    options = {"sharing": "bus", "strategy": "longest-path", "noise": 0.1, "samples": 2}
    described = build_evaluator(EvaluatorSpec.from_json(EvaluatorSpec("work-conserving", options).to_json()))
    by_hand = WorkConservingSimulator(Discipline("longest-path", sharing="bus"), noise=0.1, samples=2)
    assert described.protocol == by_hand.protocol
    assert np.array_equal(described.evaluate(problem, placements, 5).seconds, by_hand.evaluate(problem, placements, 5).seconds)
    core = f"cpu:{min(os.sched_getaffinity(0))}"
    with build_evaluator(EvaluatorSpec("dataflow", {"devices": [core, core], "measuring": {"warm_up": 0, "repetitions": 2}})) as engine:
        found = engine.evaluate(problem, placements[:1])
    assert found.outcome.tolist() == [Outcome.OK]
    assert len(found.samples[0]) == 2
    assert "links=emulated runs=0+2 mean" in found.protocol


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        ("work-conserving", {"sharing": "bas"}, "unknown sharing 'bas'; did you mean 'bus'"),
        ("work-conserving", {"channel": 2}, "unknown option 'channel' of evaluator 'work-conserving'; did you mean 'channels'"),
        ("dataflow", {}, "lacks devices"),
        ("dataflow", {"devices": "cpu:0"}, "has devices .cpu:0."),
        ("work-conserving", {"noise": "much"}, "option .noise. of evaluator .work-conserving. is .much.; it must be a number"),
        ("dataflow", {"devices": ["cpu:99999"]}, "names core 99999"),
        ("dataflow", {"devices": ["cpu:0"], "strategy": "lifo"}, "unknown strategy 'lifo'"),
    ],
)
def test_wrong_descriptions_of_work_conserving_systems_are_refused(kind, options, message):
    with pytest.raises(InputError, match=message):
        build_evaluator(EvaluatorSpec(kind, options))


def test_work_conserving_simulation_may_run_in_the_worker():
    assert in_worker(EvaluatorSpec("work-conserving", {"local": True}))
    assert not in_worker(EvaluatorSpec("dataflow", {"devices": ["cpu:0"]}))


def test_the_toolkit_chooses_by_its_preference(tmp_path):
    path = tmp_path / "small.xml"
    write_model(path)
    devices = {"a": {"device": "CPU", "threads": 1}, "b": {"device": "CPU", "threads": 1}}
    models = {"small": {"file": str(path)}}
    options = {"devices": devices, "models": models, "choice": "HETERO", "preference": ["b", "a"], "mode": "serial"}
    chosen = build_evaluator(EvaluatorSpec("openvino", options))
    graph = capture(path, cache=False)
    problem = Problem(graph, DeviceNetwork(("a", "b"), 1e9, 1e9, 0.0))
    try:
        m = chosen.evaluate(problem, np.zeros((1, graph.n_nodes), dtype=np.int16))
    finally:
        chosen.close()
    assert m.outcome.tolist() == [Outcome.OK]
    assert m.seconds[0] > 0
    assert m.protocol.endswith("choice=HETERO:b,a")
    with pytest.raises(InputError, match="OpenVINO chooses by HETERO or AUTO"):
        build_evaluator(EvaluatorSpec("openvino", {**options, "choice": "GREEDY"}))


MEASURED = """
sweep: measured
problems:
  graphs: {{small: {{file: small.xml}}}}
  networks: {{two: {{file: two.json}}}}
methods: {{a-only: {{method: single-device, device: a}}, b-only: {{method: single-device, device: b}}, heft: }}
budget: 2
evaluator:
  kind: openvino
  mode: serial
  devices: {devices}
  models: {{small: {{file: {model}}}}}
  measuring: {{repetitions: 3, average_last: 2}}
report: {{tables: [{{shape: outputs, title: Table 4}}]}}
"""
NETWORK = """{"format": "placewright/1", "network": {"name": "two", "devices": [{"name": "a", "speed": 1e9}, {"name": "b", "speed": 1e9}],
"links": {"bandwidth": 1e9, "delay": 1e-5}}}"""


@pytest.mark.slow
def test_a_measured_sweep_compares_what_its_placements_compute(tmp_path, capsys):
    from orchestration.cli.main import main

    write_model(tmp_path / "small.xml")
    (tmp_path / "two.json").write_text(NETWORK)
    devices = "{a: {plugin: CPU, threads: 1, precision: f32}, b: {plugin: CPU, threads: 2, precision: f32}}"
    (tmp_path / "measured.yaml").write_text(MEASURED.format(devices=devices, model=tmp_path / "small.xml"))
    home = tmp_path / "home"
    assert main(["run", str(tmp_path / "measured.yaml"), "--local", "--output", str(home)]) == 0
    capsys.readouterr()
    assert main(["report", str(tmp_path / "measured.yaml"), "--study", "--output", str(home)]) == 0
    text = capsys.readouterr().out
    assert "Table 4" in text and text.count("small") == 3
    assert "a-only vs b-only" in text and "b-only vs heft" in text and "1.000000" in text


REAL = """
sweep: real
problems:
  graphs: {{small: {{sharded: chainmm, size: 64, element_bytes: 4}}}}
  networks: {{two: {{file: two.json}}}}
methods: [random]
budget: 4
evaluators: {{cores: {{kind: dataflow, devices: ["cpu:{core}", "cpu:{core}"], measuring: {{warm_up: 0, repetitions: 2}}}}}}
stages: {{measured: {{kind: search, evaluator: cores}}, simulated: {{kind: search, evaluator: {{kind: work-conserving, sharing: bus}}}}}}
"""


@pytest.mark.slow
def test_the_page_of_a_measured_sweep_shows_a_real_run(tmp_path):
    from orchestration.cli.main import main

    (tmp_path / "two.json").write_text(NETWORK)
    (tmp_path / "real.yaml").write_text(REAL.format(core=min(os.sched_getaffinity(0))))
    assert main(["run", str(tmp_path / "real.yaml"), "--local", "--output", str(tmp_path / "home")]) == 0
    folder = tmp_path / "home" / "real"
    measured, simulated = sorted(results(folder), key=lambda r: r.stage)
    (best,) = measured.problems
    assert best.trace is not None and measured.evaluations == 4 and simulated.problems[0].trace is None
    assert min(t[3] for t in best.trace.transfers) > 0 and max(t[4] for t in best.trace.transfers) < max(filter(None, best.trace.finish))
    assert sum(t is None for t in best.trace.start) == 40  # inputs take no time
    engine, simulator = (json.loads(re.search(r'id="data">(.*?)</script>', p.read_text(), re.DOTALL)[1]) for p in pages(folder))
    assert engine["note"].startswith("measured: a real run on ") and simulator["note"].startswith("simulated by simulator:work-conserving")
    assert sum(len(link["from"]) for link in engine["links"]) == len(best.trace.transfers)
    assert simulator["makespan"] == pytest.approx(1e3 * simulated.problems[0].seconds), "by the simulator that scored it"


def pages(folder):
    """Timelines of the engine's and of the simulator's best placement."""
    return sorted((folder / "placements").glob("*.timeline.html"))
