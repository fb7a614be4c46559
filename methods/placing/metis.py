"""METIS in a process of its own, since it draws from the C library's one ``rand()``. What is partitioned and why is not known here.

Ray and gRPC call ``rand()`` too, from their own threads, so that in their process a seeded partition is not repeatable. The process
imports pymetis and nothing else that draws; it is started at the first call and ends with this one. What METIS prints there goes nowhere.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
from collections.abc import Sequence

import numpy as np

from envs.hosts.child_process import ChildProcess, Fault, serve

TIME_LIMIT = 600.0
"""Seconds after which a partition is given up; a million vertices take a few."""


class _Partitioner:
    """What answers in the process; METIS is called here and nowhere else."""

    def part_graph(
        self, parts: int, starts: np.ndarray, adjacent: np.ndarray, weights: np.ndarray, cut: np.ndarray, shares: Sequence[float], seed: int
    ) -> np.ndarray:
        import pymetis  # in the process alone: nobody else needs it, nor may call it

        adjacency = pymetis.CSRAdjacency(starts, adjacent)
        options = pymetis.Options(seed=seed)
        found = pymetis.part_graph(parts, adjacency, vweights=weights, eweights=cut, tpwgts=list(shares), recursive=False, options=options)
        return np.asarray(found.vertex_part)


class _Process:
    """The process that this one asks, made at the first question and again after a death; threads take turns."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.child: ChildProcess | None = None

    def ask(self, *arguments: object) -> np.ndarray:
        with self.lock:
            for last in (False, True):
                child = self._running()
                try:
                    found: np.ndarray = child.ask(TIME_LIMIT, "part_graph", *arguments)
                    return found
                except Fault as fault:
                    if last or fault.late or child.alive:  # alive: METIS refused, and would again
                        raise
        raise AssertionError("the second attempt answers or raises")

    def _running(self) -> ChildProcess:
        if self.child is None or not self.child.alive:
            self.child = ChildProcess(__name__, {})
            self.child.ask(TIME_LIMIT, "open")
        return self.child

    def forget(self) -> None:
        """A process made by fork must not speak for the one that it is a copy of."""
        self.__init__()  # type: ignore[misc]

    def end(self) -> None:
        """Kill the asked process, when this one ends."""
        if self.child is not None:
            self.child.kill()


_PROCESS = _Process()
os.register_at_fork(after_in_child=_PROCESS.forget)
atexit.register(_PROCESS.end)


def part_graph(
    parts: int, starts: np.ndarray, adjacent: np.ndarray, weights: np.ndarray, cut: np.ndarray, shares: Sequence[float], seed: int
) -> np.ndarray:
    """The part of every vertex, int64[N]: vertex weights balanced, weights of edges between parts minimised (k-way METIS).

    Args:
        parts: how many, at least 2.
        starts: where the neighbours of each vertex begin in ``adjacent``, int32[N + 1]; every edge appears in both directions.
        adjacent: neighbours, int32[2 E].
        weights: of vertices, positive int32[N].
        cut: of edges, positive int32[2 E].
        shares: of the whole weight that each part should have; they add up to 1.
        seed: decides everything that METIS draws.

    Raises:
        Fault: if METIS fails, dies twice or takes longer than `TIME_LIMIT`.
    """
    return _PROCESS.ask(parts, starts, adjacent, weights, cut, shares, seed)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that waits; this one ends when it hangs up
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 1)  # METIS prints to the C library's standard output
    serve(int(sys.argv[1]), _Partitioner)
