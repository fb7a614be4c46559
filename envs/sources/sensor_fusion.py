"""Cooperative sensor fusion at intersections: one placement problem for a connected vehicle at one moment of a traffic trace.

GiPH section 5.3 and Appendix B.4. The paper gives: the tasks and their times on three types of devices (Table 1), road-side units
of type C at 36 intersections with four cameras each, vehicles that take part within 400 m, 10 / 10 / 20 edge devices of types A / B / C at
random places, bandwidth 60 exp(-d / 100) Mbps, detection on GPUs and fusion anywhere. Left open, and chosen here:

- A case is a vehicle, the intersections within 400 m of it, and the vehicles within 400 m of those (nearest first, ``max_vehicles``). A
  vehicle has a camera and a LIDAR, a detection for each, and their fusion, which goes to every intersection within 400 m of it. An
  intersection fuses these with what its four cameras detect; the vehicle of the case receives every intersection's result.
- Sensors and the receipt of the result take no time and stay where they are. Vehicles compute by devices of type A.
- Devices of a case are its vehicles, its intersections' units, and the units and edge devices within 400 m of any of those. All have a GPU.
- Data: a camera's picture ``picture_bytes`` (100 kB), a scan 6 kB, detections 1 kB, a vehicle's fusion 2 kB, an intersection's 4 kB.
  Bandwidth counts no distance below 1 m and none above ``far``, so that it stays finite; there is no delay.
- The paper fits a requirement of each task and, for each type's CPU and GPU, a speed and a start-up time to the table; here the table's
  times are used as they are. What features say of a task's work is its mean time over the types, and of a device's speed how fast it is at
  camera detection, for all tasks.
- ``max_vehicles`` binds in most cases of the recorded trace: without it, cases would be several times as large.
- Times are the table's means; a simulator's noise stands for their deviations. Power: what the data sheets allow the boards (10 W, 15 W,
  271 W), none when idle; a transfer takes 1 W.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from envs.costs.table import TableCosts
from envs.graphs.traffic import RECORDED, VehicleTrace, load_trace
from envs.problem.errors import InputError
from envs.problem.graph import ComputationGraph
from envs.problem.network import DeviceNetwork
from envs.problem.problem import Problem
from envs.problem.randomness import check_ranges
from envs.problem.ranges import MOST_TASKS

RANGE = 400.0
"""Metres within which vehicles, intersections and devices work together."""
CAMERAS = 4
TYPES = ("A", "B", "C")
SECONDS = {
    "camera-detection": (0.053, 0.036, 0.009),
    "lidar-detection": (0.014, 0.007, 0.003),
    "vehicle-fusion": (0.035, 0.035, 0.011),
    "intersection-fusion": (0.250, 0.250, 0.028),
}
"""Table 1: mean seconds on types A, B and C. What is not in it takes none."""
BYTES = {"lidar": 6e3, "camera-detection": 1e3, "lidar-detection": 1e3, "vehicle-fusion": 2e3, "intersection-fusion": 4e3}
"""Size of each task's output; a camera's is a parameter."""
POWER = {"A": 10.0, "B": 15.0, "C": 271.0}
RADIO = 1.0
"""Watts while data is on its way."""
EDGE_DEVICES = (10, 10, 20)


@dataclass(frozen=True)
class FusionParameters:
    """What `fusion_problem` needs.

    Raises:
        InputError: for a value out of range.
    """

    cases: int = 900
    """Cases taken from the trace, evenly over all moments and vehicles; ``seed`` 0 … cases - 1 is one of them."""
    max_vehicles: int = 4
    """Most vehicles of a case."""
    far: float = 1000.0
    """Metres beyond which bandwidth falls no further."""
    layout: int = 0
    """Seed of the places of the edge devices."""
    picture_bytes: float = 100e3
    """Of a camera. Table 2 moves 11 kB where a camera detection is relocated."""

    def __post_init__(self) -> None:
        check_ranges(self, cases=(1, MOST_TASKS), max_vehicles=(1, 1000), far=(1, 10_000), layout=(0, math.inf), picture_bytes=(0, 1e12))


@dataclass
class _Case:
    """Everything with a place that takes part."""

    names: list[str]
    types: list[str]
    places: np.ndarray
    vehicles: list[int]
    """Indices of the vehicles into the lists above; the first is the one of the case."""
    intersections: list[int]


def fusion_problem(parameters: FusionParameters, case: int, trace: Path | None = None, objective: str = "makespan") -> Problem:
    """One case.

    Args:
        parameters: how cases are made.
        case: which, from 0.
        trace: file of a trace; None takes the recorded one.
        objective: ``makespan`` or ``energy``.

    Raises:
        InputError: for a case that there is none of.
    """
    if not 0 <= case < parameters.cases:
        raise InputError(f"case {case} is not among the {parameters.cases} cases; choose 0 to {parameters.cases - 1}")
    file = trace or RECORDED
    rows = _usable(file)
    row = rows[case * len(rows) // parameters.cases]
    made = _take(load_trace(file), row, parameters)
    graph, network = _graph(made, parameters, f"fusion-{case}"), _network(made, parameters, f"fusion-{case}")
    kinds = np.array([SECONDS.get(kind, (0.0, 0.0, 0.0)) for kind in graph.op_types])
    seconds = kinds[:, [TYPES.index(t) for t in made.types]]
    return Problem(graph, network, TableCosts(graph.names, network.names, seconds), objective)


@lru_cache(maxsize=4)
def _usable(file: Path) -> np.ndarray:
    """Rows of the trace where a vehicle is within range of an intersection, int64[N]."""
    trace = load_trace(file)
    rows = np.flatnonzero((_distances(trace.position, trace.intersections) <= RANGE).any(axis=1))
    if not rows.size:
        raise InputError(f"no vehicle of {file} comes within {RANGE:g} m of an intersection; record a longer trace")
    return rows


def _distances(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Metres float64[A, B]."""
    return np.sqrt(((a[:, None, :].astype(np.float64) - b[None, :, :]) ** 2).sum(axis=2))


def _take(trace: VehicleTrace, row: int, p: FusionParameters) -> _Case:
    crossings = trace.intersections
    own = trace.position[row : row + 1]
    near = np.flatnonzero(_distances(own, crossings)[0] <= RANGE)
    others = trace.at(int(trace.time[row]))
    gap = _distances(trace.position[others], crossings[near]).min(axis=1)
    order = others[np.lexsort((others, gap))]
    cars = [row, *(int(r) for r in order if r != row and gap[np.flatnonzero(others == r)[0]] <= RANGE)][: p.max_vehicles]
    low, high = crossings.min(axis=0), crossings.max(axis=0)
    edge = low + (high - low) * np.random.default_rng(np.random.SeedSequence(p.layout)).random((sum(EDGE_DEVICES), 2))
    edge_types = np.repeat(TYPES, EDGE_DEVICES)
    core = np.concatenate([trace.position[cars], crossings[near]])
    units = [int(k) for k in np.flatnonzero(_distances(crossings, core).min(axis=1) <= RANGE) if k not in near]
    helpers = np.flatnonzero(_distances(edge, core).min(axis=1) <= RANGE)
    names = [*(f"vehicle{trace.vehicle[r]}" for r in cars), *(f"unit{k}" for k in [*near, *units]), *(f"edge{k}" for k in helpers)]
    types = ["A"] * len(cars) + ["C"] * (len(near) + len(units)) + edge_types[helpers].tolist()
    places = np.concatenate([core, crossings[units], edge[helpers]])
    return _Case(names, types, places, list(range(len(cars))), [len(cars) + k for k in range(len(near))])


def _graph(case: _Case, p: FusionParameters, name: str) -> ComputationGraph:
    names: list[str] = []
    kinds: list[str] = []
    needs: list[str] = []
    edges: list[tuple[int, int]] = []

    def add(what: str, kind: str, hardware: str, *inputs: int) -> int:
        names.append(what)
        kinds.append(kind)
        needs.append(hardware)
        edges.extend((u, len(names) - 1) for u in inputs)
        return len(names) - 1

    fused = []
    for k in case.vehicles:
        host = case.names[k]
        seen = [
            add(f"{host}.{sensor}-detection", f"{sensor}-detection", "gpu", add(f"{host}.{sensor}", sensor, f"at {host}"))
            for sensor in ("camera", "lidar")
        ]
        fused.append(add(f"{host}.fusion", "vehicle-fusion", "", *seen))
    near = _distances(case.places[case.intersections], case.places[case.vehicles]) <= RANGE
    results = []
    for k, close in zip(case.intersections, near, strict=True):
        host = case.names[k]
        seen = [
            add(f"{host}.camera{c}-detection", "camera-detection", "gpu", add(f"{host}.camera{c}", "camera", f"at {host}"))
            for c in range(CAMERAS)
        ]
        seen += [f for f, here in zip(fused, close, strict=True) if here]
        results.append(add(f"{host}.fusion", "intersection-fusion", "", *seen))
    ego = case.names[case.vehicles[0]]
    add(f"{ego}.result", "result", f"at {ego}", *results)
    pairs = np.array(sorted(edges), dtype=np.int32)
    output = np.array([p.picture_bytes if kind == "camera" else BYTES.get(kind, 0.0) for kind in kinds])
    work = np.array([np.mean(SECONDS.get(kind, 0.0)) for kind in kinds])
    return ComputationGraph(
        names=tuple(names), op_types=tuple(kinds), flops=work, output_bytes=output, edges=pairs, edge_bytes=output[pairs[:, 0]],
        hardware=tuple(needs), name=name,
        provenance="published generator",
    )  # fmt: skip


def _network(case: _Case, p: FusionParameters, name: str) -> DeviceNetwork:
    distance = np.clip(_distances(case.places, case.places), 1.0, p.far)
    bandwidth = 60e6 / 8 * np.exp(-distance / 100.0)
    slow = np.array([SECONDS["camera-detection"][TYPES.index(t)] for t in case.types])
    return DeviceNetwork(
        names=tuple(case.names),
        # Work is in mean seconds, so a speed of 1 is the mean device; the table says what counts, this only tells devices apart.
        speed=np.mean(SECONDS["camera-detection"]) / slow,
        bandwidth=bandwidth,
        delay=np.array(0.0),
        power=np.array([POWER[t] for t in case.types]),
        link_energy=RADIO / bandwidth,
        kinds=tuple(case.types),
        supports=tuple(frozenset({"gpu", f"at {n}"}) for n in case.names),
        name=name,
    )
