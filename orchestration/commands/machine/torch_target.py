"""Torch programs on cores, groups of cores and CUDA devices of this machine."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from envs.graphs.exported.graph import PlaceableProgram
from envs.graphs.exported.sources import load_program, save_program
from envs.hosts.child_process import Fault
from envs.hosts.discovery import ranges
from envs.hosts.engine.devices import CpuDevice, parse_devices, processors, rivals
from envs.hosts.engine.host import Engine
from envs.hosts.engine.program_costs import calibrate
from envs.hosts.measuring import Measuring
from envs.problem.errors import InputError
from envs.problem.measurement import Outcome
from envs.problem.network import DeviceNetwork
from envs.problem.problem import Problem
from envs.simulators.work_conserving.discipline import Discipline, free_inputs
from orchestration.analysis.schedule import Schedule
from orchestration.commands.machine.target import Tell, run_of, with_seconds
from orchestration.specs.trial import EvaluatorSpec

STRATEGY = "longest-path"
"""Which of several waiting operations is next: what a placement is simulated, measured and exported with."""


class TorchTarget:
    """See `orchestration.commands.machine.target.Target`.

    Raises:
        InputError: before anything is measured: an unknown device, a program that cannot be placed, too little memory.
    """

    runtime = "torch"
    measured_by: Mapping[str, Any] = {"strategy": STRATEGY, "emulate_links": False}

    def __init__(
        self, source: str, devices: Sequence[str], memory: Mapping[str, float], shapes: Mapping[str, Sequence[int]] | None,
        options: Mapping[str, Any],
    ) -> None:  # fmt: skip
        self.devices = tuple(devices)
        if len(set(self.devices)) < len(self.devices):
            raise InputError(f"--on names a device twice: {', '.join(self.devices)}")
        self.real = parse_devices(self.devices)
        program, name = load_program(source, shapes, options)
        self.source = {"source": source, "input_shapes": shapes, "options": dict(options)}
        self.graph = PlaceableProgram.of(program, name).graph
        limits = np.array([memory.get(d, np.inf) for d in self.devices])
        self._check_memory(limits)
        self.network = DeviceNetwork(
            self.devices,
            np.array(1e9),
            np.array(np.inf),
            np.array(0.0),
            limits,
            kinds=tuple(d.partition(":")[0] for d in self.devices),
            name="+".join(self.devices),
        )
        cores = sorted({c for d in self.real if isinstance(d, CpuDevice) for c in d.cores}) or sorted(os.sched_getaffinity(0))
        self._all = f"cpu:{ranges(cores)}"
        self.groups: Sequence[int] = tuple(
            i for i, (d, shared) in enumerate(zip(self.real, rivals(self.real), strict=True))
            if shared and isinstance(d, CpuDevice) and len(d.cores) > 1
        )  # fmt: skip
        gpus = [d for d in self.devices if d.startswith("cuda") and memory.get(d) is None]
        self.own: Sequence[str] = (f"torch on {self._all}", *(f"torch on {d}" for d in gpus))
        self.runs: list[tuple[np.ndarray, np.ndarray]] = []
        """Placements that were sampled, with the seconds of their operations."""
        self._folder = tempfile.TemporaryDirectory(prefix="placewright-")
        self.archive = Path(self._folder.name) / "program.pt2"
        save_program(program, self.archive)
        self.engine = Engine(
            self.devices,
            Discipline(STRATEGY),
            Measuring(1, 1, time_limit=120.0),
            emulate_links=False,
            models={self.graph.name: {"file": str(self.archive)}},
        )

    def _check_memory(self, limits: np.ndarray) -> None:
        needed = self.graph.parameter_bytes + np.where(free_inputs(self.graph), 0.0, self.graph.output_bytes)
        largest = int(needed.argmax())
        if needed[largest] > limits.max():
            raise InputError(
                f"operation {self.graph.names[largest]!r} needs {needed[largest]:.0f} bytes, more than any device may use; raise --memory"
            )
        if self.graph.parameter_bytes.sum() > limits.sum():
            raise InputError(
                f"the weights of {self.graph.name!r} take {self.graph.parameter_bytes.sum():.0f} bytes, more than all devices together "
                f"may use ({limits.sum():.0f}); raise --memory or add a device"
            )

    def identity(self) -> tuple[object, ...]:
        """See `Target`."""
        return (self.runtime, self.graph.content_hash, self.network.content_hash, STRATEGY)

    def calibrate(self, rounds: int, tell: Tell | None) -> tuple[Problem, dict[str, Any]]:
        """See `Target`."""
        found = calibrate(
            Problem(self.graph, self.network), self.engine, rounds, progress=(lambda k, n: tell("calibrating", k, n)) if tell else None
        )
        cut = found.hand_over[~np.eye(len(self.devices), dtype=bool)]
        about = {
            "launch_seconds": dict(zip(self.devices, found.launch.tolist(), strict=True)),
            "cut_seconds": float(np.median(cut)) if cut.size else 0.0, "contention": found.contention,
        }  # fmt: skip
        return found.problem, about

    def simulator(self, about: Mapping[str, Any]) -> EvaluatorSpec:
        """See `Target`."""
        return EvaluatorSpec("work-conserving", {"strategy": STRATEGY, "processors": processors(self.real)})  # type: ignore[arg-type]

    def sample(self, problem: Problem, placement: Any) -> float:
        """See `Target`."""
        found = self.engine.evaluate(problem, np.asarray(placement)[None, :], trace=True)
        if found.outcome[0] != Outcome.OK or found.start is None or found.finish is None:
            raise InputError((found.notes or ("it does not run",))[0])
        self.runs.append((np.asarray(placement), found.finish[0] - found.start[0]))
        return float(found.seconds[0])

    def learned(self, problem: Problem, about: Mapping[str, Any]) -> Problem:
        """See `Target`: a mean of logarithms, in which what was calibrated counts as one run more."""
        launch = np.array([about["launch_seconds"][d] for d in self.devices])
        seconds, nodes = problem.compute_seconds, np.arange(problem.n_nodes)
        logs, counts = np.zeros(seconds.shape), np.zeros(seconds.shape)
        for placement, took in self.runs:
            if len(set(placement.tolist())) < 2:
                continue  # nothing works beside it
            old = seconds[nodes, placement]
            seen = np.isfinite(took) & (old > 0)
            at = (nodes[seen], placement[seen])
            logs[at] += np.log(((took[seen] + launch[placement[seen]]) / old[seen]).clip(0.3, 3.0))
            counts[at] += 1
        return with_seconds(problem, seconds * np.exp(logs / (counts + 1.0)))

    def variants(self, problem: Problem, about: Mapping[str, Any]) -> list[tuple[str, Problem, Mapping[str, Any]]]:
        """See `Target`."""
        launch = np.array([about["launch_seconds"][d] for d in self.devices])
        slower = np.where([len(r) < len(self.devices) - 1 for r in rivals(self.real)], about["contention"], 1.0)
        busy = problem.compute_seconds > 0
        own = np.where(busy, (problem.compute_seconds - launch) / slower, 0.0).clip(0.0)
        free = replace(problem.network, delay=np.zeros_like(problem.network.delay))
        alone = with_seconds(Problem(problem.graph, free), own)
        cuts = with_seconds(Problem(problem.graph, problem.network), np.where(busy, own + launch, 0.0))
        return [("operations alone", alone, about), ("and cuts", cuts, about), ("and overlap", problem, about)]

    def sample_own(self, problem: Problem, name: str) -> float:
        """See `Target`."""
        try:
            return float(self.engine.whole(problem, name.removeprefix("torch on "))[0])
        except Fault as fault:
            raise InputError(str(fault).strip().splitlines()[-1]) from None

    def run(self, problem: Problem, placement: Any) -> Schedule:
        """See `Target`."""
        return run_of(self.engine, problem, np.asarray(placement))

    def describe(self) -> dict[str, Any]:
        """See `Target`."""
        return {"runtime": self.runtime, "name": self.graph.name, **self.source, "devices": list(self.devices), "strategy": STRATEGY}

    def close(self) -> None:
        """See `Target`."""
        self.engine.close()
        self._folder.cleanup()
