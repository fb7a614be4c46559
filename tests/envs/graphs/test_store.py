"""The disk cache of graphs: what is saved comes back, every field of it."""

from dataclasses import fields

import numpy as np
import pytest

from envs.graphs import store
from envs.problem.graph import ComputationGraph


def test_every_field_of_a_graph_survives(tmp_path, monkeypatch):
    monkeypatch.setenv("PLACEWRIGHT_CACHE", str(tmp_path))
    graph = ComputationGraph(
        names=("a", "b", "c"), op_types=("x", "y", "z"), flops=[1.0, 2.0, 3.5], output_bytes=[4.0, 5.0, 6.5], edges=[(0, 1), (1, 2)],
        edge_bytes=[7.0, 8.0], parameter_bytes=[9.0, 0.0, 1.0], output_shapes=((1, 2), (), (3,)), hardware=("gpu", "", "cpu"),
        colocation=[0, -1, 0], meta_op=[1, 1, -1], layer=[0, 1, 1], name="small",
    )  # fmt: skip
    plain = ComputationGraph(graph.names, graph.op_types, [0.0] * 3, [0.0] * 3, graph.edges, [0.0] * 2)
    store.save_graph("key", graph)
    found = store.load_graph("key")
    assert found is not None and found.content_hash == graph.content_hash
    for f in fields(ComputationGraph):
        value, back = getattr(graph, f.name), getattr(found, f.name)
        if f.name not in ("names", "op_types", "edges"):
            assert not np.array_equal(value, getattr(plain, f.name)), f"{f.name} is left at its default, so its loss would not show"
        assert np.array_equal(value, back) if isinstance(value, np.ndarray) else value == back, f.name
        if isinstance(value, np.ndarray):
            assert value.dtype == back.dtype


@pytest.mark.parametrize("about", [{}, {"names": ["a"]}, {"unheard_of": 1}])
def test_an_entry_that_is_no_graph_is_none(tmp_path, monkeypatch, about):
    monkeypatch.setenv("PLACEWRIGHT_CACHE", str(tmp_path))
    store.save("graph-key", {"flops": np.zeros(1)}, about)
    assert store.load_graph("key") is None
