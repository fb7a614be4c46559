"""Pictures of searches for settings: history, importance of each setting, parallel coordinates. Only drawing is here."""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib
import numpy as np

from orchestration.plots.style import INK, PALETTE, SOFT, inches, new_figure, quiet, save

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_SETTINGS = 12
"""Of a picture, those that count most."""


def draw_searches(record: Path, folder: Path) -> list[Path]:
    """A picture for every search of a sweep that completed two configurations or more.

    Args:
        record: the file with all searches, as `orchestration.search.search.Search.describe` says them.
        folder: where the pictures go.
    """
    files = []
    for search in json.loads(record.read_text(encoding="utf-8")):
        complete = [c for c in search["configurations"] if c["state"] == "COMPLETE"]
        if len(complete) >= 2:
            stem = re.sub(r"[^\w.-]+", "-", f"search-{search['stage']}-{search['method']}")[:150]
            files += _draw(search, complete, folder / stem)
    return files


def _draw(search: Mapping[str, Any], complete: Sequence[Mapping[str, Any]], stem: Path) -> list[Path]:
    weights = importances(search)
    names = list(weights) or [p["name"] for p in search["space"]]
    names = names[:MOST_SETTINGS]
    left = 0.4 + inches(names, 8)
    widths = (3.4, 2.4, max(3.0, 0.8 * len(names)))
    width, height = 0.7 + sum(widths) + left + 1.5, 3.6
    figure = new_figure(width, height)
    x = 0.7
    for panel, gap, draw in zip(widths, (left, 0.6, 0.0), (_history, _importance, _parallel), strict=True):
        axes = figure.add_axes((x / width, 0.75 / height, panel / width, (height - 1.55) / height))
        draw(axes, search, complete, names, weights)
        x += panel + gap
    heading = f"Search of stage {search['stage']}, method {search['method']}"
    what = f"{len(complete)} of {len(search['configurations'])} configurations completed, {search['sampler']['name']}; {_value(search)}"
    figure.text(0.7 / width, 1 - 0.2 / height, heading, fontsize=13, fontweight="bold", color=INK, va="top")
    figure.text(0.7 / width, 1 - 0.47 / height, what, fontsize=9, color=SOFT, va="top")
    return save(figure, stem)


def _value(search: Mapping[str, Any]) -> str:
    return f"value: {search['objectives'][0]}, less is better"


def importances(search: Mapping[str, Any]) -> dict[str, float]:
    """Share of each setting in what separates the best tenth of configurations from the others (PED-ANOVA), largest first.

    Empty where there are too few configurations to say.
    """
    optuna = importlib.import_module("optuna")
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study, space = optuna.create_study(), {p["name"]: _distribution(optuna.distributions, p) for p in search["space"]}
    for c in search["configurations"]:
        if c["state"] == "COMPLETE":
            params = {
                k: _encoded(v) if isinstance(space[k], optuna.distributions.CategoricalDistribution) else v
                for k, v in c["settings"].items()
            }
            made = optuna.trial.create_trial(value=c["values"][0], params=params, distributions={k: space[k] for k in params})
            study.add_trial(made)
    if len(study.trials) < 2:
        return {}
    try:
        found = optuna.importance.get_param_importances(study, evaluator=optuna.importance.PedAnovaImportanceEvaluator())
    except (ValueError, RuntimeError):  # all alike, or too few
        return {}
    return {k: float(v) for k, v in found.items() if np.isfinite(v)}


def _distribution(module: Any, p: Mapping[str, Any]) -> Any:
    if p["kind"] == "choice":
        return module.CategoricalDistribution([_encoded(c) for c in p["choices"]])
    if p["kind"] == "int":
        return module.IntDistribution(int(p["low"]), int(p["high"]), p["log"], int(p["step"] or 1))
    return module.FloatDistribution(float(p["low"]), float(p["high"]), p["log"], p["step"])


def _encoded(value: Any) -> Any:
    return value if isinstance(value, str | int | float | bool | None) else json.dumps(value, sort_keys=True)


def _history(axes: Axes, search: Mapping[str, Any], complete: Sequence[Mapping[str, Any]], _names: Any, _weights: Any) -> None:
    numbers, values = np.array([c["number"] for c in complete]), np.array([c["values"][0] for c in complete])
    axes.plot(numbers, values, "o", color=PALETTE[3], markersize=4, label="completed")
    pruned = [(c["number"], c["values"][0]) for c in search["configurations"] if c["state"] == "PRUNED" and c["values"]]
    if pruned:
        axes.plot(*zip(*pruned, strict=True), "x", color=SOFT, markersize=4, label="pruned")
    axes.step(numbers, np.minimum.accumulate(values), where="post", color=PALETTE[0], linewidth=1.6, label="best so far")
    _labelled(axes, "history", "configuration", "value")
    axes.legend(fontsize=7, frameon=False)
    quiet(axes)


def _importance(axes: Axes, _search: Any, _complete: Any, names: Sequence[str], weights: Mapping[str, float]) -> None:
    shown = [n for n in names if n in weights]
    axes.barh(range(len(shown)), [weights[n] for n in shown], color=PALETTE[6], height=0.6)
    axes.set_yticks(range(len(shown)), shown)
    axes.invert_yaxis()
    _labelled(axes, "importance (PED-ANOVA)" if shown else "importance: too few to say", "share", "")
    quiet(axes, "x")


def _parallel(axes: Axes, search: Mapping[str, Any], complete: Sequence[Mapping[str, Any]], names: Sequence[str], _weights: Any) -> None:
    """A line a configuration, best last and darkest; every axis from the lowest to the highest value that the space allows."""
    space = {p["name"]: p for p in search["space"]}
    ranks = np.argsort(np.argsort([-c["values"][0] for c in complete])) / max(1, len(complete) - 1)
    colours = matplotlib.colormaps["viridis_r"]
    for k in np.argsort(ranks, kind="stable"):
        heights = [_height(space[n], complete[k]["settings"].get(n)) for n in names]
        axes.plot(range(len(names)), heights, color=colours(0.05 + 0.9 * ranks[k]), linewidth=0.6 + 1.4 * ranks[k], alpha=0.85)
    axes.set_xticks(range(len(names)), [f"{n}\n{_ends(space[n])}" for n in names], fontsize=7)
    axes.set_yticks([])
    axes.set_ylim(-0.05, 1.05)
    _labelled(axes, "parallel coordinates: dark is better", "", "")
    quiet(axes, "x")


def _height(p: Mapping[str, Any], value: Any) -> float:
    """Where a value stands on its axis, 0 to 1; NaN if the configuration has none."""
    if value is None and p["kind"] != "choice":
        return float("nan")
    if p["kind"] == "choice":
        known = [_encoded(c) for c in p["choices"]]
        return known.index(_encoded(value)) / max(1, len(known) - 1) if _encoded(value) in known else float("nan")
    low, high, at = (np.log(x) if p["log"] else float(x) for x in (p["low"], p["high"], value))
    return float((at - low) / (high - low))


def _ends(p: Mapping[str, Any]) -> str:
    if p["kind"] == "choice":
        return " | ".join(str(_encoded(c))[:10] for c in p["choices"][:4])
    return f"{p['low']:g} to {p['high']:g}{', log' if p['log'] else ''}"


def _labelled(axes: Axes, title: str, x: str, y: str) -> None:
    axes.set_title(title, loc="left", fontsize=10, pad=6)
    axes.set_xlabel(x)
    axes.set_ylabel(y)
