"""The reward service on Ray against the same pool of simulators called in process."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from envs.simulators.fifo.evaluator import Simulator
from tests.bench.figure import Figure, at_least, seconds, side_by_side
from tests.bench.simulator import problem

if TYPE_CHECKING:
    from orchestration.rewards.client import ServiceClient

PLACEMENTS, TASKS, REQUESTS, POOL = 1024, 500, 24, 2
FEW, FEW_TASKS, CALLS = 8, 100, 512
"""Rows of a small request, one asked after the other as learners do; operations of its graph."""


def measure() -> list[Figure]:
    """Requests of fresh placements, so that no cache answers; all are sent before the first answer is read."""
    import ray

    from envs.problem.measurement import Request
    from orchestration.driver.ray_start import start_ray
    from orchestration.rewards.client import SENDING_SECONDS, ServiceClient
    from orchestration.rewards.ray_service import start_service
    from orchestration.specs.trial import EvaluatorSpec

    p, rng = problem(TASKS), np.random.default_rng(0)
    start_ray(None, POOL)
    try:
        client = ServiceClient(start_service(POOL), EvaluatorSpec("simulator"), "bench")
        in_process = Simulator(threads=POOL)

        def batches() -> list[np.ndarray]:
            return [rng.integers(0, p.n_devices, (PLACEMENTS, TASKS)).astype(np.int16) for _ in range(REQUESTS)]

        pending: list[list[np.ndarray]] = [batches() for _ in range(6)]

        def through_the_service() -> None:
            client.evaluate_many([Request(p, batch, 0, 0) for batch in pending.pop()])

        def directly() -> None:
            for batch in here:
                in_process.evaluate(p, batch)

        here = pending[0]
        through_the_service()
        service, direct = side_by_side(through_the_service, directly, rounds=5)
        small = [small_requests(client, rng, seconds_of_sending) for seconds_of_sending in (SENDING_SECONDS, -1.0)]
    finally:
        ray.shutdown()
    count = REQUESTS * PLACEMENTS
    note = f"{count / service:,.0f} against {count / direct:,.0f} evaluations/s, pool of {POOL}"
    note_of_small = f"one trial, {FEW_TASKS} operations; {small[1]:,.0f} where every request is sent"
    return [
        at_least("evaluations/s through the reward service, of the pool's in process", 100 * direct / service, "%", 85, note),
        at_least(f"evaluations/s through the reward service, {FEW} a request", small[0], "/s", 10_000, note_of_small),
    ]


def small_requests(client: ServiceClient, rng: np.random.Generator, sending: float) -> float:
    """Rows a second of small requests, one after the other, where sending one costs as much as so many seconds of simulation."""
    from orchestration.rewards import client as module

    p, usual, best = problem(FEW_TASKS), module.SENDING_SECONDS, float("inf")
    module.SENDING_SECONDS = sending
    try:
        for calls in (CALLS // 8, CALLS if sending > 0 else CALLS // 8):
            batches = [rng.integers(0, p.n_devices, (FEW, FEW_TASKS)).astype(np.int16) for _ in range(calls)]
            best = min(best, seconds(lambda batches=batches: [client.evaluate(p, batch) for batch in batches]) / calls)
    finally:
        module.SENDING_SECONDS = usual
    return FEW / best
