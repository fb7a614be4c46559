"""Runs of trials that ended, written to MLflow's database many at a time: through its client one costs fifteen milliseconds of CPU, in
some fifty statements, so that a sweep of 100,000 short trials would wait for it. What a run holds does not belong here."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from orchestration.specs.results import TrialResult
from orchestration.specs.trial import Trial
from orchestration.tracking.run_contents import result_metrics, trial_params


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


class Database:
    """MLflow's own tables behind one of its clients.

    Use `of`, which says whether there are any to be written to.
    """

    def __init__(self, store: Any, experiment: str) -> None:
        self._store, self._experiment = store, experiment
        self._artifacts = store.get_experiment(experiment).artifact_location

    @staticmethod
    def of(client: Any, experiment: str) -> Database | None:
        """Of a client and the id of its experiment; None if it speaks to a server, which has no such way in."""
        from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

        store = client._tracking_client.store  # MLflow shows it nowhere else
        return Database(store, experiment) if isinstance(store, SqlAlchemyStore) else None

    def write(self, batch: Sequence[Ended], tags: Sequence[Mapping[str, str]]) -> None:
        """Add the runs of trials, all or none, with what each carries from its beginning; their texts are not sent."""
        from mlflow.store.tracking.dbmodels.models import SqlLatestMetric, SqlMetric, SqlParam, SqlRun, SqlTag
        from sqlalchemy import insert

        rows: dict[Any, list[dict[str, Any]]] = {table: [] for table in (SqlRun, SqlTag, SqlParam, SqlMetric)}
        for one, own in zip(batch, tags, strict=True):
            run = uuid.uuid4().hex
            rows[SqlRun].append(self._run(run, one, own))
            rows[SqlTag] += [{"run_uuid": run, "key": k, "value": v} for k, v in {**own, **one.tags}.items()]
            rows[SqlParam] += [{"run_uuid": run, "key": k, "value": v} for k, v in trial_params(one.trial).items()]
            rows[SqlMetric] += self._metrics(run, result_metrics(one.result))
        latest: dict[tuple[str, str], dict[str, Any]] = {}
        for m in rows[SqlMetric]:
            key = (m["run_uuid"], m["key"])
            if key not in latest or _order(m) > _order(latest[key]):
                latest[key] = m
        rows[SqlLatestMetric] = list(latest.values())
        with self._store.ManagedSessionMaker(read_only=False) as session:
            for table, values in rows.items():
                if values:
                    session.execute(insert(table.__table__), values)

    def _run(self, run_id: str, one: Ended, tags: Mapping[str, str]) -> dict[str, Any]:
        from mlflow.utils.uri import append_to_uri_path

        return {
            "run_uuid": run_id, "name": tags["mlflow.runName"], "experiment_id": int(self._experiment), "status": one.status,
            "artifact_uri": append_to_uri_path(self._artifacts, run_id, self._store.ARTIFACTS_FOLDER_NAME), "start_time": one.start,
            "end_time": one.end, "lifecycle_stage": "active", "source_type": "UNKNOWN", "source_name": "", "entry_point_name": "",
            "user_id": tags.get("mlflow.user", "unknown"), "source_version": "",
        }  # fmt: skip

    def _metrics(self, run_id: str, metrics: Sequence[tuple[str, float, int, int]]) -> list[dict[str, Any]]:
        found = []
        for name, given, at, step in dict.fromkeys(metrics):
            is_nan, value = self._store.sanitize_metric_value(given)
            found.append({"run_uuid": run_id, "key": name, "value": value, "timestamp": at, "step": step, "is_nan": is_nan})
        return found


def _order(metric: Mapping[str, Any]) -> tuple[int, int, float]:
    """By which MLflow calls one point of a metric later than another."""
    return metric["step"], metric["timestamp"], metric["value"]
