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
        colocation=[0, -1, 0], meta_op=[1, 1, -1], layer=[0, 1, 1], backward=[False, True, True], name="small", provenance="traced",
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


def test_no_damaged_byte_passes(tmp_path, monkeypatch):
    monkeypatch.setenv("PLACEWRIGHT_CACHE", str(tmp_path))
    store.save("key", {"flops": np.arange(3.0)}, {"names": ["a", "b", "c"]})
    path = tmp_path / "key.npz"
    sound = path.read_bytes()
    assert store.load("key") is not None
    for at in range(len(sound)):
        path.write_bytes(sound[:at] + bytes([sound[at] ^ 16]) + sound[at + 1 :])
        assert store.load("key") is None, at
    for length in (0, 31, 32, 33, len(sound) - 1):
        path.write_bytes(sound[:length])
        assert store.load("key") is None, length
    path.unlink()
    path.mkdir()
    assert store.load("key") is None
    store.save("key", {}, {})  # cannot, and does not mind
