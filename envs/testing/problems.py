"""The problem that evaluators are tried on, and placements of any problem that run or cannot run. No tests belong here."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from envs.problem.graph import ComputationGraph
from envs.problem.network import DeviceNetwork
from envs.problem.problem import Problem


def small_problem() -> Problem:
    """Six operations on three devices, two of them kept together, one that a single device may not run."""
    graph = ComputationGraph(
        names=("in", "left", "right", "right2", "join", "out"), op_types=("op",) * 6, flops=[1.0, 4.0, 2.0, 3.0, 5.0, 1.0],  # type: ignore[arg-type]
        output_bytes=[2.0] * 6, edges=[(0, 1), (0, 2), (2, 3), (1, 4), (3, 4), (4, 5)], edge_bytes=[2.0] * 6,  # type: ignore[arg-type]
        colocation=[-1, -1, 0, 0, -1, -1], hardware=("", "big", "", "", "", ""), parameter_bytes=[1.0] * 6, name="small",  # type: ignore[arg-type]
    )  # fmt: skip
    supports = (frozenset({"big"}), frozenset({"big"}), frozenset[str]())
    return Problem(graph, DeviceNetwork(("a", "b", "c"), [1.0, 2.0, 4.0], 3.0, 0.25, supports=supports))  # type: ignore[arg-type]


def valid_placements(problem: Problem, count: int) -> np.ndarray:
    """Random placements int16[count, V] that keep every constraint; the same each time."""
    draw = np.random.default_rng(0).random((count, problem.n_nodes, problem.n_devices))
    return problem.colocate((draw * problem.feasible).argmax(axis=2))


def invalid_placements(problem: Problem) -> np.ndarray:
    """Placements int16[N, V] that break a constraint each: a device before the first, one behind the last, and, where the problem has
    any, a device that an operation may not use and a co-location group that is parted."""
    broken = [(0, -1), (0, problem.n_devices)]
    forbidden = np.argwhere(~problem.feasible)
    broken += [tuple(forbidden[0].tolist())] if len(forbidden) else []
    rows = np.repeat(valid_placements(problem, 1), len(broken), axis=0)
    for row, (node, device) in zip(rows, broken, strict=True):
        row[node] = device
    follower = np.flatnonzero(problem.leaders != np.arange(problem.n_nodes))
    choices = np.flatnonzero(problem.feasible[follower[0]]) if follower.size else np.empty(0, dtype=np.int64)
    if len(choices) > 1:
        parted = valid_placements(problem, 1)
        parted[0, follower[0]] = choices[choices != parted[0, follower[0]]][0]
        rows = np.concatenate([rows, parted])
    return rows


def mixed_placements(problem: Problem, count: int) -> np.ndarray:
    """``count`` valid placements with `invalid_placements` between and behind them, int16[B, V]."""
    good, bad = valid_placements(problem, count), invalid_placements(problem)
    return np.concatenate([good[:1], bad[:1], good[1:], bad[1:]])


def without_memory(problem: Problem) -> Problem:
    """The same on devices whose memory no output fits."""
    return replace(problem, network=replace(problem.network, memory=np.full(problem.n_devices, 1e-3)))
