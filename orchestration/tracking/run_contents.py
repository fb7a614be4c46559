"""What a trial's MLflow run holds: tags, parameters, metrics. Sending it belongs to `orchestration.tracking.tracker`."""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from orchestration.specs.results import CurvePoint, TrialResult
from orchestration.specs.trial import Trial

TRACKED_POINTS = 60
"""Most points of a search curve that are sent; the ledger keeps more."""


class Ended(NamedTuple):
    """A line of the ledger that is to be sent."""

    trial: Trial
    result: TrialResult
    offset: int
    """Where the line begins, in bytes."""

    @property
    def key(self) -> tuple[str, int]:
        """Which line it is."""
        return self.result.trial, self.offset

    @property
    def tags(self) -> dict[str, str]:
        """Those that a run has only when it is over."""
        return {"status": self.result.status, "ledger": str(self.offset)}

    @property
    def texts(self) -> dict[str, str]:
        """Artifacts by name."""
        return {name: text for name, text in (("traceback.txt", self.result.traceback), ("log.txt", self.result.log)) if text}

    @property
    def status(self) -> str:
        """In MLflow's words."""
        return "FAILED" if self.result.status == "failed" else "FINISHED"

    @property
    def start(self) -> int:
        """In ms since 1970; now, if nobody knows."""
        return int(self.result.started_at * 1000) or int(time.time() * 1000)

    @property
    def end(self) -> int | None:
        """In ms since 1970; None if nobody knows."""
        return int((self.result.started_at + self.result.wall_seconds) * 1000) or None


def trial_tags(trial: Trial, sweep: str) -> dict[str, str]:
    """The flat tags of a child run."""
    graphs = sorted({p.graph_label for p in trial.problems})
    networks = sorted({p.network_label for p in trial.problems})
    return {
        "sweep": sweep, "method": trial.label, "graph": ", ".join(graphs)[:5000], "network": ", ".join(networks)[:5000],
        "seed": str(trial.seed), "stage": trial.stage, "trial": trial.content_hash, "kind": trial.kind,
        "mlflow.runName": f"{trial.label} {trial.problem_label} seed {trial.seed}"[:250],
    }  # fmt: skip


def trial_params(trial: Trial) -> dict[str, str]:
    """Parameters of a child run: what to group and filter by, the configuration, flat, and what else defines the trial."""
    tags = trial_tags(trial, "")
    params = {
        **{key: tags[key] for key in ("method", "graph", "network", "stage", "seed", "kind")}, "algorithm": trial.method,
        "evaluator": trial.evaluator.key, "budget.evaluations": trial.budget.evaluations, "budget.seconds": trial.budget.seconds,
        "propose": trial.batch,
    }  # fmt: skip
    params.update({f"evaluator.{k}": v for k, v in trial.evaluator.options.items()})
    _flatten("config", trial.config, params)
    return {metric_name(k): str(v)[:6000] for k, v in params.items() if v is not None}


def _flatten(prefix: str, value: Any, into: dict[str, Any]) -> None:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            _flatten(f"{prefix}.{key}", inner, into)
    else:
        into[prefix] = value


def metric_name(text: str) -> str:
    """``text`` with only the characters that MLflow takes in names of metrics and parameters."""
    return "".join(c if c.isalnum() or c in "_-. /:" else "_" for c in text)[:250]


def result_metrics(result: TrialResult) -> list[tuple[str, float, int, int]]:
    """(name, value, time in ms, step) of everything a trial reached; the step counts evaluations."""
    base = int(result.started_at * 1000)
    rows: list[tuple[str, float, int, int]] = []
    one = len(result.problems) == 1
    for problem in result.problems:
        key = f"best_{problem.objective_name}" if one else metric_name(f"best_{problem.objective_name}/{problem.name}")
        for point in sampled(problem.curve):
            now = base + int(point.wall_seconds * 1000)
            rows.append((key, point.best, now, point.evaluations))
            if one:
                rows.append(("evaluations", float(point.evaluations), now, point.evaluations))
                rows.append(("wall_seconds", point.wall_seconds, now, point.evaluations))
    last, step = base + int(result.wall_seconds * 1000), result.evaluations
    final: dict[str, float] = {
        "evaluations": result.evaluations, "wall_seconds": result.wall_seconds, "learner_seconds": result.learner_seconds,
        "evaluation_seconds": result.evaluation_seconds, "queue_seconds": result.queue_seconds,
    }  # fmt: skip
    if result.objective is not None and not one:
        final["best_mean"] = result.objective
    final.update({metric_name(f"outcome/{k}"): n for k, n in result.outcomes.items()})
    final.update({metric_name(f"report/{k}"): v for k, v in result.report.items()})
    seen = {(name, at) for name, _, _, at in rows}
    return rows + [(k, float(v), last, step) for k, v in final.items() if (k, step) not in seen]


def grid(last: int, most: int = TRACKED_POINTS) -> list[int]:
    """Steps that all curves share, so that MLflow can average and overlay them: 1, 2, 3, 5, 10, 20, 30, 50, … before ``last``, and that.

    Args:
        last: evaluations at the end of a curve.
        most: how many steps there may be; with less room, every trial of a sweep keeps the same fewer of each decade.
    """
    for kept in ((1, 2, 3, 5), (1, 3), (1,)):
        steps = [k * 10**e for e in range(len(str(last))) for k in kept if k * 10**e < last]
        if len(steps) < most:
            return [*steps, last]
    return [1, last] if most > 1 and last > 1 else [last]


def sampled(curve: Sequence[CurvePoint], most: int = TRACKED_POINTS) -> list[CurvePoint]:
    """A best-so-far curve at the steps of `grid`, from its first point on; seconds between its points along straight lines."""
    if not curve:
        return []
    at = [p.evaluations for p in curve]
    steps = [s for s in grid(at[-1], most) if s >= at[0]]
    seconds = np.interp(steps, at, [p.wall_seconds for p in curve])
    before = [curve[bisect_right(at, s) - 1] for s in steps]
    return [p._replace(evaluations=s, wall_seconds=float(w)) for p, s, w in zip(before, steps, seconds, strict=True)]


def reached(curve: Sequence[CurvePoint], evaluations: int) -> tuple[int, float | None]:
    """The last step of the grid that a search has passed by ``evaluations``, and its best there; None if there was none yet.

    ``evaluations`` itself is no step but by chance: the search goes on.
    """
    step = max((s for s in grid(evaluations + 1) if s <= evaluations), default=0)
    passed = [p.best for p in curve if p.evaluations <= step]
    return step, passed[-1] if passed else None
