"""Rules of the reward service one by one: who measures what after which fault, what is remembered, and what it tells of itself."""

import asyncio
import contextlib
import time
from dataclasses import replace

import numpy as np
import pytest

from envs.problem.measurement import Outcome
from orchestration.rewards.measurement_store import MeasurementStore
from orchestration.rewards.messages import EvaluatorFault, Unserved
from orchestration.rewards.service import Gauge, RewardService, Seat
from tests.orchestration.rewards.test_service import FakeHost, V, ask, right, rows, serve
from tests.orchestration.virtual_time import run


def one_by_one(hosts, *asks, **options):
    """Answers of requests of which each is made when the one before is answered."""

    async def main():
        service = RewardService(**options)
        service.add_hosts("host", hosts, always_cache=True)
        return [await service.evaluate(a) for a in asks], service

    return run(main())


def one_by_one_or_error(hosts, *asks):
    """`one_by_one`, with what is raised in place of the answer."""

    async def main():
        service, found = RewardService(), []
        service.add_hosts("host", hosts)
        for a in asks:
            found += await asyncio.gather(service.evaluate(a), return_exceptions=True)
        return found, service

    return run(main())


def behind_a_gate(hosts, *asks):
    """Answers of requests that are made one after another while the first is still measured."""

    async def main():
        gate, service = asyncio.Event(), RewardService()
        for host in hosts:
            host.gate = gate
        service.add_hosts("host", hosts)
        calls = []
        for a in asks:
            calls.append(asyncio.ensure_future(service.evaluate(a)))
            await asyncio.sleep(0.01)
        gate.set()
        return await asyncio.gather(*calls, return_exceptions=True)

    return run(main())


def hosts_of(service):
    return service.statistics()["keys"]["host"]["hosts"]


def test_a_host_tells_what_it_did():
    seat = Seat(FakeHost("lab", slots=2))
    assert seat.free == 2
    counts = dict.fromkeys(("running", "measurements", "faults", "utilisation"), 0)
    assert seat.statistics() == {"name": "lab", "pid": None, "last_fault": "", "quarantined": False, "waiting": False, **counts}
    assert 0.1 < Seat(FakeHost(), busy_seconds=25.0, since=time.monotonic() - 100).statistics()["utilisation"] <= 0.25
    _, service = one_by_one([FakeHost()], ask(rows(3)), ask(rows(4)))
    (host,) = hosts_of(service)
    assert host["measurements"] == 4 and host["utilisation"] > 0
    assert service.statistics()["keys"]["host"]["queued"] == 0
    expected = {"cache": {"hits": 3, "misses": 4}, "store_fault": ""}
    assert {name: value for name, value in service.statistics().items() if name != "keys"} == expected


def test_the_gauge_looks_first_and_follows_by_a_fifth():
    gauge = Gauge()
    assert gauge.pays()
    gauge.looked(10, 5, 1e-3)
    gauge.measured(10, 20.0)
    assert (gauge.look, gauge.hits, gauge.measure) == pytest.approx((2.16e-5, 0.9, 1.2))


def test_a_look_tells_the_gauge_what_was_there():
    _, service = one_by_one([FakeHost()], ask(rows(3)))
    gauge = service.pools["host"].gauge
    assert (gauge.hits, gauge.measure) == pytest.approx((0.8, 0.8 + 0.2 * 0.01 / 3)) and gauge.look < 0.5


def test_real_measurements_are_looked_up_even_where_that_does_not_pay():
    host = FakeHost()

    async def main():
        service = RewardService()
        service.add_hosts("host", [host], always_cache=True)
        service.pools["host"].gauge.hits = -1e9
        for _ in range(2):
            assert right(await service.evaluate(ask(rows(3))), ask(rows(3)))

    run(main())
    assert set(host.measured.values()) == {1}


def test_what_is_known_is_told_at_once_and_only_of_the_same_problem_and_protocol():
    host, a = FakeHost(), ask(rows(3))
    answers, _ = one_by_one([host], a, a, replace(a, protocol="another"), replace(a, problem_hash="another"), ask(rows(0)))
    assert all(right(answer, a) for answer in answers[:4]) and set(host.measured.values()) == {3}
    assert (answers[1].queue_seconds, answers[1].measuring_seconds) == (0, 0)
    assert len(answers[4].rows) == 0


def test_the_store_knows_a_machine_that_its_key_names_by_its_key(tmp_path):
    with contextlib.closing(MeasurementStore(tmp_path / "store.sqlite")) as store:
        one_by_one([FakeHost()], ask(rows(3)), store=store)
        assert store.read(("problem", "protocol", "host"), rows(3))[0].all()


def test_neither_noise_nor_simulations_are_stored(tmp_path):
    with contextlib.closing(MeasurementStore(tmp_path / "store.sqlite")) as store:
        one_by_one([FakeHost()], ask(rows(3), shared=False), store=store)

        async def main():
            service = RewardService(store=store)
            service.add_hosts("host", [FakeHost()])
            await service.evaluate(ask(rows(3)))
            await service.evaluate(ask(rows(3), trace=True))

        run(main())
        assert len(store) == 0


def test_a_host_that_comes_later_takes_what_waits():
    async def main():
        service = RewardService()
        service.add_hosts("host", [FakeHost(lease=5, hardware=asyncio.Event())])
        call = asyncio.ensure_future(service.evaluate(ask(rows(2))))
        await asyncio.sleep(0.01)
        service.add_hosts("host", [FakeHost()])
        assert right(await call, ask(rows(2)))

    run(main())


def test_placements_that_lie_in_the_object_store_are_read_there_if_they_are_the_whole_batch():
    big = np.arange(512 * V).reshape(512, V) % 30000
    known, new = rows(2), rows(3, 1)
    for hosts, asks, references in (
        ([FakeHost()], [ask(known, reference="all")], ["all"]),
        ([FakeHost()], [ask(known), ask(np.concatenate([known, new]), reference="all")], [None, None]),
        ([FakeHost()], [ask(known, reference="all", shared=False)], ["all"]),
        ([FakeHost(lease=5)], [ask(known, reference="all")], [None, None]),
        ([FakeHost(sleep=1), FakeHost(sleep=1)], [ask(big, reference="all")], [None, None]),
    ):
        answers, _ = one_by_one(hosts, *asks)
        assert right(answers[-1], asks[-1])
        assert [r for host in hosts for r in host.references] == references
    host = FakeHost()
    behind_a_gate([host], *(ask(rows(2, i), trial=str(i), reference=i) for i in range(3)))
    assert host.references == [0, None]


def test_rows_keep_their_streams_however_a_request_is_cut():
    hosts = [FakeHost(sleep=1), FakeHost(sleep=1)]
    serve(hosts, replace(ask(np.arange(512 * V).reshape(512, V) % 30000), first=10))
    assert [h.firsts for h in hosts] == [[10], [266]]


def test_a_batch_is_filled_to_its_last_row():
    host = FakeHost(takes=1e-6)
    behind_a_gate([host], ask(rows(1), shared=False), *(ask(rows(128, i), trial=str(i)) for i in range(3)))
    assert host.batches == [1, 256, 128]


def test_one_lease_that_cannot_be_answered_does_not_stop_the_others():
    host = FakeHost(lease=5, sleep=0.01, error=EvaluatorFault("ZeroDivisionError"))
    ((error,), _) = serve([host], ask(np.concatenate([np.full((1, V), 99), rows(2)])))
    assert isinstance(error, EvaluatorFault) and sum(host.measured.values()) == 2


def test_a_large_request_is_not_cut_for_hosts_that_are_busy_or_that_others_wait_for():
    big = ask(np.arange(512 * V).reshape(512, V) % 30000, trial="big", shared=False)
    busy, idle = FakeHost("busy"), FakeHost("idle")
    answers = behind_a_gate([busy, idle], ask(rows(1), shared=False), big)
    assert right(answers[1], big) and (busy.batches, idle.batches) == ([1], [512])
    host = FakeHost()
    behind_a_gate([host], ask(rows(1), shared=False), ask(rows(1), trial="waits", shared=False), big)
    assert sorted(host.batches) == [1, 1, 512]


def test_what_waits_for_hosts_that_are_all_gone_is_answered():
    answers, _ = serve([FakeHost(faults=99)], *(ask(rows(1), trial=str(i), shared=False) for i in range(4)), max_faults=1)
    assert [a.rows.outcome.tolist() for a in answers] == [[Outcome.INFRASTRUCTURE]] * 4


def test_a_lease_is_granted_before_its_time_and_a_simulator_needs_none():
    real, simulator = FakeHost(lease=5, others=2.0), FakeHost(others=2.0, sleep=1)
    (answer,), _ = serve([real], ask(rows(1)))
    assert (real.granted, answer.queue_seconds) == (1, 2.0)
    answers, _ = one_by_one([simulator], ask(rows(1)), ask(rows(1, 1)))
    assert (simulator.granted, simulator.readied, [a.queue_seconds for a in answers]) == (0, 0, [0.0, 0.0])


def test_a_request_may_say_how_long_its_lease_is():
    (answer,), _ = serve([FakeHost(lease=5, sleep=1)], ask(rows(1), limit=0.5))
    assert answer.rows.outcome.tolist() == [Outcome.INFRASTRUCTURE]
    (answer,), _ = serve([FakeHost(lease=0.5, sleep=1)], ask(rows(1), limit=5))
    assert answer.rows.outcome.tolist() == [Outcome.OK]


def test_a_host_that_never_gets_its_hardware_or_cannot_be_made_new_serves_nothing():
    class Gone(FakeHost):
        async def ready(self):
            raise OSError("no cable")

        async def restart(self):
            raise OSError("x" * 1000)

    ((first, second), _) = one_by_one_or_error([Gone(lease=5)], ask(rows(1)), ask(rows(1)))
    assert isinstance(second, Unserved) and "no cable" in str(second), first
    ((first, second), service) = one_by_one_or_error([Gone(faults=1)], ask(rows(1)), ask(rows(1)))
    assert first.rows.outcome.tolist() == [Outcome.INFRASTRUCTURE] and isinstance(second, Unserved)
    assert len(hosts_of(service)[0]["last_fault"]) == 500


def test_nobody_waits_for_a_restart_where_another_host_is_idle():
    class Long(FakeHost):
        async def restart(self):
            await asyncio.sleep(1000)

    async def main():
        service = RewardService()
        service.add_hosts("host", [Long(faults=1), FakeHost()])
        assert right(await service.evaluate(ask(rows(1))), ask(rows(1)))
        assert asyncio.get_running_loop().time() < 1000  # virtual

    run(main())


def test_faults_count_only_in_a_row_and_are_told_in_short():
    host = FakeHost(faults=2, error=OSError("x" * 1000))
    asks = [ask(rows(1, i)) for i in range(2)]

    async def main():
        service = RewardService(max_faults=3)
        service.add_hosts("host", [host])
        for a in asks:
            host.faults = 2
            assert right(await service.evaluate(a), a)
        assert (hosts_of(service)[0]["faults"], hosts_of(service)[0]["quarantined"]) == (4, False)
        await service.evaluate(ask(np.full((1, V), 99)))
        assert len(hosts_of(service)[0]["last_fault"]) == 500

    run(main())


def test_a_request_is_tried_on_three_hosts_at_most():
    host = FakeHost(faults=99)
    (answer,), _ = serve([host], ask(rows(1)), max_faults=99)
    assert answer.rows.outcome.tolist() == [Outcome.INFRASTRUCTURE] and host.faults == 96


def test_of_two_in_a_batch_the_one_to_blame_fails_and_the_other_keeps_its_turn():
    host = FakeHost(error=EvaluatorFault("ZeroDivisionError"))
    asks = [
        ask(rows(1), trial="first", shared=False), ask(rows(2), trial="good"), ask(np.full((1, V), 99), trial="bad"),
        ask(rows(1, 1), trial="later", shared=False),
    ]  # fmt: skip
    answers = behind_a_gate([host], *asks)
    assert [isinstance(a, EvaluatorFault) for a in answers] == [False, False, True, False]
    assert host.order == ["first", "good", "later"]


def test_what_a_fault_interrupted_keeps_its_turn_and_waits_for_the_restart():
    class Slow(FakeHost):
        down = False

        async def measure(self, *batch):
            assert not self.down
            return await super().measure(*batch)

        async def restart(self):
            self.down = True
            await asyncio.sleep(1)
            self.down = False

    for lease, slots, order in ((None, 1, "012"), (5, 1, "012"), (None, 2, "102")):
        host = Slow(faults=1, lease=lease, slots=slots, sleep=0.01)
        asks = [ask(rows(1, i), trial=str(i), shared=False) for i in range(3)]
        answers, service = serve([host], *asks)
        assert all(right(a, q) for a, q in zip(answers, asks, strict=True)) and host.order == list(order)
        assert (hosts_of(service)[0]["faults"], host.readied) == (1, 2 if lease else 0)
