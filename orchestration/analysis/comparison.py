"""Summaries of a collection of runs: the leaderboard, tests against a baseline, results per problem. No formatting here."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from envs.problem.errors import InputError, nearest
from orchestration.analysis.runs import Collection, ProblemInfo, Tally
from orchestration.analysis.statistics import Interval, holm, iqm_interval, least_p, paired_test, probability_of_improvement

Row = tuple[str, str]
"""Stage and method."""


@dataclass(frozen=True)
class Standing:
    """One row of the leaderboard; scores are objective / best known of the problem, so 1 is the best."""

    stage: str
    method: str
    runs: int
    problems: int
    mean: float
    iqm: Interval
    gap_to_best: float
    """Mean of objective / best known − 1."""
    gap_to_bound: float | None
    """Mean of objective / lower bound − 1 over the runs with a bound; None without any."""
    evaluations: float
    """Mean evaluated placements a run."""
    wall_seconds: float
    """Mean wall time a run, seconds."""
    unplaced: int
    """Runs that found no valid placement."""
    tally: Tally
    worst: float = math.nan
    """Largest score of a run."""
    worst_problem: str = ""
    """The problem it happened on."""
    ranked: bool = True
    """Whether it shares problems with the other ranked rows; scores on other problems cannot be compared."""

    @property
    def row(self) -> Row:
        """Its key."""
        return self.stage, self.method


@dataclass(frozen=True)
class Versus:
    """One row against the baseline."""

    stage: str
    method: str
    improvement: Interval
    """Probability that a run of this row beats one of the baseline."""
    p_value: float
    """Wilcoxon's signed-rank test, paired by problem, corrected by Holm for all rows compared."""
    pairs: int
    """Problems that both have run."""
    least_p: float
    """The least ``p_value`` that so many problems can give in so many comparisons."""
    change: float
    """Geometric mean over those problems of objective / baseline's objective, less 1; negative is better."""


@dataclass(frozen=True)
class Cell:
    """One row's results on one problem, in the problem's unit before scaling (seconds or joules)."""

    mean: float
    deviation: float
    """Standard deviation over seeds (n − 1); NaN for one run."""
    runs: int
    unplaced: int


@dataclass(frozen=True)
class Comparison:
    """All summaries of one sweep."""

    collection: Collection
    standings: tuple[Standing, ...]
    baseline: Row | None
    versus: tuple[Versus, ...]
    cells: dict[tuple[Row, str], Cell]

    @property
    def most_problems(self) -> dict[str, int]:
        """By stage, how many problems the row with most of them has run."""
        return most_problems(self.standings)

    @property
    def order(self) -> list[Row]:
        """Rows from best to worst."""
        return [s.row for s in self.standings]

    @property
    def problems(self) -> tuple[ProblemInfo, ...]:
        """The problems, by name."""
        return self.collection.problems


def compare(collection: Collection, baseline: str | None = None) -> Comparison:
    """Rank all rows by IQM (ties by mean, then name) and test each against ``baseline``, a method's label; the leader if None.

    Rows that lack problems which others of their stage have run stand below those, because they were not scored on the same. Rows that
    share no problem with the others, directly or by way of a third, stand last and are not ranked.
    """
    standings = [_standing(collection, row) for row in collection.rows]
    most, comparable = most_problems(standings), _comparable(collection, baseline)
    standings = [replace(s, ranked=s.row in comparable) for s in standings]
    standings.sort(key=lambda s: (not s.ranked, s.problems < most[s.stage], _rank(s)))
    against = _baseline(standings, baseline)
    versus = _versus(collection, [s.row for s in standings], against) if against else ()
    cells = {(row, p.key): cell for row in collection.rows for p in collection.problems if (cell := _cell(collection, row, p.key))}
    return Comparison(collection, tuple(standings), against, versus, cells)


def most_problems(standings: Sequence[Standing]) -> dict[str, int]:
    """By stage, how many problems the row with most of them has run."""
    return {stage: max(s.problems for s in standings if s.stage == stage) for stage in {s.stage for s in standings}}


def _comparable(collection: Collection, baseline: str | None) -> set[Row]:
    """The largest set of rows that are connected by shared problems; of several those with the baseline, or with most runs."""
    groups: list[tuple[set[Row], set[str]]] = []
    for row in collection.rows:
        rows, problems = {row}, {r.problem for r in collection.of(row)}
        apart = []
        for group in groups:
            if group[1] & problems:
                rows, problems = rows | group[0], problems | group[1]
            else:
                apart.append(group)
        groups = [*apart, (rows, problems)]

    def weight(group: tuple[set[Row], set[str]]) -> tuple[bool, int, int, list[Row]]:
        named = any(baseline in (method, f"{method} ({stage})") for stage, method in group[0])
        return named, len(group[0]), sum(len(collection.of(row)) for row in group[0]), sorted(group[0])

    return max(groups, key=weight)[0] if groups else set()


def _rank(s: Standing) -> tuple[float, float, str, str]:
    worst = math.inf
    return (worst if math.isnan(s.iqm.value) else s.iqm.value, worst if math.isnan(s.mean) else s.mean, s.method, s.stage)


def _standing(collection: Collection, row: Row) -> Standing:
    runs = collection.of(row)
    scores, strata = collection.scores(runs), collection.strata(runs)
    to_bound = collection.bound_scores(runs)
    to_bound = to_bound[~np.isnan(to_bound)]
    return Standing(
        stage=row[0],
        method=row[1],
        runs=len(runs),
        problems=len(set(strata.tolist())),
        mean=_mean(scores),
        iqm=iqm_interval(scores, strata) if runs else Interval(math.nan, math.nan, math.nan),
        gap_to_best=_mean(scores) - 1,
        gap_to_bound=_mean(to_bound) - 1 if to_bound.size else None,
        evaluations=_mean(np.array([r.evaluations for r in runs])),
        wall_seconds=_mean(np.array([r.wall_seconds for r in runs])),
        unplaced=int(np.isinf(scores).sum()),
        tally=collection.tallies.get(row, Tally()),
        worst=float(scores.max()) if runs else math.nan,
        worst_problem=collection.problems[int(strata[int(np.argmax(scores))])].name if runs else "",
    )


def _mean(values: np.ndarray) -> float:
    # fsum: the mean does not depend on the order of the runs, and so not on who finished first.
    return math.fsum(values) / len(values) if len(values) else math.nan


def _baseline(standings: list[Standing], wanted: str | None) -> Row | None:
    """The leader, or the best row of the method ``wanted``."""
    rows = [s.row for s in standings if s.runs]
    if wanted is None:
        return rows[0] if rows else None
    for row in rows:
        if wanted in (row[1], f"{row[1]} ({row[0]})"):
            return row
    raise InputError(f"baseline {wanted!r} is no method of this sweep{nearest(wanted, sorted({m for _, m in rows}))}")


def _versus(collection: Collection, order: list[Row], baseline: Row) -> tuple[Versus, ...]:
    """Every other row against the baseline, in the leaderboard's order."""
    base_runs = collection.of(baseline)
    base, base_strata = collection.scores(base_runs), collection.strata(base_runs)
    found = []
    for row in order:
        runs = collection.of(row)
        if row == baseline or not runs:
            continue
        scores, strata = collection.scores(runs), collection.strata(runs)
        shared = np.intersect1d(strata, base_strata)
        own = np.array([_mean(scores[strata == p]) for p in shared])
        other = np.array([_mean(base[base_strata == p]) for p in shared])
        usable = np.isfinite(own) & np.isfinite(other) & (own > 0) & (other > 0)
        change = math.expm1(_mean(np.log(own[usable]) - np.log(other[usable]))) if usable.any() else math.nan
        improvement = probability_of_improvement(scores, strata, base, base_strata)
        found.append((row, improvement, paired_test(own, other), len(shared), change))
    corrected = holm([p for _, _, p, _, _ in found])
    comparisons = sum(not math.isnan(p) for p in corrected)
    return tuple(
        Versus(*row, improvement, float(p), n, least_p(n, comparisons), change)
        for (row, improvement, _, n, change), p in zip(found, corrected, strict=True)
    )


def _cell(collection: Collection, row: Row, key: str) -> Cell | None:
    values = np.array([r.objective for r in collection.on(row, key)])
    if not values.size:
        return None
    placed = values[np.isfinite(values)]
    if not placed.size:
        return Cell(math.inf, math.nan, len(values), len(values))
    deviation = float(np.std(placed, ddof=1)) if placed.size > 1 else math.nan
    return Cell(_mean(placed), deviation, len(values), len(values) - len(placed))
