import numpy as np
import pytest

from envs.problem.errors import InputError
from envs.problem.network import DeviceNetwork
from envs.problem.problem import Problem
from methods.placing.constraints import fit_memory, fits, random_placements
from methods.placing.list_scheduling import earliest_finish_device, followers
from methods.placing.one_go import throughput_shares
from methods.testing.problems import chains, constrained_toy, make_graph, random_problem
from methods.testing.running import go, make


def test_single_device_tries_each_or_the_one_named():
    problem = random_problem(10, 3, 0)
    assert [p.tolist() for p in go(make("single-device", problem), 9).placements] == [[k] * 10 for k in range(3)]
    assert [p.tolist() for p in go(make("single-device", problem, device="d1"), 9).placements] == [[1] * 10]
    with pytest.raises(InputError, match="no device 'd7'"):
        make("single-device", problem, device="d7")


def test_single_device_sends_what_it_may_not_run_to_the_fastest_other():
    graph = make_graph([(0, 1)], [1.0], [1.0, 1.0], hardware=("", "gpu"))
    supports = (frozenset(), frozenset({"gpu"}), frozenset({"gpu"}))
    problem = Problem(graph, DeviceNetwork(("cpu", "slow", "fast"), [1.0, 1.0, 2.0], 1.0, 0.0, supports=supports))  # type: ignore[arg-type]
    assert go(make("single-device", problem, device="cpu"), 1).placements[0].tolist() == [0, 2]


def test_round_robin_cuts_levels_into_blocks_by_throughput():
    graph = make_graph([(i, i + 1) for i in range(11)], [1.0] * 11, [1.0] * 12)
    problem = Problem(graph, DeviceNetwork(("a", "b", "c"), [1.0, 2.0, 3.0], 1.0, 0.0))  # type: ignore[arg-type]
    np.testing.assert_allclose(throughput_shares(problem), [1 / 6, 2 / 6, 3 / 6])
    assert go(make("round-robin", problem), 1).placements[0].tolist() == [0] * 2 + [1] * 4 + [2] * 6


def test_metis_cuts_fewer_bytes_than_random_and_keeps_the_balance():
    problem = chains(6, 4, 20, 4, 0)
    source, target = problem.graph.edges.T

    def cut(placement):
        return problem.graph.edge_bytes[placement[source] != placement[target]].sum()

    run, drawn = go(make("metis", problem), 16), go(make("random", problem), 16)
    assert max(map(cut, run.placements)) < 0.3 * min(map(cut, drawn.placements))
    work = problem.graph.flops / problem.graph.flops.sum()
    share = np.bincount(run.placements[0], weights=work, minlength=4)
    np.testing.assert_allclose(share, throughput_shares(problem), atol=0.05)


def test_critical_path_takes_the_paper_s_fifty_runs_and_minds_speed_only_if_told():
    graph = make_graph([], [], [1.0, 1.0])
    problem = Problem(graph, DeviceNetwork(("slow", "fast"), [1.0, 10.0], 1.0, 0.0))  # type: ignore[arg-type]
    by_start = go(make("critical-path", problem), 200)
    assert len(by_start.placements) == 50
    assert {tuple(p.tolist()) for p in by_start.placements} == {(0, 1), (1, 0)}
    by_finish = go(make("critical-path", problem, earliest="finish"), 200)
    assert {tuple(p.tolist()) for p in by_finish.placements} == {(1, 1)}


def test_critical_path_moves_inputs_only_if_told():
    """Two inputs that cost nothing and two tasks that read both: where inputs are everywhere, the tasks part."""
    graph = make_graph([(0, 2), (1, 2), (0, 3), (1, 3)], [1.0] * 4, [0.0, 0.0, 1.0, 1.0])
    problem = Problem(graph, DeviceNetwork(("a", "b"), [1.0, 1.0], 1.0, 5.0))  # type: ignore[arg-type]
    parted = {bool(p[2] != p[3]) for p in go(make("critical-path", problem), 50).placements}
    assert parted == {True}
    together = {bool(p[2] == p[3]) for p in go(make("critical-path", problem, free_inputs=False), 50).placements if p[0] == p[1]}
    assert together == {True}


def test_random_task_eft_moves_one_task_a_step_to_its_earliest_finish():
    problem = random_problem(25, 4, 0)
    method = make("random-task-eft", problem)
    run = go(method, 120)
    steps = np.diff(np.stack(run.placements), axis=0) != 0
    assert steps.sum(axis=1).max() == 1 and steps.any(axis=1).sum() > 10
    assert run.best < 0.9 * run.objective[0]


def test_random_task_eft_goes_on_without_a_trace():
    problem = random_problem(25, 4, 0)
    method = make("random-task-eft", problem)
    method.wants_trace = False
    assert go(method, 120).best < 0.9 * go(make("random", problem), 1).best


def test_earliest_finish_device_leaves_out_full_devices():
    graph = make_graph([], [], [1.0, 1.0], parameter_bytes=[4.0, 4.0])
    problem = Problem(graph, DeviceNetwork(("slow", "fast"), [1.0, 10.0], 1.0, 0.0, memory=[20.0, 6.0]))  # type: ignore[arg-type]
    placement, start = np.array([1, 0], dtype=np.int16), np.zeros(2)
    assert earliest_finish_device(problem, 1, placement, start, np.array([0.1, 1.0])) == 0
    roomy = Problem(graph, DeviceNetwork(("slow", "fast"), [1.0, 10.0], 1.0, 0.0))  # type: ignore[arg-type]
    assert earliest_finish_device(roomy, 1, placement, start, np.array([0.1, 1.0])) == 1


class TestMemory:
    def test_repair_moves_no_more_than_it_must(self):
        graph = make_graph([], [], [1.0] * 6, parameter_bytes=[9.0] * 6)
        problem = Problem(graph, DeviceNetwork(("a", "b"), 1.0, 1.0, 0.0, memory=[30.0, 100.0]))  # type: ignore[arg-type]
        fixed = fit_memory(problem, np.zeros((1, 6), dtype=np.int16))
        assert (fixed == 1).sum() == 3 and fits(problem, fixed).all()

    def test_repair_packs_anew_where_moves_do_not_do(self):
        # needs of 7, 4 and 6 bytes (an output each) on 10 and 7: only 4 + 6 and 7 fit, so the 4 has to make room for the 7
        graph = make_graph([], [], [1.0] * 3, parameter_bytes=[6.0, 3.0, 5.0])
        problem = Problem(graph, DeviceNetwork(("a", "b"), 1.0, 1.0, 0.0, memory=[10.0, 7.0]))  # type: ignore[arg-type]
        fixed = fit_memory(problem, np.array([[0, 1, 0]], dtype=np.int16))
        assert fits(problem, fixed).all()

    def test_what_cannot_fit_is_returned_unchanged(self):
        graph = make_graph([], [], [1.0, 1.0], parameter_bytes=[9.0, 9.0])
        problem = Problem(graph, DeviceNetwork(("a", "b"), 1.0, 1.0, 0.0, memory=5.0))  # type: ignore[arg-type]
        placement = np.array([[0, 1]], dtype=np.int16)
        np.testing.assert_array_equal(fit_memory(problem, placement), placement)

    def test_random_placements_are_valid_and_use_every_choice(self):
        problem = constrained_toy()
        drawn = random_placements(problem, 500, np.random.default_rng(0))
        assert problem.valid(drawn).all() and fits(problem, drawn).all()
        used = np.array([[(drawn[:, v] == k).any() for k in range(3)] for v in range(9)])
        np.testing.assert_array_equal(used, problem.feasible)


def test_weights_follow_their_layer_and_do_not_choose_its_device():
    # two layers in a row, each with a free weight before it; the first device is the slower one
    graph = make_graph([(0, 2), (2, 3), (1, 3)], [8.0, 1.0, 8.0], [0.0, 0.0, 4.0, 4.0], colocation=[0, 1, 0, 1])
    problem = Problem(graph, DeviceNetwork(("slow", "fast"), [1.0, 4.0], 1.0, 0.0))  # type: ignore[arg-type]
    assert followers(problem).tolist() == [True, True, False, False]
    for method in ("heft", "cpop"):
        run = go(make(method, problem), 1)
        assert run.placements[0].tolist() == [1, 1, 1, 1], method
    assert go(make("round-robin", problem), 1).placements[0].tolist() in ([1, 1, 1, 1], [0, 1, 0, 1])
    assert set(make("random-task-eft", problem)._tasks) == {2, 3}


def test_what_costs_or_feeds_others_is_no_follower():
    graph = make_graph([(0, 2), (1, 2), (1, 3)], [1.0] * 3, [1.0, 0.0, 1.0, 1.0], colocation=[0, 0, 0, -1])
    problem = Problem(graph, DeviceNetwork(("a", "b"), [1.0, 1.0], 1.0, 0.0))  # type: ignore[arg-type]
    assert not followers(problem).any()
