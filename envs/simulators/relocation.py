"""What moving tasks away from the placement in force costs, as a wrapper around any evaluator (GiPH section 5.3). Nothing searches here.

A task that changes its device takes its state along, is initialised there and starts up (Table 2). The paper's cost is the sum over moved
tasks of migration and start-up, divided by how often the pipeline runs, and added to the latency. Left open, and chosen here: static data,
which a device may have already, counts on demand only; devices of type B, which were not measured, start up in the mean time of
A and C; an operation of another kind than the table's takes its weights along and starts at once. What is in force is a random
placement, always the same for one graph on one network.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from envs.problem.errors import InputError
from envs.problem.measurement import Evaluator, Measurements, Wrapper, exactly
from envs.problem.problem import Problem

MIGRATED = {"camera-detection": 11494.0, "lidar-detection": 560.0, "vehicle-fusion": 11796.0, "intersection-fusion": 20907.0}
"""Bytes of state that move with a task (Table 2)."""
STATIC = {"camera-detection": 72173525.0, "lidar-detection": 24576.0, "vehicle-fusion": 38110.0, "intersection-fusion": 38950.0}
"""Bytes that initialise a task (Table 2)."""
STARTUP = {
    "camera-detection": {"A": 4.27373, "C": 0.79466},
    "lidar-detection": {"A": 0.06098, "C": 0.00926},
    "vehicle-fusion": {"A": 0.00039, "C": 0.00011},
    "intersection-fusion": {"A": 0.00283, "C": 0.00100},
}
"""Seconds until a task runs on a device of type A or C (Table 2)."""


def placement_in_force(problem: Problem) -> np.ndarray:
    """The placement int16[V] that relocations are counted from: feasible, and drawn from what graph and network are."""
    key = [int(h[:16], 16) for h in (problem.graph.content_hash, problem.network.content_hash)]
    draw = np.random.default_rng(np.random.SeedSequence(key)).random(problem.n_nodes)
    feasible = problem.feasible
    ranked = np.cumsum(feasible, axis=1)
    chosen = (ranked > np.floor(draw * ranked[:, -1])[:, None]).argmax(axis=1)
    return problem.colocate(chosen)


def relocation_seconds(problem: Problem, placements: np.ndarray, static: bool = False) -> np.ndarray:
    """Seconds of moving from the placement in force to each of ``placements`` int16[B, V], summed over tasks, float64[B]."""
    kinds, network = problem.graph.op_types, problem.network
    data = np.array([MIGRATED.get(k, w) for k, w in zip(kinds, problem.graph.parameter_bytes.tolist(), strict=True)])
    if static:
        data = data + np.array([STATIC.get(k, 0.0) for k in kinds])
    start = np.array([[_startup(k, device) for device in network.kinds] for k in kinds])
    before, after = placement_in_force(problem)[None, :], np.asarray(placements, dtype=np.int64)
    rows = np.arange(problem.n_nodes)[None, :]
    moving = network.delay[before, after] + data[None, :] * network.seconds_per_byte[before, after] + start[rows, after]
    return np.where(after != before, moving, 0.0).sum(axis=1)


def _startup(kind: str, device: str) -> float:
    table = STARTUP.get(kind, {})
    return table.get(device, sum(table.values()) / len(table) if table else 0.0)


@dataclass(frozen=True)
class Relocating(Wrapper):
    """Adds the cost of relocation, shared by all runs of the pipeline in a second, to the makespan as objective.

    Args:
        inner: measures the makespan.
        frequency: runs of the pipeline a second; the more often it runs, the less a relocation weighs.
        static: whether static data moves too.

    Raises:
        InputError: for a frequency that is not positive; when used, for a problem whose objective is not the makespan.
    """

    inner: Evaluator
    frequency: float
    static: bool = False

    def __post_init__(self) -> None:
        if not 0 < self.frequency < float("inf"):
            raise InputError(f"relocation frequency is {self.frequency}; it must be a positive number of runs a second")

    @property
    def protocol(self) -> str:
        """The inner protocol and what is added."""
        return f"{self.inner.protocol} relocation={exactly(self.frequency)}/s{' with static data' if self.static else ''}"

    def evaluate(self, problem: Problem, placements: np.ndarray, seed: int = 0, *, first: int = 0, trace: bool = False) -> Measurements:
        """``objective`` is makespan + relocation / frequency, seconds, of rows that ran; ``seconds`` stays the makespan."""
        if problem.objective != "makespan":
            raise InputError(f"relocation is added to a makespan, but {problem.name} minimises {problem.objective}; remove one of the two")
        m = self.inner.evaluate(problem, placements, seed, first=first, trace=trace)
        cost = np.zeros(len(m))
        cost[m.ok] = relocation_seconds(problem, m.placements[m.ok], self.static) / self.frequency
        return replace(m, objective=m.objective + cost, protocol=self.protocol)
