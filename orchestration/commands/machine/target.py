"""What a model is to be placed on: the face that torch's devices and OpenVINO's share. Searching and choosing are in `search`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from envs.costs.table import TableCosts
from envs.problem.errors import InputError
from envs.problem.graph import ComputationGraph
from envs.problem.measurement import Evaluator, Outcome
from envs.problem.problem import Problem
from orchestration.analysis.schedule import Schedule, from_times
from orchestration.specs.trial import EvaluatorSpec

Tell = Callable[[str, int, int], None]
"""Told of progress: the part, how many of how many."""

_UNITS = {"": 1.0, "B": 1.0, "KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12, "KIB": 2.0**10, "MIB": 2.0**20, "GIB": 2.0**30}


class Target(Protocol):
    """A model and the devices of a runtime here."""

    runtime: str
    devices: tuple[str, ...]
    graph: ComputationGraph
    own: Sequence[str]
    """What the runtime would do by itself, by name: it is measured beside the placements."""

    groups: Sequence[int]
    """Devices, by number, that take the cores of others: while one works, those others cannot."""

    measured_by: Mapping[str, Any]
    """Options of the evaluator that measures its placements in a sweep, beside the devices."""

    def identity(self) -> tuple[object, ...]:
        """What calibrations of it depend on beside the machine."""
        ...

    def calibrate(self, rounds: int, tell: Tell | None) -> tuple[Problem, dict[str, Any]]:
        """A problem with measured costs, and what else was found."""
        ...

    def simulator(self, about: Mapping[str, Any]) -> EvaluatorSpec:
        """What simulates its placements, for what calibration found beside the problem."""
        ...

    def learned(self, problem: Problem, about: Mapping[str, Any]) -> Problem:
        """The problem with what the runs of `sample` showed of each operation in its place."""
        ...

    def variants(self, problem: Problem, about: Mapping[str, Any]) -> list[tuple[str, Problem, Mapping[str, Any]]]:
        """A calibrated problem with less and less left out: names, problems, and what else was found."""
        ...

    def sample(self, problem: Problem, placement: Any) -> float:
        """Seconds of one run.

        Raises:
            InputError: if it does not run, saying why.
        """
        ...

    def sample_own(self, problem: Problem, name: str) -> float:
        """The same for one of ``own``."""
        ...

    def run(self, problem: Problem, placement: Any) -> Schedule:
        """One measured run, taken apart.

        Raises:
            InputError: if it does not run, saying why.
        """
        ...

    def describe(self) -> dict[str, Any]:
        """What has to be written down to export a placement later."""
        ...

    def close(self) -> None:
        """End its processes."""
        ...


def with_seconds(problem: Problem, seconds: np.ndarray) -> Problem:
    """The problem with other seconds of its operations, float64[V, D]."""
    costs = TableCosts(problem.graph.names, problem.network.names, seconds)
    return Problem(problem.graph, problem.network, costs, problem.objective, problem.allowed)


def run_of(evaluator: Evaluator, problem: Problem, placement: np.ndarray) -> Schedule:
    """One run by an evaluator that traces; InputError if it does not run."""
    found = evaluator.evaluate(problem, placement[None, :], trace=True)
    if found.outcome[0] != Outcome.OK or found.start is None or found.finish is None:
        raise InputError((found.notes or ("it does not run",))[0])
    return from_times(problem, placement, found.start[0], found.finish[0], None if found.transfers is None else found.transfers[0])


def memory_limits(given: Sequence[str], devices: Sequence[str]) -> dict[str, float]:
    """``cuda:0=4GB`` as bytes by device.

    Raises:
        InputError: for another form, or a device that is not placed on.
    """
    limits = {}
    for text in given:
        device, _, size = text.rpartition("=")
        found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]?I?B?)", size.upper())
        if not device or found is None or found[2] not in _UNITS:
            raise InputError(f"--memory {text!r} is not DEVICE=SIZE; write for example cuda:0=4GB")
        if device not in devices:
            raise InputError(f"--memory names device {device!r}; the model is placed on {', '.join(devices)}")
        limits[device] = float(found[1]) * _UNITS[found[2]]
    return limits


def input_shapes(given: Sequence[str]) -> dict[str, tuple[int, ...]] | None:
    """``img=1,3,224,224`` by name; None if nothing is given.

    Raises:
        InputError: for another form.
    """
    shapes = {}
    for text in given:
        name, _, dims = text.partition("=")
        if not name or not re.fullmatch(r"\d+(,\d+)*", dims):
            raise InputError(f"--input-shape {text!r} is not NAME=SIZES; write for example img=1,3,224,224")
        shapes[name] = tuple(int(n) for n in dims.split(","))
    return shapes or None


def sizes(given: Sequence[str]) -> Mapping[str, Any]:
    """``batch=4`` as options of a model known by name.

    Raises:
        InputError: for another form.
    """
    options: dict[str, Any] = {}
    for text in given:
        name, _, value = text.partition("=")
        if not name or not value:
            raise InputError(f"--size {text!r} is not NAME=VALUE; write for example --size batch=4")
        options[name] = int(value) if value.isdigit() else value
    return options
