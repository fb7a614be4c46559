"""Bounds against every placement of small problems, closed forms, and a published simulator's SLR denominators."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import OptimizeResult

from envs.costs.table import TableCosts
from envs.graphs.synthetic import TaskGraphParameters, generate_graph
from envs.networks.synthetic import NetworkParameters, generate_network
from envs.problem.graph import ComputationGraph
from envs.problem.network import DeviceNetwork
from envs.problem.problem import Problem
from envs.simulators import bounds
from envs.simulators.bounds import (
    critical_path_bound,
    energy_bound,
    lower_bound,
    makespan_bound,
    period_bound,
    schedule_length_ratio,
    shortest_path_seconds,
    slr_denominator,
    strong_bound,
    total_work_bound,
)
from envs.simulators.fifo.evaluator import Simulator
from envs.simulators.gathering import gathering_bound
from tests.envs.simulators.test_simulators import PUBLISHED, published_problem
from tests.envs.strategies import problems, random_placements, share


def table(seconds, edges=(), edge_bytes=(), **network):
    """A problem with the given times [V, D], links of bandwidth 1 and delay 1 unless told otherwise."""
    v, d = np.shape(seconds)
    names, devices = tuple(f"n{i}" for i in range(v)), tuple(f"d{i}" for i in range(d))
    graph = ComputationGraph(names, ("t",) * v, np.zeros(v), np.zeros(v), edges, edge_bytes)
    allowed = np.isfinite(seconds)
    costs = TableCosts(names, devices, np.where(allowed, seconds, 0.0))
    return Problem(graph, DeviceNetwork(devices, 1.0, **({"bandwidth": 1.0, "delay": 1.0} | network)), costs, allowed=allowed)


@pytest.mark.parametrize("instance", PUBLISHED, ids=[i["name"] for i in PUBLISHED])
def test_published_slr_denominators_and_makespans(instance):
    problem = published_problem(instance)
    assert slr_denominator(problem) == pytest.approx(instance["slr_denominator"], rel=1e-12)
    assert makespan_bound(problem) <= min(run["makespan"] for run in instance["runs"]) * (1 + 1e-12)


@share(0.6)
@given(st.data())
def test_no_placement_beats_the_bounds(data):
    problem = data.draw(problems(max_nodes=5, max_devices=3, energy=data.draw(st.booleans())))
    every = np.array(list(itertools.product(range(problem.n_devices), repeat=problem.n_nodes)), dtype=np.int16)
    found = Simulator().evaluate(problem, every[problem.valid(every)])
    assert slr_denominator(problem) <= critical_path_bound(problem) * (1 + 1e-12)
    assert makespan_bound(problem) <= found.seconds.min()
    assert lower_bound(problem) <= strong_bound(problem) <= found.objective.min()


def test_unavoidable_communication_counts():
    never = np.inf
    apart = table([[1, never], [never, 2]], [[0, 1]], [5])
    assert critical_path_bound(apart) == 1 + (1 + 5) + 2
    assert slr_denominator(apart) == 3
    together = table([[1, 1], [never, 2]], [[0, 1]], [5])
    assert critical_path_bound(together) == 3


def test_slower_device_or_link_whichever_is_less():
    links = table([[1, 9], [9, 1]], [[0, 1]], [2])
    assert critical_path_bound(links) == 1 + (1 + 2) + 1
    slow = table([[1, 9], [9, 1]], [[0, 1]], [20])
    assert critical_path_bound(slow) == 10


def test_groups_stay_on_one_device():
    graph = ComputationGraph(("a", "b"), ("t", "t"), np.zeros(2), np.zeros(2), [[0, 1]], [0], colocation=np.array([0, 0]))
    costs = TableCosts(("a", "b"), ("x", "y"), np.array([[1.0, 5.0], [6.0, 1.0]]))
    problem = Problem(graph, DeviceNetwork(("x", "y"), 1.0, np.inf, 0.0), costs)
    assert slr_denominator(problem) == 2
    assert critical_path_bound(problem) == 6
    assert total_work_bound(problem) == pytest.approx(42 / 13)  # x(7) = (1 - x) 6: one group of 7 s or 6 s, split


@pytest.mark.parametrize(
    ("seconds", "bound"),
    [
        ([[1, 2], [2, 1]], 1.0),  # each on its own device
        ([[2, 2]], 1.0),  # split in half
        ([[3, 6]], 2.0),  # two thirds on the faster
        ([[4, np.inf], [2, 2], [2, 2]], 4.0),
        ([[4, np.inf], [4, np.inf], [2, 2]], 8.0),
        ([[0, 5], [0, 5]], 0.0),
        ([[0, 0], [3, 3]], 1.5),
        ([[7.0], [1.0]], 8.0),
    ],
)
def test_total_work_in_closed_form(seconds, bound):
    problem = table(seconds)
    assert total_work_bound(problem) == pytest.approx(bound, rel=1e-9)
    assert total_work_bound(problem) <= bound


@pytest.mark.parametrize("hardware", [0, 3])
def test_total_work_of_large_problems_stays_tight(hardware):
    graph = generate_graph(TaskGraphParameters(6000, connection_probability=0.001, hardware_types=hardware), 0)
    network = generate_network(NetworkParameters(6, hardware_types=hardware, support_probability=0.5), 0)
    problem = Problem(graph, network)
    bound = total_work_bound(problem)
    assert bound <= Simulator().evaluate(problem, random_placements(problem, 3, 0)).seconds.min()
    if not hardware:  # related machines: all speeds add up
        assert bound == pytest.approx(graph.flops.sum() / network.speed.sum(), rel=1e-6)


def test_large_problems_with_unrelated_devices_are_nearly_exact():
    seconds = np.random.default_rng(0).lognormal(0, 1, (6000, 4))
    whole = total_work_bound(table(seconds))
    part = total_work_bound(table(seconds[:3000])) + total_work_bound(table(seconds[3000:]))  # both exact
    assert whole == pytest.approx(part, rel=0.02)


def test_merging_groups_of_the_same_ratios_loses_nothing(monkeypatch):
    """Seven kinds of operations on three devices; within a kind only the amount of work differs."""
    never, draw = np.inf, np.random.default_rng(0)
    kinds = np.array([[1, 2, 4], [1, 1, 1], [1, 2, never], [never, never, 1], [0, 3, 3], [0, 1, 9], [1, 1.5, 9]])
    seconds = np.concatenate([kind * draw.uniform(0.01, 0.2, (40, 1)) for kind in kinds])
    problem = table(seconds)
    exact = total_work_bound(problem)
    for most in (60, 16, 15):  # the sums of the five that take time everywhere are 15 pairs
        monkeypatch.setattr(bounds, "_EXACT_PAIRS", most)
        assert total_work_bound(problem) == pytest.approx(exact, rel=1e-9)
    monkeypatch.setattr(bounds, "_EXACT_PAIRS", 9)  # every second kind alone tells less, but no wrong bound
    assert exact * 0.4 < total_work_bound(problem) < exact * 0.999


def test_large_problems_that_take_no_time_are_bounded_by_none(monkeypatch):
    monkeypatch.setattr(bounds, "_EXACT_PAIRS", 3)
    assert total_work_bound(table([[0, 1], [2, 0]])) == 0.0


def test_a_sample_of_many_unlike_groups_tells_nearly_as_much(monkeypatch):
    seconds = np.random.default_rng(0).lognormal(-3, 1, (300, 3))
    problem = table(seconds)
    exact = total_work_bound(problem)
    monkeypatch.setattr(bounds, "_EXACT_PAIRS", 300)
    assert exact * 0.97 < total_work_bound(problem) < exact


def test_energy_and_period_by_hand():
    """a takes 1 s on x or 4 s on y, b 6 s on x or 2 s on y; idle 1 W and 2 W, busy 11 W and 4 W."""
    two = table([[1, 4], [6, 2]], power=[11.0, 4.0], idle_power=[1.0, 2.0])
    problem = Problem(two.graph, two.network, two.costs, "energy")
    # a costs 10 J on x, 8 J on y; b 60 J or 4 J; both idle for 2 s at least
    slack = 4 * 2 * np.finfo(np.float64).eps * 18  # for the rounding of sums, in ulps of 18
    assert 18 - energy_bound(problem) == pytest.approx(slack, abs=np.spacing(18.0))
    assert lower_bound(problem) == energy_bound(problem)
    pipeline = Problem(two.graph, two.network, two.costs, "throughput")
    assert period_bound(pipeline) == lower_bound(pipeline) == 2.0, "b alone takes 2 s"
    even = table([[2, 2], [2, 2], [2, 2]])
    assert period_bound(Problem(even.graph, even.network, even.costs, "throughput")) == pytest.approx(3.0), "all work on both"
    assert lower_bound(two) == makespan_bound(two) == 2.0


def test_slack_for_rounding_grows_with_the_operations_alone():
    eps = np.finfo(np.float64).eps
    for count in (2, 64):
        assert 1 - total_work_bound(table([[1.0]] * count)) / count == pytest.approx(2 * count * eps, abs=eps)


def test_equal_weights_bound_too_should_the_solver_give_up(monkeypatch):
    problem = table([[3, 6], [1, 4]])
    assert total_work_bound(problem) == pytest.approx(8 / 3)
    monkeypatch.setattr(bounds, "linprog", lambda *_, **__: OptimizeResult(status=4))
    assert total_work_bound(problem) == pytest.approx(2.0), "(3 + 1) / 2"


def test_energy_counts_what_may_run_alone():
    never = np.inf
    bound = table([[1, never], [2, 3]], power=[5.0, 2.0], idle_power=0.0)
    assert energy_bound(Problem(bound.graph, bound.network, bound.costs, "energy", bound.allowed)) == pytest.approx(5 + 6)


def test_schedule_length_ratio():
    assert schedule_length_ratio(table([[0.25, 0.5]]), 1.0) == 4.0
    fork = table([[1, 2], [5, 4], [3, 3], [7, 8]], [[0, 1], [0, 2], [2, 3]], [0, 0, 0])
    assert (slr_denominator(fork), shortest_path_seconds(fork)) == (11.0, 5.0)
    problem = table([[1, 2], [2, 1]], [[0, 1]], [0])
    assert schedule_length_ratio(problem, 5.0) == 2.5
    assert schedule_length_ratio(problem, np.array([2.0, 4.0])).tolist() == [1.0, 2.0]
    free = table([[0.0], [0.0]])
    assert schedule_length_ratio(free, 0.0) == 1.0
    assert schedule_length_ratio(free, 1.0) == np.inf


def test_inputs_are_gathered_on_one_device_or_their_transfers_are_paid():
    fan = [[1, 1]] * 4 + [[1, 1]]
    into = [[u, 4] for u in range(4)]
    near = table(fan, into, [0.5] * 4)  # a transfer takes 1 + 0.5: two are run apart
    assert critical_path_bound(near) == 2 and gathering_bound(near) == pytest.approx(1 + 1.5 + 1)
    far = table(fan, into, [9] * 4)  # transfers take longer than running all on one device
    assert gathering_bound(far) == pytest.approx(5)


def test_the_strong_bound_gathers_inputs_where_time_to_the_end_counts():
    problem = table([[1, 1]] * 5, [[u, 4] for u in range(4)], [0.5] * 4)
    assert strong_bound(problem) == gathering_bound(problem) > lower_bound(problem)
    pipeline = Problem(problem.graph, problem.network, problem.costs, "throughput")
    assert strong_bound(pipeline) == lower_bound(pipeline) < gathering_bound(problem)
    slow = table([[9, 9]] * 3, delay=0.0)
    assert strong_bound(slow) == lower_bound(slow) == pytest.approx(13.5)


def test_what_has_heads_and_tails_shares_the_time_between():
    seconds = [[4, 4]] + [[1, 1]] * 10 + [[3, 3]]
    edges = [[0, v] for v in range(1, 11)] + [[v, 11] for v in range(1, 11)]
    problem = table(seconds, edges, [0] * 20, delay=0.0)
    assert makespan_bound(problem) == pytest.approx(8.5)  # 17 s of work on two devices; the longest path takes 8
    assert gathering_bound(problem) == pytest.approx(4 + 10 / 2 + 3)


@pytest.mark.parametrize("seed", range(8))
def test_the_total_cost_of_two_devices_is_bounded_by_a_minimum_cut(seed):
    rng = np.random.default_rng(seed)
    edges = [[u, v] for v in range(1, 7) for u in range(v) if rng.random() < 0.5]
    one = table(rng.uniform(0.1, 1.0, (7, 2)), edges, rng.uniform(0.0, 0.2, len(edges)), delay=0.05)
    problem = Problem(one.graph, one.network, one.costs, "total-cost")
    every = np.array(np.meshgrid(*[range(2)] * 7)).reshape(7, -1).T.astype(np.int16)
    found = Simulator().evaluate(problem, every).objective
    p = every[37]
    crossing = sum(0.05 + b for (u, v), b in zip(problem.graph.edges, problem.graph.edge_bytes, strict=True) if p[u] != p[v])
    assert found[37] == pytest.approx(sum(problem.compute_seconds[v, p[v]] for v in range(7)) + crossing)
    assert lower_bound(problem) <= found.min() == pytest.approx(lower_bound(problem), rel=1e-5)
