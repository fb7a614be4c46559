"""Runs that a driver left RUNNING in MLflow because it died: closed by whichever command sees them next."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import Any

from orchestration.folder.lock import is_active
from orchestration.specs.layout import STATE
from orchestration.specs.secrets import masked
from orchestration.tracking.provenance import quiet_environment
from orchestration.tracking.store_checks import check_uri


def close_stale(output: Path) -> int:
    """Mark as KILLED what is RUNNING of sweeps under ``output`` that no driver runs; how many runs that were.

    It costs nothing where nothing was left open. A store that cannot be reached is left for the next time.
    """
    closed = 0
    for path in sorted(output.glob(f"*/{STATE}")):
        with contextlib.suppress(OSError, ValueError):
            state = json.loads(path.read_text())
            if not isinstance(state, dict) or not state.get("open") or is_active(path.parent):
                continue
            with contextlib.suppress(Exception):  # a store fails in many ways, and a command that only looks must not
                closed += _close(state)
                path.write_text(json.dumps({**state, "open": False}))
    return closed


def _close(state: dict[str, Any]) -> int:
    quiet_environment()
    import mlflow

    uri = os.environ.get("MLFLOW_TRACKING_URI", "")
    uri = uri if masked(uri) == state["uri"] else state["uri"]  # the note of a URI has no password
    check_uri(uri)  # at once, where MLflow would try for minutes
    client = mlflow.MlflowClient(uri)
    parent = client.get_run(state["parent"])
    closed, token = 0, None
    where = f"tags.`mlflow.parentRunId` = '{state['parent']}' and attributes.status = 'RUNNING'"
    while True:
        page = client.search_runs([parent.info.experiment_id], where, max_results=1000, page_token=token)
        for run in page:
            client.set_tag(run.info.run_id, "status", "interrupted")
            client.set_terminated(run.info.run_id, "KILLED")
        closed, token = closed + len(page), page.token
        if not token:
            break
    if parent.info.status == "RUNNING":
        client.set_terminated(state["parent"], "KILLED")
        closed += 1
    return closed
