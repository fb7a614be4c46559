"""The simulator of placements that run in compiled pieces, behind the evaluator's face."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from envs.problem.errors import InputError
from envs.problem.graph import ComputationGraph, frozen
from envs.problem.measurement import SIMULATED, BaseEvaluator, Measurements, Outcome
from envs.problem.op_arithmetic import executed
from envs.problem.problem import Problem
from envs.simulators.fifo.evaluator import as_placements
from envs.simulators.pieces.kernel import run_batch


@dataclass(frozen=True)
class PiecesSimulator(BaseEvaluator):
    """What `envs.hosts.openvino` does in its mode ``overlapped``: each piece is compiled for its device and runs once its inputs are there.

    A piece takes the seconds of its operations, the network's launch overhead once, and its device's mean seconds a byte for each byte
    that enters it from or leaves it for another piece (their layout is changed); the network's delay passes before another device begins.
    So a cut costs by what it cuts: whole branches that are moved cost less than their halves.

    Raises:
        InputError: if contention is less than 1.
    """

    contention: float = 1.0
    """How much longer pieces take while another device works too."""
    early: bool = True
    """Whether a piece ends behind what another device reads, as in the mode ``overlapped``."""

    def __post_init__(self) -> None:
        if not self.contention >= 1.0:
            raise InputError(f"contention is {self.contention}; it must be at least 1")

    @property
    def protocol(self) -> str:
        """Names the semantics and the contention."""
        return f"simulator:pieces contention={self.contention:g}{'' if self.early else ' late'}"

    @property
    def deterministic(self) -> bool:
        """Every seed gives the same."""
        return True

    def evaluate(self, problem: Problem, placements: np.ndarray, seed: int = 0, *, first: int = 0, trace: bool = False) -> Measurements:
        """Makespan [s] of each of ``placements`` int16[B, V]; in a trace operations divide the time of their piece.

        Raises:
            InputError: also for another objective than the makespan.
        """
        if problem.objective != "makespan":
            raise InputError(f"the simulator of pieces knows the makespan, not the {problem.objective}; take another evaluator")
        placements = as_placements(problem, placements)
        valid, network = problem.valid(placements), problem.network
        outcome = np.where(valid, Outcome.OK, Outcome.INVALID).astype(np.int8)
        over = valid & (problem.memory_used(np.where(valid[:, None], placements, 0)) > network.memory).any(axis=1)
        outcome[over] = Outcome.OUT_OF_MEMORY
        ok = valid & ~over
        rows = len(placements) if trace else 0
        start, finish = np.full((rows, problem.n_nodes), np.nan), np.full((rows, problem.n_nodes), np.nan)
        nodes, arrays, edge_bytes = graph_arrays(problem.graph)
        seconds = run_batch(
            placements, ok, nodes, arrays, edge_bytes, problem.compute_seconds, network.launch_overhead, per_byte(problem), network.delay,
            self.contention, self.early, start, finish,
        )  # fmt: skip
        return Measurements(
            problem_hash=problem.content_hash, placements=placements, outcome=outcome, seconds=seconds,
            objective=np.where(ok, seconds, np.inf), seed=seed, protocol=self.protocol, host=SIMULATED, first=first,
            start=start if trace else None, finish=finish if trace else None,
        )  # fmt: skip


def per_byte(problem: Problem) -> np.ndarray:
    """Seconds that each device takes over a byte that passes between pieces: the mean over its links, float64[D]."""
    off = ~np.eye(problem.n_devices, dtype=bool)
    return np.array([row[mask].mean() if mask.any() else 0.0 for row, mask in zip(problem.network.seconds_per_byte, off, strict=True)])


@lru_cache(maxsize=64)
def graph_arrays(graph: ComputationGraph) -> tuple[np.ndarray, tuple[Any, ...], np.ndarray]:
    """Which nodes are executed bool[V], the graph for the kernel, and bytes of edges in the order of ``target``."""
    pointer, ids = graph.in_edges
    out, out_ids = graph.out_edges
    arrays = (
        graph.topological_order.astype(np.int64), pointer.astype(np.int64), graph.edges[ids, 0].astype(np.int64), out.astype(np.int64),
        graph.edges[out_ids, 1].astype(np.int64),
    )  # fmt: skip
    return executed(graph), arrays, frozen(graph.edge_bytes[out_ids], np.float64)
