"""From measurements of a real system to a problem that simulates it: operation times and links fitted to traces."""

from __future__ import annotations

import numpy as np

from envs.costs.table import TableCosts
from envs.problem.errors import InputError
from envs.problem.measurement import Evaluator
from envs.problem.network import DeviceNetwork
from envs.problem.problem import Problem

_FEW = 8
"""Transfers below which a link is fitted together with all others."""


def calibrated(problem: Problem, evaluator: Evaluator, rounds: int = 3, seed: int = 0, alone: bool = False) -> Problem:
    """``problem`` with the costs and links that traces of ``evaluator`` show.

    Random placements are measured together with all their cyclic shifts, so that every operation runs on every device while
    the other devices are busy too, as they are in use; an operation's time is the median over ``rounds`` of them. Links are
    ``delay + bytes / bandwidth`` by least squares. Where a trace shows nothing (infeasible pairs), the old costs stay.

    Args:
        problem: what to calibrate.
        evaluator: a real system with traces.
        rounds: of measurements.
        seed: of the placements.
        alone: take operations' times from runs of everything on one device. Where devices share a processor, times taken while the
            others are busy would hold the waiting for them, which a simulation with ``processors`` adds itself.

    Raises:
        InputError: if no placement could be measured, or the evaluator has no traces of transfers.
    """
    v, d = problem.n_nodes, problem.n_devices
    rng = np.random.default_rng(seed)
    base = rng.integers(0, d, (rounds, 1, v))
    wanted = ((base + np.arange(d)[None, :, None]) % d).reshape(-1, v)
    single = np.repeat(np.tile(np.arange(d), rounds * alone)[:, None], v, axis=1)
    wanted = np.concatenate((wanted, single))
    placements = problem.colocate(np.where(problem.feasible[np.arange(v), wanted], wanted, problem.feasible.argmax(axis=1)))
    found = evaluator.evaluate(problem, placements, seed, trace=True)
    if not found.ok.any():
        note = f" ({found.notes[0]})" if found.notes else ""
        raise InputError(f"no placement of {problem.name} could be measured to calibrate it{note}")
    if found.start is None or found.finish is None or found.transfers is None:
        raise InputError(f"evaluator {found.protocol!r} traces no transfers, so links cannot be calibrated by it")
    took = np.where(found.ok[:, None], found.finish - found.start, np.nan)
    if alone:
        took[: len(took) - len(single)] = np.nan
    seconds = np.array(problem.compute_seconds)
    for device in range(d):
        mine = np.where(placements == device, took, np.nan)
        seen = ~np.isnan(mine).all(axis=0)
        seconds[seen, device] = np.nanmedian(mine[:, seen], axis=0)
    # Nodes that no trace shows at all are inputs, which take no time.
    seconds[np.isnan(took).all(axis=0)] = 0.0
    network = links(problem, np.concatenate([t for t, ok in zip(found.transfers, found.ok, strict=True) if ok]))
    costs = TableCosts(problem.graph.names, network.names, seconds)
    return Problem(problem.graph, network, costs, problem.objective, problem.allowed)


def links(problem: Problem, transfers: np.ndarray) -> DeviceNetwork:
    """The network with links fitted to transfers (producer, sender, receiver, start, finish)."""
    network, d = problem.network, problem.n_devices
    delay, bandwidth = np.array(network.delay), np.array(network.bandwidth)
    size, took = problem.graph.output_bytes[transfers[:, 0].astype(int)], transfers[:, 4] - transfers[:, 3]
    if len(transfers):
        everywhere = _line(size, took)
        for i in range(d):
            for j in range(d):
                if i != j:
                    here = (transfers[:, 1] == i) & (transfers[:, 2] == j)
                    delay[i, j], bandwidth[i, j] = _line(size[here], took[here]) if here.sum() >= _FEW else everywhere
    return DeviceNetwork(
        network.names, network.speed, bandwidth, delay, network.memory, network.power, network.idle_power, network.link_energy,
        network.memory_bandwidth, network.launch_overhead, network.kinds, network.supports, f"{network.name}-calibrated",
    )  # fmt: skip


def _line(size: np.ndarray, took: np.ndarray) -> tuple[float, float]:
    """Delay and bandwidth of ``took = delay + size / bandwidth``, neither negative, relative errors weighing the same."""
    weight = 1.0 / np.maximum(took, 1e-9)
    slope = 0.0
    if np.ptp(size) > 0:
        slope, delay = np.linalg.lstsq(np.stack((size * weight, weight), axis=1), took * weight, rcond=None)[0]
        if delay < 0:  # through the origin instead
            slope, delay = float((size * took * weight**2).sum() / (size * size * weight**2).sum()), 0.0
    if slope <= 0:
        slope, delay = 0.0, float(np.median(took))
    return float(delay), 1.0 / slope if slope > 0 else np.inf
