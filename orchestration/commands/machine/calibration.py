"""Calibrations that are kept: by model, devices and machine. How they are made is the target's."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np

import envs.hosts.engine.program_costs as own
from envs.graphs.store import cache_directory, file_hash
from envs.hosts.engine.host import fingerprint
from envs.hosts.openvino import piece_costs
from envs.problem.graph import digest
from envs.problem.problem import Problem
from envs.sources.files import dump_problem, load_problem, save
from orchestration.commands.machine.target import Target, Tell


def calibrated(target: Target, rounds: int = 5, fresh: bool = False, tell: Tell | None = None) -> tuple[Problem, dict[str, Any]]:
    """The problem with measured costs, and what else was found (with ``kept``: whether it was measured before).

    Args:
        target: what to calibrate.
        rounds: of measurements.
        fresh: measure anew, whatever is kept.
        tell: told of progress.
    """
    folder = cache_directory() / "calibrations"
    path = folder / f"{_key(target)}.json"
    about_path = path.with_suffix(".about.json")
    if not fresh and path.is_file() and about_path.is_file():
        problem = load_problem(path)
        if problem.graph.content_hash == target.graph.content_hash:
            return problem, {**json.loads(about_path.read_text(encoding="utf-8")), "kept": True}
    problem, about = target.calibrate(rounds, tell)
    about = {**about, "machine": fingerprint(), "rounds": rounds}
    folder.mkdir(parents=True, exist_ok=True)
    save(dump_problem(problem), path)
    about_path.write_text(json.dumps(about), encoding="utf-8")
    return problem, {**about, "kept": False}


def save_problem(problem: Problem, target: Target, path: Path, placements: np.ndarray | None = None) -> None:
    """Write a calibrated problem with the model and devices that it was measured with, which sweeps then measure it by."""
    about = target.describe()
    source = about["source"]
    kind = "file" if Path(source).is_file() else "module" if ":" in source else "model"
    if kind == "file":
        source = os.path.relpath(Path(source).resolve(), path.resolve().parent)
    shapes = {"input_shapes": about["input_shapes"]} if about["input_shapes"] else {}
    runs = {
        "evaluator": {"openvino": "openvino", "torch": "dataflow"}[target.runtime],
        "model": {kind: source, **shapes, **about["options"]},
        "options": {"devices": about["devices"], **target.measured_by},
    }
    save({**dump_problem(problem, placements), "runs": runs}, path)


def _key(target: Target) -> str:
    return digest(file_hash(Path(own.__file__), Path(piece_costs.__file__)), fingerprint(), *target.identity())[:32]
