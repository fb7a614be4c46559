"""What MLflow's pages show of a finished sweep: its leaderboard as a description, numbers and curves of the methods, every trial relative
to bound and best known, graphs and networks as inputs. Sending it belongs to `orchestration.tracking.summary`."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

import numpy as np

from orchestration.analysis.comparison import Comparison, Row, Standing
from orchestration.analysis.load import SweepRecord
from orchestration.analysis.runs import Collection, Run
from orchestration.analysis.statistics import iqm, on_grid
from orchestration.analysis.table import dress
from orchestration.report import tables
from orchestration.specs.canonical import canonical, content_hash
from orchestration.specs.layout import POLICY, trial_folder
from orchestration.specs.results import CurvePoint
from orchestration.tracking.policies import Learned, model_name
from orchestration.tracking.run_contents import sampled, trial_tags
from orchestration.tracking.summary import Input, Relative, RelativeCurve, SweepSummary

GRID_POINTS = 40
"""Of a method's curve."""
MOST_POINTS = 200_000
"""Of all trials' curves together; of many trials each has fewer."""


def tracked_summary(record: SweepRecord, comparison: Comparison, description: str = "") -> SweepSummary:
    """The summary of a record that was compared.

    Args:
        record: what ended, with the descriptions of its problems.
        comparison: of the same record.
        description: the sweep's own.
    """
    board = dress([tables.leaderboard(comparison)], "markdown")
    return SweepSummary(
        f"{description}\n\n{board}".strip(),
        dict(_numbers(comparison)),
        dict(_method_curves(comparison)),
        dict(_trials(record, comparison.collection)),
        tuple(_inputs(record)),
        tuple(_learned(record, comparison.collection)),
    )


def _name(row: Row, collection: Collection) -> str:
    """Of a method among metrics, with its stage where there are several."""
    return row[1] if len(collection.stages) < 2 else f"{row[1]} in {row[0]}"


def _numbers(comparison: Comparison) -> Iterator[tuple[str, float]]:
    for s in comparison.standings:
        for key, value in _of_standing(s).items():
            if value is not None and math.isfinite(value):
                yield f"{key}/{_name(s.row, comparison.collection)}", float(value)


def _of_standing(s: Standing) -> dict[str, float | None]:
    return {
        "iqm": s.iqm.value, "gap_to_best": s.gap_to_best, "gap_to_bound": s.gap_to_bound, "worst": s.worst,
        "invalid": s.tally.invalid, "failed": s.tally.trials.get("failed", 0),
    }  # fmt: skip


def _method_curves(comparison: Comparison) -> Iterator[tuple[str, list[tuple[int, float]]]]:
    """Of every method the interquartile mean over its runs of objective / best known; from where it is finite."""
    collection = comparison.collection
    for row in comparison.order:
        runs = [r for r in collection.of(row) if r.curve]
        last = max((r.evaluations for r in runs), default=0)
        if last < 2:
            continue
        grid = np.unique(np.geomspace(1, last, GRID_POINTS).astype(np.int64))
        best = [collection.problems[collection.index[r.problem]].best for r in runs]
        values = iqm(np.array([_relative(r, b, grid) for r, b in zip(runs, best, strict=True)]).T)
        points = [(int(at), float(value)) for at, value in zip(grid, values, strict=True) if math.isfinite(value)]
        if points:
            yield f"best_over_best_known/{_name(row, collection)}", points


def _relative(run: Run, best: float, grid: np.ndarray) -> np.ndarray:
    found = on_grid(np.array([p.evaluations for p in run.curve]), np.array([_over(p.best, best) for p in run.curve]), grid)
    return np.asarray(found, dtype=np.float64)


def _over(value: float, reference: float) -> float:
    """0/0 is 1, as in scores."""
    return value / reference if reference > 0 else 1.0 if value == reference else math.inf


def _trials(record: SweepRecord, collection: Collection) -> Iterator[tuple[str, RelativeCurve]]:
    """Of a trial on one problem its whole curve; on several the means of what it reached."""
    by_trial: dict[str, list[Run]] = {}
    for run in collection.runs:
        by_trial.setdefault(run.trial, []).append(run)
    most = max(2, MOST_POINTS // max(1, len(by_trial)))
    for key, runs in by_trial.items():
        result = record.ended[key][1]
        known = [collection.problems[collection.index[r.problem]] for r in runs]
        if len(runs) == 1:
            curve = [c for c in sampled(runs[0].curve, most) if math.isfinite(c.best)]
            points = [_point(c, [c.best], [known[0].bound], [known[0].best]) for c in curve]
        else:
            end = CurvePoint(result.evaluations, 0.0, result.wall_seconds)
            points = [_point(end, [r.objective for r in runs], [k.bound for k in known], [k.best for k in known])]
        points = [p for p in points if math.isfinite(p.over_best)]
        if points:
            yield key, RelativeCurve(content_hash([[k.bound, k.best] for k in known])[:16], result.started_at, tuple(points))


def _point(at: CurvePoint, values: list[float], bounds: list[float | None], bests: list[float]) -> Relative:
    over_bound = [_over(value, b) for value, b in zip(values, bounds, strict=True) if b is not None]
    whole = len(over_bound) == len(values) and all(map(math.isfinite, over_bound))
    over_best = _mean(_over(value, best) for value, best in zip(values, bests, strict=True))
    return Relative(at.evaluations, at.wall_seconds, _mean(over_bound) if whole else None, over_best)


def _mean(values: Iterable[float]) -> float:
    found = list(values)
    return math.fsum(found) / len(found)


def _learned(record: SweepRecord, collection: Collection) -> Iterator[Learned]:
    """Every policy that was trained in advance, and of each method that learned while it searched the best trial's, by mean score."""
    there = {key for key in record.ended if (trial_folder(record.folder, key) / POLICY).is_file()}
    chosen = [key for key in record.ended if key in there and record.ended[key][0].kind == "pretrain"]
    for row in collection.rows:
        scores: dict[str, list[float]] = {}
        runs = [r for r in collection.of(row) if r.trial in there]
        for run, score in zip(runs, collection.scores(runs).tolist(), strict=True):
            scores.setdefault(run.trial, []).append(score)
        chosen += sorted(scores, key=lambda key: (_mean(scores[key]), key))[:1]
    for key in chosen:
        tags = trial_tags(record.ended[key][0], record.name)
        yield Learned(
            key,
            model_name(record.name, tags["method"]),
            {k: tags[k] for k in ("sweep", "method", "stage", "kind", "graph", "network", "seed")},
        )


def _inputs(record: SweepRecord) -> Iterator[Input]:
    """Graphs, then networks, each once, by content."""
    for kind in ("graph", "network"):
        found = {}
        for spec in record.specs.values():
            source = {k: v for k, v in getattr(spec, kind).items() if k != "root"}  # a folder of this machine
            made = Input(getattr(spec, f"{kind}_label"), kind, content_hash(source)[:12], canonical(source))
            found[made.name, made.digest] = made
        yield from (found[key] for key in sorted(found))
