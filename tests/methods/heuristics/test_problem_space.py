import numpy as np
import pytest

from envs.problem.errors import InputError
from envs.simulators.fifo.evaluator import Simulator
from methods.contract.registry import configure
from methods.placing.constraints import fit_memory
from methods.placing.list_scheduling import cpop, heft
from methods.placing.starts import good_starts
from methods.placing.varied_schedules import KINDS, varied_schedules
from methods.testing.problems import brute_force, constrained_toy, random_problem, topcuoglu, toy
from methods.testing.running import go, make


@pytest.mark.parametrize("make_toy", [toy, constrained_toy])
def test_finds_the_optimum_of_toys(make_toy):
    problem = make_toy()
    assert go(make("problem-space", problem), 400).best == pytest.approx(brute_force(problem)[0])


@pytest.mark.parametrize("problem", [topcuoglu(), random_problem(60, 5, 3), constrained_toy()])
def test_without_variation_its_schedules_are_the_heuristics_own(problem):
    rows = varied_schedules(problem, np.ones((KINDS, problem.n_nodes, 1)), np.ones(KINDS), np.arange(KINDS))
    np.testing.assert_array_equal(rows[0], heft(problem).device)
    np.testing.assert_array_equal(rows[1], cpop(problem).device)
    assert problem.valid(rows).all()


def test_a_factor_on_one_device_moves_operations_away_from_it_and_pinned_ones_stay():
    problem = random_problem(40, 3, 0, links=100.0)
    factors = np.ones((1, 40, 3))
    factors[:, :, 0] = 1e3
    row = varied_schedules(problem, factors, np.ones(1), np.zeros(1, dtype=np.int64))[0]
    assert not (row == 0).any()
    pinned = np.where(np.arange(40) < 20, 0, -1).astype(np.int16)[None]
    row = varied_schedules(problem, factors, np.ones(1), np.zeros(1, dtype=np.int64), pinned)[0]
    assert (row[:20] == 0).all() and not (row[20:] == 0).any()


@pytest.mark.parametrize("problem", [random_problem(60, 4, 1), random_problem(150, 6, 2)])
def test_is_never_worse_than_its_starts_and_improves_on_them(problem):
    starts = fit_memory(problem, good_starts(problem, 0))
    best = Simulator().evaluate(problem, starts).objective.min()
    assert go(make("problem-space", problem), 300).best < best


def test_does_not_propose_a_placement_twice_while_others_are_at_hand():
    run = go(make("problem-space", random_problem(30, 3, 0)), 500)
    assert len({p.tobytes() for p in run.placements}) > 480


@pytest.mark.parametrize("bad", [{"batch": 0}, {"step": 0.0}, {"moves": 1.5}, {"greed": 0.0}])
def test_refuses_impossible_settings(bad):
    with pytest.raises(InputError):
        configure("problem-space", bad)
