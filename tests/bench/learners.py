"""GiPH's steps in training and in search, by the instance, at two sizes; an episode of HSDAG on ResNet-50."""

from __future__ import annotations

import time

from envs.costs.roofline import RooflineCosts
from envs.graphs.capture import capture
from envs.graphs.synthetic import TaskGraphParameters, generate_graph
from envs.networks.named import named_network
from envs.networks.synthetic import NetworkParameters, generate_network
from envs.problem.problem import Problem
from envs.simulators.fifo.evaluator import Simulator
from methods.contract.registry import build
from tests.bench.figure import Figure, at_most

REFERENCE = {(25, 20): (61.0, 55.0), (99, 10): (122.0, 116.0)}
"""Milliseconds a step of the authors' code, measured by us: training and search, CPU time on two cores; tasks x devices."""
FASTER = 40.0
LANES = 8
HSDAG_TARGET = 300.0
"""Milliseconds of the policy's own time for an episode of 20 steps, its update included."""


def problems(tasks: int, devices: int) -> list[Problem]:
    """As many problems as episodes run in lockstep; at 25 x 20 a task has about seven devices."""
    graph = TaskGraphParameters(tasks=tasks, shape=0.3, connection_probability=0.1, hardware_types=5)
    network = generate_network(NetworkParameters(devices=devices, hardware_types=5, support_probability=0.35 if devices == 20 else 0.5), 0)
    return [Problem(generate_graph(graph, seed), network) for seed in range(LANES)]


def step_ms(found: list[Problem], learn: bool) -> float:
    """CPU milliseconds a step and instance, simulation and updates included, of one batch of episodes; the best of three."""
    best = float("inf")
    for _ in range(3):
        method = build("giph", {"batch": LANES, "episodes": LANES, "learn": learn}, found, 0)
        simulator, steps = Simulator(), 0
        begin = time.process_time()
        while proposals := method.propose(LANES):
            method.update([simulator.evaluate(found[p.problem], p.placements, trace=True) for p in proposals])
            steps += len(proposals)
        best = min(best, (time.process_time() - begin) / steps * 1e3)
    return best


def measure() -> list[Figure]:
    """At each size a step of training (the update shared by the episode's steps) and one of search."""
    figures = []
    for (tasks, devices), reference in REFERENCE.items():
        found = problems(tasks, devices)
        options = sum(int(p.feasible.sum()) for p in found) // LANES
        edges = sum(p.graph.n_edges for p in found) // LANES
        for what, theirs, learn in zip(("training", "search"), reference, (True, False), strict=True):
            value = step_ms(found, learn)
            note = f"{edges} edges, {options} options, {LANES} in lockstep; the authors' code {theirs:g} ms, {theirs / value:.0f} x"
            figures.append(at_most(f"GiPH, a step of {what}, {tasks} × {devices}", value, "ms", theirs / FASTER, note))
    figures.append(
        at_most(
            "HSDAG, an episode of 20 steps with its learning, ResNet-50",
            hsdag_ms(),
            "ms",
            HSDAG_TARGET,
            "CPU time, one core; measuring excluded",
        )
    )
    return figures


def hsdag_ms() -> float:
    """CPU milliseconds of one episode with the settings of Table 6, without simulating; the best of five."""
    problem = Problem(capture("resnet-50"), named_network("i9-flex170"), RooflineCosts())
    method, simulator, best = build("hsdag", {}, [problem], 0), Simulator(), float("inf")
    for _ in range(5):
        begin = time.process_time()
        (proposal,) = method.propose(20)
        proposing = time.process_time() - begin
        measured = simulator.evaluate(problem, proposal.placements)
        begin = time.process_time()
        method.update([measured])
        best = min(best, proposing + time.process_time() - begin)
    return best * 1e3
