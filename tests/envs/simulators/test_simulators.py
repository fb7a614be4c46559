"""The compiled simulator against the SimPy reference bit for bit, and both against runs of a published simulator."""

import heapq
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from envs.problem.errors import InputError
from envs.problem.graph import ComputationGraph
from envs.problem.measurement import Outcome, concatenate
from envs.problem.network import DeviceNetwork
from envs.problem.problem import Problem
from envs.simulators.fifo.evaluator import ReferenceSimulator, Simulator
from envs.simulators.fifo.kernel import rise, sink
from tests.envs.strategies import drawn_problem, problems, random_placements
from tests.envs.strategies import placements as some_placements

PUBLISHED = json.loads((Path(__file__).parents[1] / "data" / "fifo_runs.json").read_text())


def published_problem(instance: dict) -> Problem:
    v, d = len(instance["compute"]), len(instance["speed"])
    edges = np.array(instance["edges"], dtype=float).reshape(-1, 3)
    graph = ComputationGraph(
        [f"t{i}" for i in range(v)],
        ["task"] * v,
        instance["compute"],
        np.zeros(v),
        edges[:, :2].astype(int),
        edges[:, 2],
        name=instance["name"],
    )
    with np.errstate(divide="ignore"):
        bandwidth = 1.0 / np.array(instance["seconds_per_byte"])
    network = DeviceNetwork([f"d{i}" for i in range(d)], instance["speed"], bandwidth, instance["delay"])
    allowed = np.zeros((v, d), dtype=bool)
    for task, devices in enumerate(instance["feasible"]):
        allowed[task, devices] = True
    return Problem(graph, network, allowed=allowed)


@pytest.mark.parametrize("instance", PUBLISHED, ids=[i["name"] for i in PUBLISHED])
@pytest.mark.parametrize("simulator", [Simulator(), ReferenceSimulator()], ids=["kernel", "simpy"])
def test_published_runs(instance, simulator):
    runs = instance["runs"]
    found = simulator.evaluate(published_problem(instance), np.array([r["placement"] for r in runs], dtype=np.int16), trace=True)
    assert (found.outcome == Outcome.OK).all()
    for i, run in enumerate(runs):
        np.testing.assert_allclose(found.seconds[i], run["makespan"], rtol=1e-9)
        np.testing.assert_allclose(found.start[i], run["start"], rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(found.finish[i], run["finish"], rtol=1e-9, atol=1e-9)


@given(st.data())
def test_kernel_and_simpy_agree_bit_for_bit(data):
    problem = data.draw(problems())
    batch = data.draw(some_placements(problem, 4))
    noise = data.draw(st.sampled_from([0.0, 0.2, 0.9]))
    seed = data.draw(st.integers(0, 2**32 - 1))
    compiled = Simulator(noise).evaluate(problem, batch, seed, trace=True)
    reference = ReferenceSimulator(noise).evaluate(problem, batch, seed, trace=True)
    np.testing.assert_array_equal(compiled.outcome, reference.outcome)
    np.testing.assert_array_equal(compiled.seconds, reference.seconds)
    np.testing.assert_array_equal(compiled.start, reference.start)
    np.testing.assert_array_equal(compiled.finish, reference.finish)


@given(st.data())
def test_batches_threads_and_single_rows_agree(data):
    problem = data.draw(problems())
    batch = data.draw(some_placements(problem, 5))
    whole = Simulator(0.3).evaluate(problem, batch, seed=7)
    threaded = Simulator(0.3, threads=2).evaluate(problem, batch, seed=7, trace=True)
    rows = concatenate([Simulator(0.3).evaluate(problem, batch[i : i + 1], seed=7, first=i) for i in range(len(batch))])
    for other in (threaded, rows):
        np.testing.assert_array_equal(whole.seconds, other.seconds)
        np.testing.assert_array_equal(whole.outcome, other.outcome)
    np.testing.assert_array_equal(whole[3].seconds, whole.seconds[3:4])
    assert whole[3].first == 3


@pytest.mark.parametrize("noise", [0.0, 0.2])
def test_kernel_and_simpy_agree_on_problems_full_of_ties(noise):
    for seed in range(40):
        problem = drawn_problem(seed)
        batch = random_placements(problem, 3, seed)
        compiled, reference = (s.evaluate(problem, batch, seed, first=2, trace=True) for s in (Simulator(noise), ReferenceSimulator(noise)))
        for name in ("outcome", "seconds", "start", "finish"):
            np.testing.assert_array_equal(getattr(compiled, name), getattr(reference, name), name)
        np.testing.assert_array_equal(Simulator(noise).evaluate(problem, batch, seed, first=2).seconds, reference.seconds)


def test_events_end_in_order_of_their_time_and_of_their_keys_at_one_time():
    rng = np.random.default_rng(0)
    times, keys, waiting = np.empty(40), np.empty(40, dtype=np.int64), []
    for step in range(400):
        event = (float(rng.integers(0, 4)), int(rng.integers(0, 2**40)))
        if waiting and (len(waiting) == 40 or step % 3 == 0):
            assert (times[0], keys[0]) == waiting[0]
            heapq.heapreplace(waiting, event)
            sink(times, keys, len(waiting), *event)
        else:
            heapq.heappush(waiting, event)
            rise(times, keys, len(waiting) - 1, *event)
        assert (times[0], keys[0]) == waiting[0]
    assert len(waiting) == 40


def test_the_first_operation_waits_in_line_like_any_other():
    """b runs from 0 to 10; a, which is number 0, comes at 1 and c at 2."""
    graph = ComputationGraph(list("abcst"), ["op"] * 5, [5.0, 10.0, 1.0, 1.0, 2.0], np.zeros(5), [(3, 0), (4, 2)], [0.0, 0.0])
    problem = Problem(graph, DeviceNetwork(list("xyz"), 1.0, 1.0, 0.0))
    found = Simulator().evaluate(problem, np.array([[0, 0, 0, 1, 2]]), trace=True)
    assert found.start[0].tolist() == [10.0, 0.0, 15.0, 0.0, 0.0] and found.seconds.tolist() == [16.0]


@pytest.mark.parametrize("simulator", [Simulator(), ReferenceSimulator()])
def test_of_what_ends_at_one_time_that_which_began_first_comes_first(simulator):
    """x (number 2) runs from 2 to 4 and y (number 1) from 3 to 4; what each sends to the last device comes at 5."""
    graph = ComputationGraph(
        list("syxuw"), ["op"] * 5, [1.0, 1.0, 2.0, 1.0, 1.0], np.zeros(5), [(0, 1), (0, 2), (2, 3), (1, 4)], [2.0, 1.0, 1.0, 1.0]
    )
    problem = Problem(graph, DeviceNetwork(list("abcd"), 1.0, 1.0, 0.0))
    found = simulator.evaluate(problem, np.array([[0, 1, 2, 3, 3]]), trace=True)
    assert found.start[0].tolist() == [0.0, 3.0, 2.0, 5.0, 6.0]


def test_what_fits_to_the_last_byte_fits():
    for memory, outcome in ((24.0, Outcome.OK), (23.5, Outcome.OUT_OF_MEMORY)):  # b: 8 bytes of output and 16 of parameters
        problem = two_tasks(memory=np.array([8.0, memory]))
        assert Simulator().evaluate(problem, np.array([[0, 1]])).outcome.tolist() == [outcome]


def two_tasks(**network) -> Problem:
    graph = ComputationGraph(["a", "b"], ["op", "op"], [2.0, 4.0], [8.0, 8.0], [[0, 1]], [6.0], parameter_bytes=[0.0, 16.0])
    return Problem(graph, DeviceNetwork(["slow", "fast"], [1.0, 2.0], 3.0, 0.5, **network))


def test_by_hand():
    # a on slow: 2 s; delay 0.5 s and 6 bytes at 3 bytes/s: 2.5 s; b on fast: 2 s
    found = Simulator().evaluate(two_tasks(), np.array([[0, 1], [0, 0]]), trace=True)
    np.testing.assert_array_equal(found.seconds, [6.5, 6.0])
    np.testing.assert_array_equal(found.start[0], [0.0, 4.5])


def test_energy_by_hand():
    problem = two_tasks(power=[10.0, 20.0], idle_power=[1.0, 2.0], link_energy=0.5)
    problem = Problem(problem.graph, problem.network, objective="energy")
    # slow is busy 2 s of 6.5, fast 2 s of 6.5: 20 + 4.5 + 40 + 9 joules, and 6 bytes at 0.5 J
    found = Simulator().evaluate(problem, np.array([[0, 1]]))
    np.testing.assert_allclose(found.objective, [76.5])
    np.testing.assert_allclose(ReferenceSimulator().evaluate(problem, np.array([[0, 1]])).objective, [76.5])


def test_outcomes():
    problem = two_tasks(memory=[100.0, 20.0])
    found = Simulator().evaluate(problem, np.array([[0, 0], [0, 1], [0, 2], [0, -1]]))
    assert found.outcome.tolist() == [Outcome.OK, Outcome.OUT_OF_MEMORY, Outcome.INVALID, Outcome.INVALID]
    assert np.isnan(found.seconds[1:]).all() and np.isinf(found.objective[1:]).all()


def test_noise_is_bounded_and_uniform():
    problem = two_tasks()
    found = Simulator(0.2).evaluate(problem, np.zeros((4000, 2), dtype=np.int16), seed=1, trace=True)
    factor = (found.finish - found.start)[:, 0] / 2.0
    assert 0.8 <= factor.min() < 0.81 and 1.19 < factor.max() <= 1.2
    assert abs(factor.mean() - 1.0) < 0.01 and abs(factor.std() - 0.4 / np.sqrt(12)) < 0.005
    assert abs(np.corrcoef((found.finish - found.start).T)[0, 1]) < 0.05


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda p: Simulator(noise=1.5), "noise is 1.5"),
        (lambda p: Simulator(threads=0), "threads is 0"),
        (lambda p: Simulator().evaluate(p, np.zeros((1, 3), dtype=np.int16)), r"\(batch, 2\)"),
        (lambda p: Simulator().evaluate(p, np.zeros((1, 2))), "float64"),
        (lambda p: Simulator().evaluate(p, np.full((1, 2), 70000)), "70000"),
    ],
)
def test_bad_input(call, words):
    with pytest.raises(InputError, match=words):
        call(two_tasks())
