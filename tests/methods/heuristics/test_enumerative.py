"""EnumerativeOptimizer: exact where it claims to be, even where it spreads, greedy as in Algorithm 4."""

import itertools

import numpy as np

from envs.graphs.sharded import shard_ops, sharded
from envs.problem.graph import ComputationGraph
from envs.problem.network import DeviceNetwork
from envs.problem.problem import Problem
from methods.placing.meta_ops import _assign, enumerate_meta_ops


def test_assignment_equals_trying_all_permutations():
    rng = np.random.default_rng(0)
    for k, d in ((4, 4), (3, 4), (1, 5), (5, 5)):
        cost = rng.uniform(size=(k, d))
        best = min(sum(cost[i, p[i]] for i in range(k)) for p in itertools.permutations(range(d), k))
        chosen = _assign(cost, np.ones((k, d), dtype=bool))
        assert len(set(chosen.tolist())) == k
        np.testing.assert_allclose(cost[np.arange(k), chosen].sum(), best)


def test_consumers_follow_their_data():
    # Two meta-ops of two shards; the second's shards read the first's crosswise, one much more than the other.
    edges = [(0, 2), (1, 3), (2, 5), (3, 4), (2, 4)]
    graph = ComputationGraph(
        [f"n{i}" for i in range(6)], ["op"] * 6, np.ones(6), np.ones(6), edges, [1, 1, 100, 100, 1], meta_op=[0, 0, 1, 1, 2, 2]
    )
    problem = Problem(graph, DeviceNetwork(("x", "y"), 1.0, 1.0, 0.0))
    placement = enumerate_meta_ops(problem)
    assert placement[2] != placement[3] and placement[5] == placement[2] and placement[4] == placement[3]


def test_shards_are_spread_evenly():
    graph = sharded("llama-block", sequence=64, width=64, hidden=64, heads=8, rows=2, columns=4)
    for devices in (4, 8):
        problem = Problem(graph, DeviceNetwork(tuple(f"d{i}" for i in range(devices)), 1e9, 1e9, 1e-6))
        placement = enumerate_meta_ops(problem)
        is_shard = shard_ops(graph)
        for m in range(graph.meta_op.max() + 1):
            members = np.flatnonzero((graph.meta_op == m) & is_shard)
            counts = np.bincount(placement[members], minlength=devices)
            assert counts.max() <= -(-len(members) // devices)
