"""The page of a sweep: one HTML file that opens from the file system, filters, and compares hundreds of runs averaged over seeds. It holds
a number for each run and a short curve for each method and problem, never the records themselves. Only writing belongs here."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from orchestration.analysis.comparison import Comparison, Row, Standing
from orchestration.analysis.runs import ProblemInfo, Run
from orchestration.analysis.source import origin
from orchestration.analysis.statistics import curve_band
from orchestration.analysis.table import Table, plural
from orchestration.plots.curves import best_so_far, curves_at

CURVE_NUMBERS = 150_000
"""Numbers that all curves of a page may hold together: many methods and problems have coarser ones."""
FEWEST_POINTS, MOST_POINTS = 8, 60
"""Points of a curve."""


def write_page(
    comparison: Comparison,
    path: Path,
    name: str = "",
    description: str = "",
    tables: Sequence[Table] = (),
    files: Sequence[Path] = (),
    placements: Mapping[str, Sequence[Path]] | None = None,
) -> Path:
    """Write the page; it needs nothing else, and links to what lies beside it.

    Args:
        tables: further tables, shown as they are whatever is filtered.
        files: what the page links to, under the folder of ``path``; pictures (PNG) are shown.
        placements: files of each problem's best placement, by the problem's key: its timeline (``.timeline.html``) and itself (``.json``).
    """
    here = resources.files("orchestration.plots")
    page, script = (here.joinpath(f"sweep.{kind}").read_text(encoding="utf-8") for kind in ("html", "js"))
    data = page_data(comparison, name or path.parent.name, description)
    links = [_link(file, path) for file in files]
    pictures = [link for link in links if link.endswith(".png")]
    data |= {"tables": [_table(t) for t in tables], "files": [link for link in links if "/" not in link], "pictures": pictures}
    for info, problem in zip(comparison.problems, data["problems"], strict=True):
        own = [_link(file, path) for file in (placements or {}).get(info.key, ())]
        problem["timeline"] = next((link for link in own if link.endswith(".timeline.html")), None)
        problem["placement"] = next((link for link in own if link.endswith(".json") and not link.endswith(".trace.json")), None)
    # "</" would end the script element that holds the data, and U+2028/9 are line ends to some parsers.
    text = json.dumps(data, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
    path.write_text(page.replace("/*SCRIPT*/", script).replace("/*DATA*/", text), encoding="utf-8")
    return path


def _link(file: Path, page: Path) -> str:
    return quote(file.relative_to(page.parent).as_posix())


def _table(table: Table) -> dict[str, Any]:
    return {"title": table.title, "columns": table.columns, "rows": table.texts, "notes": table.notes, "left": table.left}


def page_data(comparison: Comparison, name: str = "", description: str = "") -> dict[str, Any]:
    """What the page draws, as JSON values.

    A cell is one row's runs on one problem: row, problem, score of each run (None: no valid placement), mean evaluations and wall seconds a
    run, evaluations at the curve's end, and the median, least and largest best-so-far score at the points of ``grid`` up to there, then at
    the end (0 for the last two where there is one run).
    """
    collection, numbers = comparison.collection, {row: i for i, row in enumerate(comparison.order)}
    cells = [(row, info, runs) for row in comparison.order for info in comparison.problems if (runs := collection.on(row, info.key))]
    grid = _grid(collection.runs, sum(3 if len(runs) > 1 else 1 for _, _, runs in cells))
    partial = comparison.most_problems
    return {
        "sweep": name,
        "description": description,
        "origin": collection.origin or "nothing measured",
        "about": _about(comparison),
        "rows": [
            {"stage": s.stage, "method": s.method, "standing": _standing(s, 0 < s.problems < partial[s.stage])}
            for s in comparison.standings
        ],
        "problems": [_problem(comparison, info) for info in comparison.problems],
        "grid": grid.tolist(),
        "cells": [[numbers[row], collection.index[info.key], *_cell(info, runs, grid)] for row, info, runs in cells],
    }


def _grid(runs: Sequence[Run], curves: int) -> np.ndarray:
    """Evaluations at which curves are given, int64[T]: dense at the start, where they change most; fewer for more ``curves``."""
    points = min(MOST_POINTS, max(FEWEST_POINTS, CURVE_NUMBERS // max(1, curves)))
    return np.unique(np.geomspace(1, max((r.evaluations for r in runs), default=1) or 1, points).round().astype(np.int64))


def _cell(info: ProblemInfo, runs: Sequence[Run], grid: np.ndarray) -> list[Any]:
    best = info.best if info.best and math.isfinite(info.best) else 1.0
    scores = [_short(1.0 if r.objective == info.best else r.objective / best, 8) for r in runs]
    drawn = [r for r in runs if r.curve]
    end = max((r.evaluations for r in drawn), default=0)
    curves: list[Any] = [[], 0, 0]
    if drawn:
        bands = curve_band(curves_at(drawn, np.append(grid[grid < end], end), best_so_far) / best)
        middle, low, high = ([_short(v, 5) for v in band.tolist()] for band in bands)
        curves = [middle, low, high] if len(drawn) > 1 else [middle, 0, 0]
    return [scores, _mean([r.evaluations for r in runs]), _mean([r.wall_seconds for r in runs]), end, *curves]


def _mean(values: Sequence[float]) -> float | None:
    return _short(math.fsum(values) / len(values), 6)


def _short(value: float, digits: int) -> float | None:
    """To so many significant digits; None for what is infinite or unknown."""
    return float(f"{value:.{digits}g}") if math.isfinite(value) else None


def _standing(s: Standing, partial: bool) -> dict[str, Any]:
    """Numbers of the report, infinite ones as words; what is unknown is None."""
    trials = s.tally.trials
    numbers: dict[str, float | None] = {
        "to_best": s.gap_to_best, "to_bound": s.gap_to_bound, "worst": s.worst,
        "evaluations": s.evaluations, "wall": s.wall_seconds,
    }  # fmt: skip
    return {key: _told(value) for key, value in numbers.items()} | {
        "iqm": [_told(v) for v in (s.iqm.value, s.iqm.low, s.iqm.high)],
        "runs": s.runs, "problems": s.problems, "worst_problem": s.worst_problem, "unplaced": s.unplaced, "ranked": s.ranked,
        "invalid": s.tally.invalid, "failed": sum(n for status, n in trials.items() if status == "failed"), "partial": partial,
    }  # fmt: skip


def _told(value: float | None) -> float | str | None:
    return "inf" if value is not None and math.isinf(value) else None if value is None or math.isnan(value) else float(value)


def _problem(comparison: Comparison, info: ProblemInfo) -> dict[str, Any]:
    collection, (scale, unit) = comparison.collection, info.scale
    runs = (r for row in comparison.order for r in collection.on(row, info.key))
    return {
        "name": info.name,
        "graph": info.graph,
        "network": info.network,
        "objective": info.objective_name,
        "best": _short(info.best, 12) or 1.0,
        "bound": None if info.bound is None else _short(info.bound, 12),
        "scale": scale,
        "unit": unit,
        "origin": origin((r.source, r.host) for r in runs),
    }


def _about(comparison: Comparison) -> str:
    """The sweep in one line."""
    runs, problems = comparison.collection.runs, comparison.problems
    per_cell: dict[tuple[Row, str], int] = {}
    for r in runs:
        per_cell[r.row, r.problem] = per_cell.get((r.row, r.problem), 0) + 1
    least, most = min(per_cell.values(), default=0), max(per_cell.values(), default=0)
    seeds = f"{least} to {most} runs" if least != most else plural(most, "run")
    methods = len({method for _, method in comparison.order})
    parts = [plural(methods, "method"), plural(len(problems), "problem"), f"{plural(len(runs), 'run')}: {seeds} of a method on a problem"]
    return " · ".join(parts) + ", averaged over seeds"
