"""The measuring process of an OpenVINO host: compiles, runs and checks placements. Started by `envs.hosts.openvino.host`."""

from __future__ import annotations

import resource
import sys
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from envs.graphs.openvino_capture import InputShapes, first_line, import_openvino
from envs.hosts.child_process import serve
from envs.hosts.measuring import Measuring
from envs.hosts.openvino.devices import HostDevice, register
from envs.hosts.openvino.execution import Choice, Executable, Hetero, Overlapped, Serial
from envs.hosts.openvino.model import PreparedModel, agreement
from envs.hosts.openvino.rows import ended
from envs.problem.errors import InputError
from envs.problem.graph import ComputationGraph
from envs.problem.measurement import Outcome

MODES: Mapping[str, Callable[..., Executable]] = {"serial": Serial, "overlapped": Overlapped, "hetero": Hetero}
_FAILURES = (RuntimeError, MemoryError, ImportError)
_MEMORY_SIGNS = (
    "bad_alloc", "out of memory", "failed to allocate", "out_of_resources", "cannot allocate", "can't alloc", "failed to map",
    "resource temporarily unavailable",  # a thread that finds no room for its stack
)  # fmt: skip


class _Child:
    def __init__(
        self, devices: dict[str, HostDevice], mode: str, measuring: Measuring, tolerance: float, keep: int, memory: float | None, seed: int
    ) -> None:
        if memory is not None:
            resource.setrlimit(resource.RLIMIT_AS, (int(memory), int(memory)))
        self.core = import_openvino().Core()
        self.device_names, self.devices = list(devices), list(devices.values())
        self.targets = register(self.core, devices)
        self.build, self.measuring, self.tolerance, self.keep, self.seed = MODES[mode], measuring, tolerance, keep, seed
        self.models: dict[str, PreparedModel] = {}
        self.refused: dict[str, np.ndarray] = {}
        self.compiled: OrderedDict[tuple[str, bytes], Executable] = OrderedDict()

    def describe(self) -> list[str]:
        """What each device is, by its plugin's full name and the settings given."""
        full = [str(self.core.get_property(target, "FULL_DEVICE_NAME")) for target in self.targets]
        return [f"{name}: {device.text} on {what}" for name, device, what in zip(self.device_names, self.devices, full, strict=True)]

    def prepare(self, key: str, path: Path, shapes: InputShapes | None, graph: ComputationGraph) -> dict[str, Any] | None:
        """Read a model and find the right results and what each device refuses; an answer if memory does not suffice."""
        try:
            model = PreparedModel(self.core, path, shapes, graph, self.seed)
            self.refused[key] = np.stack(
                [model.unsupported(t) | np.isin(model.kinds, sorted(d.refuses)) for t, d in zip(self.targets, self.devices, strict=True)],
                axis=1,
            )
            model.expected  # noqa: B018 (computed here, under the limit for preparing)
        except _FAILURES as error:
            if _memory_sign(error) is None:
                raise
            return _failed("cannot even be prepared", error)
        self.models[key] = model
        return None

    def compile(self, key: str, placement: np.ndarray) -> dict[str, Any]:
        """Compile one placement (or find it compiled): the answer if that fails, otherwise the seconds it took."""
        model = self.models[key]
        where = model.settled(placement)
        refused = np.flatnonzero(self.refused[key][np.arange(len(where)), where])
        if refused.size:
            node = int(refused[0])
            name, kind = model.graph.names[node], model.graph.op_types[node]
            return ended(Outcome.INVALID, f"device {self.device_names[where[node]]!r} cannot run operation {name!r} of type {kind}")
        return self._compiled((key, where.tobytes()), lambda: self.build(model, where, self.targets))

    def compile_choice(self, key: str, kind: str, order: list[int]) -> dict[str, Any]:
        """The same for the toolkit's own choice among devices in order of preference; ``kind`` is ``HETERO`` or ``AUTO``."""
        target = f"{kind}:{','.join(self.targets[d] for d in order)}"
        return self._compiled((key, target.encode()), lambda: Choice(self.models[key], target))

    def _compiled(self, entry: tuple[str, bytes], build: Callable[[], Executable]) -> dict[str, Any]:
        if entry in self.compiled:
            self.compiled.move_to_end(entry)
            return {"compile_seconds": 0.0}
        while len(self.compiled) >= max(1, self.keep):
            self.compiled.popitem(last=False)[1].close()
        begin = time.perf_counter()
        try:
            self.compiled[entry] = build()
        except _FAILURES as error:
            return _failed("does not compile", error)
        return {"compile_seconds": time.perf_counter() - begin}

    def measure(self) -> dict[str, Any]:
        """Run what was compiled (or found compiled) last."""
        entry = next(reversed(self.compiled))
        row = self._run(self.models[entry[0]], self.compiled[entry])
        if row["outcome"] not in (Outcome.OK, Outcome.TOO_SLOW):
            self.compiled.pop(entry).close()  # threads of a failed run may still be at work in it
        return row

    def outputs(self) -> list[np.ndarray]:
        """What that computes from the model's inputs; InputError if it does not run."""
        entry = next(reversed(self.compiled))
        try:
            self.compiled[entry].run()
        except _FAILURES as error:
            self.compiled.pop(entry).close()
            raise InputError(f"a placement of {self.models[entry[0]].graph.name!r} does not run: {first_line(error)}") from None
        return self.compiled[entry].outputs()

    def _run(self, model: PreparedModel, executable: Executable) -> dict[str, Any]:
        m = self.measuring
        samples: list[float] = []
        extra: dict[str, Any] = {"segments": executable.segments}
        end = time.perf_counter() + m.time_limit
        try:
            for repetition in range(m.warm_up + m.repetitions):
                begin = time.perf_counter()
                executable.run()
                took = time.perf_counter() - begin
                if took > m.cut_off or begin + took > end:
                    limit = m.cut_off if took > m.cut_off else m.time_limit
                    return ended(Outcome.TOO_SLOW, f"a run took {took:.3g} s; the limit is {limit:g} s", **extra)
                if repetition >= m.warm_up:
                    samples.append(took)
        except _FAILURES as error:
            return {**_failed("does not run", error), **extra}
        found = agreement(executable.outputs(), model.expected)
        extra |= {"samples": np.array(samples), "agreement": found, "trace": executable.trace()}
        if not found.relative <= self.tolerance:
            note = f"outputs differ from the unplaced model's by {found.relative:.3g} of their norm; {self.tolerance:g} is allowed"
            return ended(Outcome.INVALID, note, **extra)
        return ended(Outcome.OK, **extra)


def _failed(what: str, error: BaseException) -> dict[str, Any]:
    sign = _memory_sign(error)
    line = sign or (first_line(error) if isinstance(error, Exception) else str(error))
    return ended(Outcome.OUT_OF_MEMORY if sign is not None else Outcome.INVALID, f"the placement {what}: {line}")


def _memory_sign(error: BaseException) -> str | None:
    """The line of an error that tells of memory; OpenVINO wraps errors in others."""
    lines = [line.strip() for line in str(error).splitlines() if any(sign in line.lower() for sign in _MEMORY_SIGNS)]
    return lines[-1] if lines else "out of memory" if isinstance(error, MemoryError) else None


if __name__ == "__main__":
    with suppress(ImportError, OSError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a plugin that dies leaves no core dump
    serve(int(sys.argv[1]), _Child)
