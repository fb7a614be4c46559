"""Foresight: guided list scheduling, its features, its order of policies, and times that measurements correct."""

from dataclasses import replace

import numpy as np
import pytest

from envs.problem.errors import InputError
from envs.simulators.fifo.evaluator import Simulator
from envs.simulators.misjudged import Misjudged, true_problem
from methods.foresight.beliefs import Beliefs
from methods.foresight.decoding import Decoder
from methods.foresight.experts import HEURISTICS, Experts, shipped
from methods.foresight.features import GRAPH, NODE, PAIR, RANK, features
from methods.foresight.planning import PROMISE, planned
from methods.foresight.policy import SIZE, guide, initial
from methods.foresight.schedule import Guidance, guided_schedules
from methods.placing.list_scheduling import heft
from methods.placing.pipeline import best_split
from methods.testing.problems import brute_force, constrained_toy, random_problem, topcuoglu, toy
from methods.testing.running import go, make


@pytest.mark.thorough
@pytest.mark.parametrize("problem", [topcuoglu(), random_problem(60, 5, 3), constrained_toy()])
def test_without_parameters_the_policy_is_heft(problem):
    guidance = guide(features(problem, problem.compute_seconds), initial(np.random.default_rng(0))[None, :])
    assert not guidance.bias.any() and guidance.gaps.all()
    row = guided_schedules(problem, problem.compute_seconds, np.ones((1, 1, 1)), guidance).placement[0]
    np.testing.assert_array_equal(row, heft(problem).device)


def test_a_bias_drives_operations_away_and_priority_decides_who_is_served_first():
    problem = random_problem(40, 3, 0, links=100.0)
    rank = np.arange(40.0)[None]
    bias = np.zeros((1, 40, 3))
    bias[:, :, 0] = 1e6
    guidance = Guidance(bias, rank, np.zeros(1), np.ones(1), np.ones(1, dtype=bool))
    row = guided_schedules(problem, problem.compute_seconds, np.ones((1, 1, 1)), guidance).placement
    assert not (row == 0).any() and problem.valid(row).all()


def test_a_schedule_knows_when_it_ends_whatever_it_was_chosen_by():
    """HEFT's plan is HEFT's; factors and dearer transfers that change no choice change no plan; on a lone device every plan is exact."""
    problem = random_problem(60, 5, 3)
    guidance = guide(features(problem, problem.compute_seconds), np.zeros((2, SIZE)))
    found = guided_schedules(problem, problem.compute_seconds, np.ones((2, 1, 1)), guidance)
    assert found.planned == pytest.approx(heft(problem).makespan, rel=1e-12)
    twice = guided_schedules(problem, problem.compute_seconds, np.full((2, 1, 1), 2.0), guidance._replace(dearer=np.full(2, 2.0)))
    np.testing.assert_array_equal(twice.placement, found.placement)
    np.testing.assert_allclose(twice.planned, found.planned, rtol=1e-12)
    alone = random_problem(30, 1, 0)
    points = planned(Decoder(alone, shipped()), 64, np.random.default_rng(0))
    assert len(points.value) == 1 and points.value[0] == pytest.approx(alone.compute_seconds.sum() * np.exp(PROMISE), rel=0.02)


def test_what_plans_best_is_proposed_first_and_never_twice():
    problem = random_problem(100, 8, 7, links=1.0)
    few, many = (planned(Decoder(problem, shipped()), plans, np.random.default_rng(0)) for plans in (0, 320))
    assert (np.diff(few.value) > 0).all() and many.value.min() < few.value.min()
    np.testing.assert_array_equal(few.placement[0], many.placement[0])
    assert len(np.unique(many.placement, axis=0)) == len(many.placement) >= 16 and problem.valid(many.placement).all()


def test_policies_place_better_than_heft_alone_before_anything_is_measured():
    problems = [random_problem(80, 6, seed, links=1.0) for seed in range(100, 108)]
    best = {learned: [go(make("foresight", p, learned=learned), 1).best for p in problems] for learned in (True, False)}
    assert np.mean(np.log(best[True])) < np.mean(np.log(best[False]))


@pytest.mark.parametrize("problem", [topcuoglu(), random_problem(30, 4, 1), constrained_toy(), random_problem(5, 1, 0)])
def test_features_are_finite_and_of_the_promised_shape(problem):
    f = features(problem, problem.compute_seconds)
    v, d = problem.n_nodes, problem.n_devices
    assert (f.graph.shape, f.node.shape, f.pair.shape, f.rank.shape) == ((len(GRAPH),), (v, len(NODE)), (v, d, len(PAIR)), (v, len(RANK)))
    assert all(np.isfinite(x).all() for x in f) and (f.pair[problem.feasible] >= 0).all()


def test_policies_that_were_best_on_graphs_alike_come_first_and_then_those_that_complement_them():
    gains = np.zeros((2, HEURISTICS + 3))
    gains[:, HEURISTICS:] = [[-0.3, 0.0, -0.5], [0.0, -0.4, 0.3]]
    experts = Experts(np.zeros((3, SIZE)), np.array([[0.0] * len(GRAPH), [5.0] * len(GRAPH)]), gains)
    assert experts.order(np.full(len(GRAPH), 0.1), 1).tolist() == [HEURISTICS + 2]
    assert experts.order(np.full(len(GRAPH), 4.9), 2)[0] == HEURISTICS + 1
    with pytest.raises(InputError, match="another version"):
        Experts(np.zeros((2, SIZE)), experts.graphs, gains)


@pytest.mark.parametrize("make_toy", [toy, constrained_toy])
def test_finds_the_optimum_of_toys(make_toy):
    problem = make_toy()
    assert go(make("foresight", problem), 400).best == pytest.approx(brute_force(problem)[0])


def test_its_first_placement_is_its_zero_shot_placement():
    problem = random_problem(60, 4, 1)
    method = make("foresight", problem)
    np.testing.assert_array_equal(method.propose(1)[0].placements[0], method.place(problem))


def test_its_first_placement_of_a_pipeline_is_the_best_contiguous_split():
    problem = replace(random_problem(12, 3, 1, links=1.0), objective="throughput")
    split = best_split(problem).device
    np.testing.assert_array_equal(make("foresight", problem).place(problem), split)
    np.testing.assert_array_equal(make("foresight", problem).propose(1)[0].placements[0], split)


def test_shipped_policies_lower_the_makespan_of_graphs_that_they_have_not_seen():
    problems = [random_problem(80, 6, seed, links=1.0) for seed in range(100, 106)]
    ratios = [go(make("foresight", p), 10).best / Simulator().evaluate(p, heft(p).device[None]).objective[0] for p in problems]
    assert len(shipped().thetas) > 10 and np.mean(ratios) < 0.98


def test_measured_times_are_believed_and_others_are_expected_to_be_as_wrong():
    problem = random_problem(50, 3, 0)
    beliefs, truth = Beliefs(problem), true_problem(problem, 0.3)
    placements = np.zeros((1, 50), dtype=np.int16)
    assert not beliefs.update(Simulator().evaluate(problem, placements, trace=True))
    assert (beliefs.factors == 1).all()
    assert beliefs.update(Misjudged(Simulator(), 0.3).evaluate(problem, placements, trace=True))
    beliefs = Beliefs(problem)
    beliefs.update(Misjudged(Simulator(), 0.3).evaluate(problem, placements, trace=True))
    right = (truth.compute_seconds / problem.compute_seconds)[:, 0]
    np.testing.assert_allclose(beliefs.factors[:, 0], right, rtol=1e-6)
    assert beliefs.factors[:, 1:] == pytest.approx(np.exp(np.log(right).mean() + np.log(right).var() / 2))


def test_correcting_wrong_costs_pays():
    problems = [random_problem(60, 5, seed) for seed in range(4)]
    best = {}
    for refresh in (0, 2):
        values = []
        for p in problems:
            evaluator = Misjudged(Simulator(), 0.3)
            run = go(make("foresight", p, refresh=refresh), 60, evaluator=evaluator)
            values.append(run.best / evaluator.evaluate(p, heft(p).device[None]).objective[0])
        best[refresh] = np.mean(values)
    assert best[2] < best[0]
