"""``python -m envs.hosts.engine.overhead``: what the engine adds to each operation beside the same kernels in a plain loop."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from envs.graphs.sharded import sharded
from envs.hosts.engine.devices import parse_devices
from envs.hosts.engine.executor import Executor
from envs.hosts.engine.kernels import ShardedCode
from envs.hosts.engine.program import Program
from envs.problem.network import DeviceNetwork
from envs.problem.problem import Problem
from envs.simulators.work_conserving.discipline import Discipline


@dataclass(frozen=True)
class Overhead:
    """Seconds an operation; medians over runs."""

    plain: float
    """In a plain loop over the operations in topological order."""
    engine: float
    """On the engine, everything on one device."""
    spread: float
    """On the engine, shards spread over the devices: per operation *and* transfer, with computation that overlaps."""

    @property
    def added(self) -> float:
        """What the engine adds on one device."""
        return self.engine - self.plain


def measure(graph: str = "llama-block", devices: int = 2, repetitions: int = 50) -> Overhead:
    """The overhead with tensors so small that it is most of the time; run it on a machine that does nothing else."""
    llama = {"sequence": 16, "width": 32, "hidden": 64, "heads": 4}
    sizes = {"chainmm": {"size": 32}, "ffnn": {"batch": 32, "hidden": 64}, "llama-block": llama}
    cores = sorted(os.sched_getaffinity(0))
    network = DeviceNetwork(tuple(f"d{i}" for i in range(devices)), np.array(1e9), np.array(np.inf), np.array(0.0))
    problem = Problem(sharded(graph, element_bytes=4, **sizes[graph]), network)
    real = parse_devices(tuple(f"cpu:{cores[i % len(cores)]}" for i in range(devices)))
    program, executor = Program(problem, real, ShardedCode(problem.graph, 0)), Executor(real, Discipline(), emulate_links=False)
    operations = len(program.order)
    shards = np.array([int(name.rsplit(".", 1)[-1]) for name in problem.graph.names], dtype=np.int16) % devices
    transfers = len(executor.run(program, shards).transfers)
    home = os.sched_getaffinity(0)
    real[0].bind()  # the plain loop runs where the engine's first worker does
    with torch.inference_mode():
        plain = [_seconds(program.expected) for _ in range(repetitions)]
    os.sched_setaffinity(0, home)
    alone = [executor.run(program, np.zeros_like(shards)).seconds for _ in range(repetitions)]
    spread = [executor.run(program, shards).seconds for _ in range(repetitions)]
    executor.close()
    return Overhead(
        float(np.median(plain)) / operations, float(np.median(alone)) / operations, float(np.median(spread)) / (operations + transfers)
    )


def _seconds(call: Callable[[], object]) -> float:
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


if __name__ == "__main__":
    for name in ("chainmm", "ffnn", "llama-block"):
        found = measure(name)
        print(
            f"{name:12} plain {found.plain * 1e6:5.1f} us/op, engine {found.engine * 1e6:5.1f} us/op, "
            f"overhead {found.added * 1e6:5.1f} us/op; spread over two devices {found.spread * 1e6:5.1f} us a task"
        )
