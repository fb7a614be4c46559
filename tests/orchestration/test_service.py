import asyncio
from collections import Counter

import numpy as np
import pytest

from envs.measurement import Outcome
from envs.simulators.evaluator import Simulator
from orchestration.cache import MeasurementTable, Rows
from orchestration.queues import FairQueue
from orchestration.service import Answer, Ask, Gauge, RewardService, ServiceError

V = 6


class FakeHost:
    """Measures the sum of the row; may fail, hang or wait for a gate."""

    pid = None

    def __init__(self, name="fake", slots=1, lease=None, faults=0, gate=None, sleep=0.0):
        self.name, self.slots, self.lease_seconds = name, slots, lease
        self.faults, self.gate, self.sleep = faults, gate, sleep
        self.measured, self.batches, self.order, self.tokens, self.restarts = Counter(), [], [], [], 0
        self.now = self.most = 0

    async def measure(self, job, placements, reference, token):
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            self.tokens.append(token)
            if self.gate is not None:
                await self.gate.wait()
            await asyncio.sleep(self.sleep)
            if self.faults:
                self.faults -= 1
                raise OSError("cable")
            self.measured.update(row.tobytes() for row in placements)
            self.batches.append(len(placements))
            self.order.append(job.ask.trial)
            value = placements.sum(axis=1).astype(float)
            return Answer(Rows(np.zeros(len(placements), np.int8), value, value, self.name), measuring_seconds=0.01)
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

    return asyncio.run(main())


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

    asyncio.run(main())
    assert sorted(host.batches) == [8, 72]


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

    asyncio.run(main())
    assert host.order == ["greedy", "urgent", "greedy", "late", "greedy", "late", "greedy", "late", "greedy", "greedy"]


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

    asyncio.run(main())


def test_a_lease_ends_at_its_time_limit_and_tokens_rise():
    slow, quick = FakeHost("slow", lease=0.05, sleep=30), FakeHost("quick", lease=5)
    asks = [ask(rows(1, i), trial=str(i), shared=False) for i in range(6)]
    answers, service = serve([slow, quick], *asks)
    assert all(right(a, q) for a, q in zip(answers, asks, strict=True))
    assert service.pools["host"].seats[0].faults >= 1
    assert quick.tokens == sorted(set(quick.tokens)) and quick.most == 1


def test_queue_wait_is_kept_apart_from_measuring():
    host = FakeHost(sleep=0.05)
    answers, _ = serve([host], *(ask(rows(1, i), trial=str(i), shared=False) for i in range(3)))
    assert [round(a.queue_seconds / 0.05) for a in answers] == [0, 1, 2]
    assert all(a.measuring_seconds == 0.01 for a in answers)


def test_the_queue_keeps_each_trials_order():
    queue: FairQueue[int] = FairQueue()
    for item in range(4):
        queue.push("a", 0, item)
    queue.push("b", 0, 10)
    assert queue.pop() == 0
    queue.push("a", 0, 0, front=True)
    assert [queue.peek(), *queue.drain()] == [0, 0, 10, 1, 2, 3]
    assert len(queue) == 0 and queue.pop() is None


def test_the_cache_looks_up_only_where_that_pays():
    gauge = Gauge()
    for _ in range(50):
        gauge.looked(100, 0, 1e-4)
        gauge.measured(100, 1e-3)
    assert sum(gauge.pays() for _ in range(160)) == 10
    for _ in range(50):
        gauge.looked(100, 90, 1e-4)
    assert all(gauge.pays() for _ in range(20))


def test_a_full_table_forgets_but_stays_right():
    table = MeasurementTable(limit_bytes=5000)
    for i in range(30):
        batch = rows(16, i)
        with table.reading():
            slots, new = table.slots("c", batch)
            value = batch[new].sum(axis=1).astype(float)
            table.fill(slots[new], Rows(np.zeros(len(value), np.int8), value, value, "h"))
            assert np.array_equal(table.read(slots).seconds, batch.sum(axis=1))
    assert table._bytes < 10_000


def test_on_ray_the_service_gives_what_the_simulator_gives(ray_session):
    from orchestration.hosts import ServiceClient, start_service
    from orchestration.trial import EvaluatorSpec
    from tests.orchestration.sweeps_for_tests import problem_spec

    service = start_service(2)
    problem = problem_spec(60).load()
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
    from envs.errors import InputError

    with pytest.raises(InputError, match="no host serves 'simulator:lab'; served are: simulator"):
        ServiceClient(service, EvaluatorSpec("simulator", {"host": "lab"}), "t").evaluate(problem, batch[:1])
    ray_session.kill(service)


def _kill_one_simulator(service):
    import os
    import signal

    import ray

    hosts = ray.get(service.statistics.remote())["keys"]["simulator"]["hosts"]
    os.kill(hosts[0]["pid"], signal.SIGKILL)
