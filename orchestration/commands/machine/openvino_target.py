"""OpenVINO models on the devices that OpenVINO finds here, or on several instances of its CPU plugin."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.metadata import version
from typing import Any

import numpy as np

from envs.costs.table import TableCosts
from envs.graphs import capture, openvino_capture
from envs.graphs.grouping import joined
from envs.hosts.measuring import Measuring
from envs.hosts.openvino.host import OpenVinoHost
from envs.hosts.openvino.model import PreparedModel
from envs.hosts.openvino.piece_costs import PieceCosts, Run, fitted, in_place
from envs.hosts.openvino.profiling import fused, profile_model
from envs.problem.errors import InputError
from envs.problem.measurement import Outcome
from envs.problem.network import DeviceNetwork
from envs.problem.problem import Problem
from methods.placing.constraints import unit_of
from methods.placing.regions import grouped
from orchestration.analysis.schedule import Schedule
from orchestration.commands.machine.target import Tell, run_of, with_seconds
from orchestration.specs.trial import EvaluatorSpec

_MIXED = 10
"""Placements by which the cost of cuts is found."""


class OpenVinoTarget:
    """See `orchestration.commands.machine.target.Target`.

    Raises:
        InputError: before anything is measured: a model that cannot be read, dynamic shapes, operations that no device runs.
    """

    runtime = "openvino"
    measured_by: Mapping[str, Any] = {"mode": "overlapped"}

    def __init__(self, source: str, shapes: Mapping[str, Sequence[int]] | None, options: Mapping[str, Any], instances: int) -> None:
        core = openvino_capture.import_openvino().Core()
        plugins = [d for d in core.available_devices if d != "CPU"]
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        if not 1 <= instances <= cores:
            raise InputError(f"--instances is {instances}; this machine has {cores} cores, so it must be between 1 and {cores}")
        threads = cores // instances
        # Float32 everywhere, so that what is placed computes what the model does. A single instance is the CPU as it is.
        cpu = {"device": "CPU", "precision": "f32", **({"threads": threads, "pin": False} if instances > 1 else {})}
        names = ["cpu"] if instances == 1 else [f"cpu{i}" for i in range(instances)]
        self.given = {**{name: cpu for name in names}, **{p.lower(): {"device": p} for p in plugins}}
        self.devices = tuple(self.given)
        self.threads = {name: threads if name in names else 1 for name in self.devices}
        self.source: dict[str, Any] = {"source": source, "input_shapes": shapes, "options": dict(options)}
        self.arguments: dict[str, Any] = {"input_shapes": shapes, **options}
        try:
            self.plain = capture.capture(source, **self.arguments)
        except InputError as error:
            if "dynamic shape" not in str(error):
                raise
            raise InputError(f"{error}; on the command line, --input-shape NAME=1,3,224,224") from None
        self.graph = self._without_cuts_in_fusions(core)
        self.network = DeviceNetwork(self.devices, np.array(1e9), np.array(np.inf), np.array(0.0), name="+".join(self.devices))
        named = source in capture.model_names()
        spec = {"model" if named else "file": source, **options, **({"input_shapes": shapes} if shapes else {})}
        common: dict[str, Any] = {"models": {self.graph.name: spec}, "measuring": Measuring(1, 1), "tolerance": 0.01}
        self.host = OpenVinoHost(self.given, mode="overlapped", keep_compiled=12, **common)
        self.all = OpenVinoHost({"CPU": {"device": "CPU", "precision": "f32"}}, keep_compiled=1, **common)
        self.runs: list[Run] = []
        """Of placements that were sampled."""
        self.groups: Sequence[int] = ()
        self.own: Sequence[str] = (
            "OpenVINO on CPU", *(("HETERO",) if len(self.devices) > 1 else ()), *(("AUTO",) if plugins else ())
        )  # fmt: skip

    def _without_cuts_in_fusions(self, core: Any) -> Any:
        """The graph whose layers that are compiled into one stay together: a cut through them loses what the fusion saves."""
        model = capture.resolve(self.source["source"], None, self.arguments["input_shapes"], self.source["options"])
        with capture.written_ir(model) as path:
            sets = fused(core, path, model.shapes, self.plain)
            self.allowed = self._allowed(PreparedModel(core, path, model.shapes, self.plain, 0))
        old = self.plain.colocation
        sets += [set(np.flatnonzero(old == group).tolist()) for group in np.unique(old[old >= 0])]
        return replace(self.plain, colocation=joined(sets, self.plain.n_nodes))

    def _allowed(self, model: PreparedModel) -> np.ndarray:
        """Which devices run which operations, bool[V, D]; InputError if there is one that none runs."""
        plugins = {given["device"]: ~model.unsupported(given["device"]) for given in self.given.values()}
        allowed = np.stack([plugins[given["device"]] for given in self.given.values()], axis=1)
        refused = np.flatnonzero(~allowed.any(axis=1))
        if refused.size:
            name, kind = self.plain.names[refused[0]], self.plain.op_types[refused[0]]
            raise InputError(f"operation {name!r} of type {kind} runs on none of {', '.join(self.devices)}; add a device that runs it")
        return allowed

    def identity(self) -> tuple[object, ...]:
        """See `Target`."""
        return (self.runtime, version("openvino"), self.graph.content_hash, repr(sorted(self.given.items())))

    def calibrate(self, rounds: int, tell: Tell | None) -> tuple[Problem, dict[str, Any]]:
        """See `Target`."""
        seconds = np.zeros((self.graph.n_nodes, len(self.devices)))
        total = len(self.devices) + _MIXED * rounds
        tables: dict[str, np.ndarray] = {}
        for d, (name, given) in enumerate(self.given.items()):
            if repr(given) not in tables:
                table = profile_model(
                    self.source["source"], threads=self.threads[name], precision=given.get("precision", "f32"), device=given["device"],
                    repeats=4 * rounds, fresh=True, **self.arguments,
                )  # fmt: skip
                tables[repr(given)] = table.seconds
            seconds[:, d] = tables[repr(given)]
            if tell:
                tell("calibrating", d + 1, total)
        problem = Problem(self.graph, self.network, TableCosts(self.graph.names, self.devices, seconds), allowed=self.allowed)
        if len(self.devices) == 1:
            return problem, {"cut_seconds": 0.0, "contention": 1.0}
        costs = fitted(problem, self._mixed_runs(problem, rounds, tell, total))
        about = dataclasses.asdict(costs)
        return costs.applied(problem), {"cut_seconds": costs.launch, "contention": costs.contention, "pieces": about}

    def _mixed_runs(self, problem: Problem, rounds: int, tell: Tell | None, total: int) -> list[Run]:
        """Runs of everything on each device, of blocks of the order on them in turn, and of branches at random."""
        rng, v, d = np.random.default_rng(0), problem.n_nodes, problem.n_devices
        unit = unit_of(grouped(problem, chains=True))
        rows = [np.full(v, k) for k in range(d)]
        for k in range(_MIXED - d):
            ends = np.sort(rng.choice(v, int(rng.integers(1, 6)), replace=False))
            blocks = np.empty(v, dtype=np.int64)
            blocks[problem.graph.topological_order] = (np.searchsorted(ends, np.arange(v)) + k) % d
            moved = np.where(rng.random(v) < rng.uniform(0.1, 0.9), rng.integers(0, d, v), k % d)[unit]
            rows.append(moved if k % 2 else blocks)
        placements, runs = problem.colocate(np.array(rows)), []
        for r in range(rounds):
            for k, placement in enumerate(placements):
                (found,) = self.host.details(problem, placement[None, :])
                if found.outcome == Outcome.OK:
                    runs.append((placement, found.trace))
                if tell:
                    tell("calibrating", len(self.devices) + r * len(rows) + k + 1, total)
        if not runs:
            raise InputError(
                f"no placement of {problem.graph.name!r} on {', '.join(self.devices)} runs, so there is nothing to choose from"
            )
        return runs

    def simulator(self, about: Mapping[str, Any]) -> EvaluatorSpec:
        """See `Target`."""
        return EvaluatorSpec("pieces", {"contention": float(about["contention"])})  # type: ignore[arg-type]

    def learned(self, problem: Problem, about: Mapping[str, Any]) -> Problem:
        """See `Target`."""
        if "pieces" not in about:
            return problem
        costs = replace(PieceCosts(**about["pieces"]), scale=1.0)  # which is in the problem's seconds
        return with_seconds(problem, problem.compute_seconds * in_place(problem, costs, self.runs))

    def variants(self, problem: Problem, about: Mapping[str, Any]) -> list[tuple[str, Problem, Mapping[str, Any]]]:
        """See `Target`."""
        together = {**about, "contention": 1.0}
        alone = PieceCosts(0.0, 0.0, 0.0, 1.0).applied(problem)
        return [("operations alone", alone, together), ("and cuts", problem, together), ("and overlap", problem, about)]

    def sample(self, problem: Problem, placement: Any) -> float:
        """See `Target`."""
        (found,) = self.host.details(problem, np.asarray(placement)[None, :])
        if found.outcome != Outcome.OK:
            raise InputError(found.note or "it does not run")
        self.runs.append((np.asarray(placement), found.trace))
        return found.seconds

    def sample_own(self, problem: Problem, name: str) -> float:
        """See `Target`."""
        if name.startswith("OpenVINO on "):
            alone = Problem(self.plain, DeviceNetwork(("CPU",), np.array(1e9), np.array(np.inf), np.array(0.0)))
            return _seconds(self.all, alone, np.zeros((1, self.plain.n_nodes), dtype=np.int16))
        found = self.host.choice(Problem(self.graph, self.network, allowed=self.allowed), self.devices[::-1], name)
        if found.outcome != Outcome.OK:
            raise InputError(found.note)
        return found.seconds

    def run(self, problem: Problem, placement: Any) -> Schedule:
        """See `Target`; operations within a compiled piece divide its time as they were profiled."""
        return run_of(self.host, problem, np.asarray(placement))

    def describe(self) -> dict[str, Any]:
        """See `Target`."""
        return {"runtime": self.runtime, "name": self.graph.name, **self.source, "devices": self.given}

    def close(self) -> None:
        """See `Target`."""
        self.host.close()
        self.all.close()


def _seconds(host: OpenVinoHost, problem: Problem, placement: np.ndarray) -> float:
    found = host.evaluate(problem, placement)
    if found.outcome[0] != Outcome.OK:
        raise InputError((found.notes or ("it does not run",))[0])
    return float(found.seconds[0])
