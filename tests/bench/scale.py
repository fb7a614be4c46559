"""GDP on a graph of more than 50,000 operations: 8-layer GNMT's training step (traced once, then cached), eight simulated P100s."""

from __future__ import annotations

import resource
import time

from tests.bench.figure import Figure, at_most


def measure() -> list[Figure]:
    """Wall times on all cores; memory is the peak of a process that also traced the graph if it was not cached."""
    from envs.costs.roofline import RooflineCosts
    from envs.graphs.capture import capture
    from envs.networks.named import named_network
    from envs.problem.problem import Problem
    from envs.simulators.fifo.evaluator import Simulator
    from methods.contract.registry import build

    graph = capture("gnmt-8", training=True, host_inputs=True, optimizer="sgd", length=80)
    problem = Problem(graph, named_network("p100-host-8"), RooflineCosts())
    method = build("gdp", {}, [problem], 0)
    method.place(problem)  # the first call allocates
    begin = time.perf_counter()
    method.place(problem)
    place = time.perf_counter() - begin
    proposals = method.propose(10)
    results = [Simulator().evaluate(problem, p.placements) for p in proposals]
    begin = time.perf_counter()
    method.update(results)
    update = time.perf_counter() - begin
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    note = f"{graph.n_nodes:,} operations"
    return [
        at_most("GDP, one placement by the policy", place, "s", 10, note),
        at_most("GDP, a PPO update (4 epochs over 10 placements)", update, "s", 60, note),
        at_most("GDP, peak memory of both", memory, "GiB", 6, note),
    ]
