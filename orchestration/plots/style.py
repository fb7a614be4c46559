"""One look for every picture: a colour-blind-safe palette, quiet axes, PNG and SVG that do not change between equal runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import matplotlib
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from scipy.optimize import isotonic_regression

from orchestration.analysis import escape

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK, SOFT, GRID = "#1f2430", "#6b7280", "#e5e7eb"
PALETTE = ("#332288", "#cc6677", "#117733", "#88ccee", "#882255", "#999933", "#44aa99", "#aa4499", "#ddcc77")
"""Paul Tol's muted scheme, distinct under the common kinds of colour blindness; ordered so that neighbours differ most."""
DEVICES = (
    "#4477aa",
    "#ee6677",
    "#228833",
    "#ccbb44",
    "#66ccee",
    "#aa3377",
    "#e08214",
    "#332288",
    "#8c510a",
    "#80cdc1",
    "#999999",
    "#000000",
)
"""Paul Tol's bright scheme, filled up with hues that differ from it in lightness too, for devices."""
DASHES: tuple[object, ...] = ("-", (0, (4, 1.5)), (0, (1, 1.2)), (0, (5, 1.5, 1, 1.5)))
MARKERS = "osD^vPX*<>hp"


def method_styles(methods: Sequence[str]) -> dict[str, tuple[str, object, str]]:
    """Colour, dash and marker of each method; all three differ between neighbours, so no pair rests on colour alone."""
    return {
        m: (PALETTE[i % len(PALETTE)], DASHES[(i // len(PALETTE)) % len(DASHES)], MARKERS[i % len(MARKERS)]) for i, m in enumerate(methods)
    }


def device_colours(n: int) -> list[str]:
    """n colours, one a device; beyond the twelve distinct ones, an even walk through viridis."""
    if n <= len(DEVICES):
        return list(DEVICES[:n])

    return [to_hex(c) for c in matplotlib.colormaps["viridis"](np.linspace(0, 0.95, n))]


def new_figure(width: float, height: float) -> Figure:
    """A figure of so many inches without the global state of pyplot, drawn by Agg."""
    figure = Figure(figsize=(width, height), facecolor="white")
    FigureCanvasAgg(figure)
    return figure


def inches(labels: Sequence[str], points: float) -> float:
    """Room for the longest of ``labels`` in letters of so many points: those of the typeface are 0.6 as wide as high on average."""
    return max((len(label) for label in labels), default=0) * 0.6 * points / 72


def quiet(axes: Axes, grid: str = "y") -> None:
    """Take away what carries no data: two spines, strong ticks; leave a faint grid."""
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color("#b6bcc6")
    axes.tick_params(colors=SOFT, labelsize=8, width=0.6, length=3, which="both")
    axes.grid(axis=grid, color=GRID, linewidth=0.7)  # type: ignore[arg-type]
    axes.set_axisbelow(True)
    axes.xaxis.label.set(color=INK, fontsize=9)
    axes.yaxis.label.set(color=INK, fontsize=9)
    axes.title.set(color=INK, fontsize=10)


def spread(positions: np.ndarray, gap: float, low: float, high: float) -> np.ndarray:
    """Positions moved as little as needed to stand ``gap`` apart within [low, high], order kept, float64[N].

    The exact answer to this one-dimensional problem: isotonic regression of the positions less their rank's offset. If they
    cannot all fit, they are set evenly.
    """
    positions = np.asarray(positions, dtype=np.float64)
    n = len(positions)
    if n * gap > high - low:
        gap = (high - low) / max(n, 1)

    order = np.argsort(positions, kind="stable")
    offsets = np.arange(n) * gap
    moved = np.clip(isotonic_regression(positions[order] - offsets).x, low, high - (n - 1) * gap) + offsets if n else positions
    result = np.empty(n)
    result[order] = moved
    return result


def save(figure: Figure, stem: Path) -> list[Path]:
    """Write ``stem.png`` and ``stem.svg``; equal figures give equal bytes (no dates, fixed ids)."""
    escape.literal(figure)
    stem.parent.mkdir(parents=True, exist_ok=True)
    paths = [stem.parent / f"{stem.name}.png", stem.parent / f"{stem.name}.svg"]
    with matplotlib.rc_context({"svg.hashsalt": "placewright", "svg.fonttype": "none"}):
        figure.savefig(paths[0], dpi=150, metadata={"Software": None})
        figure.savefig(paths[1], metadata={"Date": None})
    return paths
