"""Which code and which packages a run was made with."""

from __future__ import annotations

import contextlib
import getpass
import os
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import orchestration
from methods.contract import registry

PACKAGES = ("placewright", "numpy", "numba", "torch", "openvino", "ortools", "pymetis", "ray", "mlflow", "optuna")


def source_tags() -> dict[str, str]:
    """Who runs it, and git commit and dirty state of the code if it runs from a repository."""
    root = Path(orchestration.__file__).parent.parent

    def git(*words: str) -> str | None:
        try:
            done = subprocess.run(["git", "-C", str(root), *words], capture_output=True, text=True, timeout=10, check=True)
        except (OSError, subprocess.SubprocessError):
            return None
        return done.stdout.strip()

    tags = {"mlflow.source.type": "LOCAL"}
    with contextlib.suppress(OSError, KeyError):  # a user without a name, in a container
        tags["mlflow.user"] = getpass.getuser()
    commit = git("rev-parse", "HEAD")
    if commit is None or not (root / ".git").exists():
        return tags
    return {**tags, "mlflow.source.git.commit": commit, "git_commit": commit, "git_dirty": str(bool(git("status", "--porcelain"))).lower()}


def package_versions() -> dict[str, str]:
    """``version.NAME`` of the packages that results depend on, those that add methods among them."""
    found = {}
    for name in (*PACKAGES, *registry.packages()):
        with contextlib.suppress(PackageNotFoundError):
            found[f"version.{name}"] = version(name)
    return found


def quiet_environment() -> None:
    """Settings that MLflow reads when it is imported or calls a server. A run id from outside would replace the parent."""
    os.environ.pop("MLFLOW_RUN_ID", None)
    for key, value in {
        "MLFLOW_DISABLE_TELEMETRY": "true", "GIT_PYTHON_REFRESH": "quiet", "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
        "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2", "MLFLOW_HTTP_REQUEST_TIMEOUT": "20", "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    }.items():  # fmt: skip
        os.environ.setdefault(key, value)
