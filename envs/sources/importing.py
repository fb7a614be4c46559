"""Graphs and problems from files of any known format: placewright's own, WfFormat, dnn-partitioning and STG. Each is read elsewhere."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from envs.problem.cost_model import CostModel, LinearCosts
from envs.problem.errors import InputError
from envs.problem.network import DeviceNetwork
from envs.problem.problem import Problem
from envs.sources import files
from envs.sources.dnn_partitioning import is_layers, is_split, read_layers, read_split
from envs.sources.imported import Imported
from envs.sources.stg import read_stg
from envs.sources.workflows import is_workflow, read_workflow

SUFFIXES = (".json", ".stg")
"""Endings of files that hold a graph as data, in contrast to models, which are captured."""


def load_foreign(path: str | Path) -> Imported | None:
    """What another tool's file holds; None if it is placewright's own (or nothing known, which its reader will say).

    Raises:
        InputError: naming the file and what is wrong in it.
    """
    name = Path(path).stem
    if Path(path).suffix == ".stg":
        text = files.read_text(path)
        with files.naming(path):
            return read_stg(text, name)
    document = files.parse(path)
    with files.naming(path):
        if is_workflow(document):
            return read_workflow(document, name)
        return read_layers(document, name) if is_layers(document) else None


def check(path: str | Path) -> None:
    """InputError if a file holds no graph of a known format."""
    if load_foreign(path) is None:
        files.load(path)


def load_problem(path: str | Path, network: DeviceNetwork | None = None, costs: CostModel | None = None) -> Problem:
    """The problem in a file; ``network`` and ``costs`` replace those of the file, which may then lack them.

    Raises:
        InputError: naming the file and what is wrong or missing in it.
    """
    found = load_foreign(path)
    if found is None:
        return files.load_problem(path, network, costs)
    if network is None and found.network is None:
        raise InputError(f"{path}: the file names no devices; give a network beside it")
    own = network is None
    with files.naming(path):
        return Problem(
            found.graph,
            found.network if own else network,  # type: ignore[arg-type]
            costs or (found.costs if own else LinearCosts()),
            found.objective if own else "makespan",
        )


def network_name(path: str | Path) -> str:
    """The name of the network in a whole problem's file."""
    found = load_foreign(path)
    if found is not None:
        return "own"
    name = files.load(path).get("network", {}).get("name")
    return name if isinstance(name, str) and name else "own"


def load_placements(path: str | Path, problem: Problem) -> np.ndarray:
    """Placements int16[B, V] of ``problem`` from a file of placements, or from a split as dnn-partitioning writes them."""
    document = files.parse(path)
    if not is_split(document):
        return files.load_placements(path, problem)
    with files.naming(path):
        return read_split(document, problem)[None, :]
