"""GiPH's features, masks, variants and learning; what every method must do is in test_contract."""

import itertools

import numpy as np
import pytest
import torch

from envs.problem.errors import InputError
from envs.problem.problem import Problem
from envs.simulators.fifo.evaluator import Simulator
from envs.simulators.relocation import placement_in_force, relocation_seconds
from methods.contract.registry import build
from methods.learning.reinforce import LearningConfig, advantages, step_weights
from methods.learning.stepwise import Steps
from methods.nets.gpnet import GpNets, make_layout
from methods.nets.gpnet_features import node_features, out_edge_means
from methods.testing.problems import constrained_toy, random_problem, toy
from methods.testing.running import go
from tests.methods.gpnets import constrained, labelled_edges, random_placement

VARIANTS = ["giph", "giph-k", "giph-ne", "graphsage-ne", "giph-ne-pol", "giph-task-eft"]


def earliest_start(
    problem: Problem, placement: np.ndarray, finish: np.ndarray, ready: np.ndarray, task: int, device: int, queue: bool
) -> float:
    graph, net = problem.graph, problem.network
    inputs = [
        finish[u] + net.delay[placement[u], device] + nbytes * net.seconds_per_byte[placement[u], device]
        for (u, v), nbytes in zip(graph.edges.tolist(), graph.edge_bytes, strict=True)
        if v == task
    ]
    arrival = max(inputs, default=0.0)
    ahead = [finish[q] for q in range(problem.n_nodes) if queue and q != task and placement[q] == device and ready[q] <= arrival]
    return max([arrival, *ahead])


@pytest.mark.parametrize("potential", ["inputs", "queue"])
def test_node_features_are_those_of_appendix_b7(potential):
    problem = constrained(10, 3, seed=4)
    placement = random_placement(problem, np.random.default_rng(0))
    trace = Simulator().evaluate(problem, placement[None, :], 0, trace=True)
    start, finish = trace.start[0], trace.finish[0]
    ready = np.array([earliest_start(problem, placement, finish, start, v, placement[v], False) for v in range(10)])
    layout = make_layout([problem], scaling="unit")
    nets = GpNets(layout, np.zeros(1), placement)
    raw = node_features(nets, start, finish, potential, rescale=False) / layout.node_scale[0]
    for x, task, device in zip(raw, nets.option_tasks(), nets.device, strict=True):
        begin = earliest_start(problem, placement, finish, ready, task, device, potential == "queue")
        expected = [problem.graph.flops[task], problem.network.speed[device], problem.compute_seconds[task, device], begin - start[task]]
        np.testing.assert_allclose(x, expected, rtol=1e-5, atol=1e-5)
    if potential == "queue":
        np.testing.assert_allclose(raw[nets.pivot, 3], 0, atol=1e-5)  # the simulator's own start is the earliest on the own device


def test_path_features_foretell_the_makespan_of_a_move():
    """On a device of its own for every task there are no queues, so lateness is exactly what a move adds to the makespan."""
    n = 9
    base = random_problem(n, 2 * n, seed=3)
    allowed = np.zeros((n, 2 * n), dtype=bool)
    allowed[np.arange(n), np.arange(n)] = allowed[np.arange(n), n + np.arange(n)] = True
    problem, placement = Problem(base.graph, base.network, allowed=allowed), np.arange(n)
    trace = Simulator().evaluate(problem, placement[None, :], 0, trace=True)
    layout = make_layout([problem], scaling="unit")
    nets = GpNets(layout, np.zeros(1), placement)
    features = node_features(nets, trace.start[0], trace.finish[0], paths=True, rescale=False)
    gain, slack, late = (features[:, 4:].astype(np.float64) / layout.node_scale[0, 3]).T
    makespan, moved_on = trace.seconds[0], 0
    for k, (task, device) in enumerate(zip(nets.option_tasks(), nets.device, strict=True)):
        moved = placement.copy()
        moved[task] = device
        after = Simulator().evaluate(problem, moved[None, :], 0, trace=True)
        np.testing.assert_allclose(gain[k], after.finish[0, task] - trace.finish[0, task], atol=1e-4)
        np.testing.assert_allclose(max(late[k], 0), max(after.seconds[0] - makespan, 0), atol=1e-4)
        moved_on += late[k] > 0
    assert 0 < moved_on < len(late)
    critical = np.isclose(slack, 0, atol=1e-4)
    np.testing.assert_allclose(late[nets.pivot], -slack[nets.pivot], atol=1e-4)
    assert critical[nets.pivot].any() and (slack > -1e-4).all() and not critical.all()


def test_rescaled_features_fill_their_range_state_by_state():
    problems = [constrained(10, 3, 1), constrained(7, 4, 2)]
    rng = np.random.default_rng(0)
    placements = [random_placement(p, rng) for p in problems]
    traces = [Simulator().evaluate(p, x[None, :], 0, trace=True) for p, x in zip(problems, placements, strict=True)]
    start, finish = (np.concatenate([getattr(t, key)[0] for t in traces]) for key in ("start", "finish"))
    nets = GpNets(make_layout(problems), np.arange(2), np.concatenate(placements))
    features = node_features(nets, start, finish)
    for s in range(2):
        rows = features[nets.states.option_at[s] : nets.states.option_at[s + 1]]
        np.testing.assert_allclose(rows[:, 3].min(), -1, atol=1e-6)
        np.testing.assert_allclose(rows[:, 3].max(), 1, atol=1e-6)
        assert np.abs(rows).max() <= 1 + 1e-6
    assert node_features(nets, start, finish, "none").shape == (nets.n_options, 3)


def test_out_edge_means():
    problem = constrained(8, 3, 2)
    nets = GpNets(make_layout([problem], scaling="unit"), np.zeros(1), random_placement(problem, np.random.default_rng(0)))
    edges, means = labelled_edges(nets), out_edge_means(nets) / nets.layout.edge_scale[0]
    for label, mean in zip(zip(nets.option_tasks().tolist(), nets.device.tolist(), strict=True), means, strict=True):
        leaving = [x for (u, _), x in edges.items() if u == label]
        np.testing.assert_allclose(mean, np.mean(leaving, axis=0) if leaving else np.zeros(4), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("variant", VARIANTS)
def test_no_move_is_empty_and_no_group_moves_twice_running(variant):
    problem = constrained(8, 3, 1, groups=True)
    run = go(build("giph", {"variant": variant, "length": 5.0, "episodes": 1}, [problem], 1), 1000)
    changed = np.diff(np.stack(run.placements), axis=0) != 0
    moved = [set(problem.leaders[row].tolist()) for row in changed]
    assert all(len(m) == 1 or (variant == "giph-task-eft" and not m) for m in moved)  # EFT may leave a task where it is
    assert all(not a & b for a, b in itertools.pairwise(moved))


def test_the_task_chosen_last_is_masked_even_if_it_stayed():
    method = build("giph", {"variant": "giph-task-eft", "episodes": 1}, [constrained(8, 3, 1)], 1)
    stayed = 0
    for _ in range(16):
        run = go(method, 1)
        e, before = method.lanes[0], run.placements[0]
        nets = method._nets([Steps(e, e.now, e.now + 1)])
        _, allowed = method._scores(nets, [Steps(e, e.now, e.now + 1)])
        if e.last[e.now] >= 0:
            assert not allowed[nets.pivot[e.last[e.now]]]
            stayed += int((e.placement[e.now - 1] == before).all())
    assert stayed


def test_the_only_task_that_can_move_may_move_again():
    problem = random_problem(4, 3, seed=0)
    allowed = np.zeros((4, 3), dtype=bool)
    allowed[:, 0] = allowed[2] = True
    run = go(build("giph", {"episodes": 1}, [Problem(problem.graph, problem.network, allowed=allowed)], 0), 99)
    assert len(run.placements) == 2 * 4 + 1
    assert all((a != b).sum() == 1 and a[2] != b[2] for a, b in itertools.pairwise(run.placements))


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_variant_learns_from_the_states_it_acted_in(variant):
    """With greedy steps, the replayed probabilities must be highest for the choices made; and then the weights must change."""
    problems = [constrained(7, 3, 1), constrained(5, 4, 2)]
    method = build("giph", {"variant": variant, "greedy": True, "batch": 3, "learning": {"entropy": 0.01}}, problems, 0)
    go(method, 3 * 9)
    before = method.policy()["network"]
    for e in method.lanes:
        assert e.step == 8
        for t in range(e.step):
            log_p, entropy = method._log_probs([Steps(e, t, t + 1)])
            nets = method._nets([Steps(e, t, t + 1)])
            scores, allowed = method._scores(nets, [Steps(e, t, t + 1)])
            assert allowed[e.action[t]]
            every = torch.log_softmax(scores.masked_fill(torch.from_numpy(~allowed), -torch.inf), 0)
            torch.testing.assert_close(log_p[0], every.max())
            torch.testing.assert_close(entropy[0], torch.special.entr(every.exp()).sum())
    go(method, 100, rounds=10)
    assert method.learner.updates == 1
    assert all(not torch.equal(before[key], value) for key, value in method.policy()["network"].items() if not key.endswith("2.bias"))


def test_parts_of_an_update_add_up(monkeypatch):
    methods = []
    for room in (100_000, 40):
        monkeypatch.setattr("methods.learning.stepwise.OPTIONS_AT_ONCE", room)
        methods.append(build("giph", {"batch": 2}, [toy(), constrained(6, 3, 1)], 3))
        go(methods[-1], 2 * 19)
    assert methods[0].learner.updates == 1
    for a, b in zip(*(m.network.parameters() for m in methods), strict=True):
        torch.testing.assert_close(a.grad, b.grad, rtol=1e-3, atol=1e-6)


def test_learning_beats_not_learning():
    problem = random_problem(10, 4, seed=3, links=8.0)
    settings = {"scaling": "unit", "paths": True, "potential": "queue"}
    learning = {"baseline": "others", "normalize": True, "learning_rate": 0.03}
    trained = build("giph", {**settings, "batch": 8, "repeats": 4, "learning": learning}, [problem], 0)
    go(trained, 21 * 8 * 20)
    scores = []
    for policy in (trained.policy(), None):
        search = build("giph", {**settings, "learn": False}, [problem], 1)
        if policy:
            search.load_policy(policy)
        scores.append(np.mean(go(search, 21 * 8).objective))
    assert scores[0] < 0.8 * scores[1]


def test_repeats_share_problem_and_start_and_rewards_can_count_against_the_best():
    problems = [constrained(7, 3, 1), constrained(5, 4, 2)]
    method = build("giph", {"batch": 4, "repeats": 2, "reward": "best"}, problems, 0)
    run = go(method, 4 * 9)
    for first, second in (method.lanes[:2], method.lanes[2:]):
        assert first.problem == second.problem
        np.testing.assert_array_equal(first.placement[0], second.placement[0])
        assert (first.placement != second.placement).any()
    lane, objective = method.lanes[0], np.array(run.objective).reshape(9, 4)[:, 0]
    best = np.minimum.accumulate(objective)
    np.testing.assert_allclose(lane.reward[:8], -np.diff(best) / objective[0])


def test_one_policy_places_any_problem_and_says_when_it_does_not_fit():
    policy = build("giph", {}, [toy()], 0).policy()
    search = build("giph", {"learn": False, "episodes": 1}, [constrained(15, 6, 0)], 0)
    search.load_policy(policy)
    weights = search.policy()["network"]
    run = go(search, 1000)
    assert len(run.placements) == 31
    assert all(torch.equal(weights[key], value) for key, value in search.policy()["network"].items())
    with pytest.raises(InputError, match="use the settings it was trained with"):
        build("giph", {"potential": "none"}, [toy()], 0).load_policy(policy)


def test_a_placement_that_cannot_run_costs_more_than_any_other():
    method = build("giph", {"batch": 1, "length": 20.0}, [constrained_toy()], 2)
    run = go(method, 60)
    (episode,) = method.lanes
    failed = np.flatnonzero(~np.isfinite(run.objective))
    assert failed.size and failed[0] > 0, "the toy should run out of memory now and then"
    for t in failed:
        assert t == 0 or not np.isfinite(run.objective[t - 1]) or episode.reward[t - 1] < 0
    assert np.isfinite(episode.reward).all()
    assert np.isfinite(episode.start).all()


def test_returns_baselines_and_weights_by_hand():
    rewards = [np.array([1.0, 2.0, 4.0]), np.array([0.0, 2.0])]
    config = LearningConfig(discount=0.5)
    found = advantages(rewards, config)
    np.testing.assert_allclose(found[0], [1 + 1 + 1 - 0, 2 + 2 - 1, 4 - 1.5])
    np.testing.assert_allclose(found[1], [1 - 0, 2 - 0])
    others = LearningConfig(discount=0.5, baseline="others")
    batch = advantages(rewards, others)
    np.testing.assert_allclose(batch[0], [3 - 1, 4 - 2, 4])
    np.testing.assert_allclose(batch[1], [1 - 3, 2 - 4])
    alone = advantages([*rewards, np.array([1.0])], others, groups=[0, 1, 0])
    np.testing.assert_allclose(alone[0], [3 - 1, 4, 4])
    np.testing.assert_allclose(alone[1], [1, 2])
    spread = advantages(rewards, LearningConfig(discount=0.5, normalize=True))
    np.testing.assert_allclose(np.concatenate(spread).std(), 1)
    weights = step_weights(rewards, config)
    np.testing.assert_allclose(weights[0], np.array([3, 3 * 0.5, 2.5 * 0.25]) / 2)


def shapes(name: str, **settings: object) -> list[tuple[int, ...]]:
    method = build(name, settings, [constrained(6, 3, 1)], 0)
    return [tuple(p.shape) for key, p in method.network.named_parameters() if key.endswith("weight")]


def test_networks_have_the_sizes_of_tables_4_and_5():
    """Node transform, message, update of each direction, then the score function."""
    transform, both = [(4, 4), (5, 4)], 2

    def giph(message):
        return sorted([*transform * both, *message * both, (16, 10), (1, 16)])

    for name, settings in {
        "giph": giph([(9, 9), (5, 9)]),
        "giph-k": giph([(9, 9), (5, 9)]),
        "giph-task-eft": giph([(9, 9), (5, 9)]),
        "giph-ne": sorted([*[(8, 8), (5, 8)] * both, *[(8, 5), (5, 8)] * both, (16, 10), (1, 16)]),
        "giph-ne-pol": [(1, 16), (16, 8)],
    }.items():
        assert sorted(shapes("giph", variant=name)) == settings, name
    sage = [s for s in shapes("giph", variant="graphsage-ne") if s not in ((1, 16), (16, 10))]
    assert sorted(sage) == sorted([(16, 8), (16, 16), (10, 16)] * 2)
    assert {(32, 40), (3, 32), (5, 5)} <= set(shapes("placeto"))


def test_defaults_are_those_of_section_5():
    giph, placeto = (build(name, {}, [constrained(6, 3, 1)], 0) for name in ("giph", "placeto"))
    for method in (giph, placeto):
        assert (method.config.learning.discount, method.config.learning.learning_rate) == (0.97, 0.01)
        assert not method.config.learning.normalize and method.config.learning.baseline == "earlier-rewards"
        assert method.episode_steps(method.config, method.problem) == {giph: 12, placeto: 6}[method]
    assert placeto.config.rounds == 8 and giph.config.batch == 1


@pytest.mark.parametrize("name", ["giph", "placeto"])
@pytest.mark.parametrize("settings", [{"episodes": 4, "batch": 2}, {"episodes": 5, "learn": False}])
def test_knows_how_many_placements_its_episodes_take(name, settings):
    problems = [constrained(6, 3, seed) for seed in (1, 2)]
    method = build(name, settings, problems, 0)
    wanted = method.wanted_evaluations(method.config, lambda: problems)
    assert len(go(method, 10 * wanted).objective) == wanted


def test_rounds_directions_and_edge_features_reach_the_scores():
    problem = constrained(9, 3, seed=2)
    parts = []

    def scores(variant: str, **settings: object) -> np.ndarray:
        method = build("giph", {"variant": variant, "learn": False, **settings}, [problem], 0)
        go(method, 1)
        parts[:] = [Steps(e, 0, 1) for e in method.lanes]
        return method._scores(method._nets(parts), parts)[0].detach().numpy()

    whole = scores("giph")
    assert not np.allclose(scores("giph-k", rounds=1), scores("giph-k", rounds=2))
    assert not np.allclose(scores("giph-k", rounds=2), whole)
    np.testing.assert_allclose(scores("giph-k", rounds=9), whole, atol=1e-6)  # deep enough for the longest path, and the same weights
    method = build("giph", {"learn": False}, [problem], 0)
    assert [p.reverse for p in method.network.network.passes] == [False, True]


def test_searches_under_one_seed_start_from_the_same_placement():
    problems = [random_problem(9, 3, 0), random_problem(7, 4, 1)]
    seeds = (np.random.SeedSequence([5, other], spawn_key=(0,)) for other in itertools.count())
    starts = []
    for name, config in [("giph", {}), ("giph", {"paths": True, "batch": 2}), ("placeto", {}), ("placeto", {"batch": 2})]:
        together = go(build(name, {"learn": False, "episodes": 2, **config}, problems, next(seeds)), 99)
        first = [next(p for p in together.placements if len(p) == problem.n_nodes).tolist() for problem in problems]
        alone = [
            go(build(name, {"learn": False, **config, "batch": 1}, [problem], next(seeds)), 1).placements[0].tolist()
            for problem in problems
        ]
        starts += [first, alone]
    starts.append([go(build("random-task-eft", {}, [problem], next(seeds)), 1).placements[0].tolist() for problem in problems])
    assert all(s == starts[0] for s in starts)
    other = build("giph", {"learn": False}, problems, np.random.SeedSequence([6, 0], spawn_key=(0,)))
    assert go(other, 1).placements[0].tolist() != starts[0][0]


@pytest.mark.parametrize("name", ["giph", "placeto"])
def test_a_search_in_force_begins_where_nothing_has_to_move(name):
    problems = [random_problem(9, 3, 0), constrained(8, 3, 1, groups=True)]
    method = build(name, {"learn": False, "start": "in-force", "episodes": 2, "batch": 2}, problems, 3)
    for problem, proposal in zip(problems, method.propose(2), strict=True):
        assert (proposal.placements[0] == placement_in_force(problem)).all()
        assert relocation_seconds(problem, proposal.placements).tolist() == [0.0]
