import numpy as np
import pytest

from envs.problem.errors import InputError
from envs.problem.network import DeviceNetwork
from envs.problem.problem import Problem
from methods.contract.registry import configure
from methods.placing.moves import OPERATORS, propose_move, unit_graph
from methods.placing.starts import good_starts
from methods.testing.problems import brute_force, chains, constrained_toy, make_graph, random_problem, toy
from methods.testing.running import go, make


@pytest.mark.parametrize("make_toy", [toy, constrained_toy])
def test_finds_the_optimum_of_toys(make_toy):
    problem = make_toy()
    best, _ = brute_force(problem)
    assert go(make("local-search", problem), 400).best == pytest.approx(best)


PROBLEMS = [random_problem(20, 3, 7), random_problem(150, 6, 1), chains(6, 4, 12, 4, 0), chains(1, 1, 60, 3, 2)]


@pytest.mark.parametrize("problem", PROBLEMS, ids=["small", "random", "branches", "chain"])
def test_is_never_worse_than_heft_and_improves_on_its_starts(problem):
    planned = go(make("heft", problem), 1).best
    search = make("local-search", problem)
    starts = len(good_starts(problem, 0))
    run = go(search, 2000, ask=64)
    assert run.best <= planned
    assert run.best < min(run.objective[: starts - 2]) or planned == run.best


def test_improves_a_large_graph_of_chains():
    problem = chains(8, 3, 60, 4, 0)
    assert problem.n_nodes > 700
    run = go(make("local-search", problem), 600, ask=64)
    assert run.best < 0.98 * go(make("heft", problem), 1).best


def test_does_not_propose_a_placement_twice_while_others_are_at_hand():
    run = go(make("local-search", random_problem(30, 3, 0)), 500)
    assert len({p.tobytes() for p in run.placements}) > 490


def test_a_space_of_one_placement_does_not_hang():
    graph = make_graph([(0, 1)], [1.0], [1.0, 1.0])
    assert len(go(make("local-search", Problem(graph, DeviceNetwork(("only",), 1.0, 1.0, 0.0))), 10).placements) == 10


def test_energy_is_searched_too():
    base = chains(4, 3, 4, 3, 0)
    network = DeviceNetwork(base.network.names, base.network.speed, base.network.bandwidth, base.network.delay, power=[9.0, 1.0, 5.0])  # type: ignore[arg-type]
    problem = Problem(base.graph, network, objective="energy")
    run = go(make("local-search", problem), 300)
    assert run.best <= min(go(make("single-device", problem), 3).best, go(make("heft", problem), 1).best)


@pytest.mark.parametrize("bad", [{"batch": 0}, {"temperature": 0.0}, {"cooling": 1.5}])
def test_refuses_impossible_settings(bad):
    with pytest.raises(InputError, match=next(iter(bad))):
        configure("local-search", bad)


class TestMoves:
    def test_keep_to_feasible_devices_and_change_only_what_they_say(self):
        problem = random_problem(40, 3, 1)
        allowed = np.ones((40, 3), dtype=bool)
        allowed[::3, 2] = False
        problem = Problem(problem.graph, problem.network, allowed=allowed)
        graph, rng = unit_graph(problem), np.random.default_rng(0)
        device = good_starts(problem, 0)[0]
        changed = {name: [] for name in OPERATORS}
        for _ in range(300):
            for operator, name in enumerate(OPERATORS):
                moved = propose_move(graph, device, operator, int(rng.integers(40)), 6, rng.random(4))
                assert problem.valid(moved[None, :]).all()
                changed[name].append(int((moved != device).sum()))
        assert max(changed["single"]) == 1
        assert set(changed["swap"]) <= {0, 2}
        for name in ("cluster", "path", "stretch", "stretch-all"):
            assert 2 <= max(changed[name]) <= 6
        assert max(changed["component"]) > 6

    def test_a_path_follows_most_bytes(self):
        graph = make_graph([(0, 1), (0, 2), (1, 3), (2, 3)], [1.0, 9.0, 9.0, 1.0], [1.0] * 4)
        problem = Problem(graph, DeviceNetwork(("a", "b"), 1.0, 1.0, 0.0))
        draws, operator = np.array([0.9, 0.9, 0.1, 0.0]), OPERATORS.index("path")
        moved = propose_move(unit_graph(problem), np.zeros(4, dtype=np.int16), operator, 0, 3, draws)
        assert moved.tolist() == [1, 0, 1, 1]
