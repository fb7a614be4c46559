import numpy as np
import pytest

from envs.problem.network import DeviceNetwork
from envs.problem.problem import Problem
from envs.simulators.fifo.evaluator import Simulator
from methods.placing.constraints import fits
from methods.placing.list_scheduling import (
    cpop,
    critical_chain,
    downward_ranks,
    earliest_finish_device,
    heft,
    list_schedule,
    planned,
    ready_order,
    upward_ranks,
)
from methods.testing.problems import GivenCosts, constrained_toy, make_graph, random_problem, topcuoglu


def check_schedule(problem, schedule):
    """Every task takes its time, no device runs two at once, no task starts before its inputs arrive."""
    rows = np.arange(problem.n_nodes)
    np.testing.assert_allclose(schedule.finish - schedule.start, problem.compute_seconds[rows, schedule.device], atol=1e-9)
    for k in range(problem.n_devices):
        mine = np.flatnonzero(schedule.device == k)
        mine = mine[np.lexsort((schedule.finish[mine], schedule.start[mine]))]
        assert (schedule.start[mine][1:] >= schedule.finish[mine][:-1] - 1e-9).all()
    (u, v), net = problem.graph.edges.T, problem.network
    a, b = schedule.device[u], schedule.device[v]
    arrival = schedule.finish[u] + net.delay[a, b] + problem.graph.edge_bytes * net.seconds_per_byte[a, b]
    assert (schedule.start[v] >= arrival - 1e-9).all()


class TestPublishedExample:
    def test_ranks_are_those_of_table_4(self):
        up = [108.0, 77.0, 80.0, 80.0, 69.0, 63.333, 42.667, 35.667, 44.333, 14.667]
        down = [0.0, 31.0, 25.0, 22.0, 24.0, 27.0, 62.333, 66.667, 63.667, 93.333]
        np.testing.assert_allclose(upward_ranks(topcuoglu()), up, atol=1e-3)
        np.testing.assert_allclose(downward_ranks(topcuoglu()), down, atol=1e-3)

    def test_heft_schedule(self):
        schedule = heft(topcuoglu())
        check_schedule(topcuoglu(), schedule)
        assert schedule.makespan == 80.0
        assert (schedule.device + 1).tolist() == [3, 1, 3, 2, 3, 2, 3, 1, 2, 2]
        assert schedule.start.tolist() == [0, 27, 9, 18, 28, 26, 38, 57, 56, 73]
        assert schedule.finish.tolist() == [9, 40, 28, 26, 38, 42, 49, 62, 68, 80]

    def test_cpop_schedule(self):
        schedule = cpop(topcuoglu())
        check_schedule(topcuoglu(), schedule)
        assert schedule.makespan == 86.0
        assert (schedule.device[[0, 1, 8, 9]] + 1).tolist() == [2, 2, 2, 2]  # the critical path, on one processor


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("make", [heft, cpop])
def test_schedules_are_possible(make, seed):
    problem = random_problem(60, 4, seed)
    check_schedule(problem, make(problem))


def test_a_gap_is_used_only_with_insertion():
    # 0 and 2 are pinned to device 0; 2 waits for the transfer from 1, which leaves a gap that fits 3
    graph = make_graph([(0, 2), (1, 2)], [0.0, 5.0], [1.0, 1.0, 1.0, 2.0])
    problem = Problem(graph, DeviceNetwork(("a", "b"), 1.0, 1.0, 0.0), GivenCosts(((1, 1), (1, 1), (1, 1), (2, 2))))
    pinned = np.array([0, 1, 0, 0], dtype=np.int16)
    order = np.array([0, 1, 2, 3])
    assert list_schedule(problem, order, pinned=pinned).start.tolist() == [0.0, 0.0, 6.0, 1.0]
    assert list_schedule(problem, order, pinned=pinned, insertion=False).start.tolist() == [0.0, 0.0, 6.0, 7.0]


def test_ties_go_to_the_lowest_device_and_the_first_node():
    graph = make_graph([], [], [1.0, 1.0, 1.0])
    problem = Problem(graph, DeviceNetwork(("a", "b", "c"), 1.0, 1.0, 0.0))
    assert heft(problem).device.tolist() == [0, 1, 2]


def test_zero_costs_keep_parents_first():
    graph = make_graph([(2, 1), (1, 0)], [0.0, 0.0], [0.0, 0.0, 0.0])
    problem = Problem(graph, DeviceNetwork(("a", "b"), 1.0, 1.0, 1.0))
    check_schedule(problem, heft(problem))
    assert heft(problem).makespan == 0.0


@pytest.mark.parametrize("make", [heft, cpop])
def test_constraints(make):
    problem = constrained_toy()
    schedule = make(problem)
    assert problem.valid(schedule.device[None, :]).all()
    check_schedule(problem, schedule)


def test_heft_skips_devices_without_memory():
    graph = make_graph([], [], [1.0] * 6, parameter_bytes=[9.0] * 6)
    network = DeviceNetwork(("fast", "slow"), [100.0, 1.0], 1.0, 0.0, memory=[25.0, 100.0])  # type: ignore[arg-type]
    problem = Problem(graph, network)
    device = heft(problem).device
    assert (device == 0).sum() == 2
    assert fits(problem, device[None, :]).all()


def test_ready_order_serves_the_longest_path_first_and_ties_as_told():
    graph = make_graph([(0, 3), (1, 3)], [0.0, 0.0], [1.0] * 4)
    problem = Problem(graph, DeviceNetwork(("a",), 1.0, 1.0, 0.0))
    priority = np.array([2.0, 2.0, 5.0, 9.0])
    assert ready_order(problem, priority).tolist() == [2, 0, 1, 3]
    assert ready_order(problem, priority, ties=np.array([1.0, 0.0, 0.0, 0.0])).tolist() == [2, 1, 0, 3]


@pytest.mark.parametrize("seed", range(3))
def test_critical_chain_explains_the_makespan_without_gaps(seed):
    problem = random_problem(50, 3, seed)
    placement = heft(problem).device
    traced = Simulator().evaluate(problem, placement[None, :], 0, trace=True)
    start, finish = traced.start[0], traced.finish[0]
    chain = critical_chain(problem, placement, start, finish)
    assert start[chain[0]] == 0.0 and finish[chain[-1]] == traced.seconds[0]
    edges = {(int(u), int(v)): b for (u, v), b in zip(problem.graph.edges, problem.graph.edge_bytes, strict=True)}
    net = problem.network
    for u, v in zip(chain[:-1].tolist(), chain[1:].tolist(), strict=True):
        a, b = placement[u], placement[v]
        wait = net.delay[a, b] + edges[u, v] * net.seconds_per_byte[a, b] if (u, v) in edges else 0.0
        assert start[v] == pytest.approx(finish[u] + wait)


def test_earliest_finish_device_predicts_a_last_task_exactly():
    problem = random_problem(20, 3, seed=4)
    last = int(np.argmax(problem.graph.levels))
    placement = np.zeros(20, dtype=np.int16)
    placement[::2] = 1
    traced = Simulator().evaluate(problem, placement[None, :], 0, trace=True)
    best = earliest_finish_device(problem, last, placement, traced.start[0], traced.finish[0])
    moved = np.tile(placement, (3, 1))
    moved[:, last] = np.arange(3)
    finish = Simulator().evaluate(problem, moved, 0, trace=True).finish[:, last]
    assert finish[best] == finish.min()


def test_planned_keeps_the_placement():
    problem = random_problem(30, 3, seed=1)
    placement = np.random.default_rng(0).integers(0, 3, 30).astype(np.int16)
    schedule = planned(problem, placement)
    np.testing.assert_array_equal(schedule.device, placement)
    check_schedule(problem, schedule)


def test_ten_thousand_tasks():
    problem = random_problem(10_000, 8, seed=0)
    schedule = heft(problem)
    check_schedule(problem, schedule)
    one_device = problem.compute_seconds.sum(axis=0).min()
    assert schedule.makespan < one_device
