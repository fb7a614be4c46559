"""HSDAG: every equation against plain loops on small graphs, and the pieces of an episode against each other."""

import dataclasses
import math

import numpy as np
import pytest
import torch

from envs.problem.errors import InputError
from envs.problem.problem import Problem
from envs.simulators.fifo.evaluator import Simulator
from methods.hsdag.policy import Level, Step, log_probabilities, majority, side_by_side
from methods.nets.node_features import FeatureConfig, fractal_dimension, node_features, positional_encoding
from methods.placing.coarsening import CoarseGraph, coarsen
from methods.placing.graph_parsing import adjacency, dominant, parse, pool, undirected
from methods.testing.problems import constrained_toy, make_graph, random_network, random_problem
from methods.testing.running import go, make


def random_dag(n, seed):
    rng = np.random.default_rng(seed)
    edges = {(int(rng.integers(0, v)), v) for v in range(1, n) for _ in range(rng.integers(0, 3))}
    return np.array(sorted(edges), dtype=np.int64).reshape(-1, 2)


def problem_of(edges, n, d=2, **more):
    graph = make_graph([tuple(e) for e in edges], [1.0] * len(edges), [1.0] * n, **more)
    return Problem(graph, random_network(d, np.random.default_rng(0)))


def same_partition(a, b):
    return len(set(zip(a.tolist(), b.tolist(), strict=True))) == len(set(a.tolist())) == len(set(b.tolist()))


def merged_by_loop(n, edges):
    """Appendix G word for word: in topological order, join a sole child to its sole parent."""
    children = {v: [b for a, b in edges if a == v] for v in range(n)}
    parents = {v: [a for a, b in edges if b == v] for v in range(n)}
    group = list(range(n))
    for v in range(n):  # nodes of `random_dag` are in topological order
        if len(parents[v]) == 1 and len(children[parents[v][0]]) == 1:
            group[v] = group[parents[v][0]]
    return np.array(group)


@pytest.mark.parametrize("chains", ["operations", "units"])
@pytest.mark.parametrize("seed", range(5))
def test_coarsening_merges_the_chains_of_appendix_g(seed, chains):
    edges = random_dag(40, seed)
    coarse = coarsen(problem_of(edges, 40), chains)
    assert same_partition(coarse.group, merged_by_loop(40, edges))
    expected = {(coarse.group[a], coarse.group[b]) for a, b in edges if coarse.group[a] != coarse.group[b]}
    assert {tuple(e) for e in coarse.edges.tolist()} == expected
    assert all(a < b for a, b in coarse.edges), "groups are numbered in topological order"


@pytest.mark.parametrize("chains", ["operations", "units"])
def test_coarsening_keeps_units_and_what_may_not_run_together(chains):
    edges = [(0, 1), (1, 2), (2, 3)]
    allowed = np.array([[True, True], [True, True], [True, False], [True, False]])
    p = problem_of(edges, 4)
    assert coarsen(dataclasses.replace(p, allowed=allowed), chains).group.tolist() == [0, 0, 1, 1]
    assert coarsen(p).n_nodes == 4
    tied = coarsen(problem_of([(0, 2), (1, 2), (0, 3)], 4, colocation=[-1, 7, 7, -1]), chains)
    assert tied.n_nodes == 3
    assert tied.group[1] == tied.group[2]
    assert tied.last[tied.group[1]] == 2


def test_a_weight_ends_a_chain_of_operations_but_not_of_units():
    p = problem_of([(0, 1), (2, 1), (1, 3), (3, 4)], 5, colocation=[-1, 5, 5, -1, -1])  # 2 is the weight of 1
    assert coarsen(p, "operations").group.tolist() == [0, 1, 1, 1, 1]
    assert coarsen(p, "units").n_nodes == 1
    p = problem_of([(0, 1), (2, 1), (1, 3), (4, 3)], 5, colocation=[-1, 5, 5, 6, 6])
    assert coarsen(p, "operations").n_nodes == 3
    assert coarsen(p, "units").n_nodes == 1


def slope_by_loop(n, edges, v):
    distance, front = {v: 0}, [v]
    while front:
        front_next = []
        for u in front:
            for a, b in edges:
                if a == u and b not in distance:
                    distance[b] = distance[u] + 1
                    front_next.append(b)
        front = front_next
    radii = sorted({r for r in distance.values() if r > 0})
    if len(radii) < 2:
        return 0.0
    x = [math.log(r) for r in radii]
    y = [math.log(sum(0 < other <= r for other in distance.values())) for r in radii]
    mx, my = sum(x) / len(x), sum(y) / len(y)
    return sum((a - mx) * (b - my) for a, b in zip(x, y, strict=True)) / sum((a - mx) ** 2 for a in x)


@pytest.mark.parametrize("seed", range(3))
def test_equation_4_fractal_dimension(seed):
    edges = random_dag(30, seed)
    found = fractal_dimension(30, edges)
    assert np.ptp(found) > 0
    np.testing.assert_allclose(found, [slope_by_loop(30, edges, v) for v in range(30)], atol=1e-12)


def test_equation_4_of_a_chain_is_one():
    np.testing.assert_allclose(fractal_dimension(6, np.array([(i, i + 1) for i in range(5)]))[:4], 1.0)


def test_equation_5_positional_encoding():
    encoding = positional_encoding(np.array([1, 7]), 6)
    for row, pos in zip(encoding, (1, 7), strict=True):
        for i in range(3):
            assert row[2 * i] == pytest.approx(math.sin(pos / 10000 ** (2 * i / 6)))
            assert row[2 * i + 1] == pytest.approx(math.cos(pos / 10000 ** (2 * i / 6)))


class TestFeatures:
    graph = make_graph([(0, 2), (1, 2), (2, 3)], [1.0] * 3, [1.0] * 4, output_shapes=[(8,), (2, 3), (4, 4), ()])
    coarse = CoarseGraph(np.array([0, 1, 2, 2]), np.array([(0, 2), (1, 2)]), np.array([0, 1, 3]))

    def columns(self, **on):
        off = dict.fromkeys(("op_type", "degrees", "fractal", "node_id", "output_shape"), False)
        return node_features(self.graph, self.coarse, FeatureConfig(**{**off, **on}))

    def test_types_are_the_mean_of_a_group(self):
        graph = dataclasses.replace(self.graph, op_types=("a", "b", "a", "c"))
        found = node_features(graph, self.coarse, FeatureConfig(degrees=False, fractal=False, node_id=False, output_shape=False))
        np.testing.assert_allclose(found, [[1, 0, 0], [0, 1, 0], [0.5, 0, 0.5]])

    def test_degrees_are_one_hot(self):
        np.testing.assert_allclose(self.columns(degrees=True), [[1, 0, 0, 1], [1, 0, 0, 1], [0, 1, 1, 0]])

    def test_shapes_are_padded(self):
        np.testing.assert_allclose(self.columns(output_shape=True), np.log1p([[8, 0], [2, 3], [0, 0]]), rtol=1e-6)

    def test_each_can_be_left_out(self):
        everything = node_features(self.graph, self.coarse, FeatureConfig()).shape[1]
        for name in ("op_type", "degrees", "fractal", "node_id", "output_shape"):
            assert node_features(self.graph, self.coarse, FeatureConfig(**{name: False})).shape[1] < everything
        with pytest.raises(InputError, match="every feature is switched off"):
            self.columns()


def dense(n, edges):
    a = np.zeros((n, n))
    a[edges[:, 0], edges[:, 1]] = a[edges[:, 1], edges[:, 0]] = 1.0
    return a


@pytest.mark.parametrize("seed", range(3))
def test_equation_6_normalised_adjacency(seed):
    edges = undirected(random_dag(20, seed), 20)
    a = dense(20, edges) + np.eye(20)
    d = np.diag(a.sum(axis=1) ** -0.5)
    made, found = adjacency(20, edges), np.zeros((20, 20))
    row = np.repeat(np.arange(20), np.diff(made.pointer))
    found[row, made.column] = made.weight
    np.testing.assert_allclose(found, d @ a @ d, rtol=1e-6)
    assert (np.diff(row * 20 + made.column) > 0).all(), "rows and columns ascend"


def parsed_by_loop(n, edges, scores):
    """Equation 9 and Algorithm 2 word for word on a dense score matrix."""
    c = np.full((n, n), -1.0)
    for (a, b), s in zip(edges, scores, strict=True):
        c[a, b] = c[b, a] = s
    kept = np.zeros((n, n))
    for v in range(n):
        if c[v].max() >= 0:
            u = int(c[v].argmax())
            kept[v, u] = c[v, u]
    groups, count = np.full(n, -1), 0
    while kept.sum():
        members = set(np.unravel_index(kept.argmax(), kept.shape))
        grown = 0
        while len(members) != grown:
            grown = len(members)
            for i in list(members):
                members |= set(np.flatnonzero(kept[i])) | set(np.flatnonzero(kept[:, i]))
        for i in members:
            groups[i] = count
            kept[i, :] = kept[:, i] = 0.0
        count += 1
    for v in np.flatnonzero(groups < 0):
        groups[v], count = count, count + 1
    return groups


@pytest.mark.parametrize("seed", range(6))
def test_equations_9_to_11_parse_and_pool(seed):
    edges = undirected(random_dag(35, seed), 35)
    scores = np.random.default_rng(seed).uniform(0.1, 1, len(edges))
    labels = parse(35, edges, scores)
    assert same_partition(labels, parsed_by_loop(35, edges, scores))
    groups = int(labels.max()) + 1
    assert 1 < groups < 35
    x = np.zeros((35, groups))
    x[np.arange(35), labels] = 1.0
    pooled = x.T @ dense(35, edges) @ x > 0
    np.fill_diagonal(pooled, False)
    np.testing.assert_array_equal(dense(groups, pool(edges, labels, groups)) > 0, pooled)


def test_parsing_survives_ties_isolated_nodes_and_no_edges():
    assert parse(3, np.empty((0, 2), dtype=np.int64), np.empty(0)).tolist() == [0, 1, 2]
    ring = undirected(np.array([(0, 1), (1, 2), (2, 3), (0, 3)]), 5)
    assert dominant(5, ring, np.ones(4)).tolist() == [True, True, True, False]
    assert len(set(parse(5, ring, np.ones(4)).tolist())) == 2


def hsdag(problem=None, **config):
    small = {"hidden_channel": 12, "update_timestep": 6}
    return make("hsdag", problem or random_problem(25, 3, seed=4), **{**small, **config})


def measured(method, n=6):
    (proposal,) = method.propose(n)
    return Simulator().evaluate(method.problem, proposal.placements)


@pytest.mark.parametrize("levels", [1, 2, 0])
def test_one_pass_over_an_episode_equals_its_steps_one_by_one(levels):
    method = hsdag(levels=levels)
    method.propose(6)
    if levels == 0:
        assert len({len(s.levels) for s in method.steps}) > 1, "steps of different depth are what is hard"
    together, _ = log_probabilities(method.network, method.features, side_by_side(method.steps), 6)
    singly = [log_probabilities(method.network, method.features, side_by_side([s]), 1)[0] for s in method.steps]
    torch.testing.assert_close(together, torch.cat(singly))


def test_a_step_is_what_the_equations_say():
    """Encoding, scores, partition, pooling, state renewal and log p of an episode that parses once a step, in dense algebra."""
    method = hsdag(dropout_network=0.0, levels=1)
    method.propose(3)
    net, n = method.network, method.coarse.n_nodes
    a = torch.from_numpy(dense(n, method.edges) + np.eye(n)).float()
    d = torch.diag(a.sum(dim=1) ** -0.5)
    memory = torch.zeros(n, 12)
    for step in method.steps:
        torch.testing.assert_close(step.memory, memory)
        z = net.input(method.features) + memory
        for layer, norm in zip(net.gcn, net.norms, strict=True):
            z = norm(z + torch.relu(d @ a @ d @ (z @ layer.weight.T + layer.bias)))
        z = torch.relu(z)
        scores = np.array([torch.sigmoid(net.phi(z[u] * z[v])).item() for u, v in method.edges])
        labels = step.levels[0].labels
        assert same_partition(labels, parsed_by_loop(n, method.edges, scores))
        log_p, pooled = torch.zeros(()), []
        for c in range(step.levels[0].groups):
            members = np.flatnonzero(labels == c)
            inside = [s for s, (u, v) in zip(scores, method.edges, strict=True) if labels[u] == labels[v] == c]
            pooled.append(z[members].mean(dim=0) * (np.mean(inside) if inside else 1.0))
            log_p = log_p + torch.log_softmax(net.placer(pooled[-1]), dim=0)[step.choice[c]]
        memory = (memory + torch.stack(pooled)[labels]).detach()
        found, _ = log_probabilities(net, method.features, side_by_side([step]), 1)
        torch.testing.assert_close(found[0], log_p, rtol=1e-4, atol=1e-4)


def test_equation_14_weighs_each_step_by_its_own_discounted_reward():
    method = hsdag(discount=0.9)
    np.testing.assert_allclose(method.weights(np.array([5.0, 2.0, 1.0])), [5 * 0.9, 2 * 0.81, 0.729])
    method = hsdag(baseline="episode", normalize=True, discount_steps=False)
    rewards = np.array([5.0, 2.0, 2.0])
    np.testing.assert_allclose(method.weights(rewards), (rewards - 3.0) / rewards.std())


def test_ranks_do_not_let_one_slow_placement_drown_out_the_others():
    method = hsdag(ranks=True, discount_steps=False)
    np.testing.assert_allclose(method.weights(np.array([5.0, 0.01, 4.9, 4.9])), [1.0, -1.0, 0.0, 0.0])


def test_exploring_draws_every_device_where_the_policy_is_sure():
    problem = random_problem(25, 3, seed=4)
    sure = np.tile(np.log([1.0 - 2e-9, 1e-9, 1e-9]), (3000, 1))
    assert (hsdag(problem)._drawn(sure, greedy=False) == 0).all()
    drawn = np.bincount(hsdag(problem, explore=900.0)._drawn(sure, greedy=False), minlength=3) / 3000
    np.testing.assert_allclose(drawn, [0.8, 0.1, 0.1], atol=0.03)
    forbidden = np.where([True, False, True], np.log(0.5), -np.inf)[None].repeat(500, 0)
    assert 1 not in hsdag(problem, explore=450.0)._drawn(forbidden, greedy=False)


@pytest.mark.parametrize("levels", [1, 0])
def test_imitation_draws_the_policy_to_the_best_placement(levels):
    method = hsdag(imitate=5.0, levels=levels, learning_rate=3e-3)
    method.update([measured(method)])
    best = method.best_devices.copy()
    assert method.best < np.inf
    before = agreement(method, best)
    for _ in range(15):
        method.best, method.best_devices = 0.0, best
        method.update([measured(method)])
    assert agreement(method, best) > max(before, 0.6)


def agreement(method, best):
    method.propose(6)
    groups = np.concatenate([s.choice for s in sorted(method.steps, key=lambda s: len(s.levels))])
    wanted = majority(method.steps, best, 3)
    method.steps, method.memory = [], method._no_memory()
    return np.mean(groups == wanted)


def test_the_device_of_a_group_is_that_of_most_of_its_nodes():
    labels = np.array([0, 0, 0, 1, 1])
    allowed = np.array([[True, True, True], [True, False, True]])
    step = Step(torch.zeros(5, 1), [Level(np.empty((0, 2), dtype=np.int64), labels, 2)], allowed, np.zeros(2, dtype=np.int64))
    np.testing.assert_array_equal(majority([step], np.array([2, 2, 0, 1, 2]), 3), [2, 2])


def test_an_update_follows_the_gradient_of_equation_14():
    method = hsdag(K_epochs=1)
    result = measured(method)
    steps = list(method.steps)
    log_p, _ = log_probabilities(method.network, method.features, side_by_side(steps), 6)
    loss = sum(-lp * 0.95 ** (i + 1) / float(result.seconds[i]) for i, lp in enumerate(log_p))
    gradient = torch.autograd.grad(loss, list(method.network.parameters()))
    before = [p.detach().clone() for p in method.network.parameters()]
    method.update([result])
    largest = max(float(g.abs().max()) for g in gradient)
    for p, old, g in zip(method.network.parameters(), before, gradient, strict=True):
        torch.testing.assert_close(p.grad, g, rtol=1e-3, atol=1e-5 * largest)
        big = g.abs() > 1e-3
        torch.testing.assert_close(p.detach()[big], (old - 1e-4 * g.sign())[big], rtol=0, atol=2e-6)  # Adam's first step


def test_edge_scores_are_learned():
    method = hsdag(K_epochs=1)
    before = method.network.phi[0].weight.detach().clone()
    method.update([measured(method)])
    assert (method.network.phi[0].weight != before).any()


def test_an_episode_does_not_depend_on_how_it_is_asked_for():
    whole, parts = hsdag(), hsdag()
    first = whole.propose(6)[0].placements
    pieces = [parts.propose(n)[0].placements for n in (1, 3, 9)]
    np.testing.assert_array_equal(first, np.concatenate(pieces))


def test_it_stops_after_the_episodes_of_table_6():
    method = hsdag(max_episodes=2, update_timestep=4)
    assert len(go(method, 100).placements) == 8
    assert method.report() == {"groups": method.coarse.n_nodes, "episodes": 2.0, "updates": 8.0}


def test_it_learns_which_device_is_fast():
    """One device far faster: the policy must come to prefer it."""
    p = random_problem(20, 2, seed=3)
    fast = dataclasses.replace(p, network=dataclasses.replace(p.network, speed=np.array([1.0, 20.0])))
    method = make("hsdag", fast, learning_rate=3e-3, baseline="episode", normalize=True, max_episodes=0, hidden_channel=32)
    run = go(method, 600, ask=20)
    early, late = np.mean(run.placements[:40]), np.mean(run.placements[-40:])
    assert late > 0.9 > early


def test_constraints_hold_when_groups_share_no_device():
    problem = constrained_toy()
    run = go(hsdag(problem, levels=0, dropout_network=0.0), 24)
    assert problem.valid(np.stack(run.placements)).all()


@pytest.mark.parametrize("bad", [{"levels": -1}, {"dropout_network": 1.0}, {"K_epochs": 0}, {"explore": -1.0}])
def test_impossible_settings_are_refused(bad):
    with pytest.raises(InputError, match=next(iter(bad))):
        hsdag(**bad)


def test_a_policy_goes_on_from_another_trial_of_the_same_graph():
    problem = random_problem(12, 2, 0)
    first, second = hsdag(problem, max_episodes=0), hsdag(problem, max_episodes=0)
    for _ in range(3):
        first.update([measured(first)])
    second.load_policy(first.policy())
    for name, value in first.network.state_dict().items():
        assert torch.equal(value, second.network.state_dict()[name])
    with pytest.raises(InputError, match="does not fit this configuration of Hsdag"):
        hsdag(random_problem(12, 3, 0)).load_policy(first.policy())
