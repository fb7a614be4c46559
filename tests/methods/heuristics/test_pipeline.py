"""Splits of a pipeline: what the dynamic program finds is the best contiguous split, and the published one where there is one."""

import itertools

import numpy as np
import pytest

from envs.problem.network import DeviceNetwork
from envs.problem.problem import Problem
from envs.simulators.bounds import lower_bound
from envs.simulators.fifo.evaluator import Simulator
from envs.sources.importing import load_problem
from methods.placing.pipeline import best_split, linear_split, piece_graph
from methods.placing.starts import good_starts
from methods.testing.problems import make_graph, random_graph
from methods.testing.running import go, make
from tests.envs.sources.test_importing import DATA

PUBLISHED = {"layer-bert24_inference": 17.78990625, "layer-gnmt_training": 107.0044140625, "op-bert_l-3_inference": 27.9185676799125}
"""Milliseconds, from the authors' program (msr-fiddle/dnn-partitioning, throughput-dp)."""


def pipeline(seed, n=7, training=False, memory=np.inf):
    """Two accelerators that copy through the host, the host, and a graph with a co-location group (forward and backward if training)."""
    rng = np.random.default_rng(seed)
    graph = random_graph(n, rng, parameter_bytes=rng.uniform(1, 2, n))
    if training:
        forward = graph.edges.tolist()
        mirror = [(2 * n - 1 - v, 2 * n - 1 - u) for u, v in forward]
        orphans = 2
        edges = [*forward, *mirror, (n - 1, n)]
        group = [-1 if i < orphans else i for i in range(n)]
        graph = make_graph(
            edges, rng.uniform(1, 5, len(edges)).tolist(), [*graph.flops, *rng.uniform(1, 10, n)], colocation=[*group, *group[::-1]],
            backward=[False] * n + [True] * n,
        )  # fmt: skip
    else:
        graph = make_graph(
            graph.edges.tolist(), graph.edge_bytes.tolist(), graph.flops.tolist(), parameter_bytes=graph.parameter_bytes,
            colocation=[0 if i in (1, 3) else -1 for i in range(n)],
        )  # fmt: skip
    size = rng.uniform(1, 5, graph.n_nodes)
    graph = make_graph(
        graph.edges.tolist(), size[graph.edges[:, 0]].tolist(), graph.flops.tolist(), parameter_bytes=graph.parameter_bytes,
        colocation=graph.colocation, backward=graph.backward,
    )  # fmt: skip
    bandwidth = np.array([[1, 1, 2], [1, 1, 2], [2, 2, np.inf]])
    network = DeviceNetwork(
        ("a0", "a1", "cpu"), [2.0, 2.0, 0.6], bandwidth, 0.0, memory=[memory, memory, np.inf], host=[False, False, True]
    )  # fmt: skip
    return Problem(graph, network, objective="throughput")


def contiguous(problem, row):
    """Whether devices can be put in a row so that whatever precedes comes no later."""
    pieces = piece_graph(problem)
    if any(len(set(row[pieces.of_node == p])) > 1 for p in range(pieces.count)):
        return False
    device = {int(p): int(d) for p, d in zip(pieces.of_node, row, strict=True)}
    links = {(device[u], device[v]) for u, v in pieces.edges.tolist()}
    return any(all(order.index(u) <= order.index(v) for u, v in links) for order in itertools.permutations(range(problem.n_devices)))


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_the_split_is_the_best_of_all_contiguous_ones(seed, training):
    problem = pipeline(seed, 6 if training else 7, training)
    heads = np.unique(problem.leaders)
    rows = np.array(list(itertools.product(range(3), repeat=len(heads))), dtype=np.int16)[:, np.searchsorted(heads, problem.leaders)]
    value = Simulator().evaluate(problem, rows).objective
    best = next(value[i] for i in np.argsort(value, kind="stable") if contiguous(problem, rows[i]))
    split = best_split(problem)
    assert split.exact and split.period == pytest.approx(best, rel=1e-12)
    assert contiguous(problem, split.device)
    assert Simulator().evaluate(problem, split.device[None]).objective[0] == pytest.approx(split.period, rel=1e-12)
    assert lower_bound(problem) <= value.min() * (1 + 1e-12)
    assert linear_split(problem).period >= split.period * (1 - 1e-12)


@pytest.mark.thorough
@pytest.mark.parametrize("name", PUBLISHED)
def test_published_optima(name):
    run = go(make("dp-split", load_problem(DATA / "dnn-partitioning" / f"{name}.json")), 1)
    assert run.best * 1e3 == pytest.approx(PUBLISHED[name], rel=1e-9)


def test_memory_splits_what_would_fit_by_time():
    free, tight = pipeline(1, memory=np.inf), pipeline(1, memory=4.0)
    assert best_split(tight).period > best_split(free).period
    assert (tight.memory_used(best_split(tight).device[None])[0, :2] <= 4.0).all()


def test_what_cannot_fit_is_said_to_be_infeasible():
    problem = pipeline(1, memory=1.0)
    network = DeviceNetwork(("a0", "a1"), 1.0, 1.0, 0.0, memory=1.5)
    method = make("dp-split", Problem(problem.graph, network, objective="throughput"))
    assert method.propose(1) == [] and method.report() == {"exact": 1.0, "infeasible": 1.0}


def test_beyond_the_limit_of_ideals_a_topological_order_is_split():
    problem = pipeline(2)
    method = make("dp-split", problem, ideals=3)
    assert go(method, 1).best == linear_split(problem).period and method.report()["exact"] == 0.0


def test_unequal_links_are_not_called_exact():
    problem = pipeline(3)
    bandwidth = problem.network.bandwidth.copy()
    bandwidth[0, 1] = 0.25
    network = DeviceNetwork(("a0", "a1", "cpu"), [2.0, 2.0, 0.6], bandwidth, 0.0)
    assert not best_split(Problem(problem.graph, network, objective="throughput")).exact


def test_pipedream_balances_a_chain_and_keeps_branches_whole():
    chain = make_graph([(i, i + 1) for i in range(5)], [1e-3] * 5, [1.0, 1, 2, 2, 1, 1])
    (row,) = go(make("pipedream", Problem(chain, DeviceNetwork(("a", "b"), 1.0, 1.0, 0.0), objective="throughput")), 1).placements
    assert row.tolist() == [0, 0, 0, 1, 1, 1]
    branches = make_graph([(0, 1), (0, 2), (0, 3), (1, 4), (2, 4), (3, 4), (4, 5)], [1e-3] * 7, [1.0, 2, 2, 2, 1, 5])
    (row,) = go(make("pipedream", Problem(branches, DeviceNetwork(("a", "b"), 1.0, 1.0, 0.0), objective="throughput")), 1).placements
    assert row.tolist() == [0, 0, 0, 0, 0, 1]


def test_pipedream_does_not_cut_where_the_transfer_takes_longer_than_any_stage():
    chain = make_graph([(0, 1), (1, 2), (2, 3)], [0.1, 50.0, 0.1], [3.0, 3.0, 3.0, 3.0])
    (row,) = go(make("pipedream", Problem(chain, DeviceNetwork(("a", "b"), 1.0, 1.0, 0.0), objective="throughput")), 1).placements
    assert row[1] == row[2] and row[0] != row[3]


@pytest.mark.parametrize("seed", range(3))
def test_cp_sat_proves_the_best_period_of_all_placements(seed):
    problem = pipeline(seed)
    heads = np.unique(problem.leaders)
    rows = np.array(list(itertools.product(range(3), repeat=len(heads))), dtype=np.int16)[:, np.searchsorted(heads, problem.leaders)]
    best = Simulator().evaluate(problem, rows).objective.min()
    method = make("cp-sat", problem, deterministic_time=2.0)
    assert go(method, 400).best == pytest.approx(best, rel=1e-9)
    assert method.report() == {"lower_bound": pytest.approx(best, rel=2e-6), "proved_optimal": 1.0}


@pytest.mark.parametrize("method", ["local-search", "problem-space"])
def test_searches_end_below_the_best_contiguous_split(method):
    problem = load_problem(DATA / "dnn-partitioning" / "layer-bert24_inference.json")
    assert go(make(method, problem), 300).best * 1e3 < PUBLISHED["layer-bert24_inference"]


@pytest.mark.thorough
@pytest.mark.parametrize("method", ["local-search", "problem-space"])
@pytest.mark.parametrize("name", PUBLISHED)
def test_searches_are_within_two_percent_of_published_optima(name, method):
    problem = load_problem(DATA / "dnn-partitioning" / f"{name}.json")
    assert max(go(make(method, problem, seed), 300).best for seed in range(3)) * 1e3 < 1.02 * PUBLISHED[name]


def test_searches_of_small_pipelines_start_from_the_best_contiguous_split():
    problem = Problem(random_graph(12, np.random.default_rng(7)), DeviceNetwork(("a", "b", "c"), 1.0, 1.0, 0.0), objective="throughput")
    best = best_split(problem).period
    starts = Simulator().evaluate(problem, good_starts(problem, 0)).objective
    assert starts.min() <= best * (1 + 1e-12)
