"""HDP and the RNN placer: what their networks see, what a group is, and that they learn."""

import numpy as np
import pytest
import torch

from envs.problem.errors import InputError
from methods.contract.registry import build, configure
from methods.placing.coarsening import coarsen
from methods.rnn_placer import giph_features
from methods.testing.problems import brute_force, constrained_toy, random_problem, toy
from methods.testing.running import go, make


def test_a_group_is_the_mean_of_its_members_and_its_edges_to_groups():
    method = make("hdp", random_problem(10, 3, seed=2), groups=4)
    view, net = method.views[0], method.network
    group = torch.randint(0, 3, (2, 10), generator=torch.Generator().manual_seed(0))  # group 3 stays empty
    found, features = net.group_features(view, group), net.encoder(view)
    for s in range(2):
        for g in range(4):
            members = group[s] == g
            expected = features[members].mean(dim=0) if members.any() else torch.zeros(features.shape[1])
            torch.testing.assert_close(found[s, g, : features.shape[1]], expected)
            links = {int(group[s, v]) for u, v in view.coarse.edges if group[s, u] == g}
            assert set(torch.nonzero(found[s, g, features.shape[1] :]).flatten().tolist()) == links


def test_a_group_may_use_what_all_its_members_may():
    method = make("hdp", constrained_toy(), groups=2)
    view, net = method.views[0], method.network
    together = net.group_devices(view, torch.zeros(1, view.n, dtype=torch.int64))
    expected = view.allowed.all(dim=0)
    assert expected.any()
    assert torch.equal(together[0, 0], expected)
    assert together[0, 1].all(), "an empty group may be anywhere"


def test_one_grouping_serves_four_placements_and_empty_groups_do_not_count():
    method = make("hdp", random_problem(10, 3, seed=2), groups=9)
    method.propose(4)
    rows = method._asked[0]
    assert len(rows) == 4
    assert len({tuple(r.actions[:10].tolist()) for r in rows}) == 1
    assert len({tuple(r.actions[10:].tolist()) for r in rows}) > 1
    empty = 10 + np.setdiff1d(np.arange(9), rows[0].actions[:10])
    assert empty.size
    assert (rows[0].log_probs[empty] == 0).all()
    used = 10 + np.unique(rows[0].actions[:10])
    assert (rows[0].log_probs[used] < 0).all()


def test_scoring_gives_the_probabilities_of_the_draw():
    method = make("hdp", random_problem(10, 3, seed=2), groups=6)
    method.propose(4)
    rows = method._asked[0]
    with torch.no_grad():
        scored = method.network(method.views[0], torch.from_numpy(np.stack([r.actions for r in rows]).astype(np.int64)), None)
    np.testing.assert_allclose(scored.log_probs.numpy(), np.stack([r.log_probs for r in rows]), atol=1e-5)


def test_operations_of_a_group_share_its_device():
    method = make("hdp", random_problem(12, 3, seed=2), groups=3)
    (proposal,) = method.propose(4)
    for row, placement in zip(method._asked[0], proposal.placements, strict=True):
        unit = row.actions[:12][method.views[0].coarse.group]
        np.testing.assert_array_equal(placement, row.actions[12:][unit])


def test_sizes_are_those_of_the_paper():
    method = build("hdp", {}, [random_problem(300, 3, seed=0)], 0)
    assert method.network.grouper.weight.shape == (256, 64)
    assert method.network.placer.cell.hidden_size == 2 * method.network.placer.encoder.hidden_size == 512
    config = configure("hdp", {}).learning
    assert (config.algorithm, config.samples, config.window, config.clip) == ("reinforce", 4, 4, 1.0)
    with pytest.raises(InputError, match=r"'groups' needs .* not 0"):
        configure("hdp", {"groups": 0})


@pytest.mark.slow
@pytest.mark.parametrize(("name", "learning"), [
    ("hdp", {"learning_rate": 0.01}),
    ("hdp", {"algorithm": "ppo", "samples": 10, "window": 20, "epochs": 2, "minibatches": 1, "learning_rate": 0.01}),
    ("rnn-placer", {"learning_rate": 0.01, "patience": 0}),
], ids=["hdp-reinforce", "hdp-ppo", "rnn-placer"])  # fmt: skip
def test_learns_a_toy_problem(name, learning):
    problem = toy()
    best, mean = brute_force(problem)
    run = go(make(name, problem, seed=1, learning=learning), 320)
    assert np.mean(run.objective[-60:]) <= best + 0.6 * (mean - best)
    assert np.mean(run.objective[-60:]) < 0.9 * np.mean(run.objective[:20])


def test_the_rnn_placer_sees_what_appendix_b_7_lists():
    problem = constrained_toy()
    coarse = coarsen(problem)
    x = giph_features(problem, coarse)
    degree = int(np.bincount(coarse.edges[:, 0]).max())
    assert x.shape == (7, 3 + 1 + degree + 7)  # hardware, compute, bytes of outgoing edges, adjacency
    assert (x[:, :3].sum(axis=1) == 1).all()
    group = coarse.group[1]
    flops = np.bincount(coarse.group, weights=problem.graph.flops)
    np.testing.assert_allclose(x[:, 3], flops / flops.max(), rtol=1e-6)
    carried = problem.graph.edge_bytes[_leaving(problem, coarse, group)]
    scale = x[:, 4 : 4 + degree].sum() / problem.graph.edge_bytes[_crossing(problem, coarse)].sum()
    np.testing.assert_allclose(x[group, 4 : 4 + degree].sum(), carried.sum() * scale, rtol=1e-5)
    np.testing.assert_array_equal(x[:, -7:], x[:, -7:].T)
    assert x[:, -7:].sum() == 2 * len(coarse.edges)


def _crossing(problem, coarse):
    ends = coarse.group[problem.graph.edges]
    return ends[:, 0] != ends[:, 1]


def _leaving(problem, coarse, group):
    return _crossing(problem, coarse) & (coarse.group[problem.graph.edges[:, 0]] == group)


def test_the_rnn_placer_stops_when_nothing_improves():
    method = make("rnn-placer", toy(), learning={"patience": 3, "learning_rate": 0.0})
    run = go(method, 4000)
    last_gain = int(np.argmin(run.objective))
    assert len(run.objective) == 4 * (last_gain // 4 + 1 + 3)


def test_the_rnn_placer_serves_its_own_problem_only():
    with pytest.raises(InputError, match="no zero-shot placement"):
        make("rnn-placer", toy()).place(random_problem(9, 2, seed=1))
