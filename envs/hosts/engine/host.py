"""The engine behind the evaluator's face: a measuring process of its own that can be killed. What runs in it is `child`.

Outcomes are about the placement: OUT_OF_MEMORY (by the network's limits or the machine's), TOO_SLOW (a cut-off or the time
limit), INVALID (a device it may not use, or an operation that raises). INFRASTRUCTURE is about everything else: a process that
died, a wrong result. The process is started when first needed and again after it was killed.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from envs.graphs.exported.sources import load_program, save_program
from envs.hosts.child_process import ChildProcess, Fault
from envs.hosts.engine.devices import parse_devices
from envs.hosts.measuring import Measuring
from envs.hosts.measuring_host import GRACE, MeasuringHost
from envs.hosts.model_files import PLACES, model_file
from envs.hosts.processor import model_name
from envs.problem.errors import InputError
from envs.problem.measurement import Measurements, Outcome, exactly
from envs.problem.problem import Problem
from envs.simulators.fifo.evaluator import as_placements
from envs.simulators.work_conserving.discipline import Discipline

# Freed memory is kept by the process, or page faults would dominate every large output.
_MEMORY = {"MALLOC_MMAP_THRESHOLD_": str(1 << 32), "MALLOC_TRIM_THRESHOLD_": str(1 << 40), "MALLOC_TOP_PAD_": str(64 << 20)}
# Nobody but devices has threads for kernels: one, or one a core of a group.
_THREADS = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
# The threads of a group look for their next kernel for some 50 us before they sleep. By default that is 3 ms, in which they would take a
# core from other devices, or 1 us once several groups have threads, which can halve their speed.
_WAITING = {"OMP_WAIT_POLICY": "active", "GOMP_SPINCOUNT": "5000"}


@dataclass
class Engine(MeasuringHost):
    """Runs placements for real and measures them.

    Nodes of a problem's graph must have the op types of `envs.hosts.engine.kernels`, as the sharded graphs do, or be those of a program
    that ``models`` names (`envs.graphs.exported`). Use it as a context manager, or call `close`, to end its process; one left open ends
    with this process.
    """

    child: ClassVar[str] = "envs.hosts.engine.child"
    environment: ClassVar[Mapping[str, str]] = {**_MEMORY, **_THREADS, **_WAITING}
    devices: tuple[str, ...]
    """The real device of each device of the network: ``cpu:0``, ``cpu:0-3``, ``cpu:0+2`` or ``cuda:0``; several may share one."""
    discipline: Discipline = field(default_factory=Discipline)
    measuring: Measuring = field(default_factory=Measuring)
    emulate_links: bool = True
    """Whether a transfer, a real copy in any case, is stretched to the network's delay + bytes / bandwidth."""
    check_results: bool = True
    """Whether the first run's results are compared with those of single-device execution."""
    input_seed: int = 0
    """What the input tensors are drawn from."""
    models: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """By the graph's name, the torch program that it was captured from: ``{file: PATH.pt2}``, ``{module: package.module:function}`` or
    ``{model: NAME, **options}``, each with ``input_shapes`` if need be."""
    prepare_limit: float = 300.0
    """Seconds to make a problem's inputs and run it once on the CPU."""

    _apart: Engine | None = field(default=None, init=False, repr=False, compare=False)
    """What runs programs whole."""

    def __post_init__(self) -> None:
        if not isinstance(self.devices, list | tuple) or not all(isinstance(d, str) for d in self.devices):
            raise InputError(f"the engine has devices {self.devices!r}; say what stands for the network's, as devices: [cpu:0, cpu:1]")
        self.devices = tuple(self.devices)
        if self.discipline.processors:
            raise InputError("'processors' is for simulators; name the same core for several of the engine's devices instead")
        if self.discipline.send_overhead:
            raise InputError("'send_overhead' is for simulators; the engine's transfers take what they take")

    @property
    def protocol(self) -> str:
        """Everything that decides what a measurement means."""
        links = "emulated" if self.emulate_links else "real"
        more = "" if self.check_results else " unchecked"
        more += f" inputs={self.input_seed}" if self.input_seed else ""
        more += "" if self.measuring.time_limit == Measuring.time_limit else f" limit={exactly(self.measuring.time_limit)}s"
        return f"engine:{self.discipline.text} links={links} runs={self.measuring.text}{more} on {','.join(self.devices)}"

    @property
    def fingerprint(self) -> str:
        """This machine; see the function `fingerprint`."""
        return fingerprint()

    @property
    def lease_seconds(self) -> float:
        """Twice all limits, and a minute for what has none."""
        return 60.0 + 2.0 * (self.measuring.time_limit + self.prepare_limit)

    def check_machine(self) -> None:
        """Look whether this machine offers the devices."""
        parse_devices(self.devices)

    def evaluate(self, problem: Problem, placements: np.ndarray, seed: int = 0, *, first: int = 0, trace: bool = False) -> Measurements:
        """See `envs.problem.measurement.Evaluator.evaluate`; the trace is that of each placement's last run.

        Raises:
            InputError: also for a graph that the engine cannot run, or devices that do not fit the network or the machine.
        """
        if problem.objective in ("throughput", "total-cost"):
            raise InputError(
                f"the engine measures one step by itself: its makespan or energy, not {problem.objective}; ask for one of the two"
            )
        if len(self.devices) != problem.n_devices:
            raise InputError(f"the engine has {len(self.devices)} devices; network {problem.network.name!r} has {problem.n_devices}")
        placements = as_placements(problem, placements)
        valid = problem.valid(placements)
        broken = _row(Outcome.INVALID, "uses a device it may not use, or parts a co-location group")
        rows = [self._row(problem, p) if may else broken for p, may in zip(placements, valid, strict=True)]
        ok = np.array([r["outcome"] == Outcome.OK for r in rows], dtype=bool)
        seconds = np.array([self.measuring.seconds(r["samples"]) if good else np.nan for r, good in zip(rows, ok, strict=True)])
        deviation = np.array([self.measuring.dispersion(r["samples"]) if good else np.nan for r, good in zip(rows, ok, strict=True)])
        objective = np.where(ok, seconds, np.inf)
        if problem.objective == "energy" and ok.any():
            busy = np.array([r["run"].finish - r["run"].start for r, good in zip(rows, ok, strict=True) if good])
            objective[ok] = problem.energy(placements[ok], seconds[ok], np.nan_to_num(busy))
        nothing = np.full(problem.n_nodes, np.nan)
        runs = [r["run"] if good else None for r, good in zip(rows, ok, strict=True)]
        return Measurements(
            problem_hash=problem.content_hash, placements=placements, outcome=np.array([r["outcome"] for r in rows], dtype=np.int8),
            seconds=seconds, objective=objective, seed=seed, protocol=self.protocol, host=fingerprint(), first=first,
            start=np.array([r.start if r else nothing for r in runs]) if trace else None,
            finish=np.array([r.finish if r else nothing for r in runs]) if trace else None,
            transfers=tuple(r.transfers if r else np.empty((0, 5)) for r in runs) if trace else None,
            samples=tuple(r["samples"] for r in rows), deviation=deviation, notes=tuple(r["note"] for r in rows),
        )  # fmt: skip

    def whole(self, problem: Problem, device: str, repetitions: int = 1) -> np.ndarray:
        """Seconds of runs of an exported program as torch runs it itself on one real device (all of whose cores it uses).

        That is in a process of its own: threads of other devices, even idle ones, slow down those that torch divides a kernel among.

        Raises:
            InputError: for a graph that is of no exported program.
            Fault: if the process ends or takes too long.
        """
        if self._apart is None:
            self._apart = _Apart(**{f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.init})
        limit = self.measuring.time_limit + GRACE
        return np.asarray(self._apart._ready(problem).ask(limit, "measure_whole", problem.content_hash, device, repetitions))

    def close(self) -> None:
        """End the measuring processes; the next measurement starts another."""
        super().close()
        if self._apart is not None:
            self._apart.close()
            self._apart = None

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_apart": None}

    def _row(self, problem: Problem, placement: np.ndarray) -> dict[str, Any]:
        """What one placement gave; if the process dies, another measures it at once, so that all are measured in the order asked."""
        try:
            try:
                row = self._asked(problem, placement)
            except Fault as fault:
                if fault.late:
                    raise
                row = self._asked(problem, placement)
        except Fault as fault:
            return _row(Outcome.TOO_SLOW if fault.late else Outcome.INFRASTRUCTURE, str(fault))
        if row["run"] is not None and not row["run"].clean:
            self._end()  # a kernel of the abandoned run goes on; the next measurement gets a process without it
        return row

    def _asked(self, problem: Problem, placement: np.ndarray) -> dict[str, Any]:
        try:
            process = self._ready(problem)
        except Fault as fault:  # whatever its cause, it is not this placement
            return _row(Outcome.INFRASTRUCTURE, str(fault))
        row: dict[str, Any] = process.ask(self.measuring.time_limit + GRACE, "measure", problem.content_hash, placement)
        return row

    def _ready(self, problem: Problem) -> ChildProcess:
        """The process, started if need be, with the problem prepared."""
        process = self._started()
        if problem.content_hash not in self._prepared:
            archive = self._archive(problem.graph.name)
            process.ask(self.prepare_limit, "prepare", problem, *((archive, problem.graph.name) if archive else ()))
            self._prepared = [*self._prepared, problem.content_hash][-4:]
        return process

    def _opening(self) -> tuple[Any, ...]:
        return self.devices, self.discipline, self.measuring, self.emulate_links, self.check_results, self.input_seed

    def _archive(self, name: str) -> Path | None:
        """The file of a graph's program, written once: its process neither imports nor builds what is the user's."""
        spec = self.models.get(name)
        if spec is None:
            return None
        if name not in self._written:
            path = self._scratch() / f"{hashlib.sha256(name.encode()).hexdigest()[:16]}.pt2"
            save_program(program_of(spec)[0], path)
            self._written[name] = path
        written: Path = self._written[name]
        return written


class _Apart(Engine):
    """Runs programs whole. torch's threads, which share their cores with nobody, wait as long as they do by default."""

    environment: ClassVar[Mapping[str, str]] = {**_MEMORY, **_THREADS, **_WAITING, "GOMP_SPINCOUNT": "300000"}


def program_of(spec: Mapping[str, Any]) -> tuple[Any, str]:
    """The exported program that an entry of `Engine.models` names, and its name.

    Raises:
        InputError: for an entry of another form, and whatever `load_program` refuses.
    """
    kinds = [key for key in ("file", "module", "model") if key in spec]
    if len(kinds) != 1:
        raise InputError(
            f"model {dict(spec)} is none that the engine runs; say {{file: PATH.pt2}}, {{module: package:function}} or {{model: NAME}}"
        )
    options = {key: value for key, value in spec.items() if key not in (kinds[0], "input_shapes", *PLACES)}
    return load_program(model_file(spec) if "file" in spec else str(spec[kinds[0]]), spec.get("input_shapes"), options)


def _row(outcome: Outcome, note: str) -> dict[str, Any]:
    return {"outcome": int(outcome), "note": note, "samples": np.empty(0), "run": None}


@lru_cache(maxsize=1)
def fingerprint() -> str:
    """This machine, as far as times depend on it: processor, cores, operating system's machine name."""
    return f"{model_name()} x{os.cpu_count()} torch {version('torch')}"
