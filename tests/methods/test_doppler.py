"""DOPPLER: features by hand, compiled episodes against the networks they are learned with, the teacher, the stages."""

import numpy as np
import pytest
import torch

from envs.graphs.sharded import sharded
from envs.problem.errors import InputError
from envs.problem.graph import ComputationGraph
from envs.problem.measurement import Outcome
from envs.problem.network import DeviceNetwork
from envs.problem.problem import Problem
from envs.simulators.work_conserving.evaluator import WorkConservingSimulator
from methods.contract.registry import build
from methods.doppler.doppler import _devices
from methods.doppler.episode import BY_RULE, LEARNED, new_record, new_state, play
from methods.doppler.features import instance
from methods.doppler.network import _Choice
from methods.testing.running import go


def small(devices: int = 3) -> Problem:
    graph = sharded("ffnn", batch=64, width=8, hidden=64, rows=2, columns=2)
    return Problem(graph, DeviceNetwork(tuple(f"d{i}" for i in range(devices)), 1e9, 1e9, 1e-5))


def by_hand() -> Problem:
    """in -> a, b -> c with costs 0, 2, 4, 1 and transfers of 3 (a -> c) and 5 (b -> c) seconds."""
    graph = ComputationGraph(
        ["in", "a", "b", "c"], ["op"] * 4, [0.0, 2.0, 4.0, 1.0], np.zeros(4), [(0, 1), (0, 2), (1, 3), (2, 3)], [9.0, 9.0, 3.0, 5.0]
    )
    return Problem(graph, DeviceNetwork(("x", "y"), 1.0, 1.0, 0.0))


def test_static_features_by_hand():
    inst = instance(by_hand(), "seconds", True)
    assert inst.free.tolist() == [True, False, False, False]
    assert inst.scale == 7 / 2
    assert inst.to_exit.tolist() == [10, 6, 10, 1]
    # log of 1 + cost over the mean node's 7/4; paths over the longest, 10. Transfers of the free input cost nothing.
    unit = 7 / 4
    expected = np.array([[0, 0, 0, 10, 0], [2, 0, 3, 6, 2], [4, 0, 5, 10, 4], [1, 8, 0, 1, 10]], dtype=float)
    expected[:, :3] = np.log1p(expected[:, :3] / unit)
    expected[:, 3:] /= 10
    np.testing.assert_allclose(inst.features.numpy(), expected, rtol=1e-6)
    pairs = sorted(zip(*(x.tolist() for x in inst.b_path[:2]), strict=True))
    assert [p for p in pairs if p[0] == 3] == [(3, 0), (3, 2), (3, 3)]
    literal = instance(by_hand(), "appendix-d", False)
    assert literal.to_exit.tolist() == [36 + 4 + 20 + 1, 2 + 12 + 1, 4 + 20 + 1, 1]


def rollout(method, problem, epsilon=0.0, by=(LEARNED, LEARNED), teach=False, seed=0):
    inst = method._instance(problem)
    method.config = type(method.config)(**{**method.config.__dict__, "select": "longest-path" if by[0] else "learned"})
    method.rng = np.random.default_rng(seed)
    with torch.no_grad():
        encoded = None if method.per_step else method.network.encode(inst)
        record, placement, shown = method._play(inst, encoded, epsilon=epsilon, teach=teach)
        if encoded is None:
            encoded = method.network.encode(inst, shown)
    return inst, encoded, record, placement


def test_device_features_by_hand():
    problem = by_hand()
    inst = instance(problem, "seconds", True)
    method = build("doppler", {"hidden": 4}, [problem], 0)
    scores = method.network.scores(method.network.encode(inst))
    state, record = new_state(inst, 4), new_record(inst)
    play(inst, (0, 4), scores, BY_RULE, BY_RULE, 0.0, False, True, np.zeros((4, 4)), state, record)
    # Longest path first: in, b (on x, from 0 to 4), a (on y, from 0 to 2), then c, whose inputs are at 4 on x or 9 on y.
    assert record.node.tolist() == [0, 2, 1, 3] and record.device.tolist() == [0, 0, 1, 0]
    np.testing.assert_allclose(record.features[3] * inst.scale, [[4, 4, 0, 4, 5], [2, 2, 0, 2, 9]], rtol=1e-6)
    assert state.finish[3] * inst.scale == pytest.approx(6.0)
    # The teacher does just that.
    assert (record.teacher_node == record.node).all() and (record.teacher_device == record.device).all()
    np.testing.assert_array_equal(record.teacher_features, record.features)


@pytest.mark.parametrize("passing", ["episode", "step"])
def test_compiled_choices_are_the_networks_best(passing):
    problem = small()
    method = build("doppler", {"message_passing": passing, "hidden": 8, "rounds": 2}, [problem], 3)
    inst, encoded, record, _ = rollout(method, problem)
    with torch.no_grad():
        logits = method.network._device_log_softmax(
            encoded, *(torch.from_numpy(x[None]) for x in (record.node, record.device, record.node, record.features))
        )[0].numpy()
        for h in range(problem.n_nodes):
            nodes = encoded.select[h if passing == "step" else 0].numpy()
            assert nodes[record.node[h]] == nodes[record.candidates[h]].max()
            assert logits[h, record.device[h]] >= logits[h, record.open[h]].max() - 1e-6
        select, place, _, _ = method.network.log_probabilities(encoded, [record], teacher=False, free=np.zeros_like(inst.free))
    assert (select <= 0).all() and (place <= 0).all()


def test_probabilities_sum_to_one_and_exploration_reaches_everything():
    problem = small()
    method = build("doppler", {"hidden": 8, "rounds": 1}, [problem], 0)
    inst, encoded, record, placement = rollout(method, problem, epsilon=1.0)
    assert problem.valid(placement[None]).all() and len(set(placement.tolist())) == 3
    assert sorted(record.node.tolist()) == list(range(problem.n_nodes))
    position = np.empty(problem.n_nodes, dtype=int)
    position[record.node] = np.arange(problem.n_nodes)
    assert (position[problem.graph.edges[:, 0]] < position[problem.graph.edges[:, 1]]).all()
    total = 0
    for d in range(3):
        same = record._replace(device=np.full_like(record.device, d))
        with torch.no_grad():
            # What is on each device is taken from the record, so change the choice of the last step only.
            last = record._replace(device=np.concatenate((record.device[:-1], same.device[-1:])))
            total += method.network.log_probabilities(encoded, [last], False, np.zeros_like(inst.free))[1][0, -1].exp()
    np.testing.assert_allclose(float(total), 1.0, rtol=1e-5)


@pytest.mark.parametrize(("episodes", "shared"), [(2, True), (2, False), (1, True), (1, False)])
def test_gradient_of_choices_worked_out_by_hand_is_the_true_one(episodes, shared):
    rng = np.random.default_rng(1)
    logits = torch.from_numpy(rng.normal(size=(1, 1, 5) if shared else (episodes, 3, 5))).requires_grad_()
    candidates = torch.from_numpy(rng.random((episodes, 3, 5)) < 0.5)
    node = torch.from_numpy(rng.integers(0, 5, (episodes, 3)))
    candidates.scatter_(-1, node[..., None], True)
    selected, entropy = _Choice.apply(logits, candidates, node)
    log_p = torch.log_softmax(logits.masked_fill(~candidates, -1e9), dim=-1)
    torch.testing.assert_close(selected, log_p.gather(-1, node[..., None])[..., 0])
    torch.testing.assert_close(entropy, -(log_p.exp() * log_p).sum(dim=-1))
    assert torch.autograd.gradcheck(lambda x: _Choice.apply(x, candidates, node), logits)


def test_imitation_teaches_critical_path():
    problem = small(2)
    method = build("doppler", {"imitation_episodes": 150, "hidden": 16, "imitation_learning_rate": 1e-2}, [problem], 0)
    report = method.pretrain([problem])
    assert report["imitation_loss"] < 0.6 * report["imitation_loss_first"]
    simulator = WorkConservingSimulator()
    alone = simulator.evaluate(problem, np.zeros((1, problem.n_nodes), dtype=np.int16)).seconds[0]
    assert simulator.evaluate(problem, method.place(problem)[None]).seconds[0] < alone


def test_baseline_is_the_mean_of_earlier_rewards():
    method = build("doppler", {"standardize": False, "failure_factor": 3.0}, [small()], 0)
    found = [method.rewards.advantage(0, x) for x in (2.0, 4.0, 1.5)]
    np.testing.assert_allclose(found, [0.0, -2.0, 1.5])
    np.testing.assert_allclose(method.rewards.advantage(0, np.inf), -12.0 + 2.5)


def test_ablations_follow_critical_path_in_their_half():
    problem = small()
    method = build("doppler", {"place": "earliest-start", "hidden": 8}, [problem], 0)
    _, _, record, _ = rollout(method, problem, epsilon=0.5)
    for h in range(problem.n_nodes):
        starts = np.where(record.open[h], record.features[h, :, 4], np.inf)
        assert record.device[h] == starts.argmin()
    method = build("doppler", {"select": "longest-path", "hidden": 8}, [problem], 0)
    inst, _, record, _ = rollout(method, problem, epsilon=0.5, by=(1, 0))
    for h in range(problem.n_nodes):
        assert inst.to_exit[record.node[h]] == inst.to_exit[record.candidates[h]].max()
    with pytest.raises(InputError, match="nothing would be learned"):
        build("doppler", {"select": "longest-path", "place": "earliest-start"}, [problem], 0)


def test_policy_moves_to_other_graphs_and_device_counts():
    source = build("doppler", {"hidden": 8}, [small(2)], 0)
    target = build("doppler", {"hidden": 8}, [small(4)], 1)
    target.load_policy(source.policy())
    np.testing.assert_array_equal(target.place(small(3)), source.place(small(3)))
    with pytest.raises(InputError, match="does not fit this configuration of Doppler"):
        build("doppler", {"hidden": 16}, [small(2)], 0).load_policy(source.policy())


def test_reinforcement_learns():
    # Five operations that want to be spread over three devices.
    graph = ComputationGraph([f"n{i}" for i in range(6)], ["op"] * 6, np.ones(6), np.ones(6), [(0, i) for i in range(1, 6)], np.ones(5))
    problem = Problem(graph, DeviceNetwork(("x", "y", "z"), 1.0, 1e3, 0.0))
    method = build(
        "doppler", {"episodes": 400, "hidden": 8, "learning_rate": 1e-2, "exploration": "softmax", "episodes_per_update": 4}, [problem], 0
    )
    simulator, means = WorkConservingSimulator(inputs_everywhere=False), []
    while method.episodes < 400:
        (proposal,) = method.propose(4)
        found = simulator.evaluate(problem, proposal.placements)
        assert (found.outcome == Outcome.OK).all()
        method.update([found])
        means.append(found.seconds.mean())
    assert np.mean(means[-20:]) < 0.85 * np.mean(means[:20])


def test_the_best_episodes_take_part_in_every_update_and_in_checkpoints():
    problem = small()
    config = {"hidden": 8, "exploration": "softmax", "baseline": "others", "keep_best": 2, "episodes_per_update": 3, "positions": True}
    method, again = (build("doppler", config, [problem], 0) for _ in range(2))
    simulator = WorkConservingSimulator()

    def several(m, updates):
        seconds = []
        for _ in range(updates):
            (proposal,) = m.propose(64)
            found = simulator.evaluate(problem, proposal.placements)
            seconds += found.seconds.tolist()
            m.update([found])
        return seconds

    seconds = several(method, 4)
    assert [c for c, _ in method.best[0]] == sorted(set(seconds))[:2]
    again.restore(method.state())
    assert several(method, 3) == several(again, 3)
    gains = method._against_others(0, np.array([1.0, 2.0, 3.0]))
    np.testing.assert_allclose(gains / gains[0], [1.0, 0.0, -1.0], atol=1e-12)


def test_a_demonstration_comes_first_and_the_best_is_replayed_with_small_changes():
    problem = small()
    config = {"hidden": 8, "exploration": "softmax", "baseline": "others", "keep_best": 1, "episodes_per_update": 4, "replay": 0.5}
    method = build("doppler", {**config, "demonstrate": True, "replay_anew": 0.0}, [problem], 0)
    simulator = WorkConservingSimulator()
    lesson = build("enumerative", {}, [problem], 0).propose(1)[0].placements[0]
    for update in range(3):
        (proposal,) = method.propose(64)
        if update == 0:
            np.testing.assert_array_equal(proposal.placements[0], lesson)
        else:
            best = method.best[0][0][1]
            np.testing.assert_array_equal(proposal.placements[:2][:, best.node], [best.device, best.device])
        method.update([simulator.evaluate(problem, proposal.placements)])
    for wrong in ({"keep_best": 0}, {"replay": 1.0}, {"message_passing": "step"}):
        with pytest.raises(InputError):
            build("doppler", {**config, **wrong}, [problem], 0)


def test_replayed_moves_change_the_best_and_are_kept_where_they_improve_it():
    problem = small()
    config = {"hidden": 8, "exploration": "softmax", "baseline": "others", "keep_best": 1, "episodes_per_update": 4, "replay": 0.75}
    method = build("doppler", {**config, "replay_moves": True}, [problem], 0)
    simulator = WorkConservingSimulator()
    improved = 0
    for update in range(12):
        (proposal,) = method.propose(64)
        if update:
            best = _devices(method.best[0][0][1])
            assert (proposal.placements[:3] != best).any(axis=1).all()
        known = method.best[0][0][0] if update else np.inf
        result = simulator.evaluate(problem, proposal.placements)
        method.update([result])
        assert method.best[0][0][0] == min(known, result.objective.min())
        improved += int(update > 0 and result.objective[:3].min() < min(known, result.objective[3:].min()))
    assert improved


def test_a_stage_begins_with_the_best_of_the_one_before():
    problem = small()
    config = {"hidden": 8, "exploration": "softmax", "baseline": "others", "keep_best": 1, "episodes_per_update": 4, "demonstrate": True}
    first = build("doppler", config, [problem], 0)
    found = go(first, 40)
    policy = first.policy()
    after, again = (build("doppler", config, [problem], seed) for seed in (1, 2))
    after.load_policy(policy)
    again.restore(after.state())
    for one in (after, again):
        np.testing.assert_array_equal(one.propose(8)[0].placements[0], found.placements[int(np.argmin(found.objective))])
    elsewhere, demonstrated = (build("doppler", config, [small(2)], 1) for _ in range(2))
    elsewhere.load_policy(policy)
    np.testing.assert_array_equal(elsewhere.propose(8)[0].placements[0], demonstrated.propose(8)[0].placements[0])
    plain = build("doppler", {"hidden": 8}, [problem], 1)
    plain.load_policy(policy)
    assert not plain.inherited, "the paper's settings start from the policy alone"


def test_rate_and_exploration_fall_linearly_to_their_ends():
    problem = small()
    method = build("doppler", {"episodes": 10, "hidden": 8, "rounds": 1}, [problem], 0)
    assert method.learner.config.entropy == 1e-2
    seen = []
    for _ in range(11):
        seen.append(method.epsilon)
        go(method, 1)
    assert seen == pytest.approx([0.2 * (1 - k / 10) for k in range(11)])
    assert method.learner.optimizer.param_groups[0]["lr"] == pytest.approx(1e-7)


def test_positions_tell_shards_of_one_operator_apart():
    problem = small()
    shards = [v for v, name in enumerate(problem.graph.names) if name.startswith("XW1.")]
    alike, apart = (instance(problem, "seconds", True, positions).features[shards] for positions in (False, True))
    assert len(torch.unique(alike, dim=0)) == 1
    assert len(torch.unique(apart, dim=0)) == len(shards)
