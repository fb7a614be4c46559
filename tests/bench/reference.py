"""What other times are divided by, so that two machines, or two days, can be compared: fixed work, measured in the same run."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import torch

from envs.simulators.fifo.evaluator import ReferenceSimulator
from tests.bench.simulator import problem

ADDITIONS = 1_000_000
LOOP = "a plain loop of 1,000,000 additions"


def references() -> dict[str, float]:
    """CPU seconds of each, the least of five, on one thread."""
    rng, tasks = np.random.default_rng(0), problem(100)
    placement = rng.integers(0, tasks.n_devices, (1, tasks.n_nodes)).astype(np.int16)
    numbers, square = rng.random(200_000), rng.random((256, 256))
    lstm, sequence = torch.nn.LSTM(128, 128), torch.rand(64, 8, 128)
    simpy = ReferenceSimulator()
    return {
        LOOP: cpu_seconds(_loop),
        "SimPy, one placement of 100 tasks": cpu_seconds(lambda: simpy.evaluate(tasks, placement)),
        "NumPy, 200,000 numbers sorted and a product of 256 × 256": cpu_seconds(lambda: (np.sort(numbers), square @ square)),
        "torch, an LSTM of 128 over 64 steps of 8, with its gradient": cpu_seconds(lambda: lstm(sequence)[0].sum().backward()),
    }


def _loop() -> int:
    total = 0
    for k in range(ADDITIONS):
        total += k
    return total


def cpu_seconds(action: Callable[[], object], rounds: int = 5) -> float:
    """CPU seconds of a call, the least of some."""
    best = float("inf")
    for _ in range(rounds):
        begin = time.process_time()
        action()
        best = min(best, time.process_time() - begin)
    return best
