"""What the operations of an exported program take on each device, what handing over costs, and what others that work beside cost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from envs.costs.table import TableCosts
from envs.hosts.engine.calibration import links
from envs.hosts.engine.devices import RealDevice, parse_devices, rivals
from envs.hosts.engine.host import Engine
from envs.problem.errors import InputError
from envs.problem.measurement import Measurements
from envs.problem.network import DeviceNetwork
from envs.problem.problem import Problem
from envs.simulators.work_conserving.discipline import free_inputs


@dataclass(frozen=True)
class ProgramCosts:
    """Seconds of every fragment on every device, and of handing results over, as measured here."""

    problem: Problem
    launch: np.ndarray
    """Seconds that an operation takes beside its own work on each device, part of the problem's costs, float64[D]."""
    hand_over: np.ndarray
    """Seconds from the end of an operation to the start of one on another device that waited for it, float64[D, D]."""
    contention: float
    """How much longer operations take while another device works."""


def calibrate(
    problem: Problem, engine: Engine, rounds: int = 5, seed: int = 0, progress: Callable[[int, int], None] | None = None
) -> ProgramCosts:
    """Measure everything on one device after the other, in turn, then placements that use several at a time.

    Args:
        problem: graph and network; its costs and links do not matter.
        engine: knows the graph's program.
        rounds: of all devices, and of mixed placements.
        seed: of the mixed placements.
        progress: told how many of how many measurements are made.

    Raises:
        InputError: if the program runs on no device, or not at all on several.
    """
    v, d = problem.n_nodes, problem.n_devices
    real = parse_devices(engine.devices)
    singles = problem.colocate(np.repeat(np.arange(d)[:, None], v, axis=1))
    rng = np.random.default_rng(seed)
    mixed = _mixed(problem, rng, 2 * rounds) if d > 1 else np.empty((0, v), dtype=np.int16)
    plan = [*np.tile(singles, (rounds, 1)), *mixed]
    runs = []
    for k, placement in enumerate(plan):
        runs.append(engine.evaluate(problem, placement[None, :], seed, trace=True))
        if progress:
            progress(k + 1, len(plan))
    alone = [[run for run in runs[device : rounds * d : d] if run.ok[0]] for device in range(d)]
    if not any(alone):
        raise InputError(f"{problem.graph.name!r} runs on none of {', '.join(problem.network.names)}: {(runs[0].notes or ('',))[0]}")
    free = free_inputs(problem.graph)
    seconds, launch = np.full((v, d), np.nan), np.zeros(d)
    for device, own in enumerate(alone):
        if own:
            took = np.array([run.finish[0] - run.start[0] for run in own])  # type: ignore[index]
            seconds[:, device] = np.median(took, axis=0)
            rest = [run.seconds[0] - np.nansum(row) for run, row in zip(own, took, strict=True)]
            launch[device] = max(float(np.median(rest)) / max(int((~free).sum()), 1), 0.0)
    together = [run for run in runs[rounds * d :] if run.ok[0]]
    for device in range(d):  # too little memory for everything: what mixed placements show of it
        if not alone[device] and together:
            took = np.array([np.where(r.placements[0] == device, r.finish[0] - r.start[0], np.nan) for r in together])  # type: ignore[index]
            seen = ~np.isnan(took).all(axis=0)
            seconds[seen, device] = np.nanmedian(took[:, seen], axis=0)
    unknown = np.isnan(seconds) & ~free[:, None]
    seconds = np.where(unknown, np.nanmax(np.where(np.isnan(seconds), -np.inf, seconds), axis=1, keepdims=True), seconds)
    slower = _contention(problem, together, seconds, real)
    shared = np.array([any(not set(rivals(real)[i]) & {j} for j in range(d) if j != i) for i in range(d)])
    costs = np.where(free[:, None], 0.0, seconds * np.where(shared, slower, 1.0) + launch)
    hand_over = _hand_overs(problem, together, launch)
    transfers = np.concatenate([np.empty((0, 5)), *(run.transfers[0] for run in together if run.transfers is not None)])
    network = links(problem, transfers)
    by_reference = np.array([[a.torch_device == b.torch_device for b in real] for a in real])
    delay = np.where(by_reference, hand_over, network.delay)
    bandwidth = np.where(by_reference, np.inf, network.bandwidth)
    np.fill_diagonal(delay, 0.0)
    network = DeviceNetwork(
        network.names, network.speed, bandwidth, delay, network.memory, kinds=network.kinds, supports=network.supports, name=network.name
    )
    table = TableCosts(problem.graph.names, network.names, np.nan_to_num(costs, posinf=1e3, neginf=1e3))
    return ProgramCosts(Problem(problem.graph, network, table, problem.objective, problem.allowed), launch, hand_over, slower)


def _mixed(problem: Problem, rng: np.random.Generator, count: int) -> np.ndarray:
    """Placements that use several devices: blocks of neighbouring operations, as good placements have them, and some that change often."""
    order, v, d = problem.graph.topological_order, problem.n_nodes, problem.n_devices
    placements = np.empty((count, v), dtype=np.int16)
    for k in range(count):
        block = int(rng.integers(1, max(2, v // 8)))
        placements[k, order] = np.repeat(rng.integers(0, d, v // block + 1), block)[:v]
    feasible = np.where(problem.feasible[np.arange(v), placements], placements, problem.feasible.argmax(axis=1))
    return problem.colocate(feasible)


def _contention(problem: Problem, runs: list[Measurements], alone: np.ndarray, devices: tuple[RealDevice, ...]) -> float:
    """How much longer operations take while another device works, by the median of all that were seen to; 1 if none was."""
    ratios = []
    for run in runs:
        start, finish, where = run.start[0], run.finish[0], run.placements[0]  # type: ignore[index]
        took = np.nan_to_num(finish - start)
        for v in np.flatnonzero(took > 2e-5):
            beside = np.minimum(finish[v], finish) - np.maximum(start[v], start)
            share = np.nansum(np.where((where != where[v]) & (beside > 0), beside, 0.0)) / took[v]
            if share > 0.8 and alone[v, where[v]] > 0:
                ratios.append(took[v] / alone[v, where[v]])
    return float(np.clip(np.median(ratios), 1.0, 3.0)) if len(ratios) >= 8 else 1.0


def _hand_overs(problem: Problem, runs: list[Measurements], launch: np.ndarray) -> np.ndarray:
    """Median seconds between devices, beside what starting takes anyway, float64[D, D]; that of all pairs for rare ones."""
    d, graph = problem.n_devices, problem.graph
    free = free_inputs(graph)
    gaps: dict[tuple[int, int], list[float]] = {}
    for run in runs:
        start, finish, where = run.start[0], run.finish[0], run.placements[0]  # type: ignore[index]
        last_on = {device: np.sort(finish[(where == device) & ~free]) for device in range(d)}
        pointer, ids = graph.in_edges
        for v in np.flatnonzero(~free):
            producers = graph.edges[ids[pointer[v] : pointer[v + 1]], 0]
            producers = producers[~free[producers]]
            if not producers.size:
                continue
            last = int(producers[finish[producers].argmax()])
            before = last_on[int(where[v])]
            at = int(np.searchsorted(before, start[v], side="right")) - 1
            # only where the device had nothing else to do when the last operand came
            if where[last] != where[v] and (at < 0 or before[at] <= finish[last]):
                gaps.setdefault((int(where[last]), int(where[v])), []).append(float(start[v] - finish[last]))
    everywhere = [gap for found in gaps.values() for gap in found]
    typical = float(np.median(everywhere)) if everywhere else 5e-5
    matrix = np.full((d, d), typical)
    for (i, j), found in gaps.items():
        if len(found) >= 8:
            matrix[i, j] = np.median(found)
    return np.maximum(matrix - launch[None, :], 0.0)
