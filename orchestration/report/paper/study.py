"""The runs that one table in a paper's shape is about, as numbers: what a sweep's ``report: {tables: […]}`` asks for.

Each entry names a ``shape`` and may narrow it to ``stages`` and ``methods``; ``paper`` gives the paper's numbers by row, ``note`` a
sentence. Ratios are schedule length ratios (GiPH section 5) of the best placement found, simulated without noise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from envs.problem.errors import InputError, nearest
from envs.problem.problem import Problem
from envs.simulators.bounds import slr_denominator
from envs.simulators.fifo.evaluator import Simulator
from orchestration.analysis.load import SweepRecord
from orchestration.analysis.quantity import NONE, Quantity, TableCell, quantity, shares, with_error
from orchestration.analysis.runs import ProblemInfo, Run
from orchestration.analysis.source import origin
from orchestration.analysis.table import Table
from orchestration.specs.report_keys import KEYS, SHAPES
from orchestration.specs.sources import build_problem

if TYPE_CHECKING:
    import pandas as pd

EQUAL = 1e-9
"""Relative difference below which two makespans are equal."""


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
        """The runs with problem and value, in their order."""
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
        entry: the table asked for.
        scores: its runs.
        record: the sweep.
    """

    def __init__(self, entry: Mapping[str, Any], scores: Sequence[Score], record: SweepRecord) -> None:
        self.record, self.entry, self.scores = record, entry, scores
        self.paper: Mapping[str, Any] = entry.get("paper") or {}
        ran = list(dict.fromkeys(s.run.method for s in scores))
        self.methods = [m for m in entry.get("methods") or ran if m in ran]

    @classmethod
    def of_entry(cls, record: SweepRecord, entry: Mapping[str, Any], scored: Scored | None = None) -> Study:
        """The study of an entry of a definition; ``scored`` is shared by the tables of one report.

        Raises:
            InputError: for unknown keys or shapes, or if none of its runs has ended.
        """
        unknown = next((key for key in entry if key not in KEYS), None)
        if unknown is not None:
            raise InputError(f"unknown key {unknown!r} of a table in 'report'{nearest(unknown, KEYS)}")
        if entry.get("shape") not in SHAPES:
            raise InputError(f"unknown shape {entry.get('shape')!r} of a table in 'report'{nearest(str(entry.get('shape')), SHAPES)}")
        stages, methods = entry.get("stages"), entry.get("methods")
        runs = [r for r in record.collection.runs if (not stages or r.stage in stages) and (not methods or r.method in methods)]
        if not runs:
            raise InputError("none of its runs has ended")
        return cls(entry, (scored or Scored(record)).of(runs), record)

    @cached_property
    def runs(self) -> pd.DataFrame:
        """A line a run: ``method``, ``stage``, ``graph``, ``network``, ``problem`` (content hash), ``measured`` (the problem as measured
        in one way), ``seed``, ``value`` (of its `Score`), ``objective``, ``evaluations``, and of the trial ``wall`` and ``own`` seconds."""
        return pd.DataFrame(
            {
                "method": s.run.method, "stage": s.run.stage, "graph": s.problem.graph.name, "network": s.problem.network.name,
                "problem": s.problem.content_hash, "measured": s.run.problem, "seed": s.run.seed, "value": s.value,
                "objective": s.run.objective, "evaluations": s.run.evaluations, "wall": s.run.wall_seconds, "own": s.run.learner_seconds,
            }
            for s in self.scores
        )  # fmt: skip

    @property
    def origin(self) -> str:
        """``simulated``, or ``measured on HOST``."""
        return origin((s.run.source, s.run.host) for s in self.scores)

    @property
    def graphs(self) -> list[str]:
        """Names of the graphs, in the order of the runs."""
        return list(self.runs["graph"].unique())

    @property
    def printed(self) -> dict[str, Mapping[str, Any]]:
        """The paper's numbers of the rows that have several."""
        return {m: row for m, row in self.paper.items() if isinstance(row, Mapping)}

    def of(self, method: str) -> list[Score]:
        """The scored runs of one method."""
        return [s for s in self.scores if s.run.method == method]

    def runs_of(self, method: str, graph: str) -> list[Run]:
        """Its runs on one graph."""
        return [s.run for s in self.of(method) if s.problem.graph.name == graph]

    def baseline(self) -> str:
        """What the others are compared with: the entry's, the definition's, or HEFT."""
        return str(self.entry.get("baseline") or self.record.known_baseline or "heft")

    def compared(self, method: str, other: str) -> Quantity:
        """Shares of runs of ``method`` that are better than, equal to and worse than ``other`` on the same problem (and seed)."""
        runs = self.runs
        return compared(runs[runs["method"] == method], runs[runs["method"] == other], "problem", "value")

    def pivot(self, columns: Any, show: Callable[..., str], unit: str = "", factor: pd.Series | None = None) -> pd.DataFrame:
        """Mean, standard deviation (not of a sample but of all) and number of the values by method and column, as cells.

        ``factor``, a number a run, multiplies the values before.
        """
        runs = self.runs if factor is None else self.runs.assign(value=self.runs["value"] * factor)
        groups = runs.groupby(["method", columns], sort=False)["value"]
        means, deviations, sizes = groups.mean(), groups.std(ddof=0), groups.size()
        cells = {key: quantity(show, unit, value=means[key], deviation=deviations[key], n=int(sizes[key])) for key in means.index}
        names = list(dict.fromkeys(column for _, column in cells))
        return pd.DataFrame([[cells.get((m, c), NONE) for c in names] for m in self.methods], self.methods, names, dtype=object)

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[TableCell]], *notes: str, left: int = 1, footer: int = 0) -> Table:
        """With the entry's title and note, and a column of the paper's where it gives numbers by row."""
        if self.paper and not self.printed:
            columns = [*columns, "paper"]
            rows = [[*row, quoted(self.paper.get(str(row[0])))] for row in rows]
        given, came = self.entry.get("note"), self.origin
        notes = (*notes, *([f"{came[0].upper()}{came[1:]}."] if came else []))
        title = str(self.entry.get("title") or self.entry["shape"])
        return Table(title, tuple(columns), tuple(map(tuple, rows)), (*notes, *([str(given)] if given else [])), left, footer)


def _value(problem: Problem, run: Run) -> float:
    if run.placement is None:
        return math.inf
    m = Simulator().evaluate(problem, np.array([run.placement], dtype=np.int16))
    return float(m.objective[0]) / (slr_denominator(problem) if problem.objective == "makespan" else 1.0)


def quoted(printed: Any) -> TableCell:
    """A paper's figure as a definition gives it: a number, or words such as OOM."""
    if isinstance(printed, int | float) and not isinstance(printed, bool):
        return quantity(lambda value: str(printed), value=printed)
    return NONE if printed is None else str(printed)


def mean_and_error(values: Sequence[float]) -> Quantity:
    """Mean and standard error."""
    array = np.array(values, dtype=np.float64)
    error = float(array.std(ddof=1)) / math.sqrt(array.size) if array.size > 1 else math.nan
    return quantity(with_error, value=float(array.mean()) if array.size else math.nan, error=error, n=array.size)


def finite_mean(values: Sequence[float]) -> float:
    """Mean of the finite values; NaN without one."""
    finite = [v for v in values if math.isfinite(v)]
    return math.fsum(finite) / len(finite) if finite else math.nan


def compared(own: pd.DataFrame, reference: pd.DataFrame, by: str, value: str) -> Quantity:
    """Shares of runs that are better than, equal to and worse than the reference's of the same ``by`` (a problem) and seed.

    Where the reference has not that seed, its mean over seeds stands for it.
    """
    of_seed, of_all = reference.groupby([by, "seed"])[value].mean(), reference.groupby(by)[value].mean()
    theirs = [of_seed.get((key, seed), of_all.get(key)) for key, seed in zip(own[by], own["seed"], strict=True)]
    known = np.array([x is not None for x in theirs], dtype=bool)
    a, b = own[value].to_numpy()[known], np.array([x for x in theirs if x is not None], dtype=np.float64)
    if not len(a):
        return quantity(shares, better=math.nan, equal=math.nan, worse=math.nan)
    equal = np.isclose(a, b, rtol=EQUAL, atol=0.0)
    return quantity(shares, better=float(np.mean((a < b) & ~equal)), equal=float(np.mean(equal)), worse=float(np.mean((a > b) & ~equal)))
