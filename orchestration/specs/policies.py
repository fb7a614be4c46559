"""What a trial learned, with what is needed to start from it elsewhere: in a trial's folder, in a folder that was copied, or registered in
MLflow. How it is registered belongs to `orchestration.tracking.policies`."""

from __future__ import annotations

import importlib
import json
import os
import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any

from envs.problem.errors import InputError
from orchestration.specs.canonical import FrozenDict
from orchestration.specs.files import write_atomic
from orchestration.specs.layout import HOME, POLICY
from orchestration.specs.secrets import masked
from orchestration.specs.state_files import Damaged, state_of
from orchestration.specs.trial import Trial

ABOUT = "policy.json"
"""Beside a policy: which method it belongs to, with which configuration, and where it comes from."""
_REGISTERED = re.compile(r"models:/([^/]+)/([1-9]\d*)")


@dataclass(frozen=True)
class Policy:
    """A policy and the method that it is of."""

    name: str
    """What it was called by."""
    method: str
    config: FrozenDict
    """The method's whole configuration when it learned; a policy fits networks of no other."""
    data: bytes
    """The policy's file."""

    @cached_property
    def digest(self) -> str:
        """sha256 of the file: the identity of what starts from it, wherever it came from."""
        return sha256(self.data).hexdigest()

    @property
    def state(self) -> dict[str, Any]:
        """What `methods.contract.method.Method.load_policy` takes; InputError if the file is damaged."""
        return state_of(self.data, Path(self.name))


def describe_policy(folder: Path, trial: Trial, sweep: str = "") -> None:
    """Say beside a policy what it is."""
    about = {
        "format": 1, "method": trial.method, "config": trial.config, "label": trial.label, "sweep": sweep, "stage": trial.stage,
        "seed": trial.seed, "trial": trial.content_hash, "problems": [p.label for p in trial.problems],
    }  # fmt: skip
    write_atomic(folder / ABOUT, json.dumps(about, indent=1).encode())


def is_reference(text: str) -> bool:
    """Whether a word names a policy, and not a stage: stages have no slash."""
    return "/" in text


def read_policy(text: str, base: Path = Path(), store: str | None = None) -> Policy:
    """The policy that is called ``models:/NAME/VERSION``, or lies in a folder or file.

    Args:
        text: one of these.
        base: the folder that paths are relative to.
        store: URI of the MLflow store with the registered models; by default that of the environment, or that beside the sweeps.

    Raises:
        InputError: if there is none, or it is damaged.
    """
    if text.startswith("models:"):
        return _registered(text, store)
    path = base / text
    return _read(path if path.name == POLICY else path / POLICY, text)


def _read(path: Path, name: str) -> Policy:
    """The policy in a file, with what stands beside it."""
    try:
        data, about = path.read_bytes(), json.loads((path.parent / ABOUT).read_text(encoding="utf-8"))
        policy = Policy(name, str(about["method"]), FrozenDict(about["config"]), data)
    except OSError as error:
        missing = Path(error.filename or path)
        raise InputError(f"policy {name!r} cannot be read: {missing} {error.strerror}; give the folder of a trial that learned") from None
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"policy {name!r} has a damaged {ABOUT} ({error}); take it from its sweep's folder again") from None
    try:
        _ = policy.state
    except Damaged as error:
        raise InputError(f"policy {name!r} is damaged ({error}); take it from its sweep's folder again") from None
    return policy


def default_store() -> str:
    """That of the environment, or SQLite beside the sweeps."""
    return os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{(HOME / 'mlflow.db').resolve()}"


def _registered(text: str, store: str | None) -> Policy:
    found = _REGISTERED.fullmatch(text)
    if found is None:
        raise InputError(f"{text!r} names no registered model; write models:/NAME/VERSION, such as models:/first-giph/1")
    uri = store or default_store()
    if uri.startswith("sqlite:///") and not Path(uri.removeprefix("sqlite:///")).is_file():
        raise InputError(f"there is no model {text!r}: {masked(uri)} does not exist; name the store by --tracking-uri or --output")
    mlflow: Any = importlib.import_module("mlflow")
    client = mlflow.MlflowClient(uri, uri)
    with tempfile.TemporaryDirectory() as folder:
        try:
            # Given the model's own name, MLflow would look it up in the store of the environment, whatever is said here.
            files = client.get_model_version_download_uri(found[1], found[2])
            where = mlflow.artifacts.download_artifacts(artifact_uri=files, dst_path=folder, tracking_uri=uri)
        except (mlflow.MlflowException, OSError) as error:
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            known = _known(client, found[1])
            raise InputError(f"there is no model {text!r} in {masked(uri)} ({masked(reason)}){known}") from None
        return _read(Path(where) / POLICY, text)


def _known(client: Any, name: str) -> str:
    """What there is instead, for a message."""
    try:
        versions = [f"models:/{name}/{v.version}" for v in client.search_model_versions(f"name='{name}'")[:4]]
        others = versions or sorted(m.name for m in client.search_registered_models()[:20])
    except Exception:  # the store itself is away, which the message says already
        return ""
    return f"; known are {', '.join(others[:6])}" if others else "; none is registered there"


def fitting(policy: Policy, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration of what starts from ``policy``: that which it learned with, but for ``settings``."""
    return {**policy.config, **settings}
