"""What the policy sees of a problem: numbers of its graph, of every node, and of every node on every device. Nothing learns here."""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np

from envs.problem.problem import Problem
from methods.placing.list_scheduling import Tasks, _downward, _upward, mean_costs, tasks_of

GRAPH = ("one", "transfers", "width", "heterogeneity", "size", "devices", "chain", "bound", "memory")
"""Of the graph: a constant; logarithms of transfer time to compute time, of its mean width to the devices, of the spread of times between
devices, of the numbers of nodes and devices, and of nodes to levels; the part of pairs of a node and a device that may not be; and how much
memory is needed, of what there would be if every device had as much as the one with the least."""
NODE = ("upward", "downward", "slack", "seconds", "spread", "in", "out", "sent", "received")
"""Of a node: ranks and slack to the critical path; its mean seconds, their spread between devices; its degrees; its transfers."""
PAIR = ("optimistic", "slower", "sent", "crowded", "onward")
"""Of a node on a device, seconds above the device where it is least: the optimistic cost table (PEFT; Arabnejad and Barbosa 2014), its own
time, sending its output, its time on a device that is fastest for many, and the optimistic table with links as they are on the average."""
RANK = ("upward", "fastest", "downward", "optimistic", "own", "below")
"""What a priority is made of, seconds: upward rank by mean and by least costs, downward rank, least optimistic cost, own seconds, and work
of all that reads it directly."""


class Features(NamedTuple):
    """Of one problem under given seconds."""

    graph: np.ndarray
    """float64[len(GRAPH)], about -1 to 1."""
    node: np.ndarray
    """float64[V, len(NODE)], about 0 to 1."""
    pair: np.ndarray
    """Seconds, float64[V, D, len(PAIR)]."""
    rank: np.ndarray
    """Seconds, float64[V, len(RANK)]."""
    producers: np.ndarray
    """int64[E]."""
    consumers: np.ndarray
    """int64[E]."""


def features(problem: Problem, seconds: np.ndarray) -> Features:
    """The features of ``problem`` where operations take ``seconds`` float64[V, D] instead of what its costs say."""
    tasks, feasible = tasks_of(problem), problem.feasible
    producers, consumers = problem.graph.edges[:, 0].astype(np.int64), problem.graph.edges[:, 1].astype(np.int64)
    transfer = mean_costs(problem)[1]
    masked = np.where(feasible, seconds, np.nan)
    mean, least = np.nanmean(masked, axis=1), np.nanmin(masked, axis=1)
    up, down = _upward(tasks, mean, transfer), _downward(tasks, mean, transfer)
    pair, optimistic = _pairs(problem, seconds, least)
    below = np.bincount(producers, weights=mean[consumers], minlength=len(seconds))
    rank = np.stack([up, _upward(tasks, least, np.zeros_like(transfer)), down, optimistic, mean, below], axis=1)
    spread = np.nan_to_num(np.nanstd(masked, axis=1) / (mean + 1e-300))
    node = _nodes((up, down, mean, spread), (producers, consumers), transfer)
    levels = max(1.0, float(_upward(tasks, np.ones(len(seconds)), np.zeros_like(transfer)).max()))
    full = float(problem.held_bytes.sum() / (problem.network.memory.min() * feasible.shape[1]))
    limits = (1.0 - float(feasible.mean()), min(1.0, full))
    graph = _graph(mean, transfer, float(up.max()), float(spread.mean()), seconds.shape, levels, limits)
    return Features(graph, node, pair, rank, producers, consumers)


def _pairs(problem: Problem, seconds: np.ndarray, least: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """`PAIR` float64[V, D, P], and the least optimistic cost of every node."""
    network, tasks, feasible, d = problem.network, tasks_of(problem), problem.feasible, problem.n_devices
    away = ~np.eye(d, dtype=bool)
    link = np.array([network.delay[away].mean(), network.seconds_per_byte[away].mean()]) if d > 1 else np.zeros(2)
    table = _optimistic(tasks, seconds, network.delay, network.seconds_per_byte)
    onward = _optimistic(tasks, seconds, np.where(away, link[0], 0.0), np.where(away, link[1], 0.0))
    sent = _sent(tasks, network.delay, network.seconds_per_byte)
    crowd = np.bincount(np.where(feasible, seconds, np.inf).argmin(axis=1), weights=least, minlength=d)
    crowd = crowd / max(crowd.mean(), 1e-300)
    pair = np.stack([table, seconds, sent, seconds * crowd, onward], axis=2)
    pair = pair - np.where(feasible[:, :, None], pair, np.inf).min(axis=1, keepdims=True)
    return pair, np.where(feasible, table, np.inf).min(axis=1)


def _nodes(costs: tuple[np.ndarray, ...], ends: tuple[np.ndarray, np.ndarray], transfer: np.ndarray) -> np.ndarray:
    """`NODE` of ranks, mean seconds and their spread, float64[V, N]."""
    up, down, mean, spread = costs
    producers, consumers = ends
    v, path, average = len(mean), max(float((up + down).max()), 1e-300), max(float(mean.mean()), 1e-300)
    read, written = np.bincount(consumers, minlength=v), np.bincount(producers, minlength=v)
    out, into = (np.bincount(e, weights=transfer, minlength=v) for e in (producers, consumers))
    logs = [np.log1p(read) / 3, np.log1p(written) / 3, np.log1p(out / average) / 3, np.log1p(into / average) / 3]
    return np.stack([up / path, down / path, 1.0 - (up + down) / path, np.log1p(mean / average), spread, *logs], axis=1)


def _graph(
    mean: np.ndarray, transfer: np.ndarray, path: float, spread: float, shape: tuple[int, ...], levels: float, limits: tuple[float, float]
) -> np.ndarray:
    """`GRAPH`, float64[G]."""
    (v, d), average = shape, max(float(mean.mean()), 1e-300)
    ratio = float(transfer.mean()) / average if len(transfer) else 0.0
    numbers = [
        1.0, np.log(ratio + 1e-3) / 4, np.log(max(mean.sum() / max(path, 1e-300) / d, 1e-3)) / 3, np.log(spread + 0.05) / 2 + 0.5,
        np.log(v / 100) / 4, np.log(d / 8) / 2, np.log(v / levels / 4) / 3, *limits,
    ]  # fmt: skip
    return np.clip(np.array(numbers), -1.5, 1.5)


@numba.njit(cache=True, nogil=True)
def _optimistic(tasks: Tasks, seconds: np.ndarray, delay: np.ndarray, per_byte: np.ndarray) -> np.ndarray:
    """PEFT's table: the longest way from a node on a device to an exit if everything after it could choose freely, float64[V, D]."""
    n, d = seconds.shape
    table = np.zeros((n, d))
    for i in range(n - 1, -1, -1):
        v = tasks.order[i]
        for e in range(tasks.out_pointer[v], tasks.out_pointer[v + 1]):
            c = tasks.children[e]
            together = tasks.leaders[c] == tasks.leaders[v]
            for k in range(d):
                best = np.inf
                for j in range(d):
                    if tasks.feasible[c, j] and (j == k or not together):
                        cost = table[c, j] + seconds[c, j]
                        if j != k:
                            cost += delay[k, j] + tasks.out_bytes[e] * per_byte[k, j]
                        best = min(best, cost)
                if best < np.inf:
                    table[v, k] = max(table[v, k], best)
    return table


@numba.njit(cache=True, nogil=True)
def _sent(tasks: Tasks, delay: np.ndarray, per_byte: np.ndarray) -> np.ndarray:
    """Mean seconds of a node's longest transfer from each device to another, float64[V, D]."""
    n, d = tasks.seconds.shape
    sent = np.zeros((n, d))
    for v in range(n):
        for e in range(tasks.out_pointer[v], tasks.out_pointer[v + 1]):
            if tasks.leaders[tasks.children[e]] != tasks.leaders[v]:
                for k in range(d):
                    total = 0.0
                    for j in range(d):
                        if j != k:
                            total += delay[k, j] + tasks.out_bytes[e] * per_byte[k, j]
                    sent[v, k] = max(sent[v, k], total / max(d - 1, 1))
    return sent
