"""An OpenVINO host behind the evaluator's face, measuring in a process of its own that can be killed (`child`).

Outcomes are about the placement: INVALID (a constraint of the problem, an operation that a device cannot run, a placement that does
not compile, kills the plugin twice or computes something else), OUT_OF_MEMORY, TOO_SLOW (a cut-off, or compiling or running beyond
its limit). INFRASTRUCTURE is about everything else.
"""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from shutil import copyfile
from typing import Any, ClassVar

import numpy as np

from envs.costs.operation_times import graph_signature
from envs.graphs import capture
from envs.hosts.child_process import Fault
from envs.hosts.engine.host import fingerprint as machine
from envs.hosts.measuring import Measuring
from envs.hosts.measuring_host import GRACE, START_LIMIT, MeasuringHost
from envs.hosts.model_files import PLACES, model_file
from envs.hosts.openvino.devices import HostDevice, parse_devices
from envs.hosts.openvino.model import Agreement
from envs.hosts.openvino.rows import ended
from envs.problem.errors import InputError, nearest
from envs.problem.graph import ComputationGraph
from envs.problem.measurement import Measurements, Outcome, exactly
from envs.problem.problem import Problem
from envs.simulators.fifo.evaluator import as_placements

HSDAG_PROTOCOL = Measuring(warm_up=0, repetitions=10, average_last=5)
"""10 runs, mean of the last 5 (HSDAG, Table 2)."""
MODES = ("serial", "overlapped", "hetero")


@dataclass(frozen=True)
class Detail:
    """What a measurement's row does not say."""

    outcome: Outcome
    note: str
    samples: np.ndarray
    """Raw seconds of every repetition."""
    seconds: float
    """By the measuring protocol; NaN unless OK."""
    dispersion: float
    """Standard deviation of the samples that count, seconds."""
    compile_seconds: float
    """Time to compile; 0 if the placement was compiled before. Not part of ``seconds``."""
    segments: int
    """Pieces on one device each."""
    agreement: Agreement | None
    """Of the outputs with the unplaced model's in float32."""
    trace: dict[str, np.ndarray] | None = None
    """When the pieces of the last run ran (`envs.hosts.openvino.execution.Serial.trace`)."""


@dataclass
class OpenVinoHost(MeasuringHost):
    """Compiles placements of OpenVINO models for this machine's devices and measures them.

    A problem's graph must be captured from a model (`envs.graphs.capture`), and its network's devices be those given here. Use it as
    a context manager, or call `close`, to end its process; one left open ends with this process.
    """

    child: ClassVar[str] = "envs.hosts.openvino.child"
    devices: Mapping[str, HostDevice | Any]
    """What stands for each device of the network (see `envs.hosts.openvino.devices.parse_devices`)."""
    mode: str = "hetero"
    """``hetero``: one model compiled by HETERO, whose pieces run one after another and forget their devices' limits of threads;
    ``serial``: pieces compiled each by itself for its device, and run one after another; ``overlapped``: the same, run as soon as they
    can."""
    models: Mapping[str, Any] = field(default_factory=dict)
    """By the graph's name, the model that it was captured from: ``{model: NAME, **options}`` or ``{file: PATH, input_shapes: …}``.
    A graph with the name of a model needs no entry."""
    measuring: Measuring = HSDAG_PROTOCOL
    tolerance: float = 0.05
    """Largest distance of the outputs from the unplaced model's, as a share of their norm; half precision needs about 0.01."""
    keep_compiled: int = 4
    """Compiled placements kept; each holds its own copy of the weights."""
    compile_limit: float = 120.0
    """Seconds to compile one placement, after which it is TOO_SLOW."""
    memory_limit: float | None = None
    """Address space of the measuring process, bytes."""
    prepare_limit: float = 600.0
    """Seconds to read a model and run it once unplaced."""
    input_seed: int = 0
    """What the models' inputs are drawn from."""

    def __post_init__(self) -> None:
        self.devices = parse_devices(self.devices)
        if self.mode not in MODES:
            raise InputError(f"unknown mode {self.mode!r} of an OpenVINO host{nearest(str(self.mode), MODES)}")
        limited = [name for name, device in self.devices.items() if device.threads is not None]
        if self.mode == "hetero" and limited and len(self.devices) > 1:
            raise InputError(
                f"device {limited[0]!r} has a limit of threads, which HETERO forgets in a model that it splits; use mode serial"
            )

    @property
    def protocol(self) -> str:
        """Everything that decides what a measurement means."""
        devices = ",".join(f"{name}={device.text}" for name, device in self.devices.items())
        memory = "" if self.memory_limit is None else f"+{exactly(self.memory_limit)}B"
        limits = f"{exactly(self.compile_limit)}s+{exactly(self.measuring.time_limit)}s{memory}"
        checks = f"within={exactly(self.tolerance)} inputs={self.input_seed} limits={limits}"
        return f"openvino:{self.mode} runs={self.measuring.text} {checks} on {devices}"

    @property
    def fingerprint(self) -> str:
        """This machine and its toolkit; see the function `fingerprint`."""
        return fingerprint()

    @property
    def traces(self) -> bool:
        """Compiled operations have no times of their own, but pieces have; HETERO does not tell those either."""
        return self.mode != "hetero"

    @property
    def lease_seconds(self) -> float:
        """Twice all limits, and a minute for what has none."""
        return 60.0 + 2.0 * (self.measuring.time_limit + self.prepare_limit + self.compile_limit)

    def evaluate(self, problem: Problem, placements: np.ndarray, seed: int = 0, *, first: int = 0, trace: bool = False) -> Measurements:
        """Seconds of each of ``placements`` int16[B, V] by `measuring`, with samples, notes and seconds to compile.

        A trace is that of each placement's last run; the time of a piece is divided among its operations by the problem's costs.

        Raises:
            InputError: also for a graph that is not its model's, or devices that do not fit the network or the machine.
        """
        if problem.objective != "makespan":
            raise InputError(f"an OpenVINO host measures time, not {problem.objective}; ask for the makespan")
        placements = as_placements(problem, placements)
        details = self.details(problem, placements)
        outcome = np.array([d.outcome for d in details], dtype=np.int8)
        seconds = np.array([d.seconds for d in details])
        objective = np.where(outcome == Outcome.OK, seconds, np.inf)
        traced = trace and self.traces
        times = [_within_pieces(problem, p, d) for p, d in zip(placements, details, strict=True)] if traced else []
        start, finish = np.array(times).reshape(-1, 2, problem.n_nodes).swapaxes(0, 1)
        return Measurements(
            problem_hash=problem.content_hash, placements=placements, outcome=outcome, seconds=seconds, objective=objective, seed=seed,
            protocol=self.protocol, host=fingerprint(), first=first,
            samples=tuple(d.samples for d in details), notes=tuple(d.note for d in details),
            deviation=np.array([d.dispersion if d.outcome == Outcome.OK else np.nan for d in details]),
            compile_seconds=np.array([d.compile_seconds for d in details]),
            start=start if traced else None, finish=finish if traced else None,
            transfers=(np.empty((0, 5)),) * len(times) if traced else None,
        )  # fmt: skip

    def details(self, problem: Problem, placements: np.ndarray) -> list[Detail]:
        """Everything measured about each of ``placements`` int16[B, V], one after another."""
        if (names := tuple(self.devices)) != problem.network.names:
            theirs = ", ".join(problem.network.names)
            raise InputError(f"network {problem.network.name!r} has devices {theirs}, but the host has {', '.join(names)}")
        return [self._detail(self._row(problem, placement)) for placement in placements]

    def _row(self, problem: Problem, placement: np.ndarray) -> dict[str, Any]:
        if not problem.valid(placement[None, :])[0]:
            return ended(Outcome.INVALID, "uses a device it may not use, or parts a co-location group")
        over = np.flatnonzero(problem.memory_used(placement[None, :])[0] > problem.network.memory)
        if over.size:
            return ended(Outcome.OUT_OF_MEMORY, f"device {problem.network.names[over[0]]!r} has too little memory for its operations")
        return self._measured(problem.graph, "compile", placement)

    def choice(self, problem: Problem, preference: Sequence[str], kind: str = "HETERO") -> Detail:
        """The toolkit's own choice among devices in order of preference (OpenVINO-CPU, OpenVINO-GPU of Table 2).

        Args:
            problem: whose graph to run.
            preference: names of the network's devices.
            kind: ``HETERO`` (each operation goes to the first device that supports it) or ``AUTO`` (one device for all).
        """
        order = [problem.network.index(name) for name in preference]
        return self._detail(self._measured(problem.graph, "compile_choice", kind, order))

    def outputs(self, problem: Problem, placement: np.ndarray) -> list[np.ndarray]:
        """What a valid ``placement`` int16[V] computes from the inputs that all measurements use (to compare as Table 4 does).

        Raises:
            InputError: if it does not run.
        """
        try:
            row = self._compiled(problem.graph, "compile", placement)
            if "outcome" in row:
                raise InputError(f"a placement of {problem.name} does not run: {row['note']}")
            return self._of_compiled("outputs")
        except Fault as fault:
            raise InputError(f"a placement of {problem.name} does not run: {fault}") from None

    def describe(self) -> list[str]:
        """What each device is, for reports."""
        return self._started().ask(START_LIMIT, "describe")

    def _detail(self, row: dict[str, Any]) -> Detail:
        outcome = Outcome(row["outcome"])
        samples = row["samples"]
        seconds = self.measuring.seconds(samples) if outcome == Outcome.OK else float("nan")
        dispersion = self.measuring.dispersion(samples) if len(samples) else float("nan")
        return Detail(
            outcome, row["note"], samples, seconds, dispersion, row["compile_seconds"], row["segments"], row["agreement"], row["trace"]
        )

    def _compiled(self, graph: ComputationGraph, command: str, *arguments: Any) -> dict[str, Any]:
        """The child's answer if a placement cannot be compiled, otherwise only the seconds that compiling took.

        Raises:
            Fault: what happens before the placement is looked at has no exit code.
        """
        try:
            key, failed = self._ready(graph)
        except Fault as fault:
            raise Fault(False, str(fault)) from None
        return failed or self._started().ask(self.compile_limit + GRACE, command, key, *arguments)

    def _of_compiled(self, command: str) -> Any:
        """What the process answers about what it compiled last."""
        if self._process is None:
            raise Fault(False, "the measuring process was ended")
        return self._process.ask(self.measuring.time_limit + GRACE, command)

    def _measured(self, graph: ComputationGraph, command: str, *arguments: Any) -> dict[str, Any]:
        """The child's answer; a plugin that dies twice over a placement by itself is the placement's fault, one that was killed is not."""
        deaths = 0
        while True:
            kills = _kills()
            try:
                compiled = self._compiled(graph, command, *arguments)
                if "outcome" in compiled:
                    return compiled
                return {**self._of_compiled("measure"), **compiled}
            except Fault as fault:
                if fault.late:
                    return ended(Outcome.TOO_SLOW, str(fault))
                if fault.exit_code is None:
                    return ended(Outcome.INFRASTRUCTURE, str(fault))
                if _kills() > kills and fault.exit_code == -signal.SIGKILL:
                    return ended(Outcome.OUT_OF_MEMORY, "the operating system killed the measuring process for want of memory")
                deaths += 1
                if deaths < 2:  # once more at once, so that placements are measured in the order asked
                    continue
                if fault.exit_code == -signal.SIGKILL or fault.exit_code >= 0:
                    return ended(Outcome.INFRASTRUCTURE, str(fault))
                return ended(Outcome.INVALID, f"a plugin died twice over the placement ({_signal_name(-fault.exit_code)})")

    def _opening(self) -> tuple[Any, ...]:
        return dict(self.devices), self.mode, self.measuring, self.tolerance, self.keep_compiled, self.memory_limit, self.input_seed

    def _ready(self, graph: ComputationGraph) -> tuple[str, dict[str, Any] | None]:
        """The key of a graph whose model the process has read, and the answer if it has too little memory for that."""
        process, key = self._started(), graph.content_hash
        if key not in self._prepared:
            path, shapes = self._ir(graph)
            if (failed := process.ask(self.prepare_limit, "prepare", key, path, shapes, graph)) is not None:
                return key, failed
            self._prepared.append(key)
        return key, None

    def _ir(self, graph: ComputationGraph) -> tuple[Path, Any]:
        """The IR file of a graph's model, and its input shapes."""
        key = graph.content_hash
        if key not in self._written:
            spec = self.models.get(graph.name, {"model": graph.name} if graph.name in capture.model_names() else None)
            if not isinstance(spec, Mapping) or ("model" in spec) == ("file" in spec):
                raise InputError(
                    f"the host does not know which model graph {graph.name!r} was captured from; say so by "
                    f"models: {{{graph.name}: {{model: NAME}}}} or {{file: PATH}}"
                )
            options = {k: v for k, v in spec.items() if k not in ("model", "input_shapes", *PLACES)}
            source = capture.resolve(spec.get("model") or model_file(spec), None, spec.get("input_shapes"), options)
            path = self._scratch() / f"{key[:16]}.xml"
            with capture.written_ir(source) as written:
                for suffix in (".xml", ".bin"):
                    copyfile(written.with_suffix(suffix), path.with_suffix(suffix))
            if graph_signature(capture.capture(path, input_shapes=source.shapes, cache=False)) != graph_signature(graph):
                raise InputError(f"graph {graph.name!r} is not that of the host's model {source.name!r}; check its options and shapes")
            self._written[key] = (path, source.shapes)
        found: tuple[Path, Any] = self._written[key]
        return found


def _within_pieces(problem: Problem, placement: np.ndarray, detail: Detail) -> np.ndarray:
    """Start and finish of each operation, float64[2, V], NaN for those that are not computed."""
    times = np.full((2, problem.n_nodes), np.nan)
    if detail.trace is None or detail.outcome != Outcome.OK:
        return times
    piece, cost = detail.trace["piece"], problem.compute_seconds[np.arange(problem.n_nodes), placement]
    order = problem.graph.topological_order
    for k, (begin, end) in enumerate(zip(detail.trace["begin"], detail.trace["end"], strict=True)):
        mine = order[piece[order] == k]
        share = cost[mine] if cost[mine].sum() > 0 else np.ones(mine.size)
        done = begin + (end - begin) * np.cumsum(share) / share.sum()
        times[:, mine] = np.append(begin, done[:-1]), done
    return times


def _kills() -> int:
    """How many processes Linux has killed for want of memory since it started."""
    with suppress(OSError, StopIteration, ValueError):
        lines = Path("/proc/vmstat").read_text().splitlines()
        return int(next(line for line in lines if line.startswith("oom_kill ")).split()[1])
    return 0


def _signal_name(number: int) -> str:
    with suppress(ValueError):
        return signal.Signals(number).name
    return f"signal {number}"


def fingerprint() -> str:
    """This machine and its toolkit."""
    return f"{machine()} openvino {version('openvino')}"
