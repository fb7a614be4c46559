"""Layers over devices: in turn, in blocks, on one, and what goes with a layer."""

import numpy as np
import pytest

from envs.networks.named import named_network
from envs.problem.graph import ComputationGraph
from envs.problem.problem import Problem
from methods.testing.running import make


def layered():
    """Six layers of a weight (100 bytes) and an operation that reads it, after an input on the host."""
    names = ["input", *(f"{kind}{i}" for i in range(6) for kind in "wx")]
    edges = [(0, 2)] + [(1 + 2 * i, 2 + 2 * i) for i in range(6)] + [(2 * i, 2 + 2 * i) for i in range(1, 6)]
    graph = ComputationGraph(
        names, ["Parameter"] + ["ReadValue", "aten.mm"] * 6, [1.0] * 13, [1.0] * 13, edges, [1.0] * len(edges),
        parameter_bytes=[0.0] + [100.0, 0.0] * 6, hardware=["cpu"] + [""] * 12, layer=[0] + [i for i in range(6) for _ in "wx"], name="six",
    )  # fmt: skip
    return Problem(graph, named_network("p100-host-4"))


@pytest.mark.parametrize(
    ("settings", "devices"),
    [
        ({"order": "layers"}, [0, 1, 2, 3, 0, 1]),
        ({"order": "blocks"}, [0, 0, 1, 2, 2, 3]),
        ({"order": "blocks", "recurrent": ["six"]}, [0, 1, 2, 3, 0, 1]),
        ({"order": "blocks", "one_device": ["six"]}, [0] * 6),
    ],
)
def test_layers_go_where_the_order_says(settings, devices):
    problem = layered()
    placement = make("round-robin", problem, **settings).propose(1)[0].placements[0]
    assert problem.network.names[placement[0]] == "cpu"
    assert placement[1::2].tolist() == placement[2::2].tolist() == devices


def test_a_group_goes_with_its_weight():
    problem = layered()
    graph = problem.graph
    tied = ComputationGraph(
        graph.names, graph.op_types, graph.flops, graph.output_bytes, graph.edges, graph.edge_bytes, graph.parameter_bytes,
        hardware=graph.hardware, layer=graph.layer, colocation=np.where(np.isin(np.arange(13), (3, 12)), 0, -1),
    )  # fmt: skip
    placement = make("round-robin", Problem(tied, problem.network), order="layers").propose(1)[0].placements[0]
    assert placement[12] == placement[3] == 1
