"""Evaluators that measure for real, from their description in a sweep; what they measure is tested with the hosts."""

import numpy as np
import pytest

from envs.errors import InputError
from envs.graphs.capture import capture
from envs.measurement import Outcome
from envs.network import DeviceNetwork
from envs.problem import Problem
from orchestration.evaluators import build_evaluator
from orchestration.trial import EvaluatorSpec
from tests.envs.test_openvino_host import write_model

DEVICES = {"a": {"plugin": "CPU", "threads": 1}, "b": {"plugin": "CPU", "threads": 1, "refuses": ["Softmax"]}}


def test_a_described_openvino_host_measures(tmp_path):
    path = tmp_path / "small.xml"
    write_model(path)
    spec = EvaluatorSpec("openvino", {"devices": DEVICES, "models": {"small": {"file": str(path)}}, "measuring": {"repetitions": 6}})
    host = build_evaluator(EvaluatorSpec.from_json(spec.to_json()))
    graph = capture(path, cache=False)
    placements = np.repeat(np.array([[0], [1]], dtype=np.int16), graph.n_nodes, axis=1)
    with host:
        m = host.evaluate(Problem(graph, DeviceNetwork(("a", "b"), 1e9, 1e9, 0.0)), placements)
    assert m.outcome.tolist() == [Outcome.OK, Outcome.INVALID]
    assert len(m.samples[0]) == 6
    assert m.seconds[0] == m.samples[0][-5:].mean(), "the mean of the last five is HSDAG's"
    assert "runs=0+6 last=5 mean on a=CPU(threads=1),b=CPU(threads=1 refuses=Softmax)" in m.protocol


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "lacks devices"),
        ({"devices": {}}, "devices are"),
        ({"devices": DEVICES, "modes": "hetero"}, "unknown option 'modes' of evaluator 'openvino'; did you mean 'models'"),
        ({"devices": DEVICES, "mode": "heterogeneous"}, "unknown mode 'heterogeneous'"),
        ({"devices": DEVICES, "measuring": {"repeats": 3}}, "unknown setting 'measuring.repeats'"),
        ({"devices": DEVICES, "measuring": {"repetitions": 3}}, "average_last is 5"),
    ],
)
def test_wrong_descriptions_are_refused_before_anything_starts(options, message):
    with pytest.raises(InputError, match=message):
        build_evaluator(EvaluatorSpec("openvino", options))
