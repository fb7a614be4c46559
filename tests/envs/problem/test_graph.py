"""ComputationGraph: what it refuses, and that its derived arrays mean what they say."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from envs.problem.errors import InputError, nearest
from envs.problem.graph import ComputationGraph, digest
from tests.envs.strategies import graphs


def graph(**changes):
    fields = {
        "names": ("a", "b", "c"), "op_types": ("x", "y", "z"), "flops": [1, 2, 3], "output_bytes": [4, 5, 6],
        "edges": [[0, 1], [1, 2]], "edge_bytes": [7, 8],
    }  # fmt: skip
    return ComputationGraph(**(fields | changes))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"names": ()}, "has no nodes"),
        ({"names": ("a", "b", "a")}, "two nodes named 'a'"),
        ({"op_types": ("x",)}, "3 nodes but 1 values of op_types"),
        ({"flops": [1, 2]}, "3 nodes but 2 values of flops"),
        ({"parameter_bytes": [1]}, "3 nodes but 1 values of parameter_bytes"),
        ({"output_shapes": [()]}, "3 nodes but 1 values of output_shapes"),
        ({"hardware": ("x",)}, "3 nodes but 1 values of hardware"),
        ({"colocation": [0]}, "3 nodes but 1 values of colocation"),
        ({"meta_op": [0]}, "3 nodes but 1 values of meta_op"),
        ({"edge_bytes": [1]}, "2 edges but 1 values of edge_bytes"),
        ({"flops": [1, -2, 3]}, "node 'b' has flops = -2.0"),
        ({"output_bytes": [1, 2, np.nan]}, "node 'c' has output_bytes = nan"),
        ({"parameter_bytes": [np.inf, 0, 0]}, "node 'a' has parameter_bytes = inf"),
        ({"edge_bytes": [1, -8]}, "edge 'b' -> 'c' carries -8.0 bytes"),
        ({"edge_bytes": [np.nan, 8]}, "edge 'a' -> 'b' carries nan bytes"),
        ({"edges": [[0, 1], [1, 3]]}, r"edge 1 \(1 -> 3\) names a node that graph 'graph' of 3 nodes does not have"),
        ({"edges": [[-1, 1], [1, 2]]}, r"edge 0 \(-1 -> 1\)"),
        ({"edges": [[0, 1], [1, 2**40]]}, r"edge 1 \(1 -> -1\) names a node"),
        ({"edges": [[0, 1, 1], [1, 2, 1]]}, r"edges of graph 'graph' have shape \(2, 3\)"),
        ({"edges": [[0.5, 1], [1, 2]]}, r"shape \(2, 2\) of float64; they must be \[E, 2\] whole numbers"),
        ({"edges": [[0, 1], [2, 2]]}, "node 'c' has an edge to itself"),
        ({"edges": [[0, 1], [0, 1]]}, "edge 'a' -> 'b' is given twice"),
        ({"edges": [[0, 1], [1, 2], [2, 0]], "edge_bytes": [0] * 3},
         "cycle through (a -> b -> c -> a|b -> c -> a -> b|c -> a -> b -> c);"),
        ({"names": "abcd", "op_types": "xxxx", "flops": [0] * 4, "output_bytes": [0] * 4, "edges": [[0, 1], [1, 2], [2, 1], [2, 3]],
          "edge_bytes": [0] * 4}, "cycle through (b -> c -> b|c -> b -> c);"),
    ],
)  # fmt: skip
def test_what_a_graph_refuses(changes, message):
    with pytest.raises(InputError, match=message):
        graph(**changes)


@given(graphs())
def test_derived_arrays(g):
    u, v = g.edges[:, 0], g.edges[:, 1]
    assert (g.levels[v] > g.levels[u]).all()
    for node in range(g.n_nodes):
        parents = u[v == node]
        assert g.levels[node] == (max(g.levels[parents]) + 1 if parents.size else 0)
    rank = np.argsort(g.topological_order)
    assert sorted(g.topological_order.tolist()) == list(range(g.n_nodes))
    assert (rank[u] < rank[v]).all()
    for ends, (pointer, ids) in ((u, g.out_edges), (v, g.in_edges)):
        for node in range(g.n_nodes):
            assert ids[pointer[node] : pointer[node + 1]].tolist() == np.flatnonzero(ends == node).tolist()


@given(graphs(), st.data())
def test_content_hash_sees_everything_but_the_name(g, data):
    fields = {key: getattr(g, key) for key in ComputationGraph.__dataclass_fields__}
    assert ComputationGraph(**fields | {"name": "other"}).content_hash == g.content_hash
    assert ComputationGraph(**fields) == g
    key = data.draw(st.sampled_from(["names", "op_types", "flops", "output_bytes", "parameter_bytes", "hardware", "colocation", "meta_op"]))
    last = fields[key][-1]
    changed = (*fields[key][:-1], last + "'") if isinstance(last, str) else np.append(fields[key][:-1], last + 1)
    assert ComputationGraph(**fields | {key: changed}).content_hash != g.content_hash


def test_edge_order_is_content():
    other = graph(edges=[[1, 2], [0, 1]], edge_bytes=[8, 7])
    assert other.content_hash != graph().content_hash


def test_arrays_cannot_be_written_and_do_not_follow_their_source():
    flops = np.array([1.0, 2.0, 3.0])
    g = graph(flops=flops)
    flops[0] = 9
    assert g.flops[0] == 1
    with pytest.raises(ValueError, match="read-only"):
        g.flops[0] = 5


def test_digest_keeps_neighbours_apart():
    assert digest("ab", "c") != digest("a", "bc")
    assert digest(np.zeros(2)) != digest(np.zeros((2, 1)))
    assert digest(np.zeros(2)) != digest(np.zeros(2, dtype=np.int64))


def test_nearest():
    assert nearest("hefd", ["heft", "metis"]) == "; did you mean 'heft'?"
    assert nearest("xyz", ["b", "a"]) == "; known are a, b"
    assert nearest("xyz", []) == ""
