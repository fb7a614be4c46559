"""Sharded graphs: node counts of the paper, FLOPs by hand, ShardOps of Appendix A. That they compute the right thing: test_engine.py."""

import numpy as np
import pytest

from envs.graphs.sharded import GRAPHS, shard_ops, sharded
from envs.problem.errors import InputError

# Appendix C of the DOPPLER paper; section 5.3 for the graph of 261 steps.
PAPER_NODES = {"chainmm": 112, "ffnn": 192, "llama-block": 215, "llama-layer": 261}


@pytest.mark.parametrize("name", GRAPHS)
def test_default_sizes_have_the_node_counts_of_the_paper(name):
    assert sharded(name).n_nodes == PAPER_NODES[name]


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("shards", [1, 2, 4, 8])
def test_every_operator_has_as_many_shards_as_asked_for(name, shards):
    graph = sharded(name, shards=shards)
    is_shard = shard_ops(graph)
    products = np.array([t in ("matmul", "scores") for t in graph.op_types])
    assert is_shard[products].all()
    per_meta_op = np.bincount(graph.meta_op[products])
    assert set(per_meta_op[per_meta_op > 0]) == {shards}
    reduces = np.bincount(graph.meta_op[~is_shard], minlength=1)
    assert reduces.max() <= shards


def test_flops_do_not_depend_on_the_grid():
    size = 64
    for sizes in ({"rows": 1, "inner": 1, "columns": 1}, {"rows": 2, "inner": 4, "columns": 2}, {"rows": 4, "inner": 2, "columns": 2}):
        graph = sharded("chainmm", size=size, **sizes)
        work = sum(f for f, t in zip(graph.flops, graph.op_types, strict=True) if t == "matmul")
        assert work == 3 * 2 * size**3
    # Two products of 2^15 x 2^5 x 2^16, whatever the shards (C.2).
    graph = sharded("ffnn")
    assert sum(f for f, t in zip(graph.flops, graph.op_types, strict=True) if t == "matmul") == 2 * 2 * 2.0 ** (15 + 5 + 16)


def test_bad_sizes_are_named():
    with pytest.raises(InputError, match="matrix size of 10 cannot be cut into 4"):
        sharded("chainmm", size=10)
    with pytest.raises(InputError, match="did you mean 'ffnn'"):
        sharded("fnn")
    with pytest.raises(InputError, match=r"'widht'.*did you mean 'width'"):
        sharded("llama-block", widht=64)
