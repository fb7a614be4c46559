"""The tables of a report, as text and as JSON: leaderboard, tests against the baseline, results per problem, all runs."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

from orchestration.analysis import table as formats
from orchestration.analysis.comparison import Cell, Comparison, Standing
from orchestration.analysis.runs import ProblemInfo, Run
from orchestration.analysis.statistics import LEVEL, REPLICATES, Interval
from orchestration.analysis.table import Table, plural

NONE = "–"
COLUMNS_UP_TO = 40
"""Problems for which there is a table with a column each; the figures of more are in ``runs.csv`` only."""
SCORE = "Score: objective / best known of the same problem in this sweep, so 1 is the best."


def leaderboard(comparison: Comparison, times: bool = True) -> Table:
    """Methods from best to worst over all seeds and problems."""
    collection = comparison.collection
    staged = len(collection.stages) > 1
    most = {s.stage: max(t.problems for t in comparison.standings if t.stage == s.stage) for s in comparison.standings}
    columns = ["#", "method", *(["stage"] if staged else []), "runs", f"IQM [{LEVEL:.0%} CI]", "mean", "to best", "to bound", "evals"]
    columns += [*(["wall s"] if times else []), "invalid", "failed"]
    rows = []
    for place, s in enumerate(comparison.standings, 1):
        runs = f"{s.runs}" if not s.runs or s.problems == most[s.stage] else f"{s.runs} ({s.problems}/{most[s.stage]} problems)"
        row = [f"{place}" if s.runs else NONE, s.method, *([s.stage] if staged else []), runs, interval(s.iqm), number(s.mean)]
        row += [percent(s.gap_to_best), percent(s.gap_to_bound), _count(s.evaluations)]
        row += [*([_seconds(s.wall_seconds)] if times else []), f"{s.tally.invalid}", _failed(s)]
        rows.append(tuple(row))
    unplaced = sum(s.unplaced for s in comparison.standings)
    notes = [
        SCORE,
        f"IQM: interquartile mean over all runs, with a {LEVEL:.0%} bootstrap interval ({REPLICATES} resamples of seeds within problems).",
        "to best, to bound: mean gap to best known and lower bound. evals, wall s: mean a run. invalid: evaluations that cannot run.",
    ]
    if any(0 < s.problems < most[s.stage] for s in comparison.standings):
        notes.append("Methods that have not run on all problems of their stage stand below those that have.")
    if unplaced:
        notes.append(f"{unplaced} runs found no valid placement; their score is ∞.")
    title = f"Leaderboard: {plural(len(collection.problems), 'problem')}, {plural(len(collection.runs), 'run')}"
    return Table(title, tuple(columns), tuple(rows), tuple(notes), left=3 if staged else 2)


def leaderboard_numbers(comparison: Comparison) -> Table:
    """The leaderboard for programs: full precision, empty where infinite or unknown, no times of this machine."""
    columns = (
        "rank", "method", "stage", "runs", "problems", "iqm", "iqm_low", "iqm_high", "mean", "gap_to_best", "gap_to_bound",
        "evaluations", "unplaced", "invalid", "failed",
    )  # fmt: skip
    rows = []
    for place, s in enumerate(comparison.standings, 1):
        numbers = (s.iqm.value, s.iqm.low, s.iqm.high, s.mean, s.gap_to_best, s.gap_to_bound, s.evaluations)
        counts = (s.unplaced, s.tally.invalid, s.tally.trials.get("failed", 0))
        rows.append((f"{place}", s.method, s.stage, f"{s.runs}", f"{s.problems}", *map(_exact, numbers), *map(str, counts)))
    return Table("Leaderboard", columns, tuple(rows), left=3)


def versus(comparison: Comparison) -> Table | None:
    """Every method against the baseline; None if there is nothing to compare."""
    if not comparison.baseline or not comparison.versus:
        return None
    staged = len(comparison.collection.stages) > 1
    name = comparison.collection.label(comparison.baseline)
    columns = ("method", *(["stage"] if staged else []), "problems", "objective", f"P(better) [{LEVEL:.0%} CI]", "Wilcoxon p")
    rows = tuple(
        (v.method, *([v.stage] if staged else []), f"{v.pairs}", _signed(v.change), interval(v.improvement, 2), p_value(v.p_value))
        for v in comparison.versus
    )
    notes = (
        "objective: geometric mean of the change against it over shared problems; negative is better.",
        "P(better): probability that a run beats one of it on the same problem, ties half.",
        "Wilcoxon p: signed-rank test on means a problem, two-sided, Holm-corrected for all methods.",
    )
    return Table(f"Against {name}", columns, rows, notes, left=2 if staged else 1)


def per_problem(comparison: Comparison) -> Table | None:
    """Mean ± standard deviation over seeds for every method and problem, in ms (or joules); None for too many problems."""
    collection = comparison.collection
    if len(comparison.problems) > COLUMNS_UP_TO:
        return None
    staged = len(collection.stages) > 1
    units = {p.scale[1] for p in comparison.problems}
    unit = units.pop() if len(units) == 1 else None
    network = {p.network for p in comparison.problems}
    shared = len(network) == 1 and len({p.graph for p in comparison.problems}) == len(comparison.problems)
    heads = [(p.graph if shared else p.name) + ("" if unit else f" [{p.scale[1]}]") for p in comparison.problems]
    rows = []
    for row in comparison.order:
        cells = [shown_cell(comparison.cells.get((row, p.key)), p) for p in comparison.problems]
        rows.append((row[1], *([row[0]] if staged else []), *cells))
    pad = [""] if staged else []
    footer = [("best known", *pad, *(_scaled(p.best, p) for p in comparison.problems))]
    if any(p.bound is not None for p in comparison.problems):
        footer.append(("lower bound", *pad, *(_scaled(p.bound, p) for p in comparison.problems)))
    notes = ["Mean ± standard deviation over seeds of the best placement found."]
    if any(c.unplaced for c in comparison.cells.values()):
        notes.append("(k/n): k of n runs found a valid placement; the mean is over those.")
    where = f" on {network.pop()}" if shared else ""
    measure = "Makespan" if unit != "J" else "Energy"
    title = f"{measure if unit else 'Objective'} a problem{where}{f', {unit}' if unit else ''}"
    return Table(title, ("method", *(["stage"] if staged else []), *heads), (*rows, *footer), tuple(notes), 2 if staged else 1, len(footer))


def runs_table(comparison: Comparison) -> Table:
    """One line a run, with full precision and no times of this machine: equal studies give equal bytes."""
    collection = comparison.collection
    columns = ("stage", "method", "problem", "seed", "objective", "unit", "score", "lower_bound", "evaluations", "trial")
    rows = []
    for r, score in zip(collection.runs, collection.scores(collection.runs), strict=True):
        info = collection.problems[collection.index[r.problem]]
        unit = "s" if info.objective_name == "makespan" else "J"
        values = (r.objective, score, info.bound)
        objective, ratio, bound = map(_exact, values)
        rows.append((r.stage, r.method, info.name, f"{r.seed}", objective, unit, ratio, bound, f"{r.evaluations}", r.trial))
    return Table("Runs", columns, tuple(rows), left=3)


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
        for row in comparison.order:
            if (row, info.key) in best:
                run = best[row, info.key]
                time = f"{_scaled(run.objective, info)} {info.scale[1]}"
                rows.append(
                    (info.name, collection.label(row), time, f"{1e3 * (run.deviation or 0.0):.2g} ms", f"{run.compile_seconds:.2g}")
                )
    notes = [
        "deviation: standard deviation of the runs that the best measurement is made of.",
        "compile s: mean time to make a placement ready to run, no part of what was measured.",
        *(f"measured by {text}" for text in sorted({r.measured_by for r in best.values()})),
    ]
    return Table(
        "Measured on real hardware, best placement", ("problem", "method", "best", "deviation", "compile s"), tuple(rows), tuple(notes), 2
    )


def all_tables(comparison: Comparison, times: bool = True) -> list[Table]:
    """What a report shows, in order."""
    tables = [leaderboard(comparison, times), versus(comparison), per_problem(comparison), measured(comparison)]
    return [t for t in tables if t is not None]


def to_json(comparison: Comparison, name: str = "", times: bool = True) -> dict[str, Any]:
    """The numbers behind the tables, unrounded; what is infinite or unknown is null."""
    collection = comparison.collection
    standings = []
    for s in comparison.standings:
        standing = {
            "method": s.method, "stage": s.stage, "runs": s.runs, "problems": s.problems, "mean": _json(s.mean),
            "iqm": _interval_json(s.iqm), "gap_to_best": _json(s.gap_to_best), "gap_to_bound": _json(s.gap_to_bound),
            "evaluations": _json(s.evaluations), "unplaced": s.unplaced, "invalid": s.tally.invalid,
            "trials": dict(s.tally.trials),
        }  # fmt: skip
        if times:
            standing["wall_seconds"] = _json(s.wall_seconds)
        standings.append(standing)
    return {
        "sweep": name,
        "score": SCORE,
        "confidence": LEVEL,
        "leaderboard": standings,
        "baseline": {"stage": comparison.baseline[0], "method": comparison.baseline[1]} if comparison.baseline else None,
        "versus": [
            {
                "method": v.method, "stage": v.stage, "problems": v.pairs, "change": _json(v.change),
                "probability_of_improvement": _interval_json(v.improvement), "wilcoxon_p_holm": _json(v.p_value),
            }
            for v in comparison.versus
        ],
        "problems": [
            {
                "name": p.name, "hash": p.problem_hash, "objective": p.objective_name,
                "unit": "s" if p.objective_name == "makespan" else "J",
                "best_known": _json(p.best), "lower_bound": _json(p.bound),
                "methods": [
                    {
                        "method": row[1], "stage": row[0], "mean": _json(cell.mean), "deviation": _json(cell.deviation), "runs": cell.runs,
                        "unplaced": cell.unplaced,
                    }
                    for row in comparison.order if (cell := comparison.cells.get((row, p.key)))
                ],
            }
            for p in collection.problems
        ],
    }  # fmt: skip


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
        return formats.delimited(leaderboard_numbers(comparison))
    return formats.dress([*all_tables(comparison, times), *study], style, width, colour)


def number(value: float, digits: int = 3) -> str:
    """A score: three digits after the point, fewer for large ones."""
    if math.isnan(value):
        return NONE
    if math.isinf(value):
        return "∞"
    return f"{value:.{digits}f}" if abs(value) < 100 else f"{value:.1f}" if abs(value) < 10_000 else f"{value:.2e}"


def interval(value: Interval, digits: int = 3) -> str:
    """``1.234 [1.200, 1.270]``; without brackets where resampling says nothing."""
    if math.isnan(value.low):
        return number(value.value, digits)
    return f"{number(value.value, digits)} [{number(value.low, digits)}, {number(value.high, digits)}]"


def percent(value: float | None) -> str:
    """A gap, in percent."""
    if value is None or math.isnan(value):
        return NONE
    if math.isinf(value):
        return "∞"
    if abs(value) < 5e-5:
        value = 0.0
    return f"{value:.1%}" if abs(value) < 10 else f"{value:,.0%}"


def p_value(value: float) -> str:
    """A p-value, two significant digits."""
    return NONE if math.isnan(value) else "<0.0001" if value < 1e-4 else f"{value:.2g}"


def _exact(value: float | None) -> str:
    return "" if value is None or not math.isfinite(value) else repr(float(value))


def _signed(value: float) -> str:
    text = percent(value)
    return f"+{text}" if math.isfinite(value) and value > 5e-5 else text.replace("-", "−")


def _count(value: float) -> str:
    return NONE if math.isnan(value) else f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.1f}"


def _seconds(value: float) -> str:
    return NONE if math.isnan(value) else f"{value:,.0f}" if value >= 100 else f"{value:.2f}"


def _failed(standing: Standing) -> str:
    trials = standing.tally.trials
    others = ", ".join(f"{n} {status}" for status, n in trials.items() if status not in ("finished", "failed"))
    return f"{trials.get('failed', 0)}" + (f" (+{others})" if others else "")


def _scaled(value: float | None, problem: ProblemInfo) -> str:
    if value is None or not math.isfinite(value):
        return NONE
    return significant(value * problem.scale[0])


def significant(value: float) -> str:
    """Four significant digits, never in exponents within nine orders of magnitude."""
    if value == 0:
        return "0"
    magnitude = math.floor(math.log10(abs(value)))
    return f"{value:.3e}" if magnitude < -5 else f"{value:,.{max(0, 3 - magnitude)}f}"


def shown_cell(cell: Cell | None, problem: ProblemInfo) -> str:
    """Mean ± standard deviation in the unit for people; ``(k/n)`` behind it where only k of n runs found a placement."""
    if cell is None or math.isinf(cell.mean):
        return NONE
    text = _scaled(cell.mean, problem)
    decimals = len(text.partition(".")[2])
    spread = f"{cell.deviation * problem.scale[0]:.{decimals}f}" if math.isfinite(cell.deviation) and "e" not in text else ""
    if spread.strip("0."):
        text += f" ± {spread}"
    return text if not cell.unplaced else f"{text} ({cell.runs - cell.unplaced}/{cell.runs})"


def _json(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else float(value)


def _interval_json(value: Interval) -> dict[str, float | None]:
    return {"value": _json(value.value), "low": _json(value.low), "high": _json(value.high)}
