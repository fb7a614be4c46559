"""What DOPPLER's policies see of a problem (Appendix D). No networks and no episodes belong here."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from envs.problem.problem import Problem
from methods.placing.list_scheduling import free_entries, mean_costs

Costs = Literal["seconds", "appendix-d"]
OCTAVES = 4
POSITION_FEATURES = 2 + 2 * OCTAVES
COMMUNICATION_FACTOR = 4.0
"""Cost of a byte in FLOPs (Appendix D)."""


@dataclass(frozen=True, eq=False)
class Instance:
    """A problem as arrays for episodes (NumPy) and networks (torch); all costs are divided by `scale`."""

    problem: Problem
    scale: float
    """The work of all operations spread evenly over the devices, in the unit of the costs."""
    order: np.ndarray
    """Topological order, int64[V]."""
    in_pointer: np.ndarray
    parents: np.ndarray
    """Producer of each incoming edge, int64[E], grouped by consumer."""
    in_bytes: np.ndarray
    """Size of each incoming edge, float64[E]."""
    out_pointer: np.ndarray
    children: np.ndarray
    seconds: np.ndarray
    """Computation cost, float64[V, D]."""
    delay: np.ndarray
    per_byte: np.ndarray
    """Communication cost of a transfer and of its bytes, float64[D, D]."""
    to_exit: np.ndarray
    """Longest path from each node to an exit, itself included, float64[V]; the teacher selects by it."""
    free: np.ndarray
    """Inputs that are on every device, bool[V]."""
    feasible: np.ndarray
    leaders: np.ndarray
    need: np.ndarray
    """Bytes of a node with its co-location group, at the group's first node, float64[V]."""
    memory: np.ndarray
    features: Tensor
    """Static graph features X_V (D.1), float32[V, 5], and those of `positions` if asked for."""
    source: Tensor
    target: Tensor
    edge_features: Tensor
    """Communication cost of each edge, float32[E, 1]."""
    b_path: tuple[Tensor, Tensor, float]
    """(node, node on its longest path to an entry) pairs, and the number of nodes on the longest one."""
    t_path: tuple[Tensor, Tensor, float]
    """The same to an exit."""


@lru_cache(maxsize=64)
def instance(problem: Problem, costs: Costs, inputs_everywhere: bool, with_positions: bool = False) -> Instance:
    """The problem as the policies see it."""
    graph, network, v = problem.graph, problem.network, problem.n_nodes
    if costs == "appendix-d":
        seconds = np.repeat(graph.flops[:, None], problem.n_devices, axis=1)
        delay, per_byte = np.zeros_like(network.delay), COMMUNICATION_FACTOR * (1.0 - np.eye(problem.n_devices))
        compute, transfer = graph.flops, COMMUNICATION_FACTOR * graph.edge_bytes
    else:
        seconds, delay, per_byte = problem.compute_seconds, network.delay, network.seconds_per_byte
        compute, transfer = mean_costs(problem)
    free = free_entries(problem) if inputs_everywhere else np.zeros(v, dtype=bool)
    transfer = np.where(free[graph.edges[:, 0]], 0.0, transfer)
    scale = float(compute.sum()) / problem.n_devices or 1.0
    (in_pointer, incoming), (out_pointer, outgoing) = graph.in_edges, graph.out_edges
    to_exit, t_next = _longest(v, graph.edges[:, 1], graph.edges[:, 0], graph.levels, compute, transfer, up=True)
    to_entry, b_next = _longest(v, graph.edges[:, 0], graph.edges[:, 1], graph.levels, compute, transfer, up=False)
    inward = np.bincount(graph.edges[:, 1], weights=transfer, minlength=v)
    outward = np.bincount(graph.edges[:, 0], weights=transfer, minlength=v)
    # Costs against the mean node's, so that graphs of other sizes look alike; path lengths against the longest path.
    unit, longest = float(compute.mean()) or 1.0, float(to_exit.max()) or 1.0
    columns = [*(np.log1p(x / unit) for x in (compute, inward, outward)), to_exit / longest, to_entry / longest]
    if with_positions:
        columns += [*positions(problem)]
    need = np.bincount(problem.leaders, weights=problem.held_bytes, minlength=v)
    return Instance(
        problem=problem, scale=scale, order=graph.topological_order, in_pointer=in_pointer,
        parents=graph.edges[incoming, 0].astype(np.int64), in_bytes=graph.edge_bytes[incoming], out_pointer=out_pointer,
        children=graph.edges[outgoing, 1].astype(np.int64), seconds=seconds / scale, delay=delay / scale, per_byte=per_byte / scale,
        to_exit=to_exit, free=free, feasible=problem.feasible, leaders=problem.leaders, need=need, memory=network.memory,
        features=torch.from_numpy(np.stack(columns, axis=1)).float(), source=torch.from_numpy(graph.edges[:, 0].astype(np.int64)),
        target=torch.from_numpy(graph.edges[:, 1].astype(np.int64)),
        edge_features=torch.from_numpy(np.log1p(transfer / unit)[:, None]).float(), b_path=_paths(b_next), t_path=_paths(t_next),
    )  # fmt: skip


def positions(problem: Problem) -> np.ndarray:
    """Where each node is among all, and among those of its level, the latter as waves of several lengths too, float64[10, V].

    Shards of one operator have equal costs, paths and neighbours, so costs alone cannot tell them apart; their place in the graph can.
    """
    levels, v = problem.graph.levels, problem.n_nodes
    order = np.argsort(levels, kind="stable")
    count = np.bincount(levels)
    rank = np.empty(v)
    rank[order] = np.arange(v) - np.repeat(np.cumsum(count) - count, count)
    place = rank / count[levels]
    angles = 2.0 * np.pi * place * 2.0 ** np.arange(OCTAVES)[:, None]
    return np.concatenate((np.arange(v)[None] / v, place[None], np.sin(angles), np.cos(angles)))


def _longest(
    n: int, near: np.ndarray, far: np.ndarray, levels: np.ndarray, node: np.ndarray, edge: np.ndarray, *, up: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Longest path from each node over edges ``far -> near`` (walked from ``far``), itself included, and the next node on it or -1."""
    best, following = node.astype(np.float64).copy(), np.full(n, -1)
    rank = levels[near] if up else -levels[near]
    for e in np.argsort(-rank, kind="stable"):
        length = node[far[e]] + edge[e] + best[near[e]]
        if length > best[far[e]] or following[far[e]] < 0:
            best[far[e]], following[far[e]] = length, near[e]
    return best, following


def _paths(following: np.ndarray) -> tuple[Tensor, Tensor, float]:
    """All (node, node on its path) pairs, the node itself included, by walking all paths a step at a time."""
    start, at = np.arange(len(following)), np.arange(len(following))
    rows, columns = [], []
    while start.size:
        rows.append(start)
        columns.append(at)
        keep = following[at] >= 0
        start, at = start[keep], following[at][keep]
    return torch.from_numpy(np.concatenate(rows)), torch.from_numpy(np.concatenate(columns)), float(len(rows))
