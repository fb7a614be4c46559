"""The work-conserving simulator: compiled against SimPy bit for bit, hand-made schedules, laws that every schedule obeys."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from envs.graphs.sharded import sharded
from envs.problem.errors import InputError
from envs.problem.graph import ComputationGraph
from envs.problem.measurement import Outcome
from envs.problem.network import DeviceNetwork
from envs.problem.problem import Problem
from envs.simulators.work_conserving.discipline import SHARING, STRATEGIES, Discipline
from envs.simulators.work_conserving.evaluator import ReferenceWorkConservingSimulator, WorkConservingSimulator
from envs.simulators.work_conserving.kernel import duration_factor
from tests.envs.strategies import drawn_problem, problems, random_placements, share
from tests.envs.strategies import placements as some_placements

disciplines = st.builds(
    Discipline, st.sampled_from(STRATEGIES), st.integers(1, 3), st.sampled_from(SHARING), st.sampled_from([False, False, True]),
    send_overhead=st.sampled_from([0.0, 0.0, 0.7]),
)  # fmt: skip


@share(0.6)
@given(st.data(), disciplines, st.sampled_from([0.0, 0.3]), st.booleans(), st.integers(0, 2**40))
def test_kernel_and_simpy_agree_bit_for_bit(data, discipline, noise, everywhere, seed):
    problem = data.draw(problems(memory=True))
    batch = data.draw(some_placements(problem, 4))
    if data.draw(st.booleans()):
        d = problem.n_devices
        some = st.integers(0, 2) | st.lists(st.integers(0, 2), min_size=1, max_size=3, unique=True).map(tuple)
        discipline = replace(discipline, processors=tuple(data.draw(st.lists(some, min_size=d, max_size=d))))
    fast = WorkConservingSimulator(discipline, noise, inputs_everywhere=everywhere)
    plain = ReferenceWorkConservingSimulator(discipline, noise, inputs_everywhere=everywhere)
    assert fast.protocol == plain.protocol
    a, b = (s.evaluate(problem, batch, seed, first=3, trace=True) for s in (fast, plain))
    for key in ("outcome", "seconds", "objective", "start", "finish"):
        np.testing.assert_array_equal(getattr(a, key), getattr(b, key), err_msg=key)
    for x, y in zip(a.transfers, b.transfers, strict=True):
        np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize("noise", [0.0, 0.2])
@pytest.mark.parametrize(
    "discipline",
    [
        Discipline(), Discipline("longest-path", 2, "sender"), Discipline("depth-first", 1, "bus"), Discipline(synchronous=True),
        Discipline(processors=(0, (0, 1), 1)), Discipline("breadth-first", 2, processors=(0, 0, 1)),
        Discipline("fifo", 1, "bus", processors=(0, (0, 1), 1)), Discipline(send_overhead=1.0),
    ],
    ids=str,
)  # fmt: skip
def test_kernel_and_simpy_agree_on_problems_full_of_ties(discipline, noise):
    for seed in range(8):
        memory, everywhere = (np.inf, 12.0, 6.0, 9.0)[seed % 4], seed % 2 == 0
        problem = drawn_problem(seed, memory=memory)
        batch = random_placements(problem, 3, seed)
        simulators = (
            s(discipline, noise, inputs_everywhere=everywhere) for s in (WorkConservingSimulator, ReferenceWorkConservingSimulator)
        )
        fast, plain = (s.evaluate(problem, batch, seed, first=2, trace=True) for s in simulators)
        for name in ("outcome", "seconds", "objective", "start", "finish"):
            np.testing.assert_array_equal(getattr(fast, name), getattr(plain, name), err_msg=name)
        for a, b in zip(fast.transfers, plain.transfers, strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("discipline", [Discipline(), Discipline("longest-path", 2, "sender"), Discipline(synchronous=True)], ids=str)
def test_on_a_real_graph_kernel_and_simpy_agree(discipline):
    graph = sharded("llama-block", sequence=64, width=64, hidden=64, heads=4)
    problem = Problem(graph, DeviceNetwork(tuple("abcd"), [1e9, 2e9, 1e9, 3e9], 1e9, 1e-6, memory=60_000.0))
    batch = np.random.default_rng(0).integers(0, 4, (6, graph.n_nodes)).astype(np.int16)
    a = WorkConservingSimulator(discipline, 0.1, threads=3).evaluate(problem, batch, 7, trace=True)
    b = ReferenceWorkConservingSimulator(discipline, 0.1).evaluate(problem, batch, 7, trace=True)
    np.testing.assert_array_equal(a.outcome, b.outcome)
    np.testing.assert_array_equal(a.finish, b.finish)
    rows = [WorkConservingSimulator(discipline, 0.1).evaluate(problem, batch[i : i + 1], 7, first=i).seconds[0] for i in range(6)]
    np.testing.assert_array_equal(a.seconds, rows)


def diamond(**network) -> Problem:
    """Input -> a, b; a -> c, d on the other device; b -> d. Every operation takes 1 s, every transfer 10 s."""
    names = ["in", "a", "b", "c", "d"]
    edges = [(0, 1), (0, 2), (1, 3), (1, 4), (2, 4)]
    graph = ComputationGraph(names, ["op"] * 5, np.ones(5), np.full(5, 10.0), edges, np.full(5, 10.0))
    return Problem(graph, DeviceNetwork(("x", "y"), 1.0, 1.0, 0.0, **network))


def test_transfers_are_tasks_that_happen_once_and_contend():
    problem, placement = diamond(), np.array([[0, 0, 0, 1, 1]], dtype=np.int16)
    one = WorkConservingSimulator().evaluate(problem, placement, trace=True)
    # a runs 0-1, b 1-2; a's result moves 1-11 once for c and d, then b's moves 11-21 on the same channel; c runs meanwhile.
    assert one.transfers[0].tolist() == [[1, 0, 1, 1, 11], [2, 0, 1, 11, 21]]
    assert one.start[0].tolist()[1:] == [0, 1, 11, 21] and np.isnan(one.start[0, 0])
    assert one.seconds[0] == 22
    two = WorkConservingSimulator(Discipline(channels=2)).evaluate(problem, placement, trace=True)
    assert two.transfers[0].tolist() == [[1, 0, 1, 1, 11], [2, 0, 1, 2, 12]]
    assert two.seconds[0] == 13
    # With inputs as tasks, `in` takes a second on its device first.
    assert WorkConservingSimulator(inputs_everywhere=False).evaluate(problem, placement).seconds[0] == 23


def test_barriers_delay_what_need_not_wait():
    problem, placement = diamond(), np.array([[0, 0, 0, 1, 1]], dtype=np.int16)
    found = WorkConservingSimulator(Discipline(synchronous=True)).evaluate(problem, placement, trace=True)
    # a 0-1, b 1-2, then both transfers one after another 2-22, then c and d.
    assert found.transfers[0][:, 3:].tolist() == [[2, 12], [12, 22]]
    assert found.seconds[0] == 24


def test_strategies_choose_differently():
    # Two chains on one device: r -> a1 -> a2, and b alone with a long tail elsewhere.
    names, edges = ["i", "r", "a1", "a2", "b", "tail"], [(0, 1), (1, 2), (2, 3), (0, 4), (4, 5)]
    graph = ComputationGraph(names, ["op"] * 6, [0, 1, 1, 1, 1, 50], np.zeros(6), edges, np.zeros(5))
    problem = Problem(graph, DeviceNetwork(("x", "y"), 1.0, 1.0, 0.0))
    placement = np.array([[0, 0, 0, 0, 0, 1]], dtype=np.int16)

    def order(strategy):
        start = WorkConservingSimulator(Discipline(strategy)).evaluate(problem, placement, trace=True).start[0]
        return [names[i] for i in np.argsort(start[1:5]) + 1]

    assert order("fifo") == ["r", "b", "a1", "a2"]
    assert order("depth-first") == ["r", "a1", "a2", "b"]
    assert order("breadth-first") == ["r", "b", "a1", "a2"]
    assert order("longest-path") == ["b", "r", "a1", "a2"]


def test_devices_on_one_processor_take_turns():
    """Two independent operations of 1 s on two devices, and one of 2 s on a third."""
    graph = ComputationGraph(list("iabc"), ["op"] * 4, [0, 1, 1, 2], np.zeros(4), [(0, 1), (0, 2), (0, 3)], np.zeros(3))
    problem = Problem(graph, DeviceNetwork(("x", "y", "z"), 1.0, 1.0, 0.0))
    placement = np.array([[0, 0, 1, 2]], dtype=np.int16)
    for processors, seconds in (((), 2), ((5, 5, 7), 2), ((0, 0, 0), 4), ((3, 1, 3), 3)):
        found = WorkConservingSimulator(Discipline(processors=processors)).evaluate(problem, placement)
        assert found.seconds[0] == seconds and ("processors" in found.protocol) == bool(processors)
    with pytest.raises(InputError, match="3 devices; give one for each"):
        WorkConservingSimulator(Discipline(processors=(0, 0))).evaluate(problem, placement)


def test_sending_takes_the_senders_processor():
    """One transfer for two consumers on one device, one more for a third elsewhere; what stays sends nothing."""
    graph = ComputationGraph(list("sabc"), ["op"] * 4, [0, 1, 1, 1], np.ones(4), [(0, 1), (0, 2), (0, 3)], np.ones(3))
    problem = Problem(graph, DeviceNetwork(tuple("xyz"), 1.0, 1.0, 1.0))
    simulator = WorkConservingSimulator(Discipline(send_overhead=0.5), inputs_everywhere=False)
    found = simulator.evaluate(problem, np.array([[0, 1, 1, 2], [0, 0, 1, 0], [0, 0, 0, 0]], dtype=np.int16))
    assert found.seconds.tolist() == [1.0 + 2.0 + 2.0, 0.5 + 2.0 + 1.0, 3.0]
    assert simulator.protocol == "simulator:work-conserving fifo channels=1/link send=0.5 noise=0.0 inputs=tasks"
    with pytest.raises(InputError, match="send_overhead is -1"):
        Discipline(send_overhead=-1)


def test_a_device_of_two_processors_takes_both():
    """``z`` has the processors of ``x`` and ``y``: nothing runs beside it, and what came after it does not get ahead of it."""
    graph = ComputationGraph(list("iabcd"), ["op"] * 5, [0, 1, 3, 2, 1], np.zeros(5), [(0, k) for k in range(1, 5)], np.zeros(4))
    problem = Problem(graph, DeviceNetwork(("x", "y", "z"), 1.0, 1.0, 0.0))
    simulator = WorkConservingSimulator(Discipline(processors=(0, 1, (0, 1))))
    found = simulator.evaluate(problem, np.array([[0, 0, 1, 2, 0], [0, 2, 0, 1, 2]], dtype=np.int16), trace=True)
    # a on x and b on y begin together; c wants both and waits for b; d, behind c in line, waits too although x is free.
    np.testing.assert_array_equal(found.start[0, 1:], [0, 0, 3, 5])
    # a first, alone; b and c wait for it; d has come last and waits for both of them
    np.testing.assert_array_equal(found.start[1, 1:], [0, 1, 1, 4])
    assert simulator.protocol.endswith("processors=0,1,0+1 noise=0.0")
    with pytest.raises(InputError, match="every device needs at least one"):
        Discipline(processors=(0, ()))


def test_memory_is_given_back():
    # A chain of results of 10 bytes: two are alive at once, beside the input.
    graph = ComputationGraph(list("iabcd"), ["op"] * 5, np.ones(5), np.full(5, 10.0), [(i, i + 1) for i in range(4)], np.full(4, 10.0))
    for memory, outcome in ((30.0, Outcome.OK), (29.0, Outcome.OUT_OF_MEMORY)):
        problem = Problem(graph, DeviceNetwork(("x",), 1.0, 1.0, 0.0, memory=memory))
        assert WorkConservingSimulator().evaluate(problem, np.zeros((1, 5), dtype=np.int16)).outcome[0] == outcome


def test_a_placement_on_a_device_that_is_not_there_is_invalid_beside_one_that_is_not():
    batch = np.array([[0, 0, 0, 1, 2], [0, 0, 0, 1, 1]], dtype=np.int16)
    for simulator in (WorkConservingSimulator(), ReferenceWorkConservingSimulator()):
        found = simulator.evaluate(diamond(), batch, trace=True)
        assert found.outcome.tolist() == [Outcome.INVALID, Outcome.OK]
        assert np.isnan(found.seconds[0]) and np.isnan(found.start[0]).all() and found.seconds[1] == 22


def test_parameters_that_fill_a_device_to_the_last_byte_fit():
    graph = ComputationGraph(["i", "a"], ["op"] * 2, [0.0, 1.0], np.zeros(2), [(0, 1)], [0.0], parameter_bytes=[0.0, 16.0])
    for memory, outcome in ((16.0, Outcome.OK), (15.5, Outcome.OUT_OF_MEMORY)):
        problem = Problem(graph, DeviceNetwork(("x",), 1.0, 1.0, 0.0, memory=memory))
        for simulator in (WorkConservingSimulator(), ReferenceWorkConservingSimulator()):
            assert simulator.evaluate(problem, np.zeros((1, 2), dtype=np.int16)).outcome[0] == outcome


@share(0.25)
@given(st.data(), disciplines)
def test_every_schedule_is_lawful_and_never_idle(data, discipline):
    problem = data.draw(problems())
    batch = data.draw(some_placements(problem, 1))
    m = WorkConservingSimulator(discipline, inputs_everywhere=False).evaluate(problem, batch, trace=True)
    start, finish, placement, edges = m.start[0], m.finish[0], batch[0], problem.graph.edges
    there = {(int(p), int(to)): end for p, _, to, _, end in m.transfers[0]}
    ready = np.zeros(problem.n_nodes)
    for u, v in edges:
        ready[v] = max(ready[v], finish[u] if placement[u] == placement[v] else there[u, placement[v]])
    assert (start >= ready).all()
    for d in range(problem.n_devices):
        mine = np.flatnonzero(placement == d)
        mine = mine[np.lexsort((finish[mine], start[mine]))]
        assert (start[mine][1:] >= finish[mine][:-1]).all()
        if not discipline.synchronous:  # whatever starts late waited for its inputs or for the operation before it
            before = np.concatenate(([0.0], finish[mine][:-1]))
            assert (start[mine] == np.maximum(ready[mine], before)).all()
    assert m.seconds[0] == max([finish.max(), *there.values()])


@pytest.mark.parametrize("discipline", [Discipline(), Discipline("depth-first", 1, "bus"), Discipline(synchronous=True)], ids=str)
def test_what_runs_out_of_memory_runs_out_of_it_in_simpy_too(discipline):
    outcomes = []
    for seed in range(8):
        for memory in np.arange(2.0, 7.5, 0.5):
            problem = drawn_problem(seed, memory=memory)
            batch = random_placements(problem, 2, seed)
            fast, plain = (s(discipline).evaluate(problem, batch) for s in (WorkConservingSimulator, ReferenceWorkConservingSimulator))
            np.testing.assert_array_equal(fast.outcome, plain.outcome, f"{seed}, {memory}")
            outcomes += fast.outcome.tolist()
    assert 0.2 < np.mean(np.array(outcomes) == Outcome.OK) < 0.8


def test_noise_is_what_it_was():
    """Log-normal factors by Box and Muller from the stream's numbers: results that are kept rest on them."""
    stream = np.uint64(7)
    assert [duration_factor(stream, k, 0.2) for k in range(3)] == pytest.approx([1.194460795576658, 0.675129225433478, 0.980967491042137])
    assert duration_factor(stream, 0, 1.0) == pytest.approx(1.629827746627349) and duration_factor(stream, 0, 0.0) == 1.0


def test_noise_has_mean_one_and_samples_average_it():
    problem, placement = diamond(), np.zeros((1, 5), dtype=np.int16)
    found = WorkConservingSimulator(noise=0.2, samples=2000).evaluate(problem, placement, seed=1)
    np.testing.assert_allclose(found.seconds, 4.0, rtol=0.01)
    np.testing.assert_allclose(found.samples[0].std(), 0.2 * 2, rtol=0.1)  # four independent seconds
    assert found.seconds[0] == found.samples[0].mean()
    with pytest.raises(InputError, match=r"noise is 1\.5"):
        WorkConservingSimulator(noise=1.5)
