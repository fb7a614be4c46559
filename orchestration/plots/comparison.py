"""Pictures that compare methods over problems: makespan per method, and performance profiles. The numbers come from reports."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from orchestration.analysis import escape
from orchestration.analysis.comparison import Comparison
from orchestration.analysis.statistics import LEVEL, profile_band
from orchestration.analysis.table import plural
from orchestration.plots.style import INK, SOFT, inches, method_styles, new_figure, quiet, save, spread

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LOG_BEYOND = 3.0
"""Ratio of worst to best score from which an axis is logarithmic."""
MOST_ROWS = 40


def styles(comparison: Comparison) -> dict[str, tuple[str, object, str]]:
    """The look of every row, by label: the same in all pictures of a report; the strongest colours go to the best."""
    return method_styles([comparison.collection.label(row) for row in comparison.order])


def makespan_per_method(comparison: Comparison, stem: Path) -> list[Path]:
    """Every run's score as a dot, the IQM with its interval on top; methods from best to worst."""
    collection, standings = comparison.collection, [s for s in comparison.standings if s.runs][:MOST_ROWS]
    height = 1.5 + 0.36 * max(len(standings), 3)
    left = max(1.9, 0.2 + inches([collection.label(s.row) for s in standings], 9.5))
    width = left + 7.6
    figure = new_figure(width, height)
    axes = figure.add_axes((left / width, 0.62 / height, 5.5 / width, 1 - 1.32 / height))
    look, worst = styles(comparison), 1.0
    for k, s in enumerate(standings):
        runs = collection.of(s.row)
        scores, strata = collection.scores(runs), collection.strata(runs)
        colour = look[collection.label(s.row)][0]
        placed = np.isfinite(scores)
        # Each problem has its own height in the row, so that equal scores do not hide each other and columns can be followed.
        lane = (strata - (len(collection.problems) - 1) / 2) / max(len(collection.problems), 1) * 0.62
        axes.scatter(scores[placed], (k + lane)[placed], s=13, color=colour, alpha=0.45, linewidths=0, zorder=2)
        if np.isfinite(s.iqm.value):
            if np.isfinite(s.iqm.low) and np.isfinite(s.iqm.high):
                axes.plot([s.iqm.low, s.iqm.high], [k, k], color=INK, linewidth=2.2, solid_capstyle="butt", zorder=3)
            axes.plot([s.iqm.value], [k], marker="D", markersize=5.5, color=INK, markerfacecolor="white", markeredgewidth=1.6, zorder=4)
        worst = max(worst, float(scores[placed].max(initial=1.0)))
        text = f"{s.iqm.value:.3f}" if np.isfinite(s.iqm.value) else "∞"
        if s.unplaced:
            text += f"  ({s.unplaced} of {s.runs} runs: none)"
        beside = axes.get_yaxis_transform()
        axes.annotate(text, (1.0, k), xycoords=beside, xytext=(8, 0), textcoords="offset points", va="center", fontsize=8.5, color=INK)
    axes.set_yticks(range(len(standings)), [escape.plain(collection.label(s.row)) for s in standings])
    axes.set_ylim(len(standings) - 0.4, -0.6)
    score_axis(axes, worst, "x")
    axes.set_xlabel("objective / best known of the problem")
    quiet(axes, "x")
    axes.tick_params(axis="y", labelsize=9.5, labelcolor=INK, length=0)
    axes.annotate("IQM", (1.0, 1.0), xycoords="axes fraction", xytext=(8, 3), textcoords="offset points", fontsize=8.5, color=SOFT)
    title = "Makespan per method" if all(p.objective_name == "makespan" for p in comparison.problems) else "Objective per method"
    figure.text(0.19 / width, 1 - 0.2 / height, title, fontsize=12, fontweight="bold", color=INK, va="top")
    figure.text(0.19 / width, 1 - 0.43 / height, _note(comparison), fontsize=8.5, color=SOFT, va="top")
    return save(figure, stem)


def _note(comparison: Comparison) -> str:
    """What the marks mean."""
    runs = f"runs on {plural(len(comparison.problems), 'problem')}"
    note = f"{comparison.collection.origin} · dots: {runs} · diamond: interquartile mean with {LEVEL:.0%} stratified-bootstrap interval"
    return note + (" · none: no valid placement found" if any(s.unplaced for s in comparison.standings) else "")


def score_axis(axes: Axes, worst: float, which: str, best: float = 1.0) -> None:
    """An axis of scores from 1 on, logarithmic with plain numbers where the scores differ much."""
    axis, limits, scale = (axes.xaxis, axes.set_xlim, axes.set_xscale) if which == "x" else (axes.yaxis, axes.set_ylim, axes.set_yscale)
    if worst / best > LOG_BEYOND:
        scale("log")
        factor = (worst / best) ** 0.03
        limits(best / factor, worst * factor)
        decades = np.log10(worst / best)
        subs = (1.0, 1.5, 2, 3, 5, 7) if decades < 0.8 else (1.0, 2, 5) if decades < 2.5 else (1.0,)
        axis.set_major_locator(LogLocator(base=10, subs=subs, numticks=30))
        axis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
        axis.set_minor_formatter(NullFormatter())
    else:
        room = max(worst - best, 0.01) * 0.04
        limits(best - room, max(worst, best + 0.01) + room)


def _title(axes: Axes, title: str, note: str) -> None:
    axes.annotate(
        title, (0, 1), xycoords="axes fraction", xytext=(0, 24), textcoords="offset points", fontsize=12, fontweight="bold", color=INK
    )
    axes.annotate(note, (0, 1), xycoords="axes fraction", xytext=(0, 9), textcoords="offset points", fontsize=8.5, color=SOFT)


def performance_profile(comparison: Comparison, stem: Path) -> list[Path]:
    """Fraction of runs within a factor of the best known, for every method, with its bootstrap band."""
    collection, standings = comparison.collection, [s for s in comparison.standings if s.runs][:MOST_ROWS]
    width = max(9.5, 7.9 + inches([collection.label(s.row) for s in standings], 9))
    figure = new_figure(width, 5.4)
    axes = figure.add_axes((0.71 / width, 0.11, 6.46 / width, 0.75))
    finite = collection.scores(collection.runs)
    finite = finite[np.isfinite(finite)]
    worst = max(float(finite.max(initial=1.0)), 1.01)
    thresholds = np.geomspace(1.0, worst * 1.02, 400)
    look, ends = styles(comparison), []
    for s in standings:
        runs = collection.of(s.row)
        value, low, high = profile_band(collection.scores(runs), collection.strata(runs), thresholds)
        colour, dash, _ = look[collection.label(s.row)]
        axes.fill_between(thresholds, low, high, step="post", color=colour, alpha=0.13, linewidth=0)
        axes.step(thresholds, value, where="post", color=colour, linestyle=dash, linewidth=1.7)  # type: ignore[arg-type]
        half = int(np.argmax(value >= 0.5 * value[-1]))
        ends.append((thresholds[half], collection.label(s.row), colour, dash))
    score_axis(axes, worst, "x")
    axes.set_ylim(-0.015, 1.03)
    axes.set_xlabel("τ: objective / best known of the problem, at most")
    axes.set_ylabel("fraction of runs")
    quiet(axes, "both")
    # Curves end on top of each other at 1, so labels stand in the order in which the curves rise.
    _key(axes, [(label, colour, dash) for _, label, colour, dash in sorted(ends, key=lambda e: e[0])])
    _title(
        axes, "Performance profile", f"{collection.origin} · higher and further left is better · bands: {LEVEL:.0%} stratified bootstrap"
    )
    return save(figure, stem)


def _key(axes: Axes, entries: list[tuple[str, str, object]]) -> None:
    """Labels with a sample of their line to the right of the axes, best first."""
    places = spread(np.linspace(0.98, 0.98 - 0.052 * len(entries), len(entries)), 0.02, 0.0, 1.0)
    for (label, colour, dash), y in zip(entries, places, strict=True):
        axes.plot(
            [1.02, 1.075], [y, y], transform=axes.transAxes, color=colour, linestyle=dash, linewidth=2, clip_on=False  # type: ignore[arg-type]
        )  # fmt: skip
        axes.text(1.09, y, label, transform=axes.transAxes, va="center", fontsize=9, color=INK)
