"""Two sweeps at once on one measuring host of a cluster: one service, shares by weight, one store."""

from __future__ import annotations

import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from envs.graphs.sharded import sharded
from envs.problem.measurement import Outcome
from envs.problem.network import DeviceNetwork
from envs.problem.problem import Problem
from orchestration.rewards.fair_queue import Share
from orchestration.specs.trial import EvaluatorSpec

pytestmark = [pytest.mark.thorough, pytest.mark.timeout(300)]
CORE = f"cpu:{min(os.sched_getaffinity(0))}"
SPEC = EvaluatorSpec("dataflow", {"devices": [CORE, CORE], "measuring": {"warm_up": 0, "repetitions": 2}})


@pytest.fixture
def problem() -> Problem:
    return Problem(sharded("chainmm", size=32, element_bytes=4), DeviceNetwork(("a", "b"), 1e9, 1e8, 1e-5))


@pytest.fixture
def cluster(ray_session):
    """Starts sweeps' services and their clients; gives the cluster's service too."""
    from orchestration.rewards.client import ServiceClient
    from orchestration.rewards.cluster_service import service_of, shared_by
    from orchestration.rewards.ray_service import start_service

    node = ray_session.get_runtime_context().get_node_id()
    services = []

    def begin(sweep: str, weight: float = 1.0):
        services.append(start_service(1, shared=shared_by(node, Share("lab", sweep, weight=weight))))
        return ServiceClient(services[-1], SPEC, f"a trial of {sweep}"), services[-1]

    yield begin, lambda: service_of("dataflow", node), ray_session
    for service in [*services, service_of("dataflow", node)]:
        ray_session.kill(service)


def served(ray, shared) -> dict[str, int]:
    return ray.get(shared.tell.remote("a look"))["keys"].get("dataflow", {"served": {}})["served"]


def test_two_sweeps_share_one_host_by_weight_and_measure_equal_placements_once(cluster, problem):
    begin, find, ray = cluster
    rng = np.random.default_rng()
    light_rows, heavy_rows = (np.unique(rng.integers(0, 2, (n, problem.n_nodes)), axis=0).astype(np.int16) for n in (80, 160))
    (light, service), (heavy, _) = begin("light"), begin("heavy", 9.0)
    for sweep, placements in ((light, light_rows), (heavy, heavy_rows)):  # which sends the problem
        sweep.evaluate(problem, placements[:1])
    shared = find()
    with ThreadPoolExecutor(2) as pool:
        calls = [pool.submit(light.evaluate, problem, light_rows), pool.submit(heavy.evaluate, problem, heavy_rows)]
        while served(ray, shared).get("heavy", 0) < 10:
            time.sleep(0.01)
        before = served(ray, shared)
        while served(ray, shared)["heavy"] < len(heavy_rows) - 10:
            time.sleep(0.01)
        after = served(ray, shared)
        ours = {name: after[name] - before[name] for name in ("light", "heavy")}
        results = [call.result() for call in calls]
    assert ours["heavy"] / sum(ours.values()) >= 0.85 and ours["light"] > 0, ours
    assert all((m.outcome == Outcome.OK).all() for m in results)
    told = ray.get(service.statistics.remote())["keys"]["dataflow"]
    assert told["served"] == served(ray, shared) and len(told["hosts"]) == 1, "one host for both"

    counted = served(ray, shared)
    third, _ = begin("third")
    again = third.evaluate(problem, heavy_rows)
    assert np.array_equal(again.seconds, results[1].seconds) and served(ray, shared) == counted, "measured once for everybody"


def test_a_service_that_dies_is_there_again_with_what_it_measured(cluster, problem):
    begin, find, ray = cluster
    rows = np.unique(np.random.default_rng().integers(0, 2, (30, problem.n_nodes)), axis=0).astype(np.int16)
    one, _ = begin("one")
    first = one.evaluate(problem, rows[:10])
    os.kill(ray.get(find().statistics.remote())["pid"], signal.SIGKILL)
    other, _ = begin("other")
    both = other.evaluate(problem, rows)
    assert np.array_equal(both.seconds[:10], first.seconds) and (both.outcome == Outcome.OK).all()
    assert one.evaluate(problem, rows[10:]).seconds.tolist() == both.seconds[10:].tolist()
    assert served(ray, find()) == {"other": len(rows) - 10}
