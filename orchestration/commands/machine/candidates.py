"""Candidates measured in turn, and which of them is faster beyond the noise. What they are and how they run is not known here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from envs.problem.errors import InputError

LEVEL = 0.95
_REPLICATES = 2000


@dataclass
class Candidate:
    """A placement, or what the runtime does by itself."""

    name: str
    kind: str
    """``placed``, ``single`` (all on one device) or ``own`` (the runtime's choice)."""
    placement: np.ndarray | None
    simulated: float | None
    """Seconds."""
    screening: list[float] = field(default_factory=list)
    """Seconds of runs by which candidates are sorted out."""
    samples: list[float] = field(default_factory=list)
    """Seconds of the runs that decide."""
    why: str = ""
    """Why it does not run, if it does not."""

    @property
    def median(self) -> float:
        """Of the deciding runs, or of the others if it came to none; infinite if it does not run."""
        found = self.samples or self.screening
        return float(np.median(found)) if found and not self.why else float("inf")

    def interval(self) -> tuple[float, float] | None:
        """Bootstrap interval of the median; None if it was not measured."""
        found = np.array(self.samples or self.screening)
        if not found.size or self.why:
            return None
        drawn = np.median(found[_draws(found.size)], axis=1)
        return _quantiles(drawn)


def in_turn(
    candidates: Sequence[Candidate], rounds: int, sample: Callable[[Candidate], float], final: bool, tell: Callable[[int, int], None] | None
) -> None:
    """Measure every candidate once in every round, each round beginning with another; one that fails is left out from then on."""
    for r in range(rounds):
        for k in range(len(candidates)):
            candidate = candidates[(r + k) % len(candidates)]
            if not candidate.why:
                try:
                    (candidate.samples if final else candidate.screening).append(sample(candidate))
                except InputError as error:
                    candidate.why = str(error)
            if tell:
                tell(r * len(candidates) + k + 1, rounds * len(candidates))


def ratio(mine: Candidate, other: Candidate) -> tuple[float, float, float]:
    """Median of ``mine`` over that of ``other`` in the same rounds, with the ends of its bootstrap interval."""
    n = min(len(mine.samples), len(other.samples))
    a, b = np.array(mine.samples[:n]), np.array(other.samples[:n])
    rows = _draws(n)
    low, high = _quantiles(np.median(a[rows], axis=1) / np.median(b[rows], axis=1))
    return float(np.median(a) / np.median(b)), low, high


def _draws(n: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, n, (_REPLICATES, n))


def _quantiles(values: np.ndarray) -> tuple[float, float]:
    low, high = np.quantile(values, ((1 - LEVEL) / 2, (1 + LEVEL) / 2))
    return float(low), float(high)
