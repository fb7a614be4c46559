"""Records of finished sweeps, small enough to be kept: one line a run, with the commit and the machine that made it."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pandas as pd

from envs.problem.errors import InputError
from orchestration.analysis.anytime import KEYS, curves
from orchestration.analysis.load import SweepRecord
from orchestration.specs.files import safe_name
from orchestration.tracking.provenance import source_tags

RUNS, CURVES = "runs.csv", "curves.csv"
COLUMNS = (
    "stage", "method", "graph", "network", "seed", "evaluations", "objective", "unit", "bound", "source", "commit", "machine",
)  # fmt: skip
"""``objective`` in seconds, units or joules; ``bound``: largest known lower bound; ``source``: simulated, or measured on what."""


def record(sweep: SweepRecord, results: Path, commit: str = "", with_curves: bool = False) -> Path:
    """Write ``results/SWEEP/runs.csv`` of a finished sweep. What was recorded of that sweep before is replaced.

    Args:
        sweep: what ran.
        results: the folder ``results``.
        commit: that the sweep was run at; by default the one that is checked out.
        with_curves: whether the best objectives so far are kept too, after 1, 2, 5, 10, … evaluations (``curves.csv``).

    Raises:
        InputError: if the commit is not known.
    """
    commit = commit or current_commit()
    problems = {p.key: p for p in sweep.collection.problems}
    rows = []
    for run in sweep.collection.runs:
        p = problems[run.problem]
        unit = "J" if p.objective_name == "energy" else "units" if p.arbitrary else "s"
        source = "simulated" if run.source.simulated else f"measured on {run.host}"
        rows.append(
            (run.stage, run.method, p.graph, p.network, run.seed, run.evaluations, run.objective, unit, p.bound, source, commit, machine())
        )
    path = results / safe_name(sweep.name) / RUNS
    path.parent.mkdir(parents=True, exist_ok=True)
    frame = pd.DataFrame(rows, columns=list(COLUMNS)).sort_values(["stage", "graph", "network", "method", "seed"])
    frame.to_csv(path, index=False, float_format="%.6g", lineterminator="\n")
    path.with_name(CURVES).unlink(missing_ok=True)
    if with_curves:
        curves(sweep.collection).to_csv(path.with_name(CURVES), index=False, float_format="%.6g", lineterminator="\n")
    return path


def read_record(results: Path, sweep: str) -> pd.DataFrame:
    """The record of a sweep, a row a run.

    Raises:
        InputError: naming how to make it, if there is none; or the columns that it lacks.
    """
    return _read(results / safe_name(sweep) / RUNS, COLUMNS, "")


def read_curves(results: Path, sweep: str) -> pd.DataFrame:
    """The recorded curves of a sweep, a row a run (`orchestration.analysis.anytime`). InputError as from `read_record`."""
    return _read(results / safe_name(sweep) / CURVES, KEYS, " --curves")


def _read(path: Path, columns: Sequence[str], option: str) -> pd.DataFrame:
    if not path.is_file():
        raise InputError(f"no record {path}: run the sweep, then `python -m orchestration.records FOLDER{option}`")
    frame = pd.read_csv(path)
    if lacking := [c for c in columns if c not in frame]:
        raise InputError(f"{path}: no column {lacking[0]!r}")
    return frame


def current_commit() -> str:
    """Short hash of the code that is checked out, with ``+`` if it was changed.

    Raises:
        InputError: if the code stands in no repository.
    """
    tags = source_tags()
    if not tags:
        raise InputError("the code stands in no git repository; say by --commit which it is")
    return tags["git_commit"][:7] + ("+" if tags["git_dirty"] == "true" else "")


def machine() -> str:
    """This machine's processor."""
    with suppress(OSError, StopIteration):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line for line in lines if line.startswith("model name")).partition(":")[2].strip()
    return platform.processor() or platform.machine()
