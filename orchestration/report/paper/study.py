"""Tables in a paper's shape, beside the paper's numbers: what a sweep's ``report: {tables: […]}`` asks for. No formatting of text here.

Each entry names a ``shape`` and may narrow it to ``stages`` and ``methods``; ``paper`` gives the paper's numbers by row, ``note`` a
sentence. Ratios are schedule length ratios (GiPH section 5) of the best placement found, simulated without noise.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from envs.problem.errors import InputError, nearest
from envs.problem.problem import Problem
from envs.simulators.bounds import slr_denominator
from envs.simulators.fifo.evaluator import Simulator
from orchestration.analysis.load import SweepRecord
from orchestration.analysis.runs import ProblemInfo, Run
from orchestration.analysis.table import Table
from orchestration.report.tables import NONE
from orchestration.specs.report_keys import KEYS, SHAPES
from orchestration.specs.sources import build_problem


@dataclass(frozen=True)
class Score:
    """One run on one problem."""

    run: Run
    problem: Problem
    info: ProblemInfo
    value: float
    """SLR of the best placement without noise; the objective (joules) where it is not a makespan; +inf without a placement."""


class Scored:
    """Runs with their problem and value, each loaded and simulated once for all tables."""

    def __init__(self, record: SweepRecord) -> None:
        self._record = record
        self._infos = {p.key: p for p in record.collection.problems}
        self._loaded: dict[str, Problem] = {}
        self._known: dict[tuple[str, Any], float] = {}

    def of(self, runs: Sequence[Run]) -> list[Score]:
        """The runs, scored."""
        return [self._score(run) for run in runs]

    def _score(self, run: Run) -> Score:
        info = self._infos[run.problem]
        if info.problem_hash not in self._loaded:
            self._loaded[info.problem_hash] = build_problem(self._record.specs[info.problem_hash])
        problem = self._loaded[info.problem_hash]
        key = (info.problem_hash, run.placement)
        if key not in self._known:
            self._known[key] = _value(problem, run)
        return Score(run, problem, info, self._known[key])


class Study:
    """The runs that one table is about.

    Args:
        record: the sweep.
        entry: the table asked for.
        scored: shared by the tables of one report.

    Raises:
        InputError: for unknown keys, shapes, stages or methods.
    """

    def __init__(self, record: SweepRecord, entry: Mapping[str, Any], scored: Scored | None = None) -> None:
        unknown = next((key for key in entry if key not in KEYS), None)
        if unknown is not None:
            raise InputError(f"unknown key {unknown!r} of a table in 'report'{nearest(unknown, KEYS)}")
        if entry.get("shape") not in SHAPES:
            raise InputError(f"unknown shape {entry.get('shape')!r} of a table in 'report'{nearest(str(entry.get('shape')), SHAPES)}")
        self.record, self.entry = record, entry
        self.paper: Mapping[str, Any] = entry.get("paper") or {}
        stages, methods = entry.get("stages"), entry.get("methods")
        runs = [r for r in record.collection.runs if (not stages or r.stage in stages) and (not methods or r.method in methods)]
        self.scores = (scored or Scored(record)).of(runs)
        self.methods = list(methods or dict.fromkeys(s.run.method for s in self.scores))
        self.methods = [m for m in self.methods if any(s.run.method == m for s in self.scores)]

    @cached_property
    def tables(self) -> dict[str, dict[str, dict[int, list[float]]]]:
        """Scores by method, problem (content hash) and seed."""
        found: dict[str, dict[str, dict[int, list[float]]]] = {}
        for s in self.scores:
            found.setdefault(s.run.method, {}).setdefault(s.problem.content_hash, {}).setdefault(s.run.seed, []).append(s.value)
        return found

    def of(self, method: str) -> list[Score]:
        """Its runs."""
        return [s for s in self.scores if s.run.method == method]

    def compared(self, method: str, other: str) -> tuple[float, float, float] | None:
        """Shares of runs of ``method`` that are better than, equal to and worse than ``other`` on the same problem (and seed)."""
        return shares(self.tables.get(method, {}), self.tables.get(other, {}))

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[str]], *notes: str, left: int = 1) -> Table:
        """With the entry's title and note, and a column of the paper's where it gives numbers by row."""
        simple = self.paper and not any(isinstance(v, Mapping) for v in self.paper.values())
        if simple:
            columns = [*columns, "paper"]
            rows = [[*row, str(self.paper.get(row[0], "–"))] for row in rows]
        given = self.entry.get("note")
        title = str(self.entry.get("title") or self.entry["shape"])
        return Table(title, tuple(columns), tuple(tuple(r) for r in rows), (*notes, *([str(given)] if given else [])), left)


def _value(problem: Problem, run: Run) -> float:
    if run.placement is None:
        return math.inf
    m = Simulator().evaluate(problem, np.array([run.placement], dtype=np.int16))
    return float(m.objective[0]) / (slr_denominator(problem) if problem.objective == "makespan" else 1.0)


def mean_and_error(values: Sequence[float]) -> str:
    """Mean and standard error, as text."""
    array = np.array(values, dtype=np.float64)
    if not array.size:
        return "–"
    error = f" ± {array.std(ddof=1) / math.sqrt(array.size):.3f}" if array.size > 1 else ""
    return f"{array.mean():.3f}{error}"


def finite_mean(values: Sequence[float]) -> float:
    """Mean of the finite values; NaN without one."""
    finite = [v for v in values if math.isfinite(v)]
    return math.fsum(finite) / len(finite) if finite else math.nan


def rounded(value: float, digits: int) -> str:
    """A finite number with so many digits; a dash otherwise."""
    return f"{value:.{digits}f}" if math.isfinite(value) else "–"


EQUAL = 1e-9
"""Relative difference below which two makespans are equal."""


BySeed = Mapping[int, Sequence[float]]


def shares(own: Mapping[Any, BySeed], reference: Mapping[Any, BySeed]) -> tuple[float, float, float] | None:
    """Shares of runs that are better than, equal to and worse than the reference's on the same problem and seed.

    Where the reference has not that seed, its mean over seeds stands for it. Both map problems to seeds to values; None without a pair.
    """
    outcomes = []
    for key, seeds in own.items():
        against = reference.get(key, {})
        for seed, values in seeds.items():
            theirs = against.get(seed) or [v for vs in against.values() for v in vs]
            outcomes += [_sign(a, float(np.mean(theirs))) for a in values if theirs]
    if not outcomes:
        return None
    signs = np.array(outcomes)
    return float(np.mean(signs < 0)), float(np.mean(signs == 0)), float(np.mean(signs > 0))


def shown_shares(found: tuple[float, float, float] | None) -> str:
    """Three percentages."""
    return NONE if found is None else " / ".join(f"{100 * s:.1f}" for s in found)


def _sign(a: float, b: float) -> int:
    return 0 if a == b or abs(a - b) <= EQUAL * abs(b) else -1 if a < b else 1
