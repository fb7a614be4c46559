"""Search curves: objectives against evaluations, per problem and over all problems. Only drawing is here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from orchestration.analysis.comparison import Comparison, Row
from orchestration.analysis.runs import ProblemInfo, Run
from orchestration.analysis.statistics import LEVEL, curve_band, iqm_curve, on_grid
from orchestration.plots.comparison import LOG_BEYOND, score_axis, styles
from orchestration.plots.style import INK, SOFT, inches, new_figure, quiet, save, spread

if TYPE_CHECKING:
    from matplotlib.axes import Axes

POINTS = 160
AXES_WIDTH, PANEL_HEIGHT, COLUMNS = 3.15, 3.5, 3
MOST_ROWS, MOST_PANELS, OF_MANY = 16, 24, 8
"""Methods and problems that are drawn; of more problems only a few, as examples: the page of the sweep has the curves of all."""
CUT_BEYOND = 2.5
"""Curves that end at more than this times the median end leave the panel: one bad baseline would flatten all others."""
TITLE_LETTERS = 52
"""Of a panel's title in small type; a longer name loses its middle."""
LABEL_POINTS = 8.2
"""Height of a line of labels, in points."""
IN_SECONDS = 100.0
"""Seconds from which a panel is in seconds, not ms."""


Points = Callable[[Run], Sequence[tuple[int, float]]]
"""What is drawn of a run: evaluations from which on an objective holds, rising."""


def best_so_far(run: Run) -> list[tuple[int, float]]:
    """The best placement up to then."""
    return [(p.evaluations, p.best) for p in run.curve]


def proposed(run: Run) -> list[tuple[int, float]]:
    """The mean of the placements proposed then that could run (Mars, Figure 7)."""
    begins = [1, *(b.evaluations + 1 for b in run.proposed)]
    return [(begin, block.mean) for begin, block in zip(begins, run.proposed, strict=False) if block.valid]


HEADINGS: Mapping[Points, str] = {best_so_far: "Best so far", proposed: "Mean of what was proposed"}


def search_curves(comparison: Comparison, stem: Path, points: Points = best_so_far) -> list[Path]:
    """Small multiples: normalised IQM over all problems first, then each problem; direct labels at the curves' ends.

    With more rows or problems than fit, the best rows and the first problems are drawn and the heading says so.
    """
    rows = [s.row for s in comparison.standings if s.runs][:MOST_ROWS]
    problems = comparison.problems if len(comparison.problems) <= MOST_PANELS else comparison.problems[:OF_MANY]
    overall = len(comparison.problems) > 1
    panels = len(problems) + overall
    columns = min(COLUMNS, panels)
    lines = -(-panels // columns)
    panel = AXES_WIDTH + 0.62 + max(1.23, 0.5 + inches([comparison.collection.label(row) for row in rows], 7.2))
    width, height = panel * columns + 0.2, PANEL_HEIGHT * lines + 0.75
    figure = new_figure(width, height)
    for k in range(panels):
        i, j = divmod(k, columns)
        box = (
            (0.62 + panel * j) / width,
            (height - 0.75 - PANEL_HEIGHT * (i + 1) + 0.62) / height,
            AXES_WIDTH / width,
            (PANEL_HEIGHT - 1.0) / height,
        )
        axes = figure.add_axes(box)
        if overall and k == 0:
            _overall(axes, comparison, rows, points)
        else:
            _panel(axes, comparison, rows, problems[k - overall], points)
    figure.text(0.62 / width, 1 - 0.22 / height, HEADINGS[points], fontsize=14, fontweight="bold", color=INK, va="top")
    note = f"{comparison.collection.origin} · line: median over seeds, band: their range · circle: the search ended there"
    note += " · grey dots: lower bound"
    left_out = [f"the best {MOST_ROWS} of {len(comparison.standings)} methods"] if len(comparison.standings) > MOST_ROWS else []
    left_out += [f"the first {len(problems)} of {len(comparison.problems)} problems"] if len(problems) < len(comparison.problems) else []
    note += f" · shown: {' and '.join(left_out)}" if left_out else ""
    figure.text(0.62 / width, 1 - 0.5 / height, note, fontsize=9, color=SOFT, va="top")
    return save(figure, stem)


def _grid(runs: list[Run]) -> np.ndarray:
    """Evaluations at which curves are drawn: dense at the start, where they change most."""
    last = max((r.evaluations for r in runs), default=1)
    return np.unique(np.geomspace(1, max(last, 2), POINTS).astype(np.int64))


def curves_at(runs: Sequence[Run], grid: np.ndarray, points: Points) -> np.ndarray:
    """The curve of each run, float64[S, T]; +inf before its first valid placement."""
    arrays = [np.array(points(r), dtype=np.float64).reshape(-1, 2) for r in runs]
    return np.array([on_grid(p[:, 0], p[:, 1], grid) for p in arrays]).reshape(len(runs), len(grid))


def _panel(axes: Axes, comparison: Comparison, rows: list[Row], problem: ProblemInfo, points: Points) -> None:
    """One problem, in ms or, where these are many, in seconds."""
    collection, (scale, unit) = comparison.collection, problem.scale
    if unit == "ms" and problem.best >= IN_SECONDS:
        scale, unit = 1.0, "s"
    on_problem = {row: [r for r in collection.on(row, problem.key) if points(r)] for row in rows}
    grid = _grid([r for runs in on_problem.values() for r in runs])
    drawn = []
    for row, runs in on_problem.items():
        if not runs:
            continue
        middle, low, high = (scale * x for x in curve_band(curves_at(runs, grid, points)))
        drawn.append((row, middle, low, high, max(r.evaluations for r in runs)))
    _draw(axes, comparison, grid, drawn, None if problem.bound is None else scale * problem.bound)
    axes.set_ylabel(unit)
    name, half = problem.name, TITLE_LETTERS // 2
    short = name if len(name) <= TITLE_LETTERS else f"{name[: half - 1]}…{name[-half:]}"
    axes.set_title(short, loc="left", fontsize=10 if len(name) <= 0.8 * TITLE_LETTERS else 8, pad=6)


def _overall(axes: Axes, comparison: Comparison, rows: list[Row], points: Points) -> None:
    """All problems: the IQM over runs of objective / best known at equal evaluations, with its bootstrap interval."""
    collection = comparison.collection
    grid = _grid(list(collection.runs))
    drawn = []
    for row in rows:
        runs = [r for r in collection.of(row) if points(r)]
        if not runs:
            continue
        best = np.array([collection.problems[collection.index[r.problem]].best for r in runs])
        with np.errstate(divide="ignore", invalid="ignore"):
            scores = curves_at(runs, grid, points) / best[:, None]
        drawn.append((row, *iqm_curve(scores, collection.strata(runs)), max(r.evaluations for r in runs)))
    _draw(axes, comparison, grid, drawn, None)
    axes.set_ylabel("objective / best known")
    axes.set_title(f"all {len(comparison.problems)} problems: IQM, {LEVEL:.0%} interval", loc="left", fontsize=10, pad=6)


def _draw(
    axes: Axes, comparison: Comparison, grid: np.ndarray,
    drawn: list[tuple[Row, np.ndarray, np.ndarray, np.ndarray, int]], bound: float | None,
) -> None:  # fmt: skip
    """Curves with bands, each labelled at its end; a curve stops where its search did."""
    look, ends = styles(comparison), []
    for row, middle, low, high, last in drawn:
        colour, dash, _ = look[comparison.collection.label(row)]
        known = np.isfinite(middle) & (grid <= last)
        if not known.any():
            continue
        x = grid[known]
        band = np.isfinite(low[known]) & np.isfinite(high[known])
        axes.fill_between(x, low[known], high[known], where=band.tolist(), step="post", color=colour, alpha=0.16, linewidth=0)
        axes.step(x, middle[known], where="post", color=colour, linestyle=dash, linewidth=1.5)  # type: ignore[arg-type]
        if x[-1] < grid[-1]:
            axes.plot([x[-1]], [middle[known][-1]], "o", markersize=4, color=colour)
            axes.plot([x[-1], grid[-1]], [middle[known][-1]] * 2, color=colour, linewidth=0.8, linestyle=(0, (1, 3)))
        ends.append((comparison.collection.label(row), float(x[-1]), float(middle[known][-1]), colour))
    axes.set_xscale("log")
    _plain(axes)
    axes.set_xlim(0.9, grid[-1] * 1.02)
    if ends:  # otherwise nothing ran there, and there may still be a bound
        values = [y for _, _, y, _ in ends] + ([bound] if bound else [])
        starts = [float(m[np.isfinite(m)].max()) for _, m, _, _, _ in drawn if np.isfinite(m).any()]
        _y_axis(axes, min(values), min(max(starts), CUT_BEYOND * float(np.median([y for _, _, y, _ in ends]))))
    if bound:
        axes.axhline(bound, color=SOFT, linewidth=1, linestyle=(0, (1, 2)))
    axes.set_xlabel("evaluations")
    quiet(axes, "y")
    _labels(axes, ends)


def _plain(axes: Axes) -> None:
    """1, 10, 100, 1,000 rather than powers."""
    axes.xaxis.set_major_locator(LogLocator(base=10, numticks=8))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:,.0f}"))
    axes.xaxis.set_minor_formatter(NullFormatter())


def _y_axis(axes: Axes, lowest: float, highest: float) -> None:
    if lowest > 0 and highest / lowest > LOG_BEYOND:
        score_axis(axes, highest, "y", lowest)
    else:
        room = (highest - lowest or abs(highest) or 1.0) * 0.05
        axes.set_ylim(lowest - room, highest + room)
        axes.ticklabel_format(axis="y", style="plain", useOffset=False)


def _labels(axes: Axes, ends: list[tuple[str, float, float, str]]) -> None:
    """Names beside the axes at the height where their curves end, moved apart and joined to them by a thin line."""
    if not ends:
        return
    to_axes = axes.transData + axes.transAxes.inverted()
    heights = to_axes.transform([(1.0, y) for _, _, y, _ in ends])[:, 1]
    panel = (PANEL_HEIGHT - 1.0) * 72
    placed = spread(np.clip(heights, 0, 1.02), LABEL_POINTS / panel, 0.03, 1.08 + LABEL_POINTS / panel)
    size = min(7.2, LABEL_POINTS * 0.88, panel * 1.14 / len(ends) * 0.95)
    for (name, _, value, colour), y, at in zip(ends, heights, placed, strict=True):
        axes.plot([1.005, 1.05], [np.clip(y, 0, 1), at], transform=axes.transAxes, color=colour, linewidth=0.9, clip_on=False)
        axes.text(
            1.06, at, name if y <= 1.001 else f"{name} ↑ {value:.3g}", transform=axes.transAxes, va="center", fontsize=size, color=INK
        )
