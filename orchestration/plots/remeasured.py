"""Every time of a contest of placements, as dots, with median and quartiles; one panel a problem."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from orchestration.analysis import escape
from orchestration.plots import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from orchestration.analysis.contest import Contest


def draw(found: Sequence[Contest], stem: Path) -> list[Path]:
    """Draw every candidate's times, in turn; returns the paths of ``stem.png`` and ``stem.svg``."""
    heights = [0.9 + 0.28 * len(c.candidates) for c in found]
    figure = style.new_figure(7.2, sum(heights) + 0.1)
    panels = figure.subplots(len(found), 1, squeeze=False, gridspec_kw={"height_ratios": heights})[:, 0]
    for axes, contest in zip(panels, found, strict=True):
        _panel(axes, contest)
    escape.literal(figure)
    figure.tight_layout()
    return style.save(figure, stem)


def _panel(axes: Axes, contest: Contest) -> None:
    """The fastest placement on top."""
    factor, unit = contest.scale
    ordered = sorted(contest.candidates, key=lambda c: -float(np.median(c.values)))
    for y, candidate in enumerate(ordered):
        values = factor * np.array([v for v in candidate.values if np.isfinite(v)])
        if not len(values):
            continue
        offsets = np.linspace(-0.22, 0.22, len(values))  # in order of the rounds, so that a drift shows
        axes.scatter(values, y + offsets, s=9, color=style.PALETTE[3], linewidths=0)
        low, median, high = np.percentile(values, (25, 50, 75))
        axes.plot([low, high], [y, y], color=style.INK, linewidth=1.2)
        axes.plot([median], [y], marker="|", markersize=12, color=style.PALETTE[1], markeredgewidth=2)
    axes.set_yticks(range(len(ordered)), [_short(escape.plain(c.name)) for c in ordered])
    axes.set(title=contest.name, xlabel=f"{contest.problem.objective}, {unit}")
    style.quiet(axes, grid="x")


def _short(name: str) -> str:
    return name if len(name) < 44 else f"{name[:42]}…"
