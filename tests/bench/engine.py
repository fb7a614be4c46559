"""What the dataflow engine adds to the kernels it runs, and how fast DOPPLER learns."""

from __future__ import annotations

import time

import numpy as np

from envs.graphs.sharded import sharded
from envs.hosts.engine.overhead import measure as engine_overhead
from envs.networks.named import named_network
from envs.problem.problem import Problem
from envs.simulators.work_conserving.evaluator import WorkConservingSimulator
from methods.contract.registry import build
from tests.bench.figure import Figure, at_most

EPISODES = 48


def measure() -> list[Figure]:
    """The engine on real cores; DOPPLER's episodes with their share of learning, simulation included, in seconds of CPU."""
    figures = []
    for graph in ("chainmm", "llama-block"):
        found = min((engine_overhead(graph) for _ in range(3)), key=lambda o: o.added)
        note = f"{1e6 * found.plain:.1f} µs in a plain loop; spread over two devices {1e6 * found.spread:.1f} µs a task"
        figures.append(at_most(f"the engine's own time an operation, {graph}", 1e6 * found.added, "µs", 15, note))
    problem = Problem(sharded("llama-layer"), named_network("p100-4"))
    for per_update in (1, 8):
        figures.append(_episodes(problem, per_update))
    return figures


def _episodes(problem: Problem, per_update: int) -> Figure:
    """Milliseconds an episode at ``per_update`` episodes an update."""
    method = build("doppler", {"episodes_per_update": per_update}, [problem], 0)
    simulator = WorkConservingSimulator()

    def episodes(count: int) -> None:
        for _ in range(count // per_update):
            method.update([simulator.evaluate(problem, p.placements) for p in method.propose(per_update)])

    episodes(2 * per_update)
    best = np.inf
    for _ in range(3):
        begin = time.process_time()  # of this process alone: one core, whoever else is on the machine
        episodes(EPISODES)
        best = min(best, time.process_time() - begin)
    name = f"DOPPLER, an episode of {problem.n_nodes} nodes × {problem.n_devices} devices with its learning, {per_update} an update"
    return at_most(name, 1e3 * best / EPISODES, "ms", 25, "CPU time, one core")
