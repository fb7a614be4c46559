import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from envs.problem.errors import InputError
from envs.problem.network import DeviceNetwork
from envs.problem.problem import Problem
from envs.simulators.bounds import lower_bound
from envs.simulators.fifo.evaluator import Simulator
from methods.contract.registry import configure
from methods.heuristics.cp_sat.model import ancestors, longest_execution
from methods.testing.problems import brute_force, chains, constrained_toy, make_graph, random_problem, topcuoglu, toy
from methods.testing.running import go, make
from tests.envs.strategies import problems, share

SMALL = {
    "toy": toy(),
    "constrained": constrained_toy(),
    "9x3": random_problem(9, 3, 0),
    "12x2": random_problem(12, 2, 1),
    "chains": chains(3, 3, 1, 3, 1),
}


@pytest.mark.parametrize("fifo_nodes", [32, 0])
@pytest.mark.parametrize("name", SMALL)
def test_proves_the_optimum_of_small_problems(name, fifo_nodes):
    problem = SMALL[name]
    best, _ = brute_force(problem)
    method = make("cp-sat", problem, fifo_nodes=fifo_nodes, deterministic_time=10.0)
    run = go(method, 2000)
    assert run.best == pytest.approx(best, rel=1e-12)
    assert method.report()["proved_optimal"] == 1.0
    assert best * (1 - 2e-6) <= method.report()["lower_bound"] <= best


def test_proves_that_73_is_the_least_of_the_published_example():
    method = make("cp-sat", topcuoglu())
    assert go(method, 500).best == pytest.approx(73.0)
    assert method.report()["proved_optimal"] == 1.0


@pytest.mark.parametrize(("nodes", "devices", "seed"), [(9, 8, 16), (9, 6, 35)])
def test_no_false_proof(nodes, devices, seed):
    problem = random_problem(nodes, devices, seed)
    best = go(make("problem-space", problem), 500).best
    method = make("cp-sat", problem)
    found = go(method, 500).best
    assert method.report()["lower_bound"] <= min(best, found)
    if method.report()["proved_optimal"]:
        assert found <= best * (1 + 2e-6)


@share(0.4)
@given(data=st.data())
def test_the_bound_holds_and_proofs_are_right_whatever_the_problem(data):
    problem = data.draw(problems(max_nodes=6, max_devices=3, memory=data.draw(st.booleans()), energy=data.draw(st.booleans())))
    method = make("cp-sat", problem, fifo_nodes=data.draw(st.sampled_from([0, 32])))
    run = go(method, 800)
    everything = np.array(np.meshgrid(*[range(problem.n_devices)] * problem.n_nodes)).reshape(problem.n_nodes, -1).T.astype(np.int16)
    best = Simulator().evaluate(problem, everything, 0).objective.min()
    report = method.report()
    power = 1.0 if problem.objective == "makespan" else problem.network.power.max() + problem.network.idle_power.sum()
    rounding = 1e-12 * problem.compute_seconds[problem.feasible].sum() * power  # what cancels to nothing leaves this much
    assert report["lower_bound"] <= best + 1e-9 * abs(best) + rounding
    if report["proved_optimal"]:
        assert run.best <= best + 2e-6 * abs(best) + rounding


def test_a_large_problem_ends_with_a_placement_no_worse_than_heft_and_a_bound():
    problem = chains(6, 4, 20, 4, 0)
    assert problem.n_nodes > 300
    method = make("cp-sat", problem, deterministic_time=0.1)
    run = go(method, 100)
    assert run.best <= go(make("heft", problem), 1).best
    assert 0 < method.report()["lower_bound"] <= run.best
    assert method.report()["proved_optimal"] == 0.0


@pytest.mark.thorough
def test_claims_nothing_about_a_noisy_evaluator():
    problem = toy()
    method = make("cp-sat", problem)
    for _ in range(3):
        (proposal,) = method.propose(8) or [None]
        if proposal is None:
            break
        method.update([Simulator(noise=0.3).evaluate(problem, proposal.placements, 1, trace=True)])
    assert method.report() == {"proved_optimal": 0.0}


def test_no_placement_fits():
    graph = make_graph([], [], [1.0, 1.0], parameter_bytes=[5.0, 5.0])
    problem = Problem(graph, DeviceNetwork(("a", "b"), 1.0, 1.0, 0.0, memory=[1.0, 1.0]))  # type: ignore[arg-type]
    run = go(make("cp-sat", problem), 50)
    assert len(run.objective) < 10 and not np.isfinite(run.best)


@pytest.mark.parametrize("bad", [{"deterministic_time": 0.0}, {"slice": -1.0}])
def test_refuses_impossible_settings(bad):
    with pytest.raises(InputError, match=next(iter(bad))):
        configure("cp-sat", bad)


def test_longest_execution_and_ancestors():
    problem = topcuoglu()
    rng = np.random.default_rng(0)
    measured = Simulator().evaluate(problem, rng.integers(0, 3, (200, 10)).astype(np.int16), 0)
    assert measured.seconds.max() <= longest_execution(problem)
    related = ancestors(problem)
    assert related[0, 1:].all() and related[:-1, 9].all() and not related[1, 2] and related[2, 6] and not related[9].any()


def test_the_least_total_cost_is_proved():
    one = toy()
    problem = Problem(one.graph, one.network, one.costs, "total-cost", one.allowed)
    method = make("cp-sat", problem)
    run = go(method, 200)
    assert method.report()["proved_optimal"] == 1.0
    assert run.best == pytest.approx(method.report()["lower_bound"], rel=1e-5) and run.best >= lower_bound(problem)
