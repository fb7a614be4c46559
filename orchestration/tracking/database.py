"""MLflow's client, and its tables where the store is a database: into them go runs of trials that ended, many at a time, since through
the client one costs fifteen milliseconds of CPU, in some fifty statements. Importing this takes seconds. What a run holds does not belong
here."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from mlflow import MlflowClient
from mlflow.exceptions import MlflowException
from mlflow.store.tracking.dbmodels.models import SqlLatestMetric, SqlMetric, SqlParam, SqlRun, SqlTag
from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore
from mlflow.utils.uri import append_to_uri_path
from sqlalchemy import insert

from orchestration.tracking.run_contents import Ended, result_metrics, trial_params

REFUSAL = MlflowException


def client(uri: str) -> MlflowClient:
    """Of the store at ``uri``."""
    return MlflowClient(uri)


class Database:
    """MLflow's own tables behind one of its clients.

    Use `of`, which says whether there are any to be written to.
    """

    def __init__(self, store: Any, experiment: str) -> None:
        self._store, self._experiment = store, experiment
        self._artifacts = store.get_experiment(experiment).artifact_location

    @staticmethod
    def of(client: MlflowClient, experiment: str) -> Database | None:
        """Of a client and the id of its experiment; None if it speaks to a server, which has no such way in."""
        store: Any = client._tracking_client.store  # MLflow shows it nowhere else
        return Database(store, experiment) if isinstance(store, SqlAlchemyStore) else None

    @staticmethod
    def is_away(error: Exception) -> bool:
        """Whether the database could not be reached or was locked or full, which passes; other errors come again."""
        return isinstance(error, OSError) or getattr(error, "error_code", "") == "TEMPORARILY_UNAVAILABLE"

    def write(self, batch: Sequence[Ended], tags: Sequence[Mapping[str, str]]) -> None:
        """Add the runs of trials, all or none, with what each carries from its beginning; their texts are not sent."""
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
