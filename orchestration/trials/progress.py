"""What a running trial remembers: the best so far, its curve, its counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from envs.problem.distinct import first_of_equals
from envs.problem.measurement import Measurements, Outcome
from orchestration.specs.results import CurvePoint, ProposedBlock

CURVE_POINTS = 400
"""Longest curve kept; a longer one loses every second point."""


CONTENDERS = 4
"""Placements among which the measurements of `Budget.confirm` choose."""


PROPOSED_BLOCKS = 48
"""Blocks in which a search's proposals are remembered: from this many to twice as many."""


@dataclass
class ProblemProgress:
    """The best so far on one problem."""

    objective: float = np.inf
    seconds: float = np.nan
    outcome: int = int(Outcome.INVALID)
    placement: np.ndarray | None = None
    evaluations: int = 0
    best_evaluation: int = 0
    first: int = 0
    protocol: str = ""
    host: str = ""
    deviation: float | None = None
    curve: list[CurvePoint] = field(default_factory=list)
    proposed: list[ProposedBlock] = field(default_factory=list)
    contenders: np.ndarray | None = None
    """The best distinct placements, best first, int16[K, V], where some are to be confirmed."""
    contender_values: list[float] = field(default_factory=list)
    start: np.ndarray | None = None
    """The first placement that could run, int16[V], where some are to be confirmed."""

    def add(self, m: Measurements, before: int, wall: float) -> None:
        """Take in a batch that began when the trial had ``before`` evaluations."""
        own, self.evaluations = self.evaluations, self.evaluations + len(m)
        self._note_proposed(m)
        best = np.minimum.accumulate(np.concatenate(([self.objective], np.where(m.ok, m.objective, np.inf))))
        better = np.flatnonzero(best[1:] < best[:-1])
        if better.size:
            self._take(m, int(better[-1]), before)
            self.curve += [CurvePoint(before + i + 1, float(best[i + 1]), wall, own + i + 1) for i in better.tolist()]
            if len(self.curve) > CURVE_POINTS:
                self.curve = self.curve[:-1:2] + self.curve[-1:]
        elif self.placement is None and len(m):
            self.outcome, self.protocol, self.host = int(m.outcome[-1]), m.protocol, m.host

    def _take(self, m: Measurements, row: int, before: int) -> None:
        """One row of a batch that began after ``before`` evaluations is the best."""
        self.objective, self.seconds, self.outcome = float(m.objective[row]), float(m.seconds[row]), int(m.outcome[row])
        self.placement = np.array(m.placements[row], dtype=np.int16)
        self.best_evaluation, self.first = before + row + 1, m.first + row
        self.protocol, self.host = m.protocol, m.host
        self.deviation = None if m.deviation is None or np.isnan(m.deviation[row]) else float(m.deviation[row])

    def contend(self, m: Measurements) -> None:
        """Keep the best `CONTENDERS` distinct placements, by the first measurement of each, and the first of all."""
        if self.start is None and m.ok.any():
            self.start = np.array(m.placements[m.ok][0], dtype=np.int16)
        known = np.zeros((0, m.placements.shape[1]), dtype=np.int16) if self.contenders is None else self.contenders
        everything = np.concatenate((known, m.placements[m.ok].astype(np.int16)))
        values = np.concatenate((self.contender_values, m.objective[m.ok]))
        first = first_of_equals(everything)
        best = first[np.argsort(values[first], kind="stable")][:CONTENDERS]
        self.contenders, self.contender_values = everything[best], values[best].tolist()

    def finalists(self) -> np.ndarray:
        """Whom to measure again, int16[K, V]: the contenders, one of them always the first placement; [0, 0] if none could run."""
        if self.contenders is None:
            return np.zeros((0, 0), dtype=np.int16)
        # A checkpoint may be from before the first placement was kept.
        if self.start is None or len(self.contenders) < CONTENDERS or (self.contenders == self.start).all(axis=1).any():
            return self.contenders
        return np.concatenate((self.contenders[:-1], self.start[None]))

    def choose(self, rounds: Sequence[Measurements], before: int) -> None:
        """Take the contender with the least median over ``rounds``, the measurements of all of them, as the best.

        Args:
            rounds: at least one; each begins with another contender, the r-th with number r modulo their count.
            before: evaluations of the trial before the first of them.
        """
        count = len(rounds[0])
        values = np.stack([np.roll(m.objective, r % count) for r, m in enumerate(rounds)])
        median = np.median(values, axis=0)
        which = int(np.argmin(median))
        if not np.isfinite(median[which]):
            return
        r = int(np.argmin(np.abs(values[:, which] - median[which])))
        self._take(rounds[r], (which - r) % count, before + r * count)
        self.objective = float(median[which])

    def _note_proposed(self, m: Measurements) -> None:
        """One more block; neighbours are put together where there are too many."""
        ok = m.ok
        valid = int(np.count_nonzero(ok))
        self.proposed.append(ProposedBlock(self.evaluations, float(m.objective[ok].sum()) / max(valid, 1), valid))
        if len(self.proposed) >= 2 * PROPOSED_BLOCKS:
            self.proposed = [_together(*pair) for pair in zip(self.proposed[::2], self.proposed[1::2], strict=True)]


def _together(one: ProposedBlock, other: ProposedBlock) -> ProposedBlock:
    valid = one.valid + other.valid
    return ProposedBlock(other.evaluations, (one.mean * one.valid + other.mean * other.valid) / max(valid, 1), valid)


@dataclass
class Progress:
    """All that the runner itself must remember of a trial."""

    problems: list[ProblemProgress]
    evaluations: int = 0
    outcomes: np.ndarray = field(default_factory=lambda: np.zeros(len(Outcome), dtype=np.int64))
    learner_seconds: float = 0.0
    evaluation_seconds: float = 0.0
    compile_seconds: float = 0.0
    queue_seconds: float = 0.0
    wall_seconds: float = 0.0
    started_at: float = 0.0
    resumed: int = 0
    pretrained: bool = False
    report: dict[str, float] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    """What went wrong without changing the result, such as a damaged checkpoint."""

    def state(self) -> dict[str, Any]:
        """All of it as plain values and arrays, for a checkpoint."""
        plain = {key: value for key, value in vars(self).items() if key != "problems"}
        problems = [{**vars(p), "curve": [*map(list, p.curve)], "proposed": [*map(list, p.proposed)]} for p in self.problems]
        return {**plain, "problems": problems}

    @staticmethod
    def restored(state: Mapping[str, Any]) -> Progress:
        """The inverse of `state`, from a checkpoint."""
        problems = []
        for p in state["problems"]:
            curve, proposed = [CurvePoint(*c) for c in p["curve"]], [ProposedBlock(*b) for b in p.get("proposed", ())]
            problems.append(ProblemProgress(**{**p, "curve": curve, "proposed": proposed}))
        return Progress(**{**state, "problems": problems})
