"""Problem: feasibility, groups, memory, energy, identity."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from envs.costs.table import TableCosts
from envs.problem.errors import InputError
from envs.problem.graph import ComputationGraph
from envs.problem.network import DeviceNetwork
from envs.problem.problem import Problem
from tests.envs.strategies import placements, problems

NETWORK = DeviceNetwork(("x", "y"), [1.0, 2.0], 4.0, 1.0, supports=(frozenset({"fpga"}), frozenset()))


def graph(**changes):
    fields = {"names": ("a", "b"), "op_types": ("t", "t"), "flops": [2, 4], "output_bytes": [0, 0], "edges": [[0, 1]], "edge_bytes": [8]}
    return ComputationGraph(**(fields | changes))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Problem(graph(), NETWORK, objective="speed"), "unknown objective 'speed'; known are energy, makespan"),
        (lambda: Problem(graph(), NETWORK, allowed=np.ones((2, 3))), r"allowed has shape \(2, 3\); graph and network need \(2, 2\)"),
        (lambda: Problem(graph(hardware=("", "tpu")), NETWORK), "network 'network' can run node 'b', which requires hardware 'tpu'"),
        (lambda: Problem(graph(), NETWORK, allowed=[[0, 0], [1, 1]]), "can run node 'a', which is allowed on none"),
        (lambda: Problem(graph(hardware=("fpga", "")), NETWORK, allowed=[[0, 1], [1, 1]]), "can run node 'a'"),
        (lambda: Problem(graph(colocation=[0, 0]), NETWORK, allowed=[[0, 1], [1, 0]]), "can run node 'a'.* co-location group"),
        (
            lambda: Problem(graph(), NETWORK, TableCosts(("a", "b"), ("x", "y"), np.array([[1, 2], [3, -4]]))),
            "TableCosts gives node 'b' -4.0 s on device 'y'",
        ),
        (
            lambda: Problem(graph(), NETWORK, TableCosts(("a", "b"), ("x", "y"), np.array([[np.nan, 2], [3, 4]]))),
            "gives node 'a' nan s on device 'x'",
        ),
    ],
)
def test_what_a_problem_refuses(make, message):
    with pytest.raises(InputError, match=message):
        make()


@given(st.data())
def test_valid_means_feasible_and_together(data):
    problem = data.draw(problems(max_nodes=4, max_devices=3))
    graph, network = problem.graph, problem.network
    allowed = np.ones((problem.n_nodes, problem.n_devices), bool) if problem.allowed is None else problem.allowed
    every = np.array(list(itertools.product(range(-1, problem.n_devices + 1), repeat=problem.n_nodes)))
    expected = []
    for placement in every:
        good = all(0 <= d < problem.n_devices for d in placement)
        good = good and all(allowed[v, d] for v, d in enumerate(placement))
        good = good and all(not graph.hardware[v] or graph.hardware[v] in network.supports[d] for v, d in enumerate(placement))
        for a, b in itertools.combinations(range(problem.n_nodes), 2):
            good = good and (graph.colocation[a] != graph.colocation[b] or graph.colocation[a] < 0 or placement[a] == placement[b])
        expected.append(good)
    assert problem.valid(every).tolist() == expected


@given(st.data())
def test_drawn_placements_are_valid_and_groups_follow_their_first_node(data):
    problem = data.draw(problems())
    batch = data.draw(placements(problem, 3))
    assert batch.shape == (3, problem.n_nodes)
    assert batch.dtype == np.int16
    assert problem.valid(batch).all()
    assert (problem.colocate(batch) == batch).all()
    for group in set(problem.graph.colocation.tolist()) - {-1}:
        members = np.flatnonzero(problem.graph.colocation == group)
        assert (problem.leaders[members] == members[0]).all()


@given(st.data())
def test_memory_and_energy_add_up(data):
    problem = data.draw(problems(energy=True))
    batch = data.draw(placements(problem, 2))
    graph, network = problem.graph, problem.network
    makespan = np.array([3.0, 5.0])
    busy = problem.compute_seconds[np.arange(problem.n_nodes), batch]
    energy, memory = problem.energy(batch, makespan, busy), problem.memory_used(batch)
    for i, placement in enumerate(batch):
        used, joules = [0.0] * problem.n_devices, sum(network.idle_power) * makespan[i]
        for v, d in enumerate(placement):
            used[d] += graph.parameter_bytes[v] + graph.output_bytes[v]
            joules += graph.flops[v] / network.speed[d] * (network.power[d] - network.idle_power[d])
        for (u, v), size in zip(graph.edges, graph.edge_bytes, strict=True):
            joules += network.link_energy[placement[u], placement[v]] * size
        np.testing.assert_allclose(memory[i], used)
        np.testing.assert_allclose(energy[i], joules, rtol=1e-9, atol=1e-9)


def test_groups_may_have_any_number():
    problem = Problem(graph(colocation=[2**31 - 1] * 2), NETWORK, allowed=[[1, 1], [0, 1]])
    assert problem.feasible.tolist() == [[False, True], [False, True]]


def test_content_hash_sees_everything_but_names():
    base = Problem(graph(), NETWORK)
    assert Problem(graph(name="other"), NETWORK).content_hash == base.content_hash
    others = [
        Problem(graph(flops=[2, 5]), NETWORK),
        Problem(graph(), DeviceNetwork(("x", "y"), [1.0, 3.0], 4.0, 1.0)),
        Problem(graph(), NETWORK, objective="energy"),
        Problem(graph(), NETWORK, allowed=[[1, 1], [1, 0]]),
        Problem(graph(), NETWORK, TableCosts(("a", "b"), ("x", "y"), np.ones((2, 2)))),
    ]
    assert len({p.content_hash for p in (base, *others)}) == 1 + len(others)
    assert Problem(graph(), NETWORK) == base
