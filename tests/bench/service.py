"""The reward service on Ray against the same pool of simulators called in process."""

from __future__ import annotations

import numpy as np

from envs.simulators.fifo.evaluator import Simulator
from tests.bench.figure import Figure, at_least, side_by_side
from tests.bench.simulator import problem

PLACEMENTS, TASKS, REQUESTS, POOL = 1024, 500, 24, 2


def measure() -> list[Figure]:
    """Requests of fresh placements, so that no cache answers; all are sent before the first answer is read."""
    import ray

    from envs.problem.measurement import Request
    from orchestration.driver.ray_start import start_ray
    from orchestration.rewards.client import ServiceClient
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
    finally:
        ray.shutdown()
    count = REQUESTS * PLACEMENTS
    note = f"{count / service:,.0f} against {count / direct:,.0f} evaluations/s, pool of {POOL}"
    return [at_least("evaluations/s through the reward service, of the pool's in process", 100 * direct / service, "%", 85, note)]
