"""The measuring process: ``python -m envs.hosts.engine.child FD`` answers its parent (`envs.hosts.engine.host`) until that ends."""

from __future__ import annotations

import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch

from envs.graphs.exported.graph import PlaceableProgram
from envs.graphs.exported.sources import load_program
from envs.hosts.child_process import serve
from envs.hosts.engine.devices import RealDevice, inference, parse_devices
from envs.hosts.engine.executor import Execution, Executor
from envs.hosts.engine.exported import ExportedCode, example_inputs
from envs.hosts.engine.kernels import Result, ShardedCode
from envs.hosts.engine.program import Code, Program
from envs.hosts.measuring import Measuring
from envs.problem.errors import InputError
from envs.problem.measurement import Outcome
from envs.problem.problem import Problem
from envs.simulators.work_conserving.discipline import Discipline

_KEPT = 4
"""Problems whose inputs stay in memory."""
_WARM_UP = 0.1
"""Seconds until torch's threads have found a core each."""


class _Child:
    def __init__(self, devices: tuple[str, ...], discipline: Discipline, measuring: Measuring, emulate: bool, check: bool, seed: int):
        self.devices = parse_devices(devices)
        self.executor = Executor(self.devices, discipline, emulate)
        self.measuring, self.check, self.seed = measuring, check, seed
        self.whole: dict[str, tuple[RealDevice, ThreadPoolExecutor]] = {}
        self.programs: dict[str, tuple[Program, dict[int, Result]]] = {}

    def prepare(self, problem: Problem, archive: Path | None = None, name: str = "") -> None:
        """Bind kernels, make inputs, and find the right results by running on one device; ``archive`` holds an exported graph's program."""
        while len(self.programs) >= _KEPT:
            self.programs.pop(next(iter(self.programs)))
        program = Program(problem, self.devices, self._code(problem, archive, name))
        self.programs[problem.content_hash] = (program, program.expected() if self.check else {})

    def _code(self, problem: Problem, archive: Path | None, name: str) -> Code:
        if archive is None:
            return ShardedCode(problem.graph, self.seed)
        with torch.inference_mode(False):  # tracing needs ordinary tensors
            program = load_program(str(archive))[0]
            placeable = PlaceableProgram.of(program, name)
        if placeable.graph.content_hash != problem.graph.content_hash:
            raise InputError(f"graph {problem.graph.name!r} is not that of the program it is to run; capture it again")
        return ExportedCode(placeable, example_inputs(placeable, self.seed), program)

    def measure(self, problem_hash: str, placement: np.ndarray) -> dict[str, Any]:
        """All runs of one placement: outcome, note, samples, and the last run's times."""
        program, expected = self.programs[problem_hash]
        m = self.measuring
        samples: list[float] = []
        end = time.perf_counter() + m.time_limit
        for repetition in range(m.warm_up + m.repetitions):
            limit = min(m.cut_off, max(end - time.perf_counter(), 1e-3))
            run = self.executor.run(program, placement, limit)
            if run.outcome == Outcome.OK and repetition == 0:
                self._compare(run, expected)
            run.outputs = {}
            if run.outcome != Outcome.OK:
                break
            if repetition >= m.warm_up:
                samples.append(run.seconds)
        return {"outcome": int(run.outcome), "note": run.note, "samples": np.array(samples), "run": run}

    def measure_whole(self, problem_hash: str, device: str, repetitions: int) -> np.ndarray:
        """Seconds of runs of an exported program as torch runs it itself on one device, after some that do not count."""
        code = self.programs[problem_hash][0].code
        if not isinstance(code, ExportedCode):
            raise InputError("only exported programs run without the engine")
        if device not in self.whole:
            (real,) = parse_devices((device,))
            self.whole[device] = real, ThreadPoolExecutor(1, initializer=real.bind)
        real, pool = self.whole[device]
        return pool.submit(_run_whole, code, real, repetitions).result()

    def _compare(self, run: Execution, expected: dict[int, Result]) -> None:
        leaves = torch.utils._pytree.tree_leaves
        pairs = ((a, b) for node, right in expected.items() for a, b in zip(leaves(run.outputs[node]), leaves(right), strict=True))
        for found, right in ((a.cpu(), b) for a, b in pairs if isinstance(b, torch.Tensor) and b.numel()):
            # Relative to the largest value: sums of many terms are as exact as that, and half precision less so.
            tolerance = (2e-2 if right.dtype in (torch.float16, torch.bfloat16) else 1e-4) * float(right.abs().max().nan_to_num())
            if not torch.allclose(found, right, rtol=0.0, atol=tolerance, equal_nan=True):
                run.outcome = Outcome.INFRASTRUCTURE
                run.note = (
                    f"the result differs from single-device execution by up to {float((found.float() - right.float()).abs().max()):g}"
                )
                return


def _run_whole(code: ExportedCode, device: RealDevice, repetitions: int) -> np.ndarray:
    with torch.inference_mode(False):
        module = code.whole(device.torch_device)
    samples: list[float] = []
    with torch.inference_mode():
        given = [x.to(device.torch_device) for x in code.given]
        warm = time.perf_counter() + _WARM_UP
        while len(samples) < repetitions:
            begin = time.perf_counter()
            module(*given)
            device.wait()
            if begin > warm:
                samples.append(time.perf_counter() - begin)
    return np.array(samples)


if __name__ == "__main__":
    torch.set_num_threads(1)
    serve(int(sys.argv[1]), _Child, inference)
