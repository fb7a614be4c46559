"""The tables of a report, as numbers: leaderboard, tests against the baseline, results per problem, all runs. How they look is
decided in ``orchestration/analysis/table.py``."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pandas as pd

from envs.problem.problem import UNITS
from orchestration.analysis import table as formats
from orchestration.analysis.comparison import Cell, Comparison, Standing
from orchestration.analysis.quantity import (
    NONE,
    Quantity,
    TableCell,
    count,
    interval,
    over_seeds,
    p_value,
    percent,
    quantity,
    score,
    seconds,
    signed_percent,
    significant,
    whole,
)  # fmt: skip
from orchestration.analysis.runs import ProblemInfo, Run
from orchestration.analysis.statistics import LEVEL, REPLICATES, Interval
from orchestration.analysis.table import Table, plural

if TYPE_CHECKING:
    import pandas as pd

_MEASURES = {"makespan": "Makespan", "energy": "Energy", "throughput": "Period", "total-cost": "Total cost"}
COLUMNS_UP_TO = 40
"""Problems for which there is a table with a column each; the figures of more are in ``runs.csv`` only."""
SHORT = 12
"""Letters of a problem's name in the leaderboard."""
SCORE = "Score: objective / best known of the same problem in this sweep, so 1 is the best."


def leaderboard(comparison: Comparison, times: bool = True) -> Table:
    """Methods from best to worst over all seeds and problems; what is equal or zero for all of them is said once, without a column."""
    collection, standings = comparison.collection, comparison.standings
    staged = len(collection.stages) > 1
    invalid, failed = any(s.tally.invalid for s in standings), any(set(s.tally.trials) - {"finished"} for s in standings)
    bound, uneven = any(s.gap_to_bound is not None for s in standings), len({s.runs for s in standings}) > 1 or _partial(comparison)
    columns = ["#", "method", *(["stage"] if staged else []), *(["runs"] if uneven else []), f"IQM [{LEVEL:.0%} CI]", "worst", "on"]
    columns += ["to best", *(["to bound"] if bound else []), "evals", *(["wall s"] if times else [])]
    columns += [*(["invalid"] if invalid else []), *(["failed"] if failed else [])]
    short, most = _short_names(comparison.problems), comparison.most_problems
    rows: list[tuple[TableCell, ...]] = []
    for place, s in enumerate(standings, 1):
        row: list[TableCell] = [f"{place}" if s.runs and s.ranked else NONE, s.method, *([s.stage] if staged else [])]
        row += [quantity(_runs, n=s.runs, problems=s.problems, of=most[s.stage])] if uneven else []
        row += [
            of_interval(s.iqm),
            quantity(score, value=s.worst),
            short.get(s.worst_problem, NONE),
            quantity(percent, value=s.gap_to_best),
        ]
        row += [quantity(percent, value=s.gap_to_bound)] if bound else []
        row += [quantity(count, value=s.evaluations), *([quantity(seconds, "s", value=s.wall_seconds)] if times else [])]
        row += [quantity(whole, value=s.tally.invalid)] if invalid else []
        rows.append((*row, *([_failed(s)] if failed else [])))
    each = "" if uneven or not standings else f", {standings[0].runs:,} a method"
    title = f"Leaderboard{_suffix(comparison)}: {plural(len(collection.problems), 'problem')}, {plural(len(collection.runs), 'run')}{each}"
    return Table(title, tuple(columns), tuple(rows), tuple(_leaderboard_notes(comparison, invalid, failed)), left=3 if staged else 2)


def _leaderboard_notes(comparison: Comparison, invalid: bool, failed: bool) -> list[str]:
    """What the columns mean, and what there is no column for."""
    standings = comparison.standings
    unplaced, bound = sum(s.unplaced for s in standings), any(s.gap_to_bound is not None for s in standings)
    notes = [
        SCORE,
        f"IQM: interquartile mean over all runs, with a {LEVEL:.0%} bootstrap interval ({REPLICATES} resamples of seeds within problems).",
        "worst, on: the largest score of a run, and the problem it happened on.",
        f"to best{', to bound' if bound else ''}: mean gap to best known{' and lower bound' if bound else ''}. evals, wall s: mean a run."
        + (" invalid: evaluations that cannot run." if invalid else ""),
    ]
    none = [*([] if invalid else ["no evaluated placement was invalid"]), *([] if failed else ["no trial failed"])]
    if none:
        notes.append(f"{' and '.join(none).capitalize()}.")
    if any(s.runs and not s.ranked for s in standings):
        notes.append("– for a place: has run on no problem of those that are ranked, so its score says nothing about them.")
    if _partial(comparison):
        notes.append("Methods that have not run on all problems of their stage stand below those that have.")
    if unplaced:
        notes.append(f"{unplaced} runs found no valid placement; their score is ∞.")
    return notes


def _partial(comparison: Comparison) -> bool:
    """Whether a row lacks problems that another of its stage has run."""
    return any(0 < s.problems < comparison.most_problems[s.stage] for s in comparison.standings)


def _short_names(problems: Sequence[ProblemInfo]) -> dict[str, str]:
    """Names for a narrow column, by the problem's name: the graph's alone where that is enough; long ones lose their middle."""
    by_graph, half = len({p.graph for p in problems}) == len(problems), SHORT // 2
    names = {p.name: p.graph if by_graph else p.name for p in problems}
    return {name: short if len(short) <= SHORT else f"{short[: half - 1]}…{short[-half:]}" for name, short in names.items()}


def _suffix(comparison: Comparison) -> str:
    """Where the numbers come from, for a title."""
    return f", {comparison.collection.origin}" if comparison.collection.runs else ""


def _runs(n: int, problems: int, of: int) -> str:
    return f"{n}" if not n or problems == of else f"{n} ({problems}/{of} problems)"


def of_interval(value: Interval, digits: int = 3) -> Quantity:
    """An interval as a cell."""
    return quantity(interval(digits), value=value.value, low=value.low, high=value.high)


def _failed(standing: Standing) -> Quantity:
    """How many trials failed, and how many ended otherwise without a result."""
    trials = standing.tally.trials
    others = {status: n for status, n in trials.items() if status not in ("finished", "failed")}

    def show(value: int, **others: int) -> str:
        return f"{value}" + (f" (+{', '.join(f'{n} {status}' for status, n in others.items())})" if others else "")

    return Quantity(show, {"value": trials.get("failed", 0), **others})


def leaderboard_frame(comparison: Comparison) -> pd.DataFrame:
    """The leaderboard for programs: unrounded, no times of this machine."""
    return pd.DataFrame(
        {
            "rank": place if s.runs and s.ranked else None, "method": s.method, "stage": s.stage, "runs": s.runs, "problems": s.problems,
            "iqm": s.iqm.value,
            "iqm_low": s.iqm.low, "iqm_high": s.iqm.high, "mean": s.mean, "worst": s.worst, "worst_problem": s.worst_problem,
            "gap_to_best": s.gap_to_best, "gap_to_bound": s.gap_to_bound,
            "evaluations": s.evaluations, "unplaced": s.unplaced, "invalid": s.tally.invalid, "failed": s.tally.trials.get("failed", 0),
        }
        for place, s in enumerate(comparison.standings, 1)
    )  # fmt: skip


def versus(comparison: Comparison) -> Table | None:
    """Every method against the baseline; None if there is nothing to compare."""
    if not comparison.baseline or not comparison.versus:
        return None
    staged = len(comparison.collection.stages) > 1
    name = comparison.collection.label(comparison.baseline)
    columns = ("method", *(["stage"] if staged else []), "problems", "objective", f"P(better) [{LEVEL:.0%} CI]", "Wilcoxon p")
    rows: tuple[tuple[TableCell, ...], ...] = tuple(
        (
            v.method, *([v.stage] if staged else []), quantity(whole, value=v.pairs), quantity(signed_percent, value=v.change),
            of_interval(v.improvement, 2), quantity(p_value, value=v.p_value, least=v.least_p),
        )
        for v in comparison.versus
    )  # fmt: skip
    notes = (
        "objective: geometric mean of the change against it over shared problems; negative is better.",
        "P(better): probability that a run beats one of it on the same problem, ties half.",
        "Wilcoxon p: signed-rank test on means a problem, two-sided, Holm-corrected for all methods.",
        *least_p_notes([(v.pairs, v.least_p) for v in comparison.versus if not math.isnan(v.p_value)]),
    )
    return Table(f"Against {name}{_suffix(comparison)}", columns, rows, notes, left=2 if staged else 1)


def least_p_notes(rows: Sequence[tuple[int, float]]) -> list[str]:
    """What so many problems can show at most, of the number of problems and the least p of each row."""
    told = [
        f"{p_value(least)} with {plural(n, 'problem')}" + (", which cannot reach 0.05" if least > 0.05 else "")
        for n, least in sorted(set(rows))
    ]
    return [f"Least p that {plural(len(rows), 'comparison')} can give: {'; '.join(told)}."] if rows else []


def per_problem(comparison: Comparison) -> Table | None:
    """Mean ± standard deviation over seeds for every method and problem, in ms (or joules); None for too many problems."""
    collection, problems = comparison.collection, comparison.problems
    if len(problems) > COLUMNS_UP_TO:
        return None
    staged = len(collection.stages) > 1
    units = {p.scale[1] for p in problems}
    unit = units.pop() if len(units) == 1 else None
    network = {p.network for p in problems}
    shared = len(network) == 1 and len({p.graph for p in problems}) == len(problems)
    heads = [(p.graph if shared else p.name) + ("" if unit else f" [{p.scale[1]}]") for p in problems]
    rows: list[tuple[TableCell, ...]] = []
    for row in comparison.order:
        cells = [of_cell(comparison.cells.get((row, p.key)), p) for p in problems]
        rows.append((row[1], *([row[0]] if staged else []), *cells))
    pad = [""] if staged else []
    footer: list[tuple[TableCell, ...]] = [("best known", *pad, *(_scaled(p.best, p) for p in problems))]
    if any(p.bound is not None for p in problems):
        footer.append(("lower bound", *pad, *(_scaled(p.bound, p) for p in problems)))
    notes = ["Mean ± standard deviation over seeds of the best placement found."]
    if any(c.unplaced for c in comparison.cells.values()):
        notes.append("(k/n): k of n runs found a valid placement; the mean is over those.")
    where = f" on {network.pop()}" if shared else ""
    objectives = {p.objective_name for p in problems}
    measure = "Objective" if len(objectives) > 1 else _MEASURES[objectives.pop()]
    title = f"{measure} a problem{where}{f', {unit}' if unit else ''}{_suffix(comparison)}"
    if "units" in {p.scale[1] for p in problems}:
        notes.append("units: of invented graphs, which compare placements and are no times of any machine.")
    return Table(title, ("method", *(["stage"] if staged else []), *heads), (*rows, *footer), tuple(notes), 2 if staged else 1, len(footer))


def of_cell(cell: Cell | None, problem: ProblemInfo) -> Quantity:
    """Mean and standard deviation over the runs that found a placement, in the unit for people."""
    factor, unit = problem.scale
    if cell is None:
        return quantity(significant, unit, value=None)
    placed = cell.runs - cell.unplaced
    return quantity(over_seeds, unit, value=cell.mean * factor, deviation=cell.deviation * factor, n=placed, of=cell.runs)


def _scaled(value: float | None, problem: ProblemInfo) -> Quantity:
    factor, unit = problem.scale
    return quantity(significant, unit, value=None if value is None else value * factor)


def runs_frame(comparison: Comparison) -> pd.DataFrame:
    """One line a run, unrounded and without times of this machine: equal studies give equal bytes."""
    collection = comparison.collection
    lines = []
    for r, ratio in zip(collection.runs, collection.scores(collection.runs).tolist(), strict=True):
        info = collection.problems[collection.index[r.problem]]
        unit = UNITS[info.objective_name]
        lines.append((r.stage, r.method, info.name, r.seed, r.objective, unit, ratio, info.bound, r.evaluations, r.trial))
    columns = ["stage", "method", "problem", "seed", "objective", "unit", "score", "lower_bound", "evaluations", "trial"]
    return pd.DataFrame(lines, columns=columns, dtype=object)


def measured(comparison: Comparison) -> Table | None:
    """What real hardware took for the best placement of each method and problem, and what that hardware is; None without any."""
    collection = comparison.collection
    best: dict[tuple[tuple[str, str], str], Run] = {}
    for run in sorted((r for r in collection.runs if r.deviation is not None), key=lambda r: r.objective):
        best.setdefault((run.row, run.problem), run)
    if not best:
        return None
    rows = []
    for info in comparison.problems:
        factor, unit = info.scale
        for row in comparison.order:
            if (row, info.key) in best:
                run = best[row, info.key]
                objective = quantity(lambda value, unit=unit: f"{significant(value)} {unit}", unit, value=run.objective * factor)
                deviation = quantity(lambda value: f"{value:.2g} ms", "ms", value=1e3 * (run.deviation or 0.0))
                compiling = quantity(lambda value: f"{value:.2g}", "s", value=run.compile_seconds)
                rows.append((info.name, collection.label(row), objective, deviation, compiling))
    notes = [
        "deviation: standard deviation of the runs that the best measurement is made of.",
        "compile s: mean time to make a placement ready to run, no part of what was measured.",
        *(f"measured by {text}" for text in sorted({r.measured_by for r in best.values()})),
    ]
    columns = ("problem", "method", "best", "deviation", "compile s")
    return Table("Measured on real hardware, best placement", columns, tuple(rows), tuple(notes), 2)


def all_tables(comparison: Comparison, times: bool = True) -> list[Table]:
    """What a report shows, in order."""
    tables = [leaderboard(comparison, times), versus(comparison), per_problem(comparison), measured(comparison)]
    return [t for t in tables if t is not None]


def to_json(comparison: Comparison, name: str = "", times: bool = True) -> dict[str, Any]:
    """The numbers behind the tables, unrounded; what is infinite or unknown is null."""
    collection, standings = comparison.collection, []
    for s in comparison.standings:
        standing = dataclasses.asdict(s)
        tally = standing.pop("tally")
        if not times:
            del standing["wall_seconds"]
        standings.append({**standing, "invalid": tally["invalid"], "trials": tally["trials"]})
    problems = [
        {
            "name": p.name, "hash": p.problem_hash, "objective": p.objective_name, "unit": UNITS[p.objective_name],
            "best_known": p.best, "lower_bound": p.bound,
            "methods": [
                {"method": row[1], "stage": row[0], **dataclasses.asdict(cell)}
                for row in comparison.order if (cell := comparison.cells.get((row, p.key)))
            ],
        }
        for p in collection.problems
    ]  # fmt: skip
    return finite_json({
        "sweep": name, "origin": collection.origin, "score": SCORE, "confidence": LEVEL, "leaderboard": standings,
        "baseline": {"stage": comparison.baseline[0], "method": comparison.baseline[1]} if comparison.baseline else None,
        "versus": [
            {
                "method": v.method, "stage": v.stage, "problems": v.pairs, "change": v.change, "wilcoxon_p_holm": v.p_value,
                "least_p": v.least_p,
                "probability_of_improvement": dataclasses.asdict(v.improvement),
            }
            for v in comparison.versus
        ],
        "problems": problems,
    })  # fmt: skip


def finite_json(content: Any) -> Any:
    """JSON values with null for numbers that are infinite or unknown."""
    if isinstance(content, Mapping):
        return {key: finite_json(value) for key, value in content.items()}
    if isinstance(content, list | tuple):
        return [finite_json(value) for value in content]
    return None if isinstance(content, float) and not math.isfinite(content) else content


def render(
    comparison: Comparison,
    style: str,
    name: str = "",
    *,
    study: Sequence[Table] = (),
    times: bool = True,
    width: int | None = None,
    colour: bool = False,
) -> str:
    """The report in one of `formats.FORMATS`; with the tables of the ``study`` behind it, but for CSV, which is one table."""
    if style == "json":
        content = to_json(comparison, name, times) | ({"study": formats.as_json(study)} if study else {})
        return json.dumps(content, indent=2, allow_nan=False, ensure_ascii=False) + "\n"
    if style == "csv":
        return formats.delimited(leaderboard_frame(comparison))
    return formats.dress([*all_tables(comparison, times), *study], style, width, colour)
