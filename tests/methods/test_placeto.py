"""Placeto's traversal, features and summaries; what every method must do is in test_contract."""

import numpy as np
import pytest
import torch

from envs.problem.errors import InputError
from methods.contract.registry import build
from methods.nets.gpnet import GpNets, make_layout
from methods.nets.gpnet_messages import MessagePassing
from methods.placeto.network import Visits, features, log_probabilities, traversal
from methods.testing.problems import random_problem, toy
from methods.testing.running import go
from tests.methods.gpnets import constrained, random_placement


def test_visits_every_group_once_in_topological_order():
    problem = constrained(9, 3, 1, groups=True)
    method = build("placeto", {"episodes": 1, "passes": 2}, [problem], 0)
    run = go(method, 1000)
    heads = np.unique(problem.leaders)
    order = [v for v in problem.graph.topological_order if v in heads]
    assert len(run.placements) == 1 + 2 * len(heads)
    for before, after, task in zip(run.placements[:-1], run.placements[1:], order * 2, strict=True):
        assert set(problem.leaders[before != after]) <= {task}


def test_features_are_those_of_appendix_b7():
    problem = random_problem(5, 3, seed=1)
    tasks = traversal(problem, 3)
    found = features(tasks, np.array([[0, 1, 2, 0, 1]], dtype=np.int16), np.array([2])).T
    mean, edges, nbytes = problem.compute_seconds.mean(axis=1), problem.graph.edges, problem.graph.edge_bytes
    output = np.array([nbytes[edges[:, 0] == v].mean() if (edges[:, 0] == v).any() else 0.0 for v in range(5)])
    for column, raw in ((0, mean), (1, output)):
        np.testing.assert_allclose(found[:, column], np.interp(raw, [raw.min(), raw.max()], [-1, 1]), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found[:, 2], [-1, 0, 1, -1, 0])
    order = problem.graph.topological_order
    assert np.flatnonzero(found[:, 3]).tolist() == [order[2]]
    assert sorted(np.flatnonzero(found[:, 4])) == sorted(order[:2])


def plain(network, problem, placement, turn):
    """Log-probabilities of one state by `MessagePassing` over the task graph and one pool after another."""
    tasks, n = traversal(problem, network.policy[-1].out_features), problem.n_nodes
    nets = GpNets(make_layout([problem], single=True), np.zeros(1), placement)
    x, embedded = torch.from_numpy(features(tasks, placement[None].astype(np.int16), np.array([turn])).T.copy()), []
    for d in range(2):
        messages = MessagePassing(5, 5, edge_features=False, rounds=network.rounds, reverse=d == 1)
        messages.h1, messages.h2 = network.passes[d].h1, network.passes[d].h2
        embedded.append(messages(network.transform[d](x), nets))
    x, task = torch.cat(embedded, dim=1), int(tasks.order[turn])
    reach, others = np.linalg.matrix_power(np.eye(n, dtype=int) + _adjacency(problem), n) > 0, np.arange(n) != task
    groups = [~others, reach[:, task] & others, reach[task] & others, ~reach[:, task] & ~reach[task]]
    summary = torch.cat([x[g].mean(dim=0) if g.any() else torch.zeros(10) for g in map(torch.from_numpy, groups)])
    values = network.policy(summary).masked_fill(~torch.from_numpy(tasks.allowed[task]), -torch.inf)
    return torch.log_softmax(values, dim=0), all(g.any() for g in groups)


@pytest.mark.parametrize("rounds", [1, 8])
def test_the_compiled_network_and_its_gradient_are_those_of_the_plain_formula(rounds):
    problem = constrained(10, 3, 2, groups=True)
    method, rng = build("placeto", {"rounds": rounds}, [problem], 0), np.random.default_rng(0)
    network, visits = method.network, len(method.tasks[0].order)
    placements, turns = np.array([random_placement(problem, rng) for _ in range(visits)]), np.arange(visits)
    expected, full = zip(*[plain(network, problem, p, t) for p, t in zip(placements, turns, strict=True)], strict=True)
    assert any(full), "some state should have all four relations"
    found = network([Visits(method.tasks[0], placements[:2], turns[:2]), Visits(method.tasks[0], placements[2:], turns[2:])])
    torch.testing.assert_close(found, torch.stack(expected))
    for p, t, e in zip(placements, turns, expected, strict=True):
        plainly = log_probabilities(method.tasks[0], network.arrays(), p.astype(np.int16), t, rounds)
        np.testing.assert_allclose(plainly, e.detach().numpy(), rtol=1e-5)
    weights, parameters = torch.rand(found.shape), list(network.parameters())
    gradients = [torch.autograd.grad((x.exp() * weights).sum(), parameters) for x in (torch.stack(expected), found)]
    for e, f in zip(*gradients, strict=True):
        assert e.abs().max() > 0
        torch.testing.assert_close(f, e, rtol=1e-4, atol=1e-6)


def _adjacency(problem):
    matrix = np.zeros((problem.n_nodes, problem.n_nodes), dtype=int)
    matrix[tuple(problem.graph.edges.T)] = 1
    return matrix


def test_learning_beats_not_learning_and_carries_over_to_zero_shot():
    problem = random_problem(8, 3, seed=3, links=8.0)
    trained = build("placeto", {"batch": 4}, [problem], 0)
    early, late = np.split(np.array(go(trained, 9 * 4 * 60).objective), 2)
    assert late[len(late) // 2 :].mean() < 0.9 * early[: len(early) // 4].mean()
    other = constrained(12, 3, 5)
    search = build("placeto", {"learn": False}, [other], 0)
    search.load_policy(trained.policy())
    placement = search.place(other)
    assert other.valid(placement[None, :]).all()
    np.testing.assert_array_equal(placement, search.place(other))


def test_too_many_devices_is_an_error_with_a_cure():
    method = build("placeto", {}, [toy()], 0)
    with pytest.raises(InputError, match="'devices: 5'"):
        method.place(random_problem(4, 5, seed=0))
    with pytest.raises(InputError, match="raise it"):
        build("placeto", {"devices": 2}, [random_problem(4, 5, seed=0)], 0)
    with pytest.raises(InputError, match="does not fit"):
        build("placeto", {"devices": 4}, [toy()], 0).load_policy(method.policy())


@pytest.mark.thorough
def test_imitation_teaches_critical_path():
    problem = random_problem(12, 3, seed=4)
    method = build("placeto", {"imitation_episodes": 200, "imitation_learning_rate": 1e-2}, [problem], 0)
    report = method.pretrain([problem])
    assert report["imitation_loss"] < 0.7 * report["imitation_loss_first"]
    again = build("placeto", {"imitation_episodes": 200, "imitation_learning_rate": 1e-2}, [problem], 0)
    assert again.pretrain([problem]) == report
    assert build("placeto", {}, [problem], 0).pretrain([problem]) == {}


def test_exploration_falls_to_nothing_over_the_schedule():
    problem = random_problem(30, 3, seed=2)
    learning = {"schedule_updates": 2, "learning_rate": 1e-9, "final_learning_rate": 1e-9}
    shares = {}
    for exploration in (0.0, 1.0):
        method = build("placeto", {"exploration": exploration, "learning": learning}, [problem], 0)
        with torch.no_grad():
            method.network.policy[-1].bias[0] = 50.0  # the policy itself always takes device 0
        run = go(method, 4 * 31)
        shares[exploration] = [float((run.placements[31 * k + 30] == 0).mean()) for k in range(4)]
    assert shares[0.0] == [1.0] * 4
    assert shares[1.0][0] < shares[1.0][1] < 1.0 and shares[1.0][2:] == [1.0, 1.0]
    with pytest.raises(InputError, match="schedule_updates"):
        build("placeto", {"exploration": 0.5}, [problem], 0)
    with pytest.raises(InputError, match="from 0 to 1"):
        build("placeto", {"exploration": 1.5, "learning": learning}, [problem], 0)
