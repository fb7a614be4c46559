"""The compiled simulator against the SimPy reference, per event, and on two cores."""

from __future__ import annotations

import numpy as np

from envs.graphs.synthetic import TaskGraphParameters, generate_graph
from envs.networks.synthetic import NetworkParameters, generate_network
from envs.problem.problem import Problem
from envs.simulators.fifo.evaluator import ReferenceSimulator, Simulator
from tests.bench.figure import Figure, at_least, at_most, side_by_side

SIZES = (40, 100, 500, 5_000, 50_000)


def problem(tasks: int, devices: int = 10) -> Problem:
    """A graph and a network of GiPH's Appendix B.2; the connection probability falls with size so that E / V stays near 5."""
    graph = generate_graph(TaskGraphParameters(tasks=tasks, shape=1.0, connection_probability=min(1.0, 10 / tasks)), seed=0)
    return Problem(graph, generate_network(NetworkParameters(devices=devices), seed=0))


def measure() -> list[Figure]:
    """An event is a task that ends or a transfer that arrives: V + E a placement."""
    return [figure for tasks in SIZES for figure in _size(tasks)]


def _size(tasks: int) -> list[Figure]:
    p, rng = problem(tasks), np.random.default_rng(0)
    events = p.n_nodes + p.graph.n_edges
    batch = rng.integers(0, p.n_devices, (max(2, 2_000_000 // events), p.n_nodes)).astype(np.int16)
    one, two, reference = Simulator(), Simulator(threads=2), ReferenceSimulator()
    one.evaluate(p, batch[:2])
    fast, both = side_by_side(lambda: one.evaluate(p, batch), lambda: two.evaluate(p, batch))
    figures = [at_most(f"time an event, {tasks:,} tasks", fast / len(batch) / events * 1e9, "ns", 30, f"{p.graph.n_edges:,} edges")]
    if tasks == 100:
        few = batch[:50]
        fast, slow = side_by_side(lambda: one.evaluate(p, batch), lambda: reference.evaluate(p, few))
        ratio = (slow / len(few)) / (fast / len(batch))
        figures.append(
            at_least("compiled simulator over SimPy, 100 tasks × 10 devices, one core", ratio, "×", 200, f"{p.graph.n_edges} edges")
        )
    if tasks == 500:
        figures.append(at_least("batch call on two cores over one, 500 tasks", fast / both, "×", 1.7))
    return figures
