"""A picture of a placed graph: layers of operations, coloured by device. Only drawing and its layout belong here."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.collections import LineCollection
from matplotlib.lines import Line2D

from envs.problem.graph import ComputationGraph
from envs.problem.problem import Problem
from orchestration.plots.style import INK, SOFT, device_colours, new_figure, save

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LABELS_UP_TO = 60
_SWEEPS = 24
_MANY, _DENSE = 1500, 3
"""Edges in all, or edges a node, beyond which they are drawn thinner and paler."""
_HEADER = 1.1
"""Inches above the picture for title, note and legend."""


def layers(graph: ComputationGraph) -> np.ndarray:
    """The layer of each node, int64[V]: its level, except that sources (and what only they feed) move right up to their use.

    Weights of a captured model are all at level 0; drawn there, every layer's weights would cross the whole picture.
    """
    u, v = graph.edges.T
    ahead = np.zeros(graph.n_nodes, dtype=np.int64)  # longest path to an exit, level by level from the end
    order = np.argsort(graph.levels[u], kind="stable")[::-1]
    bounds = np.flatnonzero(np.diff(graph.levels[u][order])) + 1
    for ids in np.split(order, bounds):
        np.maximum.at(ahead, u[ids], ahead[v[ids]] + 1)
    early, late = graph.levels.astype(np.int64), int(graph.levels.max()) - ahead
    span_early, span_late = ((layer[v] - layer[u]).sum() for layer in (early, late))
    return early if span_early <= span_late else late


def layout(graph: ComputationGraph) -> tuple[np.ndarray, np.ndarray]:
    """Layer and offset across the layer of each node, float64[V] each; offsets are centred and one apart.

    Within a layer nodes are ordered by the mean offset of their neighbours (the barycentre method of Sugiyama et al., 1981),
    every second layer at once: were all moved together, two crossing layers would change places for ever.
    """
    layer = layers(graph)
    u, v = graph.edges.T
    degree = np.maximum(np.bincount(u, minlength=len(layer)) + np.bincount(v, minlength=len(layer)), 1)
    width = np.bincount(layer)
    starts = np.concatenate(([0], np.cumsum(width)[:-1]))

    def ranked(key: np.ndarray) -> np.ndarray:
        order = np.lexsort((np.arange(len(key)), key, layer))
        rank = np.empty(len(key))
        rank[order] = np.arange(len(key)) - starts[layer[order]]
        return rank - (width[layer] - 1) / 2

    offset = ranked(np.zeros(len(layer)))
    best, best_cost = offset, np.inf
    for sweep in range(_SWEEPS):
        cost = np.abs(offset[u] - offset[v]).sum()
        if cost < best_cost:
            best, best_cost = offset, cost
        pull = np.bincount(u, offset[v], len(layer)) + np.bincount(v, offset[u], len(layer))
        offset = ranked(np.where(layer % 2 == sweep % 2, 0.3 * offset + 0.7 * pull / degree, offset))
    return layer.astype(np.float64), best


def _folded(layer: np.ndarray, offset: np.ndarray, aspect: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """x, y and the band of each node, when a long chain of layers is broken into bands read like lines of text."""
    n_layers, height = layer.max() + 1, offset.max() - offset.min() + 2
    bands = int(max(1, round(np.sqrt(n_layers / (aspect * height)))))
    size = np.ceil(n_layers / bands)
    band = layer // size
    used = int(band.max()) + 1
    tops = [offset[band == b].max(initial=0) - offset[band == b].min(initial=0) + 2 for b in range(used)]
    shift = np.concatenate(([0], np.cumsum(tops)[:-1]))
    lowest = np.array([offset[band == b].min(initial=0) for b in range(used)])
    which = band.astype(np.int64)
    return layer % size, -(shift[which] + offset - lowest[which]), which


def draw(problem: Problem, placement: np.ndarray, stem: Path, title: str = "") -> list[Path]:
    """Write ``stem.png`` and ``stem.svg``: nodes of ``placement`` int16[V] by device, edges that cross devices emphasised."""
    graph, network = problem.graph, problem.network
    layer, offset = layout(graph)
    x, y, band = _folded(layer, offset, aspect=2.2)
    labelled = graph.n_nodes <= LABELS_UP_TO
    if labelled and band.max() == 0:
        x = x * 1.6
    width = 13.0
    span_x, span_y = x.max() - x.min() + 1, y.max() - y.min() + 1
    height = float(np.clip(width * span_y / span_x, 2.4, min(8.2, max(2.4, 1.1 * span_y)))) + _HEADER
    figure = new_figure(width, height)
    axes = figure.add_axes((0.015, 0.02, 0.97, 1 - _HEADER / height))
    unit = min(width * 0.97 / span_x, (height - _HEADER) / span_y) * 72  # points between neighbours
    radius = float(np.clip(unit * (0.5 if labelled else 0.34), 1.2, 17))
    _edges(axes, graph.edges, placement, x, y, band, radius)
    _nodes(axes, x, y, placement, device_colours(network.n_devices), radius)
    if labelled:
        _labels(axes, graph, x, y, radius)
    axes.set_xlim(x.min() - 0.8, x.max() + 0.8)
    axes.set_ylim(y.min() - 1.0, y.max() + 0.8)
    axes.axis("off")
    crossing = int((placement[graph.edges[:, 0]] != placement[graph.edges[:, 1]]).sum())
    figure.text(0.015, 1 - 0.22 / height, title or f"{problem.name}", color=INK, fontsize=12, fontweight="bold", va="top")
    note = f"{graph.n_nodes} operations · {graph.n_edges} edges, {crossing} between devices · data flows left to right"
    if band.max():
        note += ", line by line"
    figure.text(0.015, 1 - 0.47 / height, note, color=SOFT, fontsize=9, va="top")
    _legend(axes, network.names, np.bincount(placement, minlength=network.n_devices))
    return save(figure, stem)


def _edges(axes: Axes, edges: np.ndarray, placement: np.ndarray, x: np.ndarray, y: np.ndarray, band: np.ndarray, radius: float) -> None:
    """Edges on one device faint, edges between devices dark, and those that go on in another line fainter still."""
    u, v = edges.T
    crosses, folds = placement[u] != placement[v], band[u] != band[v]
    # Edges over several layers bow, so that they do not run behind the nodes between.
    t = np.linspace(0, 1, 9 if len(edges) > _MANY else 25)[None, :]
    bow = np.where(folds | (np.abs(x[v] - x[u]) <= x_step(x)), 0.0, 0.45 + 0.02 * np.abs(x[v] - x[u]))[:, None]
    xs, ys = x[u][:, None] * (1 - t) + x[v][:, None] * t, y[u][:, None] * (1 - t) + y[v][:, None] * t
    curves = np.stack([xs, ys - bow * np.sin(np.pi * t)], axis=2)
    thin = float(np.clip(radius / 8, 0.4, 1.1))
    crowded = len(edges) > _MANY or len(edges) > _DENSE * len(x)
    for mask, colour, line, alpha in (
        (~crosses & ~folds, "#9aa3b2", thin, 0.4 if crowded else 0.8),
        (~crosses & folds, "#9aa3b2", thin * 0.7, 0.25),
        (crosses & folds, INK, thin, 0.25),
        (crosses & ~folds, INK, 0.6 * thin if crowded else thin * 1.5, 0.45 if crowded else 0.85),
    ):
        if mask.any():
            axes.add_collection(LineCollection(list(curves[mask]), colors=colour, linewidths=line, alpha=alpha, zorder=1))


def x_step(x: np.ndarray) -> float:
    """The distance between neighbouring layers (a little more, against rounding)."""
    different = np.diff(np.unique(x))
    return float(different.min()) * 1.01 if different.size else 1.0


def _nodes(axes: Axes, x: np.ndarray, y: np.ndarray, placement: np.ndarray, colours: Sequence[str], radius: float) -> None:
    edge = "white" if radius > 3 else "none"
    axes.scatter(x, y, s=(2 * radius) ** 2, c=np.asarray(colours)[placement], edgecolors=edge, linewidths=0.8, zorder=2)


def _labels(axes: Axes, graph: ComputationGraph, x: np.ndarray, y: np.ndarray, radius: float) -> None:
    size = float(np.clip(radius * 0.62, 5, 8))
    for i in range(graph.n_nodes):
        name = graph.names[i] if len(graph.names[i]) <= 12 else graph.names[i][:11] + "…"
        axes.annotate(
            name,
            (x[i], y[i]),
            xytext=(0, -radius - 2),
            textcoords="offset points",
            ha="center",
            va="top",
            fontsize=size,
            color=INK,
            zorder=3,
        )


def _legend(axes: Axes, names: Sequence[str], counts: np.ndarray) -> None:

    colours = device_colours(len(names))
    shown = [i for i in range(len(names)) if counts[i] or len(names) <= 12][:24]
    handles: list[Line2D] = [
        Line2D([], [], marker="o", linestyle="", markersize=7, color=colours[i], label=f"{names[i]} ({counts[i]})") for i in shown
    ]
    handles.append(Line2D([], [], color=INK, linewidth=1.6, label="between devices"))
    axes.legend(
        handles=handles, loc="lower left", bbox_to_anchor=(-0.005, 1.0), ncols=min(len(handles), 13), frameon=False, fontsize=9, 
        labelcolor=INK, handletextpad=0.4, columnspacing=1.4, borderaxespad=0.2,
    )  # fmt: skip
