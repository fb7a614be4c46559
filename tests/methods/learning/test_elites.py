"""What GDP and Mars can do beyond the papers: kept placements, regions, imitation, demonstration."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from envs.problem.errors import InputError
from envs.simulators.fifo.evaluator import Simulator
from methods.contract.registry import build
from methods.learning.elites import Elites
from methods.nets.decisions import decide
from methods.nets.op_features import OpFeatureConfig, op_graph
from methods.placing.coarsening import coarsen
from methods.placing.regions import Regions
from methods.placing.starts import good_starts
from methods.testing.problems import brute_force, constrained_toy, random_problem, toy
from methods.testing.running import go, make
from orchestration.specs.state_files import load_state, save_state

BEYOND = {"keep": 4, "imitate": 0.5, "vary": 0.5, "critical": 0.5, "regions": 8}


def regions(problem):
    return Regions(problem, coarsen(problem, "none"))


def test_the_best_different_placements_are_kept():
    elites = Elites(2, 3)
    elites.add(np.array([[0, 0, 0], [1, 1, 1], [0, 0, 0]]), np.array([-2.0, -1.0, -2.0]))
    elites.add(np.array([[2, 2, 2], [1, 1, 1]]), np.array([-1.5, -1.0]))
    assert elites.actions.tolist() == [[1, 1, 1], [2, 2, 2]]
    assert elites.rewards.tolist() == [-1.0, -1.5]
    assert set(elites.pick(50, np.random.default_rng(0)).tolist()) == {0, 1}


def near(seed):
    """Regions around units, not stretches."""
    rng = np.random.default_rng(seed)
    return SimpleNamespace(random=lambda: 1.0, uniform=rng.uniform, choice=rng.choice, exponential=rng.exponential, integers=rng.integers)


def test_a_partition_has_the_regions_it_was_asked_for_and_each_hangs_together():
    problem, rng = random_problem(40, 3, seed=0), near(0)
    made = regions(problem)
    counts = set()
    for _ in range(50):
        label = made.partition(rng, 6)
        counts.add(len(np.unique(label)))
        for k in np.unique(label):
            inside = set(np.flatnonzero(label == k).tolist())
            reached, stack = set(), [min(inside)]
            while stack:
                v = stack.pop()
                reached.add(v)
                stack += [w for pair in made.pairs.tolist() if v in pair for w in pair if w in inside and w not in reached]
            assert reached == inside
    assert counts == {1, 2, 3, 4, 5, 6}


def test_what_exchanges_much_is_seldom_parted():
    problem, rng = random_problem(40, 3, seed=0), near(0)
    made = regions(problem)
    made.pull = np.where(np.arange(len(made.pairs)) % 2, 1.0, 0.1)
    cut = np.mean([np.diff(made.partition(rng, 6)[made.pairs], axis=1)[:, 0] != 0 for _ in range(100)], axis=0)
    assert cut[1::2].mean() < 0.8 * cut[::2].mean()


def test_stretches_follow_the_layers():
    problem = random_problem(40, 3, seed=0)
    problem = replace(problem, graph=replace(problem.graph, layer=np.arange(40, dtype=np.int32)[::-1] // 10))
    made, rng = regions(problem), np.random.default_rng(0)
    made._lengths = None  # only stretches are drawn from here on
    rng = SimpleNamespace(random=lambda: 0.0, uniform=rng.uniform, choice=rng.choice, integers=rng.integers)
    layers = problem.graph.layer[coarsen(problem, "none").last][made.order]
    assert (np.diff(layers) >= 0).all()
    for _ in range(20):
        label = made.partition(rng, 6)[made.order]
        assert set(np.diff(label).tolist()) <= {0, 1} and label[0] == 0
        placed = np.arange(40) % 2
        at = made.order[np.flatnonzero(made.around(rng, placed, np.array([7]))[made.order])]
        assert at[0] == 7 and (placed[at] == 1).all() and len(at) <= 20


def test_given_decisions_are_kept_and_the_rest_drawn():
    logits, noise = torch.zeros(1, 4, 3), torch.zeros(2, 4, 3)
    noise[1, 2, 1] = 5.0
    made = decide(logits, None, torch.tensor([[2, -1, 1, 0], [2, 2, -1, -1]]), noise)
    assert made.actions.tolist() == [[2, 0, 1, 0], [2, 2, 1, 0]]


@pytest.mark.parametrize("name", ["gdp", "mars"])
def test_a_varied_placement_is_a_kept_one_but_for_one_region(name):
    problem = random_problem(30, 3, seed=1)
    method = make(name, problem, search=BEYOND)
    count = method.learning.samples
    proposals = method.propose(count)
    assert all(s.reference is None for s in method._asked[0])
    method.update([Simulator().evaluate(problem, p.placements, 0) for p in proposals])
    kept = method.elites[0]
    method.propose(count)
    varied = [s for s in method._asked[0] if s.reference is not None]
    assert len(varied) == count // 2
    for sample in varied:
        source = kept.actions[kept.rewards.tolist().index(sample.reference)]
        np.testing.assert_array_equal(sample.actions[~sample.drawn], source[~sample.drawn])
        assert (sample.actions != source).any()
        assert 1 <= sample.drawn.sum() <= 15


def test_only_what_was_drawn_is_learned_from():
    method = make("gdp", random_problem(30, 3, seed=1), search={"keep": 4, "vary": 0.5})
    go(method, 40)
    sample = next(s for s in method.samples if s.reference is not None)
    row = method.samples.index(sample)
    shares = method._shares(np.array([row])).numpy()[0]
    assert (shares[~sample.drawn] == 0).all()
    assert shares.sum() == pytest.approx(30, rel=1e-5)


def test_whitened_advantages_have_no_common_sign_in_any_problem():
    problems = [toy(), random_problem(20, 3, seed=1)]
    method = build("gdp", {"size": 16, "segment": 8, "learning": {"normalize": True, "samples": 8, "window": 8}}, problems, 0)
    proposals = method.propose(16)
    method.update([Simulator().evaluate(problems[p.problem], p.placements, 0) for p in proposals])
    values, of = method._whitened(), np.array([s.problem for s in method.samples])
    for k in (0, 1):
        assert values[of == k].mean() == pytest.approx(0.0, abs=1e-9)
        assert values[of == k].std() == pytest.approx(1.0)


def test_demonstrations_come_first_and_are_not_taken_for_the_policys():
    problem = random_problem(30, 3, seed=1)
    method = make("gdp", problem, search={"keep": 4, "vary": 0.5, "demonstrate": True})
    starts = good_starts(problem, int(method.seed.generate_state(1)[0] >> 1))
    found = []
    for _ in range(3):
        proposals = method.propose(10)
        found += [p for p, s in zip(proposals[0].placements, method._asked[0], strict=True) if s.drawn is not None and not s.drawn.any()]
        method.update([Simulator().evaluate(problem, p.placements, 0) for p in proposals])
    np.testing.assert_array_equal(np.stack(found), starts)


@pytest.mark.parametrize("name", ["gdp", "mars"])
def test_goes_on_bit_for_bit_after_a_restore(name, tmp_path):
    problem = random_problem(12, 3, seed=2)
    whole = go(make(name, problem, search=BEYOND), 60, ask=5)
    before = make(name, problem, search=BEYOND)
    begun = go(before, 60, ask=5, rounds=5)
    save_state(tmp_path / "state.safetensors", before.state())
    after = make(name, problem, search=BEYOND)
    after.restore(load_state(tmp_path / "state.safetensors"))
    assert begun.objective + go(after, 60 - len(begun.objective), ask=5).objective == whole.objective


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["gdp", "mars"])
def test_finds_the_best_of_a_toy_problem_and_respects_constraints(name):
    problem = toy()
    best, mean = brute_force(problem)
    assert go(make(name, problem, search=BEYOND), 200).best <= best + 0.1 * (mean - best)
    run = go(make(name, constrained_toy(), search=BEYOND), 60)
    assert constrained_toy().valid(np.stack(run.placements)).all()


@pytest.mark.parametrize("name", ["gdp", "mars"])
def test_standardized_embeddings_tell_operations_apart(name):
    problem = random_problem(60, 3, seed=3)
    view = op_graph(problem, build(name, {}, [problem], 0).config.features, 3)
    plain, apart = (build(name, {"standardize": s}, [problem], 0).network.embedding(view).detach() for s in (False, True))
    assert float(plain.mean(dim=0).norm()) > float(plain.std(dim=0).norm())
    torch.testing.assert_close(apart.mean(dim=0), torch.zeros(apart.shape[1]), atol=1e-4, rtol=0)
    assert float(apart.std(dim=0).median()) > 0.9


def test_places_are_features():
    view = op_graph(random_problem(20, 3, seed=1), OpFeatureConfig(place=True), 3)
    assert view.numbers.shape[1] == OpFeatureConfig(place=True).count
    assert len(np.unique(view.numbers.numpy().round(4), axis=0)) == 20


def test_refuses_what_has_nothing_to_work_on():
    with pytest.raises(InputError, match="set 'keep'"):
        build("gdp", {"search.vary": 0.5}, [toy()], 0)
    with pytest.raises(InputError, match="from 0 to 1"):
        build("gdp", {"search": {"keep": 2, "vary": 1.5}}, [toy()], 0)
