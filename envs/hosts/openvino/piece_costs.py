"""What cuts cost, found from when pieces ran: the start of a piece, bytes between pieces, hand-overs, and working beside another device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.optimize import nnls

from envs.costs.table import TableCosts
from envs.problem.problem import Problem
from envs.simulators.pieces.evaluator import graph_arrays
from envs.simulators.pieces.kernel import loads

_MOST = 2.0
"""Contention beyond which something else must have been at work on the machine."""
Run = tuple[np.ndarray, Any]
"""A placement int16[V], and a trace of `envs.hosts.openvino.execution.Serial.trace`."""


@dataclass(frozen=True)
class PieceCosts:
    """Seconds beside those of the operations."""

    launch: float
    """A piece."""
    per_byte: float
    """A byte that enters or leaves a piece."""
    delay: float
    """From the end of a piece to the begin of one on another device that waited for it."""
    contention: float
    """How much longer operations take while another device works."""
    scale: float = 1.0
    """How much longer operations take in pieces than in the uncut model, beside all that."""

    def applied(self, problem: Problem) -> Problem:
        """The problem with these costs, for `envs.simulators.pieces`."""
        d = problem.n_devices
        off = ~np.eye(d, dtype=bool)
        network = replace(
            problem.network,
            launch_overhead=np.full(d, self.launch),
            delay=np.where(off, self.delay, 0.0),
            bandwidth=np.where(off, 1.0 / self.per_byte if self.per_byte > 0 else np.inf, np.inf),
        )
        costs = TableCosts(problem.graph.names, network.names, problem.compute_seconds * self.scale)
        return Problem(problem.graph, network, costs, problem.objective, problem.allowed)


def fitted(problem: Problem, runs: Sequence[Run]) -> PieceCosts:
    """The costs that explain the pieces of ``runs`` best, relative errors weighing the same; ``problem`` has operations' seconds alone."""
    rows, took, gaps = [], [], []
    for placement, trace in runs:
        found, seen = _pieces(problem, placement, trace)
        rows.append(found)
        took.append(trace["end"] - trace["begin"])
        gaps += seen
    features, seconds = np.concatenate(rows), np.concatenate(took)
    known = (seconds > 0) & (features[:, 0] > 0)
    if known.sum() < 4:
        return PieceCosts(0.0, 0.0, 0.0, 1.0)
    for _ in range(3):  # what other work on the machine held up is left out
        weight = 1.0 / seconds[known]
        found = nnls(features[known] * weight[:, None], np.ones(int(known.sum())))[0]
        error = np.abs(np.log(np.maximum(features @ found, 1e-9) / np.maximum(seconds, 1e-9)))
        known &= error < max(4.0 * float(np.median(error[known])), 0.05)
    work, beside, launch, per_byte = found
    contention = float(np.clip(1.0 + beside / work, 1.0, _MOST)) if work > 0 else 1.0
    return PieceCosts(float(launch), float(per_byte), float(np.median(gaps)) if gaps else 0.0, contention, float(work) or 1.0)


def _pieces(problem: Problem, placement: np.ndarray, trace: Any) -> tuple[np.ndarray, list[float]]:
    """Of each piece: seconds of its operations, part of them beside others, 1, and bytes; and seconds of hand-overs between devices."""
    piece, begin, end = trace["piece"], trace["begin"], trace["end"]
    _, arrays, edge_bytes = graph_arrays(problem.graph)
    device, work, enter, leave = loads(placement, piece, len(begin), arrays, edge_bytes, problem.compute_seconds)
    other = device[:, None] != device[None, :]
    overlap = np.minimum(end[:, None], end[None, :]) - np.maximum(begin[:, None], begin[None, :])
    beside = (np.where(other, overlap.clip(0.0), 0.0).sum(axis=1) / np.maximum(end - begin, 1e-9)).clip(0.0, 1.0)
    u, v = piece[problem.graph.edges].T
    between = (u >= 0) & (v >= 0) & (u != v)
    gaps = []
    for q in np.unique(v[between]):
        last = int(max(u[between & (v == q)], key=lambda p: end[p]))
        before = end[(device == device[q]) & (end <= begin[q])].max(initial=0.0)
        if device[last] != device[q] and before <= end[last]:
            gaps.append(float(begin[q] - end[last]))
    return np.stack((work, work * beside, np.ones(len(begin)), enter + leave), axis=1), gaps


def in_place(problem: Problem, costs: PieceCosts, runs: Sequence[Run]) -> np.ndarray:
    """How much longer each operation takes than ``problem`` with ``costs`` says, in the pieces that it was in, float64[V, D]; 1 if unseen.

    A piece's residual is shared by its operations: the geometric mean over runs, drawn half-way to 1 where it was seen only once.
    """
    logs, counts = np.zeros(problem.compute_seconds.shape), np.zeros(problem.compute_seconds.shape)
    for placement, trace in runs:
        features, _ = _pieces(problem, placement, trace)
        fixed = features[:, 2] * costs.launch + features[:, 3] * costs.per_byte
        own = costs.scale * (features[:, 0] + (costs.contention - 1.0) * features[:, 1])
        real = trace["end"] - trace["begin"] - fixed
        ratio = np.where((own > 0) & (real > 0), np.maximum(real, 1e-9) / np.maximum(own, 1e-9), 1.0).clip(0.5, 2.0)
        seen = np.flatnonzero(trace["piece"] >= 0)
        at = (seen, placement[seen])
        logs[at] += np.log(ratio[trace["piece"][seen]])
        counts[at] += 1
    return np.exp(logs / (counts + 1.0))
