import asyncio
import contextlib
import os
import sqlite3
import time
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from envs.problem.measurement import Outcome, Rows
from envs.simulators.fifo.evaluator import Simulator
from orchestration.rewards.evaluators import InfrastructureError
from orchestration.rewards.measurement_store import MeasurementStore
from orchestration.rewards.messages import Answer, Ask, EvaluatorFault, ServiceError, Unserved
from orchestration.rewards.service import Gauge, RewardService
from orchestration.specs.sources import build_problem
from tests.orchestration.virtual_time import run

V = 6


class FakeHost:
    """Measures the sum of the row; may fail, hang or wait for a gate."""

    pid = None

    def __init__(self, name="fake", slots=1, lease=None, faults=0, gate=None, sleep=0.0, hardware=None, others=0.0, error=None, takes=0.01):
        self.hardware, self.others, self.error = hardware, others, error
        self.name, self.slots, self.lease_seconds = name, slots, lease
        self.faults, self.gate, self.sleep, self.takes = faults, gate, sleep, takes
        self.measured, self.batches, self.order, self.tokens, self.restarts = Counter(), [], [], [], 0
        self.now = self.most = self.readied = self.granted = 0
        self.references, self.firsts = [], []

    async def ready(self):
        self.readied += 1
        if self.hardware is not None:
            await self.hardware.wait()

    async def grant(self):
        self.granted += 1
        await asyncio.sleep(self.others)

    async def measure(self, job, placements, reference, token):
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            self.tokens.append(token)
            self.references.append(reference)
            self.firsts.append(job.first)
            if self.gate is not None:
                await self.gate.wait()
            await asyncio.sleep(self.sleep)
            if self.faults:
                self.faults -= 1
                raise OSError("cable")
            if self.error is not None and (placements == 99).any():
                raise self.error
            self.measured.update(row.tobytes() for row in placements)
            self.batches.append(len(placements))
            self.order.append(job.ask.trial)
            value = placements.sum(axis=1).astype(float)
            return Answer(Rows(np.zeros(len(placements), np.int8), value, value, self.name), measuring_seconds=self.takes)
        finally:
            self.now -= 1

    async def restart(self):
        self.restarts += 1


def ask(rows, trial="t", key="host", shared=True, **more):
    placements = np.asarray(rows, dtype=np.int16)
    return Ask(trial, key, "{}", "protocol", shared, "problem", placements, 0, 0, **more)


def rows(n, seed=0):
    return np.random.default_rng(seed).integers(0, 9, (n, V)).astype(np.int16)


def serve(hosts, *asks, always_cache=True, **options):
    """Answers of requests that are made at once."""

    async def main():
        service = RewardService(**options)
        service.add_hosts("host", hosts, always_cache=always_cache)
        return await asyncio.gather(*(service.evaluate(a) for a in asks), return_exceptions=True), service

    return run(main())


def right(answer, asked):
    return np.array_equal(answer.rows.seconds, asked.placements.sum(axis=1)) and (answer.rows.outcome == Outcome.OK).all()


@pytest.mark.parametrize("always_cache", [True, False])
@pytest.mark.parametrize("shared", [True, False])
def test_every_request_gets_its_own_rows_in_order(always_cache, shared):
    asks = [ask(rows(n, seed=n), trial=f"t{n % 3}", shared=shared) for n in (1, 5, 700, 3, 2000, 64)]
    hosts = [FakeHost(slots=2) for _ in range(3)]
    answers, _ = serve(hosts, *asks, always_cache=always_cache)
    assert all(right(a, q) for a, q in zip(answers, asks, strict=True))


def test_equal_rows_are_measured_once_even_in_flight():
    host = FakeHost(sleep=0.01)
    same = rows(20)
    asks = [ask(same), ask(same, trial="u"), ask(np.concatenate([same[5:], rows(3, 9), same[:2]]), trial="w")]
    answers, service = serve([host], *asks)
    assert all(right(a, q) for a, q in zip(answers, asks, strict=True))
    assert set(host.measured.values()) == {1}
    assert service.table.hits == 20 + 15 + 2


def test_stochastic_rows_and_traces_are_never_shared():
    host = FakeHost()
    serve([host], ask(rows(4), shared=False), ask(rows(4), shared=False), ask(rows(4), trace=True), ask(rows(4), trace=True))
    assert set(host.measured.values()) == {4}


def test_small_requests_of_one_problem_share_a_batch():
    gate = asyncio.Event()
    host = FakeHost(gate=gate)

    async def main():
        service = RewardService()
        service.add_hosts("host", [host], always_cache=True)
        calls = [asyncio.ensure_future(service.evaluate(ask(rows(8, seed=i), trial=f"t{i}"))) for i in range(10)]
        await asyncio.sleep(0.01)
        gate.set()
        await asyncio.gather(*calls)

    run(main())
    assert host.batches == [80]


def test_a_large_request_is_spread_over_idle_hosts():
    hosts = [FakeHost(sleep=0.01) for _ in range(4)]
    big = ask(np.arange(1024 * V).reshape(1024, V) % 30000)
    (answer,), _ = serve(hosts, big)
    assert right(answer, big)
    assert [h.batches for h in hosts] == [[256]] * 4


def test_trials_take_turns_and_priority_goes_first():
    gate, host = asyncio.Event(), FakeHost()
    host.gate = gate

    async def main():
        service = RewardService()
        service.add_hosts("host", [host])
        # not shared, so that no two requests end up in one batch
        asks = [ask(rows(1, i), trial="greedy", shared=False) for i in range(6)]
        asks += [ask(rows(1, i), trial="late", shared=False) for i in range(3)]
        asks += [ask(rows(1, 0), trial="urgent", shared=False, priority=1)]
        calls = [asyncio.ensure_future(service.evaluate(a)) for a in asks]
        await asyncio.sleep(0.01)
        gate.set()
        await asyncio.gather(*calls)

    run(main())
    assert host.order == ["urgent", *["greedy", "late"] * 3, *["greedy"] * 3]


def test_an_unknown_key_fails_at_once_and_names_what_is_served():
    ((error,), _) = serve([FakeHost()], ask(rows(1), key="gpu"))
    assert isinstance(error, ServiceError) and "'gpu'" in str(error) and "host" in str(error)


def test_a_fault_costs_nothing_but_time():
    bad, good = FakeHost("bad", faults=2), FakeHost("good")
    asks = [ask(rows(3, i), trial=str(i), shared=False) for i in range(8)]
    answers, service = serve([bad, good], *asks)
    assert all(right(a, q) for a, q in zip(answers, asks, strict=True))
    assert sum(bad.measured.values()) + sum(good.measured.values()) == 24
    assert bad.restarts == 2 and not service.pools["host"].seats[0].quarantined


def test_a_host_that_keeps_faulting_is_quarantined_and_its_work_goes_elsewhere():
    bad, good = FakeHost("bad", faults=99), FakeHost("good", sleep=0.001)
    asks = [ask(rows(3, i), trial=str(i), shared=False) for i in range(20)]
    answers, service = serve([bad, good], *asks)
    assert all(right(a, q) for a, q in zip(answers, asks, strict=True))
    assert [h["quarantined"] for h in service.statistics()["keys"]["host"]["hosts"]] == [True, False]
    assert 99 - bad.faults == 3


def test_with_all_hosts_gone_nothing_is_known_and_nothing_is_remembered():
    host = FakeHost(faults=3)

    async def main():
        service = RewardService(max_faults=3)
        service.add_hosts("host", [host], always_cache=True)
        first = await service.evaluate(ask(rows(2)))
        assert (first.rows.outcome == Outcome.INFRASTRUCTURE).all() and np.isnan(first.rows.seconds).all()
        with pytest.raises(ServiceError, match="quarantined"):
            await service.evaluate(ask(rows(2)))
        service.add_hosts("host", [FakeHost()], always_cache=True)
        assert right(await service.evaluate(ask(rows(2))), ask(rows(2)))

    run(main())


def test_a_lease_ends_at_its_time_limit_and_tokens_rise():
    slow, quick = FakeHost("slow", lease=0.05, sleep=30), FakeHost("quick", lease=5)
    asks = [ask(rows(1, i), trial=str(i), shared=False) for i in range(6)]
    answers, service = serve([slow, quick], *asks)
    assert all(right(a, q) for a, q in zip(answers, asks, strict=True))
    assert service.pools["host"].seats[0].faults >= 1
    assert quick.tokens == sorted(set(quick.tokens)) and quick.most == 1


def test_a_process_that_dies_with_two_batches_is_one_fault():
    host = FakeHost(slots=2, faults=4, sleep=0.01)
    asks = [ask(rows(300, i), trial=str(i), shared=False) for i in range(4)]
    answers, service = serve([host], *asks)
    assert all(right(a, q) for a, q in zip(answers, asks, strict=True))
    assert (service.pools["host"].seats[0].faults, host.restarts) == (2, 2)
    assert "cable" in service.statistics()["keys"]["host"]["hosts"][0]["last_fault"]


def test_an_error_over_a_problem_is_its_own_and_no_hosts_fault():
    gate = asyncio.Event()
    host = FakeHost(gate=gate, error=EvaluatorFault("ZeroDivisionError"))

    async def main():
        service = RewardService()
        service.add_hosts("host", [host])
        poison = np.full((1, V), 99)
        asks = [ask(rows(2, 7), trial="first"), ask(rows(3), trial="good"), ask(poison, trial="bad"), ask(rows(3, 1), trial="other")]
        calls = [asyncio.ensure_future(service.evaluate(a)) for a in asks]
        await asyncio.sleep(0.01)
        gate.set()
        answers = await asyncio.gather(*calls, return_exceptions=True)
        assert isinstance(answers[2], EvaluatorFault)
        assert all(right(a, q) for a, q in zip(answers, asks, strict=True) if a is not answers[2])
        assert service.pools["host"].seats[0].faults == 0

    run(main())


def test_no_lease_begins_before_the_hardware_is_there():
    async def main():
        hardware, service = asyncio.Event(), RewardService()
        host = FakeHost(lease=0.05, hardware=hardware, others=0.1)  # and none while the machine measures for others
        service.add_hosts("host", [host])
        call = asyncio.ensure_future(service.evaluate(ask(rows(2), shared=False)))
        await asyncio.sleep(0.2)
        assert not call.done() and service.statistics()["keys"]["host"]["hosts"][0]["waiting"]
        hardware.set()
        assert right(await call, ask(rows(2))) and service.pools["host"].seats[0].faults == 0

    run(main())


def test_real_hardware_is_leased_for_one_placement_at_a_time_and_each_is_kept_at_once(tmp_path):
    store = MeasurementStore(tmp_path / "store.sqlite")

    async def main():
        host = FakeHost(lease=5, sleep=0.01)
        service = RewardService(store=store)
        service.add_hosts("host", [host], always_cache=True)
        first = asyncio.ensure_future(service.evaluate(ask(rows(6, 1), trial="first")))
        await asyncio.sleep(0.025)
        second = asyncio.ensure_future(service.evaluate(ask(rows(1, 2), trial="second")))
        assert 1 <= len(store) < 6
        assert right(await first, ask(rows(6, 1))) and right(await second, ask(rows(1, 2)))
        assert set(host.batches) == {1} and host.order.index("second") < 6 - 1 and len(store) == 7

    run(main())


def test_what_a_trace_measured_is_kept_and_used_where_none_is_needed(tmp_path):
    host, store = FakeHost(lease=5), MeasurementStore(tmp_path / "store.sqlite")

    async def main():
        service = RewardService(store=store)
        service.add_hosts("host", [host], always_cache=True)
        await service.evaluate(ask(rows(3), trace=True))
        assert right(await service.evaluate(ask(rows(3))), ask(rows(3)))

    run(main())
    assert set(host.measured.values()) == {1}


def test_transfers_come_with_a_trace_however_a_request_is_cut():
    """Leases of one placement cut a request into single rows; their traces are joined in order."""

    class Tracing(FakeHost):
        async def measure(self, job, placements, reference, token):
            answer = await super().measure(job, placements, reference, token)
            times = placements.astype(float)
            traced = {"start": times, "finish": times + 1, "transfers": tuple(np.full((1, 5), row[0]) for row in times)}
            return replace(answer, rows=replace(answer.rows, **traced))

    (answer,), _ = serve([Tracing(lease=5)], ask(rows(4), trace=True))
    assert np.array_equal(answer.rows.finish, rows(4) + 1.0)
    assert [t[0, 0] for t in answer.rows.transfers] == rows(4)[:, 0].tolist()


def test_a_store_that_fails_hangs_nobody(tmp_path, caplog):
    store = MeasurementStore(tmp_path / "store.sqlite")

    async def main():
        service = RewardService(store=store)
        service.add_hosts("host", [FakeHost(sleep=0.01)], always_cache=True)
        with contextlib.closing(sqlite3.connect(tmp_path / "store.sqlite")) as other, other:
            other.execute("CREATE TRIGGER full BEFORE INSERT ON measurements BEGIN SELECT RAISE(ABORT, 'no room for measurements'); END")
        same = ask(rows(3))
        answers = await asyncio.wait_for(asyncio.gather(*(service.evaluate(same) for _ in range(2))), 5)
        assert all(right(a, same) for a in answers) and "no room" in service.statistics()["store_fault"]

    run(main())
    assert set(caplog.messages) == {"measurements could not be kept: no room for measurements"}


def test_queue_wait_is_kept_apart_from_measuring():
    host = FakeHost(sleep=0.05)
    answers, _ = serve([host], *(ask(rows(1, i), trial=str(i), shared=False) for i in range(3)))
    assert [a.queue_seconds for a in answers] == pytest.approx([0.0, 0.05, 0.1])
    assert all(a.measuring_seconds == 0.01 for a in answers)


def test_the_cache_looks_up_only_where_that_pays():
    gauge = Gauge()
    for _ in range(50):
        gauge.looked(100, 0, 1e-4)
        gauge.measured(100, 1e-3)
    assert sum(gauge.pays() for _ in range(160)) == 10
    for _ in range(50):
        gauge.looked(100, 90, 1e-4)
    assert all(gauge.pays() for _ in range(20))


def test_on_ray_the_service_gives_what_the_simulator_gives(ray_session):
    from orchestration.rewards.client import ServiceClient
    from orchestration.rewards.ray_service import start_service
    from orchestration.specs.trial import EvaluatorSpec
    from tests.orchestration.sweeps_for_tests import problem_spec

    service = start_service(2)
    problem = build_problem(problem_spec(60))
    batch = np.random.default_rng(0).integers(0, 4, (1500, 60)).astype(np.int16)
    for options in ({}, {"noise": 0.2}):
        client = ServiceClient(service, EvaluatorSpec("simulator", options), "t")
        expected = Simulator(**options).evaluate(problem, batch, 3, first=5, trace=True)
        for size in (1, 1500):  # inside the call, and through the object store
            got = client.evaluate(problem, batch[:size], 3, first=5)
            assert np.array_equal(got.seconds, expected.seconds[:size])
            assert np.array_equal(got.outcome, expected.outcome[:size]) and got.protocol == expected.protocol
        traced = client.evaluate(problem, batch[:40], 3, first=5, trace=True)
        assert np.array_equal(traced.start, expected.start[:40]) and np.array_equal(traced.finish, expected.finish[:40])
    _kill_one_simulator(service)
    got = client.evaluate(problem, batch, 3, first=5)
    assert np.array_equal(got.seconds, expected.seconds)
    ray_session.kill(service, no_restart=False)
    assert np.array_equal(client.evaluate(problem, batch, 3, first=5).seconds, expected.seconds)
    with pytest.raises(InfrastructureError, match="no host serves 'dataflow:lab'; served are: simulator"):
        ServiceClient(
            service, EvaluatorSpec("dataflow", {"host": "lab", "devices": [f"cpu:{min(os.sched_getaffinity(0))}"]}), "t"
        ).evaluate(problem, batch[:1])
    ray_session.kill(service)


def test_a_trial_that_waits_for_the_service_keeps_its_cpu(ray_session):
    """Else Ray starts the next trial on it: six tasks ran on two CPUs."""
    from orchestration.rewards.client import ServiceClient
    from orchestration.rewards.ray_service import Shard
    from orchestration.specs.trial import EvaluatorSpec
    from tests.orchestration.sweeps_for_tests import problem_spec

    @ray_session.remote(num_cpus=0, max_concurrency=16)
    class Service:
        """Answers nobody before all that can run at a time are there, and long after."""

        def __init__(self):
            self.asking = self.most = 0

        def shards(self, _kind, _known):
            return "these", [Shard("", None, 1)]

        def evaluate_all(self, asks):
            self.asking += 1
            self.most = max(self.most, self.asking)
            time.sleep(1.5)
            self.asking -= 1
            return [Unserved("not here") for _ in asks]

        def seen(self):
            return self.most

    def body(service, problem):
        with pytest.raises(InfrastructureError):
            ServiceClient(service, EvaluatorSpec("simulator"), "t").evaluate(problem, np.zeros((1, problem.n_nodes), np.int16))

    service, problem = Service.remote(), build_problem(problem_spec(5))
    task = ray_session.remote(num_cpus=1)(body)
    ray_session.get([task.remote(service, problem) for _ in range(6)])
    assert ray_session.get(service.seen.remote()) <= 2
    ray_session.kill(service)


def _kill_one_simulator(service):
    import os
    import signal

    import ray

    hosts = ray.get(service.statistics.remote())["keys"]["simulator"]["hosts"]
    os.kill(hosts[0]["pid"], signal.SIGKILL)
