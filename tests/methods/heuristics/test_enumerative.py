"""EnumerativeOptimizer: exact where it claims to be, even where it spreads, greedy as in Algorithm 4."""

import itertools

import numpy as np
import pytest

from envs.graphs.sharded import shard_ops, sharded
from envs.problem.errors import InputError
from envs.problem.graph import ComputationGraph
from envs.problem.network import DeviceNetwork
from envs.problem.problem import Problem
from envs.simulators.work_conserving.evaluator import WorkConservingSimulator
from methods.contract.registry import build
from methods.placing.meta_ops import _assign, _first_permutation, enumerate_meta_ops


def test_assignment_equals_trying_all_permutations():
    rng = np.random.default_rng(0)
    for k, d in ((4, 4), (3, 4), (1, 5), (5, 5)):
        cost = rng.uniform(size=(k, d))
        best = min(sum(cost[i, p[i]] for i in range(k)) for p in itertools.permutations(range(d), k))
        chosen = _assign(cost, np.ones((k, d), dtype=bool))
        assert len(set(chosen.tolist())) == k
        np.testing.assert_allclose(cost[np.arange(k), chosen].sum(), best)


def test_literally_the_first_of_the_best_permutations_is_kept():
    """Two shards that cost the same everywhere but on the first device, where they are dear; three groups of permutations are equal."""
    cost = np.array([[5.0, 1.0, 1.0, 1.0], [5.0, 1.0, 1.0, 1.0]])
    assert _first_permutation(cost).tolist() == [1, 2]
    rng = np.random.default_rng(0)
    for k, d in ((4, 4), (3, 4), (5, 5)):
        cost = rng.integers(0, 3, size=(k, d)).astype(float)
        tried = list(itertools.permutations(range(d)))
        totals = [sum(cost[i, p[i]] for i in range(k)) for p in tried]
        assert _first_permutation(cost).tolist() == list(tried[totals.index(min(totals))][:k])
    assert _first_permutation(np.zeros((6, 4))).tolist() == [0, 1, 2, 3, 0, 1]
    with pytest.raises(InputError, match="permutations of 9 devices are too many to try; at most 8"):
        _first_permutation(np.zeros((2, 9)))


def test_as_printed_the_optimizer_is_the_weaker_one_on_llama_layers():
    problem = Problem(sharded("llama-layer", sequence=64, width=64, hidden=64, heads=4), DeviceNetwork(tuple("abcd"), 1e9, 1e9, 1e-6))
    ours, printed = (build("enumerative", {"literal": literal}, [problem], 0).propose(1)[0].placements for literal in (False, True))
    times = WorkConservingSimulator().evaluate(problem, np.concatenate((ours, printed))).seconds
    assert times[0] < times[1]


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
