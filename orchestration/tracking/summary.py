"""What MLflow is told once a sweep has been reported: the leaderboard on its parent run and its experiment, and every trial's
search curve relative to the bound and to the best known. Computing any of it belongs to the reports."""

from __future__ import annotations

import base64
import json
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from orchestration.tracking.policies import Learned
from orchestration.tracking.run_contents import metric_name

NOTE = "mlflow.note.content"
"""MLflow's tag of a description, in Markdown."""
KIND = {"mlflow.experimentKind": "custom_model_development"}
"""MLflow's tag of an experiment that trains models. Its pages show runs and charts then, not traces of language models."""
VIEW = "placewright"
"""Key of the view of an experiment that groups its trials by method."""
LANDING = f"workflowType=machine_learning&viewStateShareKey={VIEW}"
"""What MLflow's pages take from an address: to be in the mode for training models, whatever was used last, and in our view."""
NOTE_LETTERS = 7500
"""Of a description; MLflow cuts a tag of 8,000."""
MOST_DATASETS = 500
REFERENCE = "reference"
"""Tag of a trial's run: what its relative curves refer to, so that equal ones are not sent twice."""


class Relative(NamedTuple):
    """One point of a trial's search curve in relation to what is known of its problems (means, where these are several)."""

    evaluations: int
    wall_seconds: float
    over_bound: float | None
    """Objective / lower bound; None where no bound is known."""
    over_best: float
    """Objective / best known."""


@dataclass(frozen=True)
class RelativeCurve:
    """The curve of one trial."""

    reference: str
    """Bound and best known, as text; a curve with another reference is another one."""
    started_at: float
    points: tuple[Relative, ...]


class Input(NamedTuple):
    """A graph or a network, as an input of the sweep."""

    name: str
    kind: str
    digest: str
    source: str
    """What it is made from, as JSON."""


@dataclass(frozen=True)
class SweepSummary:
    """All of it."""

    note: str
    """Markdown: the sweep's description and its leaderboard."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """Numbers of every method, e.g. ``iqm/heft``."""
    curves: Mapping[str, Sequence[tuple[int, float]]] = field(default_factory=dict)
    """Search curve of every method over all problems: evaluations and objective / best known."""
    trials: Mapping[str, RelativeCurve] = field(default_factory=dict)
    """By content hash."""
    inputs: tuple[Input, ...] = ()
    learned: tuple[Learned, ...] = ()


def landing(server: str, experiment: str, charts: bool = False) -> str:
    """Address of an experiment's page in MLflow's pages at ``server``: its trials by method, as a table or as charts."""
    return f"{server}/#/experiments/{experiment}/runs?{LANDING}{'&compareRunsMode=CHART' if charts else ''}"


def view_tag(now: int) -> dict[str, str]:
    """The tag of an experiment that holds our view, in the form in which MLflow's pages keep what they call a saved view.

    Args:
        now: milliseconds since 1970.
    """
    columns = ("best_over_best_known", "best_over_bound", "evaluations", "wall_seconds")
    state = {
        "searchFilter": "", "orderByKey": "attributes.start_time", "orderByAsc": False, "startTime": "ALL", "lifecycleFilter": "Active",
        "datasetsFilter": [], "modelVersionFilter": "All Runs", "selectedColumns": [f"metrics.`{name}`" for name in columns],
        "columnOrder": [], "columnWidths": {}, "runsHiddenMode": "FIRST_20_RUNS", "viewMaximized": False, "runListHidden": False,
        "isAccordionReordered": False, "useGroupedValuesInCharts": True, "hideEmptyCharts": True,
        "groupBy": {"aggregateFunction": "average", "groupByKeys": [{"mode": "param", "groupByData": "method"}]}, "groupsExpanded": {},
        "globalLineChartConfig": {"xAxisKey": "step", "lineSmoothness": 0, "selectedXAxisMetricKey": ""},
    }  # fmt: skip
    packed = base64.b64encode(zlib.compress(json.dumps(state).encode())).decode()
    view = {"name": "by method", "createdAt": now, "updatedAt": now, "state": f"deflate;{packed}"}
    return {f"mlflow.sharedViewState.{VIEW}": json.dumps(view)}


def prepared(client: Any, name: str, artifacts: str | None) -> str:
    """The id of the experiment of a name, made if need be; a kind or a view that somebody chose for it stays.

    Args:
        client: an ``MlflowClient``.
        name: of the sweep.
        artifacts: URI of the folder for artifacts of a new one; None lets the server choose.
    """
    wanted = KIND | view_tag(int(time.time() * 1000))
    found = client.get_experiment_by_name(name)
    if found is None:
        return str(client.create_experiment(name, artifact_location=artifacts, tags=wanted))
    if found.lifecycle_stage == "deleted":
        client.restore_experiment(found.experiment_id)
    for key in wanted.keys() - found.tags.keys():
        client.set_experiment_tag(found.experiment_id, key, wanted[key])
    return str(found.experiment_id)


def shortened(note: str) -> str:
    """A description that MLflow keeps whole: lines are left out from the end."""
    lines, length = [], 0
    for line in note.splitlines():
        length += len(line) + 1
        if length > NOTE_LETTERS:
            lines.append("\n… the rest is in `leaderboard.md`, among the artifacts of the sweep's run.")
            break
        lines.append(line)
    return "\n".join(lines)


def send_parent(client: Any, experiment: str, parent: str, summary: SweepSummary, log: Callable[..., None]) -> None:
    """Description, numbers and curves of the methods, and inputs. Sent again, the newest values stand.

    Args:
        client: an ``MlflowClient``.
        experiment: its id.
        parent: the parent run's id.
        summary: what is sent.
        log: `orchestration.tracking.tracker.Tracker`'s way to send metrics, parameters and tags of a run.
    """
    note, now = shortened(summary.note), int(time.time() * 1000)
    client.set_experiment_tag(experiment, NOTE, note)
    known = client.get_run(parent)
    sent = known.data.metrics
    rows = [(metric_name(key), value, now, 0) for key, value in summary.metrics.items()]
    curves = {metric_name(key): points for key, points in summary.curves.items()}
    rows += [(key, value, now, step) for key, points in curves.items() if sent.get(key) != points[-1][1] for step, value in points]
    log(parent, [r for r in rows if r[3] or sent.get(r[0]) != r[1]], {}, {NOTE: note})
    there = {(one.dataset.name, one.dataset.digest) for one in known.inputs.dataset_inputs}
    _send_inputs(client, parent, [i for i in summary.inputs if (i.name, i.digest) not in there][:MOST_DATASETS])


def _send_inputs(client: Any, run: str, inputs: Sequence[Input]) -> None:
    from mlflow.entities import Dataset, DatasetInput, InputTag

    made = [
        DatasetInput(Dataset(i.name, i.digest, "placewright", i.source[:65_000]), [InputTag("mlflow.data.context", i.kind)]) for i in inputs
    ]
    if made:
        client.log_inputs(run, made)


def send_relative(runs: Sequence[Any], summary: SweepSummary, log: Callable[..., None]) -> None:
    """Give every finished trial's run its curves relative to bound and best known, unless it has just these.

    Args:
        runs: the trials' runs.
        summary: holds the curves.
        log: as in `send_parent`.
    """
    for run in runs:
        curve = summary.trials.get(run.data.tags.get("trial", ""))
        if curve is None or run.info.status != "FINISHED" or run.data.tags.get(REFERENCE) == curve.reference:
            continue
        # Of another reference there are points at the same steps; among those the latest stands.
        again = int(time.time() * 1000) if REFERENCE in run.data.tags else None
        rows = []
        for p in curve.points:
            at = again or int((curve.started_at + p.wall_seconds) * 1000)
            rows.append(("best_over_best_known", p.over_best, at, p.evaluations))
            if p.over_bound is not None:
                rows.append(("best_over_bound", p.over_bound, at, p.evaluations))
        log(run.info.run_id, rows, {}, {REFERENCE: curve.reference})
