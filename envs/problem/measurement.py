"""What comes back when placements are scored, and the one face of everything that scores them."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, runtime_checkable

import numpy as np

from envs.problem.problem import Problem


class Outcome(enum.IntEnum):
    """How a measurement ended. All but INFRASTRUCTURE are properties of the placement."""

    OK = 0
    INVALID = 1
    OUT_OF_MEMORY = 2
    TOO_SLOW = 3
    INFRASTRUCTURE = 4


@dataclass(frozen=True, eq=False)
class Measurements:
    """The scores of a batch of B placements of one problem, as arrays; ``batch[i]`` is one of them (a batch of 1)."""

    problem_hash: str
    placements: np.ndarray
    """int16[B, V]."""
    outcome: np.ndarray
    """`Outcome` codes, int8[B]."""
    seconds: np.ndarray
    """Makespan, seconds, float64[B]; NaN unless OK."""
    objective: np.ndarray
    """The problem's objective (seconds or joules), to be minimised, float64[B]; +inf unless OK."""
    seed: int
    """With ``first``, what stochastic evaluators derive their noise from: placement i uses stream (seed, first + i)."""
    protocol: str
    """How it was measured, e.g. ``simulator:fifo``; equal protocol, problem, placement and seed repeat the measurement."""
    host: str
    """Fingerprint of what measured it."""
    first: int = 0
    start: np.ndarray | None = None
    """Start of every operation, seconds, float64[B, V], if a trace was asked for."""
    finish: np.ndarray | None = None
    """Finish of every operation, seconds, float64[B, V], if a trace was asked for."""
    transfers: tuple[np.ndarray, ...] | None = None
    """Producer, sender, receiver, start and finish (seconds) of each transfer, B arrays float64[T, 5], if a trace was asked
    for and the evaluator knows transfers as tasks."""
    samples: tuple[np.ndarray, ...] | None = None
    """Raw samples of each placement, seconds, B arrays, where a host repeats its measurement."""
    deviation: np.ndarray | None = None
    """Standard deviation of the samples that count, seconds, float64[B], where a host repeats its measurement; NaN unless OK."""
    compile_seconds: np.ndarray | None = None
    """Time to make each placement ready to run, float64[B], where that takes any; no part of ``seconds``."""
    notes: tuple[str, ...] | None = None
    """A sentence a placement, why it is not OK."""

    def __len__(self) -> int:
        return len(self.outcome)

    def __getitem__(self, index: int) -> Measurements:
        i = range(len(self))[index]
        return self.take(slice(i, i + 1))

    def take(self, rows: slice) -> Measurements:
        """The contiguous rows of a batch, keeping each row's noise stream."""
        begin, stop, step = rows.indices(len(self))
        if step != 1:
            raise ValueError(f"rows must be contiguous, not step {step}")
        rows = slice(begin, stop)
        cut: dict[str, Any] = {key: None if getattr(self, key) is None else getattr(self, key)[rows] for key in _PER_ROW}
        return replace(self, first=self.first + begin, **cut)

    @property
    def ok(self) -> np.ndarray:
        """Which placements ran, bool[B]."""
        return self.outcome == Outcome.OK


_PER_ROW = (
    "placements",
    "outcome",
    "seconds",
    "objective",
    "start",
    "finish",
    "transfers",
    "samples",
    "deviation",
    "compile_seconds",
    "notes",
)


def concatenate(parts: Sequence[Measurements]) -> Measurements:
    """Consecutive parts of one request joined again; all must share problem, seed, protocol and host."""
    joined: dict[str, Any] = {}
    for key in _PER_ROW:
        values = [getattr(p, key) for p in parts]
        if values[0] is None:
            joined[key] = None
        elif isinstance(values[0], tuple):
            joined[key] = tuple(x for v in values for x in v)
        else:
            joined[key] = np.concatenate(values)
    return replace(parts[0], **joined)


@runtime_checkable
class Evaluator(Protocol):
    """Simulators, hosts, and wrappers (noisy, cached, failing, relocation cost) all have this face."""

    @property
    def protocol(self) -> str:
        """How this evaluator measures; part of a measurement's identity."""
        ...

    @property
    def deterministic(self) -> bool:
        """True if the seed does not matter, so that results may be shared between seeds."""
        ...

    def evaluate(self, problem: Problem, placements: np.ndarray, seed: int = 0, *, first: int = 0, trace: bool = False) -> Measurements:
        """Score ``placements`` int16[B, V]; row i draws its noise from stream (seed, first + i); a trace adds start and finish.

        Raises:
            InputError: if the placements do not have V columns. A placement that cannot run is an outcome, not an error.
        """
        ...
