"""Memory as the most bytes that are held at once: a worked example, the kernel against SimPy, and what stays as it was."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from envs.problem.graph import ComputationGraph
from envs.problem.measurement import Outcome
from envs.problem.network import DeviceNetwork
from envs.problem.problem import Problem
from envs.simulators.fifo.evaluator import ReferenceSimulator, Simulator
from envs.simulators.fifo.kernel import kernel_arrays
from envs.simulators.fifo.reference import FifoReference
from envs.simulators.live_memory import holds_too_much
from envs.simulators.noise import noise_factor, noise_key, row_key
from envs.sources.files import dump_problem, load_problem, save
from tests.envs.strategies import drawn_problem, problems, random_placements
from tests.envs.strategies import placements as some_placements


def chain(memory):
    """a -> b -> c, and a -> c; outputs of 10, 20 and 5 bytes; 3 bytes of weights in b; one second each."""
    graph = ComputationGraph(
        ("a", "b", "c"), ("x",) * 3, [1.0] * 3, [10.0, 20.0, 5.0], [(0, 1), (1, 2), (0, 2)], [10.0, 20.0, 4.0], parameter_bytes=[0, 3.0, 0]
    )
    network = DeviceNetwork(("d", "e"), [1.0, 1.0], np.inf, 1.0, memory=memory, live_memory=True)
    return Problem(graph, network)


def peaks(problem, placement, noise=0.0, seed=0, first=0):
    """Peak bytes by the compiled kernel; the networks' memory must be too small for everything together."""
    found = Simulator(noise).evaluate(
        replace(problem, network=replace(problem.network, memory=np.inf)), placement[None, :], seed, first=first, trace=True
    )
    arrays, peak = kernel_arrays(problem), np.empty(problem.n_devices)
    stream = np.uint64(row_key(noise_key(seed), first))
    holds_too_much(placement, arrays, noise, stream, found.start[0], found.finish[0], peak)
    return peak


def test_a_worked_example():
    problem = chain(0.0)
    # On one device a is held until c has read it: weights, a, b and c.
    assert peaks(problem, np.array([0, 0, 0], dtype=np.int16)).tolist() == [38.0, 0.0]
    # With b elsewhere, e holds its weights, its copy of a, and its output; d holds a until c ends, the copy of b, and c.
    assert peaks(problem, np.array([0, 1, 0], dtype=np.int16)).tolist() == [35.0, 33.0]
    # With c elsewhere a is freed when it has arrived there and b has read it, before b's output is read.
    assert peaks(problem, np.array([0, 0, 1], dtype=np.int16)).tolist() == [33.0, 29.0]


@pytest.mark.thorough
@pytest.mark.parametrize("noise", [0.0, 0.2])
def test_peaks_are_those_of_the_reference(noise):
    for seed in range(8):
        problem = drawn_problem(seed, memory=0.0, live_memory=True)
        for row, placement in enumerate(random_placements(problem, 3, seed)):
            one = FifoReference(problem, placement, noise, int(noise_key(seed)), row)
            one.run()
            np.testing.assert_array_equal(peaks(problem, placement, noise, seed, row), one.peak_bytes(), f"{seed}, {placement}")


def test_where_everything_fits_at_once_no_times_are_looked_at():
    """a is read twice on the other device, 6 bytes and 10 bytes of it: one copy of 10 is held there."""
    graph = ComputationGraph(
        ("a", "b", "c"), ("x",) * 3, [1.0] * 3, [10.5, 0.5, 0.0], [(0, 1), (0, 2)], [6.0, 10.0], parameter_bytes=[2, 3.5, 1]
    )
    problem = Problem(graph, replace(chain(0.0).network, memory=np.array([13.0, 16.0])))
    placement, nowhere, peak = np.array([0, 1, 1], dtype=np.int16), np.full(3, np.nan), np.empty(2)
    said = holds_too_much(placement, kernel_arrays(problem), 0.0, np.uint64(row_key(noise_key(0), 0)), nowhere, nowhere, peak)
    assert said is False and peak.tolist() == [13, 16]


def test_what_is_freed_at_some_time_is_free_for_what_begins_then():
    """a -> b -> c on one device: a is read by the time that b ends, which is when c begins."""
    graph = ComputationGraph(("a", "b", "c"), ("x",) * 3, [1.0] * 3, [10.0, 20.0, 5.0], [(0, 1), (1, 2)], [10.0, 20.0])
    problem = Problem(graph, replace(chain(0.0).network, memory=np.full(2, 30.0)))
    assert peaks(problem, np.zeros(3, dtype=np.int16)).tolist() == [30.0, 0.0]
    for simulator in (Simulator(), ReferenceSimulator()):
        assert simulator.evaluate(problem, np.zeros((1, 3), dtype=np.int16)).outcome.tolist() == [Outcome.OK]


def held(problem, placement, start, finish, noise=0.0, row=0):
    """Peak bytes on the first device of a run with the given times."""
    peak = np.empty(problem.n_devices)
    times = (np.array(times, dtype=np.float64) for times in (start, finish))
    holds_too_much(np.array(placement), kernel_arrays(problem), noise, np.uint64(row_key(noise_key(0), row)), *times, peak)
    return peak[0]


@pytest.mark.thorough
def test_an_output_is_held_until_it_has_arrived_however_long_that_takes():
    """a is sent to b elsewhere in a second, from 1 to 2; c begins at 2 where a is."""
    graph = ComputationGraph(("a", "b", "c"), ("x",) * 3, [1.0] * 3, [10.0, 0.0, 5.0], [(0, 1)], [10.0])
    problem = Problem(graph, chain(0.0).network)
    at = ([0, 3, 2], [1, 4, 3])
    assert held(problem, [0, 1, 0], *at) == 10.0
    factors = [noise_factor(np.uint64(row_key(noise_key(0), row)), 3, 0.2) for row in range(8)]
    assert min(factors) < 1 < max(factors)
    assert [held(problem, [0, 1, 0], *at, 0.2, row) for row in range(8)] == [15.0 if f > 1 else 10.0 for f in factors]


def test_a_single_operation_may_be_too_large():
    graph = ComputationGraph(("a",), ("x",), [1.0], [10.0], np.empty((0, 2), dtype=int), [])
    for memory, outcome in ((10.0, Outcome.OK), (9.0, Outcome.OUT_OF_MEMORY)):
        problem = Problem(graph, replace(chain(0.0).network, memory=np.full(2, memory)))
        assert Simulator().evaluate(problem, np.zeros((1, 1), dtype=np.int16)).outcome.tolist() == [outcome]


def test_what_takes_no_time_holds_nothing():
    """a and b take no time, so a's output is read as it is made; c begins later."""
    graph = ComputationGraph(("a", "b", "c"), ("x",) * 3, [0.0, 0.0, 1.0], [10.0, 2.0, 5.0], [(0, 1)], [10.0])
    assert held(Problem(graph, chain(0.0).network), [0, 0, 0], [1, 1, 1], [1, 1, 2]) == 7.0


def test_a_run_fits_where_its_peak_does():
    for memory, outcome in ((38.0, Outcome.OK), (37.0, Outcome.OUT_OF_MEMORY)):
        for simulator in (Simulator(), ReferenceSimulator()):
            assert simulator.evaluate(chain(memory), np.zeros((1, 3), dtype=np.int16)).outcome.tolist() == [outcome]


@given(st.data())
def test_kernel_and_simpy_agree(data):
    problem = data.draw(problems(memory=True))
    problem = replace(problem, network=replace(problem.network, live_memory=True))
    batch = data.draw(some_placements(problem, 4))
    noise = data.draw(st.sampled_from([0.0, 0.2]))
    fast, slow = (s.evaluate(problem, batch, 3, first=1, trace=True) for s in (Simulator(noise), ReferenceSimulator(noise)))
    for key in ("outcome", "seconds", "objective", "start", "finish"):
        np.testing.assert_array_equal(getattr(fast, key), getattr(slow, key))


def test_the_times_do_not_depend_on_what_is_kept():
    problem = chain(np.inf)
    static = replace(problem, network=replace(problem.network, live_memory=False))
    batch = np.array([[0, 0, 0], [0, 1, 0], [1, 0, 1]], dtype=np.int16)
    np.testing.assert_array_equal(Simulator().evaluate(problem, batch).seconds, Simulator().evaluate(static, batch).seconds)
    assert problem.content_hash != static.content_hash
    assert problem.memory_used(batch[:1]).tolist() == [[3.0, 0.0]]
    assert static.memory_used(batch[:1]).tolist() == [[38.0, 0.0]]


def test_files_keep_it(tmp_path):
    path = tmp_path / "p.json"
    save(dump_problem(chain(40.0)), path)
    assert load_problem(path).content_hash == chain(40.0).content_hash
