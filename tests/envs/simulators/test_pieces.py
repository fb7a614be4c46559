"""Compiled pieces: what they are, what a cut costs, and costs found again from when pieces ran."""

import numpy as np
import pytest

from envs.costs.table import TableCosts
from envs.hosts.openvino.piece_costs import PieceCosts, fitted, in_place
from envs.problem.errors import InputError
from envs.problem.graph import ComputationGraph
from envs.problem.network import DeviceNetwork
from envs.problem.problem import Problem
from envs.simulators.pieces.evaluator import PiecesSimulator, graph_arrays, per_byte
from envs.simulators.pieces.kernel import cut, loads, run
from envs.testing.contract import EvaluatorContract
from methods.placing.constraints import unit_of
from methods.placing.regions import dealt, grouped, modules


class TestPiecesSimulator(EvaluatorContract):
    def make(self):
        return PiecesSimulator()

    def others(self):
        return [PiecesSimulator(contention=1.5), PiecesSimulator(early=False)]


def module(modules=1, seconds=1.0):
    """Modules of two branches of two operations each, one after another: x, a0, a1, b0, b1, join, a0 …"""
    edges = []
    for m in range(modules):
        x, a0, a1, b0, b1, join = (5 * m + k for k in range(6))
        edges += [(x, a0), (a0, a1), (a1, join), (x, b0), (b0, b1), (b1, join)]
    n = 5 * modules + 1
    graph = ComputationGraph(
        tuple(map(str, range(n))), ("Convolution",) * n, np.ones(n), np.full(n, 10.0), np.array(edges), np.full(len(edges), 10.0)
    )
    network = DeviceNetwork(("a", "b"), np.array(1e9), np.array(1e2), np.array(0.05), launch_overhead=np.array(0.2))
    return Problem(graph, network, TableCosts(graph.names, network.names, np.full((n, 2), seconds)))


def placed(problem, *there):
    row = np.zeros(problem.n_nodes, dtype=np.int16)
    row[list(there)] = 1
    return row


def test_a_piece_pays_once_and_results_pay_where_they_leave_and_enter():
    problem = module()
    alone = PiecesSimulator().evaluate(problem, placed(problem)[None]).seconds[0]
    assert alone == pytest.approx(6 * 1.0 + 0.2), "one piece, whatever its operations"
    # x | a0 a1 beside b0 b1 | join: each result that crosses pays 10 bytes at 100 bytes/s where it leaves and where it enters
    found = PiecesSimulator().evaluate(problem, placed(problem, 3, 4)[None], trace=True)
    first, branch, last = 1.0 + 0.2 + 0.1, 2.0 + 0.2 + 0.1 + 0.1, 1.0 + 0.2 + 0.1 + 0.1
    assert found.seconds[0] == pytest.approx(first + 0.05 + branch + 0.05 + last)
    assert found.finish[0].max() == pytest.approx(found.seconds[0]) and found.start[0].min() == 0.0
    slower = PiecesSimulator(contention=1.5).evaluate(problem, placed(problem, 3, 4)[None]).seconds[0]
    assert found.seconds[0] < slower <= found.seconds[0] + 0.5 * branch


def test_a_cut_inside_a_branch_costs_more_than_one_around_it():
    problem = module(3)
    around, inside = placed(problem, 3, 4), placed(problem, 3)
    a, b = PiecesSimulator().evaluate(problem, np.stack((around, inside))).seconds
    assert a < b


def test_branches_are_units_and_what_only_one_reads_goes_with_it():
    problem = module(2)
    unit = unit_of(grouped(problem, chains=True))
    assert unit[1] == unit[2] != unit[3] == unit[4] and len(np.unique(unit)) == 3 + 4
    assert (unit_of(grouped(problem, chains=False)) == np.arange(problem.n_nodes)).all()
    weights = Problem(
        problem.graph, problem.network, TableCosts(problem.graph.names, ("a", "b"), np.r_[np.zeros((1, 2)), np.ones((10, 2))])
    )
    assert unit_of(grouped(weights, chains=False))[0] == 0, "two read it, so it goes with neither"
    with pytest.raises(InputError, match="contention is 0"):
        PiecesSimulator(contention=0.5)


def test_branches_of_the_last_modules_are_dealt_out():
    problem = module(3)
    assert [[b.tolist() for b in m] for m in modules(problem)] == [[[5 * m + 1, 5 * m + 2], [5 * m + 3, 5 * m + 4]] for m in range(3)]
    rows = dealt(problem, (0, 1), 0)
    assert [np.flatnonzero(row).tolist() for row in rows] == [[13, 14], [8, 9, 13, 14], [3, 4, 8, 9, 13, 14]]
    chain = Problem(
        ComputationGraph(("a", "b"), ("Add", "Add"), np.ones(2), np.ones(2), np.array([[0, 1]]), np.ones(1)), problem.network
    )  # fmt: skip
    assert len(dealt(chain, (0, 1), 0)) == 0


def simulated_runs(problem, costs, placements):
    true = costs.applied(problem)
    nodes, arrays, edge_bytes = graph_arrays(problem.graph)
    runs = []
    for p in placements:
        piece, count = cut(p, nodes, arrays, True)
        device, work, enter, leave = loads(p, piece, count, arrays, edge_bytes, true.compute_seconds)
        takes = work + true.network.launch_overhead[device] + (enter + leave) * per_byte(true)[device]
        begin, end = np.zeros(count), np.zeros(count)
        run(p, piece, count, arrays, device, takes, true.network.delay, costs.contention, begin, end)
        runs.append((p, {"piece": piece, "begin": begin, "end": end}))
    return runs


def test_costs_are_found_again_from_when_pieces_ran():
    rng = np.random.default_rng(0)
    plain = module(6)
    problem = Problem(plain.graph, plain.network, TableCosts(plain.graph.names, ("a", "b"), rng.uniform(0.5, 2.0, (31, 2))))
    placements = rng.integers(0, 2, (20, 31)).astype(np.int16)
    costs = PieceCosts(launch=0.3, per_byte=0.01, delay=0.07, contention=1.0, scale=1.2)
    found = fitted(problem, simulated_runs(problem, costs, placements))
    for name in ("launch", "per_byte", "delay", "contention", "scale"):
        assert getattr(found, name) == pytest.approx(getattr(costs, name), rel=1e-3), name
    applied = found.applied(problem)
    np.testing.assert_allclose(
        in_place(applied, PieceCosts(0.3, 0.01, 0.07, 1.0), simulated_runs(problem, costs, placements)), 1.0, rtol=1e-3
    )
    beside = fitted(problem, simulated_runs(problem, PieceCosts(0.0, 0.0, 0.0, 1.5), placements))
    assert beside.contention == pytest.approx(1.5, rel=0.2)


def test_what_one_operation_takes_beyond_its_costs_is_found_in_its_pieces():
    problem, true = module(2), np.ones((11, 2))
    true[3] = 1.5
    runs = simulated_runs(
        Problem(problem.graph, problem.network, TableCosts(problem.graph.names, ("a", "b"), true)), PieceCosts(0.0, 0.0, 0.0, 1.0),
        np.array([placed(problem, 3), placed(problem, 3, 8), placed(problem, 3)]),
    )  # fmt: skip
    found = in_place(problem, PieceCosts(0.0, 0.0, 0.0, 1.0), runs)
    assert found[3, 1] == pytest.approx(1.5**0.75) and found[1, 0] == pytest.approx(1.0) and found[3, 0] == 1.0
