"""gpNet against Figure 1, against Algorithm gpNet written out (Appendix B.1), and updated against rebuilt."""

import numpy as np
import pytest

from envs.problem.network import DeviceNetwork
from envs.problem.problem import Problem
from methods.nets.gpnet import GpNets, logged, make_layout
from methods.testing.problems import make_graph
from tests.methods.gpnets import brute_force_edges, constrained, labelled_edges, random_placement


@pytest.mark.parametrize("scaling", ["range", "unit", "log"])
@pytest.mark.parametrize("seed", range(4))
def test_gpnet_is_what_the_algorithm_builds(seed, scaling):
    problem = constrained(9, 4, seed)
    placement = random_placement(problem, np.random.default_rng(seed))
    nets = GpNets(make_layout([problem], scaling=scaling), np.zeros(1), placement)
    expected, found = brute_force_edges(problem, placement), labelled_edges(nets)
    assert found.keys() == expected.keys()
    for key, raw in expected.items():
        np.testing.assert_allclose(found[key], logged(np.array(raw), nets.layout.edge_unit[0]), rtol=1e-5, atol=1e-5)
    degree = np.bincount(problem.graph.edges.ravel(), minlength=problem.n_nodes)
    assert nets.n_options == problem.feasible.sum()
    assert len(nets.edges()[0]) == (problem.feasible.sum(axis=1) * degree).sum() - problem.graph.n_edges  # |E_H| of section 4.2.1


def test_figure_1():
    """The neighbourhood that section 4.2.1 spells out for option (v1, d2) of Figure 1."""
    edges = [(0, 1), (0, 2), (1, 3), (1, 4), (2, 4)]
    allowed = np.array([[1, 0, 0], [0, 1, 1], [1, 1, 0], [0, 0, 1], [0, 1, 1]], dtype=bool)
    network = DeviceNetwork(("d0", "d1", "d2"), [1, 2, 3], [[1, 2, 3], [4, 5, 6], [7, 8, 9]], 1.0)
    problem = Problem(make_graph(edges, [1, 2, 3, 4, 5], [1, 2, 3, 4, 5]), network, allowed=allowed)
    nets = GpNets(make_layout([problem], scaling="unit"), np.zeros(1), np.array([0, 1, 0, 2, 1]))
    ends = labelled_edges(nets).keys()
    assert [u for u, v in ends if v == (1, 2)] == [(0, 0)]
    assert sorted(v for u, v in ends if u == (1, 2)) == [(3, 2), (4, 1)]
    assert {u for u, v in ends if v == (4, 2)} == {(1, 1), (2, 0)}, "a non-pivot hears only from its parents' pivots"
    assert {u for u, v in ends if v == (4, 1)} == {(1, 1), (1, 2), (2, 0), (2, 1)}, "a pivot hears from all options of its parents"
    assert nets.pivot.tolist() == [0, 1, 3, 5, 6]


@pytest.mark.parametrize("single", [False, True])
def test_relocating_gives_what_rebuilding_gives(single):
    problems = [constrained(5 + 3 * seed, 3 + seed, seed, groups=seed == 2) for seed in range(3)]
    rng = np.random.default_rng(1)
    layout = make_layout(problems, single=single)
    of = np.array([2, 0, 1, 2])
    placements = [random_placement(problems[p], rng) for p in of]
    nets = GpNets(layout, of, np.concatenate(placements))
    for _ in range(60):
        states = rng.choice(4, size=rng.integers(1, 5), replace=False)
        tasks = np.array([rng.integers(problems[of[s]].n_nodes) for s in states])
        devices = np.array([rng.choice(np.flatnonzero(problems[of[s]].feasible[t])) for s, t in zip(states, tasks, strict=True)])
        for s, t, d in zip(states, tasks, devices, strict=True):
            leaders = problems[of[s]].leaders
            placements[s][leaders == leaders[t]] = d
        nets.relocate(states, tasks, devices)
        rebuilt = GpNets(layout, of, np.concatenate(placements))
        for key in ("placement", "device", "pivot", "edge_features"):
            np.testing.assert_array_equal(getattr(nets, key), getattr(rebuilt, key), err_msg=key)


def test_relocating_touches_only_the_edges_around_the_task():
    problem = constrained(12, 4, 3)
    nets = GpNets(make_layout([problem]), np.zeros(1), random_placement(problem, np.random.default_rng(0)))
    task = int(problem.graph.edges[problem.graph.n_edges // 2, 0])
    far = ~(problem.graph.edges == task).any(axis=1)
    counts = np.diff(nets.layout.slot_ptr)
    nets.edge_features[:] = np.nan
    nets.relocate(np.zeros(1), np.array([task]), np.array([np.flatnonzero(problem.feasible[task])[-1]]))
    written = ~np.isnan(nets.edge_features).any(axis=1)
    np.testing.assert_array_equal(written, np.repeat(~far, counts))


def test_constant_features_are_zero_and_none_leaves_its_range():
    problem = constrained(10, 5, 5)
    graph = make_graph(problem.graph.edges.tolist(), [7.0] * problem.graph.n_edges, [3.0] * 10)
    flat = Problem(graph, problem.network, allowed=problem.allowed)
    layout = make_layout([flat])
    nets = GpNets(layout, np.zeros(1), random_placement(flat, np.random.default_rng(0)))
    assert (nets.edge_features[:, 0] == 0).all()
    assert layout.node_scale[0, 0] == 0
    assert 0.5 < np.abs(nets.edge_features).max() <= 1 + 1e-6


def test_a_graph_without_edges_has_a_gpnet_too():
    problem = Problem(make_graph([], [], [1.0, 2.0]), DeviceNetwork(("d", "e"), [1, 2], 1.0, 0.0))
    nets = GpNets(make_layout([problem]), np.zeros(1), np.array([0, 1]))
    nets.relocate(np.zeros(1), np.array([0]), np.array([1]))
    assert nets.pivot.tolist() == [1, 3]
    assert all(len(part) == 0 for part in nets.edges())
