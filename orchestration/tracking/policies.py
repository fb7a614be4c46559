"""Learned policies as MLflow models: files of numbers and JSON that nothing runs when they are read, registered under a name."""

from __future__ import annotations

import importlib
import re
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from orchestration.specs.layout import POLICY, trial_folder
from orchestration.specs.policies import ABOUT

FLAVOR = "placewright"


@dataclass(frozen=True)
class Learned:
    """A policy that is worth a version."""

    trial: str
    """Content hash of the trial that learned it."""
    name: str
    """Of the model."""
    tags: Mapping[str, str] = field(default_factory=dict)


def model_name(sweep: str, label: str) -> str:
    """The name under which the policies of a method in a sweep are registered: ``first-giph``."""
    return re.sub(r"[^\w-]+", "-", f"{sweep}-{label}").strip("-")[:200]


def register(client: Any, experiment: str, folder: Path, learned: Sequence[Learned], runs: Mapping[str, str]) -> None:
    """Log and register every policy that has no version yet.

    Args:
        client: an ``MlflowClient``.
        experiment: its id.
        folder: the sweep's directory, with the policies in their trials' folders.
        learned: what to register.
        runs: the run of each trial, by its hash.
    """
    known: dict[str, set[str]] = {}
    for one in learned:
        if one.name not in known:
            known[one.name] = _versions(client, one.name)
        path = trial_folder(folder, one.trial)
        if one.trial in known[one.name] or one.trial not in runs or not (path / ABOUT).is_file() or not (path / POLICY).is_file():
            continue
        _log(client, experiment, runs[one.trial], path, one)


def _versions(client: Any, name: str) -> set[str]:
    """The trials of the versions that there are; makes the model if need be."""
    if not client.search_registered_models(f"name='{name}'"):
        client.create_registered_model(name)
    return {v.tags.get("trial", "") for v in client.search_model_versions(f"name='{name}'")}


def _log(client: Any, experiment: str, run: str, path: Path, one: Learned) -> None:
    tags = {**one.tags, "trial": one.trial}
    model = client.create_logged_model(experiment, name=one.name, source_run_id=run, tags=tags, model_type="placement policy")
    with tempfile.TemporaryDirectory() as made:
        for name in (POLICY, ABOUT):
            shutil.copy(path / name, made)
        kind: Any = importlib.import_module("mlflow.models").Model
        described = kind(artifact_path=model.artifact_location, run_id=run, model_id=model.model_id)
        described.add_flavor(FLAVOR, policy=POLICY, about=ABOUT)
        described.save(str(Path(made) / "MLmodel"))
        client.log_model_artifacts(model.model_id, made)
    client.finalize_logged_model(model.model_id, "READY")
    client.create_model_version(one.name, model.artifact_location, run_id=run, tags=tags, model_id=model.model_id)
