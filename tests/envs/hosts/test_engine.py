"""The engine: right results wherever operations run, real schedules that keep the rules, and no fault that hangs."""

import os
import signal
import threading
import time

import numpy as np
import pytest
import torch

from envs.graphs.sharded import GRAPHS, sharded
from envs.hosts.engine.child import _Child
from envs.hosts.engine.devices import parse_devices
from envs.hosts.engine.executor import Executor
from envs.hosts.engine.host import Engine
from envs.hosts.engine.kernels import ShardedCode
from envs.hosts.engine.program import Program
from envs.hosts.measuring import Measuring
from envs.problem.errors import InputError
from envs.problem.graph import ComputationGraph
from envs.problem.measurement import Outcome
from envs.problem.network import DeviceNetwork
from envs.problem.problem import Problem
from envs.simulators.work_conserving.discipline import STRATEGIES, Discipline, longest_to_exit
from envs.simulators.work_conserving.evaluator import WorkConservingSimulator

TINY = {
    "chainmm": {"size": 16},
    "ffnn": {"batch": 16, "width": 4, "hidden": 32},
    "llama-block": {"sequence": 16, "width": 32, "hidden": 64, "heads": 4},
    "llama-layer": {"sequence": 16, "width": 32, "hidden": 64, "heads": 4, "vocabulary": 64},
}
CORE = f"cpu:{min(os.sched_getaffinity(0))}"


def problem_of(name: str, devices: int, element_bytes: int = 8, **network) -> Problem:
    graph = sharded(name, element_bytes=element_bytes, **TINY[name])
    settings = {"bandwidth": 1e12, "delay": 0.0, **network}
    return Problem(graph, DeviceNetwork(tuple(f"d{i}" for i in range(devices)), 1e9, **settings))


def outputs(problem: Problem, placement, discipline: Discipline | None = None):
    executor = Executor(parse_devices((CORE,) * problem.n_devices), discipline or Discipline())
    program = Program(problem, executor.devices, ShardedCode(problem.graph, 3))
    with torch.inference_mode():
        expected = program.expected()
    run = executor.run(program, placement, limit=30.0)
    executor.close()
    return run, expected, program


def by_hand(name: str, program: Program) -> torch.Tensor:
    """The unsharded network on the same inputs, rows of the result joined."""
    graph = program.problem.graph
    leaf = {n: program.leaf_on(i, torch.device("cpu")) for i, n in enumerate(graph.names) if program.leaf[i]}

    def grid(prefix: str, rows: int, columns: int) -> torch.Tensor:
        return torch.cat([torch.cat([leaf[f"{prefix}.{i * columns + j}"] for j in range(columns)], dim=-1) for i in range(rows)], dim=-2)

    if name == "chainmm":
        a, c, d = (grid(x, 2, 4) for x in "ACD")
        b, e = (grid(x, 4, 2) for x in "BE")
        return a @ b + c @ (d @ e)
    x, w1, w2 = grid("X", 4, 1), grid("W1", 1, 8), grid("W2", 8, 1)
    hidden = torch.relu(x @ w1 + torch.cat([leaf[f"b1.{j}"] for j in range(8)]))
    bias = torch.cat([leaf[f"b2.{i}"].expand(4, -1) for i in range(4)])
    return torch.softmax(hidden @ w2 + bias, dim=-1)


@pytest.mark.parametrize("name", ["chainmm", "ffnn"])
def test_sharded_execution_computes_the_network(name):
    problem = problem_of(name, 3)
    run, _, program = outputs(problem, np.arange(problem.n_nodes, dtype=np.int16) % 3)
    assert run.outcome == Outcome.OK, run.note
    found = [run.outputs[v] for v in sorted(program.kept)]
    if name == "chainmm":
        found = [torch.cat(found[:2], dim=1), torch.cat(found[2:], dim=1)]
    torch.testing.assert_close(torch.cat(found), by_hand(name, program))


def test_llama_block_computes_a_decoder_block():
    """Against the block written on whole tensors."""
    problem = problem_of("llama-block", 1)
    run, _, program = outputs(problem, np.zeros(problem.n_nodes, dtype=np.int16))
    leaf = {n: program.leaf_on(i, torch.device("cpu")) for i, n in enumerate(problem.graph.names) if program.leaf[i]}

    def joined(prefix: str, dim: int, count: int) -> torch.Tensor:
        return torch.cat([leaf[f"{prefix}.{i}"] for i in range(count)], dim=dim)

    def norm(x, gamma):
        return x / torch.sqrt((x * x).mean(dim=-1, keepdim=True) + 1e-5) * gamma

    x, table = joined("X", 0, 2), joined("rope", 0, 2)
    cos, sin = table[:, None, :4], table[:, None, 4:]
    y = norm(x, leaf["norm1.gamma.0"])
    q, k, v = ((y @ joined(f"W{n}", 1, 4)).view(16, 4, 8) for n in "qkv")
    q, k = (torch.cat((z[..., :4] * cos - z[..., 4:] * sin, z[..., :4] * sin + z[..., 4:] * cos), dim=-1) for z in (q, k))
    context = torch.nn.functional.scaled_dot_product_attention(*(z.transpose(0, 1) for z in (q, k, v)), is_causal=True)
    h = x + context.transpose(0, 1).reshape(16, 32) @ joined("Wo", 0, 4)
    y = norm(h, leaf["norm2.gamma.0"])
    gated = torch.nn.functional.silu(y @ joined("W1", 1, 4)) * (y @ joined("W3", 1, 4))
    torch.testing.assert_close(torch.cat([run.outputs[s] for s in sorted(program.kept)]), h + gated @ joined("W2", 0, 4))


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("discipline", [*map(Discipline, STRATEGIES), Discipline(synchronous=True), Discipline(channels=2, sharing="bus")])
def test_any_placement_gives_the_single_device_result_by_a_lawful_schedule(name, discipline):
    problem = problem_of(name, 3)
    placement = np.random.default_rng(1).integers(0, 3, problem.n_nodes).astype(np.int16)
    run, expected, program = outputs(problem, placement, discipline)
    assert run.outcome == Outcome.OK, run.note
    assert set(expected) == set(run.outputs)
    for node, right in expected.items():
        torch.testing.assert_close(run.outputs[node], right)
    check_schedule(problem, placement, program, run, discipline)


def check_schedule(problem, placement, program, run, discipline):
    """One operation a device at a time; nothing starts before its inputs are there; barriers hold."""
    start, finish, leaf = run.start, run.finish, program.leaf
    for d in range(problem.n_devices):
        mine = np.flatnonzero((placement == d) & ~leaf)
        order = mine[np.argsort(start[mine])]
        assert (start[order][1:] >= finish[order][:-1]).all()
    arrival = {(int(p), int(to)): end for p, _, to, _, end in run.transfers}
    assert len(arrival) == len(run.transfers)  # once a device, however many consumers
    for u, v in problem.graph.edges[~leaf[problem.graph.edges[:, 0]]]:
        here = placement[u] == placement[v]
        assert start[v] >= (finish[u] if here else arrival[u, placement[v]])
    for p, source, _, begin, _ in run.transfers:
        assert source == placement[int(p)] and begin >= finish[int(p)]
    if discipline.sharing == "bus":
        begins, ends = run.transfers[:, 3], run.transfers[:, 4]
        assert max(((begins <= t) & (t < ends)).sum() for t in begins) <= discipline.channels
    if discipline.synchronous:
        levels = problem.graph.levels
        for level in range(1, int(levels.max()) + 1):
            sent = [end for p, _, _, _, end in run.transfers if levels[int(p)] < level]
            earlier = [*finish[(levels < level) & ~leaf], *sent]
            assert not earlier or start[(levels == level) & ~leaf].min() >= max(earlier)


def test_memory_limits_and_reference_counting():
    # Three matrices of 8 kB in a row: with freeing at most two are alive at once beside the input.
    n, size = 5, 32 * 32 * 8.0
    graph = ComputationGraph(
        [f"n{i}" for i in range(n)], ["input", *["relu"] * (n - 1)], np.zeros(n), np.full(n, size), [(i, i + 1) for i in range(n - 1)],
        np.full(n - 1, size), output_shapes=((32, 32),) * n,
    )  # fmt: skip
    for memory, outcome in ((3 * size, Outcome.OK), (3 * size - 1, Outcome.OUT_OF_MEMORY)):
        problem = Problem(graph, DeviceNetwork(("d0",), 1e9, 1e9, 0.0, memory=memory))
        run, _, _ = outputs(problem, np.zeros(n, dtype=np.int16))
        assert run.outcome == outcome, run.note
        if outcome == Outcome.OK:
            assert run.peak.tolist() == [3 * size]
        else:
            assert "too few to hold" in run.note


def test_emulated_links_take_their_time():
    problem = problem_of("chainmm", 2, delay=0.02)
    placement = np.zeros(problem.n_nodes, dtype=np.int16)
    placement[np.array(problem.graph.op_types) == "add"] = 1
    run, _, _ = outputs(problem, placement)
    assert (run.transfers[:, 4] - run.transfers[:, 3] >= 0.02).all()
    # Eight blocks cross one link with one channel, one after another.
    assert len(run.transfers) == 8 and run.seconds >= 8 * 0.02


def relus(edges: list[tuple[int, int]], flops: list[float], devices: int = 2, **network) -> Problem:
    """An input and operations of one operand each."""
    n = len(flops)
    graph = ComputationGraph(
        [f"n{i}" for i in range(n)], ["input", *["relu"] * (n - 1)], flops, np.full(n, 512.0), edges, np.full(len(edges), 512.0),
        output_shapes=((8, 8),) * n,
    )  # fmt: skip
    return Problem(graph, DeviceNetwork(tuple(f"d{i}" for i in range(devices)), 1.0, **{"bandwidth": 1e12, "delay": 0.0, **network}))


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_next_task_is_chosen_by_the_strategy(strategy):
    # Two chains on one device: 1 -> 2 -> 3, and 4 alone with a long tail elsewhere.
    problem, placement = relus([(0, 1), (1, 2), (2, 3), (0, 4), (4, 5)], [0, 1, 1, 1, 1, 50]), np.array([0, 0, 0, 0, 0, 1], dtype=np.int16)
    run, _, _ = outputs(problem, placement, Discipline(strategy))
    simulated = WorkConservingSimulator(Discipline(strategy)).evaluate(problem, placement[None, :], trace=True)
    assert np.argsort(run.start[1:5]).tolist() == np.argsort(simulated.start[0][1:5]).tolist()


def test_transfers_overlap_with_computation():
    """While a slow copy of the first result is on its way, its device goes on with a chain that does not need it."""
    n = 12
    problem = relus([(0, 1), *((i, i + 1) for i in range(1, n - 2)), (1, n - 1)], [0.0] + [1.0] * (n - 1), delay=0.2)
    placement = np.zeros(n, dtype=np.int16)
    placement[-1] = 1
    run, _, _ = outputs(problem, placement)
    ((_, _, _, begin, end),) = run.transfers.tolist()
    assert end - begin >= 0.2 and (run.finish[2:-1] < end).all() and run.start[-1] >= end
    assert run.finish[n - 2] < begin + 0.1, "the chain did not wait"


def test_parameters_count_in_memory_as_in_the_simulator():
    base = relus([(0, 1)], [0.0, 1.0])
    graph = ComputationGraph(
        base.graph.names, base.graph.op_types, [0.0, 1.0], [512.0] * 2, [(0, 1)], [512.0], parameter_bytes=[0.0, 4096.0],
        output_shapes=((8, 8),) * 2,
    )  # fmt: skip
    for memory, outcome in ((4096 + 1024, Outcome.OK), (4096 + 1023, Outcome.OUT_OF_MEMORY)):
        problem = Problem(graph, DeviceNetwork(("d0",), 1.0, 1.0, 0.0, memory=memory))
        placement = np.zeros(2, dtype=np.int16)
        assert outputs(problem, placement)[0].outcome == outcome
        assert WorkConservingSimulator().evaluate(problem, placement[None, :]).outcome[0] == outcome


@pytest.mark.parametrize("where", ["inputs", "kernel"])
def test_a_machine_without_memory_is_an_outcome(where, monkeypatch):
    problem = relus([(0, 1)], [0.0, 1.0], devices=1)
    executor = Executor(parse_devices((CORE,)), Discipline())
    program = Program(problem, executor.devices, ShardedCode(problem.graph, 0))

    def full(*_):
        raise RuntimeError("[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory: you tried to allocate 1 byte")

    if where == "inputs":
        monkeypatch.setattr(program, "leaf_on", full)
    else:
        program._kernels[1, torch.device("cpu")] = full
    run = executor.run(program, np.zeros(2, dtype=np.int16), limit=30.0)
    assert run.outcome == Outcome.OUT_OF_MEMORY and "can't allocate memory" in run.note
    executor.close()


def test_a_wrong_result_is_a_fault_and_no_reward():
    child = _Child((CORE,), Discipline(), Measuring(warm_up=0, repetitions=1), False, True, 0)
    problem = relus([(0, 1)], [0.0, 1.0], devices=1)
    child.prepare(problem)
    program, _ = child.programs[problem.content_hash]
    placement = np.zeros(2, dtype=np.int16)
    assert child.measure(problem.content_hash, placement)["outcome"] == Outcome.OK
    program._kernels[1, torch.device("cpu")] = torch.negative
    found = child.measure(problem.content_hash, placement)
    assert found["outcome"] == Outcome.INFRASTRUCTURE and "differs from single-device execution" in found["note"]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("devices", [("cuda:0", "cuda:0"), ("cuda:0", CORE)])
def test_cuda_devices_give_the_same_results(devices):
    problem = problem_of("llama-block", 2, element_bytes=4)
    placement = np.random.default_rng(1).integers(0, 2, problem.n_nodes).astype(np.int16)
    with Engine(devices, measuring=Measuring(warm_up=1, repetitions=2, time_limit=60.0)) as engine:
        m = engine.evaluate(problem, placement[None, :], trace=True)
    assert m.ok.all(), m.notes


@pytest.fixture(scope="module")
def engine():
    with Engine((CORE, CORE), measuring=Measuring(warm_up=1, repetitions=4, average_last=2, time_limit=300.0)) as engine:
        yield engine


def test_measurements(engine):
    problem = problem_of("ffnn", 2)
    placements = np.array([np.zeros(problem.n_nodes), np.arange(problem.n_nodes) % 2, np.full(problem.n_nodes, 2)], dtype=np.int16)
    m = engine.evaluate(problem, placements, first=5, trace=True)
    assert m.outcome.tolist() == [Outcome.OK, Outcome.OK, Outcome.INVALID]
    for i in range(2):
        assert len(m.samples[i]) == 4
        assert m.seconds[i] == m.samples[i][-2:].mean() == m.objective[i]
    assert np.isnan(m.seconds[2]) and m.objective[2] == np.inf
    assert m.transfers[0].shape == (0, 5) and len(m.transfers[1])
    assert m[1].transfers[0] is m.transfers[1]
    assert "runs=1+4 last=2 mean" in m.protocol and not engine.deterministic


def test_an_operation_that_raises_is_an_outcome(engine):
    shapes = ((4, 3), (4, 3), (4, 3))
    graph = ComputationGraph(
        ["a", "b", "bad"], ["input", "input", "matmul"], np.zeros(3), np.full(3, 48.0), [(0, 2), (1, 2)], [48.0, 48.0], output_shapes=shapes
    )
    problem = Problem(graph, DeviceNetwork(("d0", "d1"), 1e9, 1e9, 0.0))
    with Engine((CORE, CORE), measuring=Measuring(time_limit=300.0), check_results=False) as unchecked:
        m = unchecked.evaluate(problem, np.zeros((1, 3), dtype=np.int16))
        assert m.outcome[0] == Outcome.INVALID and "'bad' raised RuntimeError" in m.notes[0]
        # The same process goes on.
        assert unchecked.evaluate(problem_of("ffnn", 2), np.zeros((1, 192), dtype=np.int16)).ok.all()
    # When results are checked, the graph does not even run on one device: nothing is known about the placement.
    m = engine.evaluate(problem, np.zeros((1, 3), dtype=np.int16))
    assert m.outcome[0] == Outcome.INFRASTRUCTURE and "RuntimeError" in m.notes[0]


@pytest.mark.thorough
def test_time_limits_and_dead_processes_never_hang(engine):
    slow = problem_of("chainmm", 2, delay=3000.0)
    spread = np.random.default_rng(0).integers(0, 2, (1, 112)).astype(np.int16)
    with Engine((CORE, CORE), measuring=Measuring(time_limit=0.3)) as limited:
        m = limited.evaluate(slow, spread)
        assert m.outcome[0] == Outcome.TOO_SLOW and "did not end within" in m.notes[0]
    problem = problem_of("chainmm", 2)
    assert engine.evaluate(problem, spread).ok.all()
    killer = killing(engine, times=2)
    m = engine.evaluate(slow, spread)
    killer.join()
    assert m.outcome[0] == Outcome.INFRASTRUCTURE and "exit code -9" in m.notes[0]
    assert engine.evaluate(problem, spread).ok.all()


def killing(engine: Engine, times: int) -> threading.Thread:
    """Kills the engine's process in half a second, and as many that take its place."""

    def kill() -> None:
        killed: set[int] = set()
        while len(killed) < times:
            time.sleep(0.5)
            process = engine._process
            if process is not None and process.alive and process.popen.pid not in killed:
                os.kill(process.popen.pid, signal.SIGKILL)
                killed.add(process.popen.pid)

    thread = threading.Thread(target=kill)
    thread.start()
    return thread


@pytest.mark.thorough
def test_a_placement_whose_process_was_killed_is_measured_before_the_next(engine):
    """Two placements of which the first takes long: its process dies once, and both are measured, in order."""
    problem = problem_of("chainmm", 2, delay=0.05)
    spread = np.random.default_rng(0).integers(0, 2, (2, 112)).astype(np.int16)
    engine.evaluate(problem, spread[:1])
    before = engine._process.popen.pid
    killer = killing(engine, times=1)
    found = engine.evaluate(problem, spread)
    killer.join()
    assert found.ok.all() and engine._process.popen.pid != before


def test_a_bad_placement_is_cut_off():
    spread = np.random.default_rng(0).integers(0, 2, (1, 112)).astype(np.int16)
    with Engine((CORE, CORE), measuring=Measuring(cut_off=0.1, time_limit=300.0)) as engine:
        m = engine.evaluate(problem_of("chainmm", 2, delay=3000.0), spread)
    assert m.outcome[0] == Outcome.TOO_SLOW and "within 0.1 s" in m.notes[0]


@pytest.mark.thorough
def test_bad_input_is_explained(engine):
    with pytest.raises(InputError, match="the engine has 2 devices"):
        engine.evaluate(problem_of("ffnn", 3), np.zeros((1, 192), dtype=np.int16))
    with pytest.raises(InputError, match="'tpu:0' is not of the form"):
        parse_devices(("tpu:0",))
    with pytest.raises(InputError, match="names core 4095"):
        parse_devices(("cpu:4095",))
    with Engine((CORE, "cpu:4095")) as absent:
        for _ in range(2):  # the process that refused is not asked again
            with pytest.raises(InputError, match="names core 4095"):
                absent.evaluate(problem_of("ffnn", 2), np.zeros((1, 192), dtype=np.int16))
    with pytest.raises(InputError, match="average_last is 11"):
        Measuring(average_last=11)
    with pytest.raises(InputError, match="the limit finite"):
        Measuring(time_limit=float("inf"))
    with pytest.raises(InputError, match="did you mean 'fifo'"):
        Discipline("fifi")


def test_longest_path_by_hand():
    graph = ComputationGraph(list("abcd"), ["op"] * 4, np.zeros(4), np.zeros(4), [(0, 1), (0, 2), (1, 3), (2, 3)], np.zeros(4))
    found = longest_to_exit(graph, np.array([1.0, 2.0, 5.0, 1.0]), np.array([10.0, 1.0, 0.0, 0.0]))
    assert found.tolist() == [14.0, 3.0, 6.0, 1.0]
