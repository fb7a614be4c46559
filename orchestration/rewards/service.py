"""The reward service: requests in, measurements out, hosts behind. Ray-free, so that every rule can be tested by itself;
``orchestration/rewards/ray_service.py`` puts it and its hosts into actors. What a host measures does not belong here.

Requests queue per key (``simulator``, ``openvino:flex170``), fair between trials, by priority. Rows already measured come
from a content cache, rows in flight are measured once, small requests of one problem share a batch, large ones are spread
over idle hosts. A host that faults ``max_faults`` times in a row is quarantined and its work goes elsewhere.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections import Counter
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from envs.problem.measurement import Outcome, Rows
from orchestration.rewards.fair_queue import FairQueue
from orchestration.rewards.measurement_store import MeasurementStore, measurement_context
from orchestration.rewards.measurement_table import MeasurementTable
from orchestration.rewards.messages import (
    Answer,
    Ask,
    Job,
    ServiceError,
    Unserved,
    join_answers,
    resolve,
    split_answer,
    unknown,
)

SPLIT_ROWS = 256
"""Fewest rows worth a host of their own: larger requests are spread over hosts, smaller ones share a batch up to so many."""
BATCH_SECONDS = 0.02
"""Work of so long is worth a host of its own too, however few its rows: sending a batch costs some milliseconds."""
HOST_ATTEMPTS = 3
"""How many hosts may fault over a batch before its rows come back as INFRASTRUCTURE."""


class Host(Protocol):
    """What the service needs of a process that measures: to know when it may, to hand it batches, to make it new after a fault."""

    name: str
    pid: int | None
    """Process that measures, once known."""
    slots: int
    """Batches it may hold at once; 1 for real hardware, 2 for simulators so that they never wait for the next one."""
    lease_seconds: float | None
    """Time limit of one lease from the moment it is granted, if the request has none; None for simulators, which need no lease."""

    async def ready(self) -> None:
        """Wait until it has its hardware, however long somebody else holds that; raise if it never will."""
        ...

    async def grant(self) -> None:
        """Wait until nothing else is measured on its machine; a lease's time begins when this returns."""
        ...

    async def measure(self, job: Job, placements: np.ndarray, reference: Any, token: int) -> Answer:
        """Measure ``placements``; any exception is a fault of the host, except `ServiceError`."""
        ...

    async def restart(self) -> None:
        """Make it usable again after a fault, or raise."""
        ...

    async def statistics(self) -> dict[str, Any] | None:
        """What a service behind it tells of its key, as one of `RewardService.statistics`; None if it is a process that measures."""
        ...


@dataclass(eq=False)
class Seat:
    """A host and how it gets on."""

    host: Host
    running: int = 0
    faults: int = 0
    in_a_row: int = 0
    quarantined: bool = False
    restarting: bool = False
    waiting: bool = False
    """Whether its hardware is not granted yet."""
    generation: int = 0
    """How often it was made new: what an earlier process failed at is one fault, however many batches it held."""
    last_fault: str = ""
    rows: int = 0
    busy_seconds: float = 0.0
    since: float = field(default_factory=time.monotonic)

    @property
    def free(self) -> int:
        """How many more requests it may be given now."""
        return 0 if self.quarantined or self.restarting or self.waiting else self.host.slots - self.running

    def statistics(self) -> dict[str, Any]:
        """What it did so far; ``utilisation`` is the share of its time in which it measured."""
        lived = max(time.monotonic() - self.since, 1e-9)
        return {
            "name": self.host.name, "pid": self.host.pid, "running": self.running, "measurements": self.rows, "faults": self.faults,
            "last_fault": self.last_fault, "quarantined": self.quarantined, "waiting": self.waiting,
            "utilisation": self.busy_seconds / lived,
        }  # fmt: skip


class Gauge:
    """Decides whether looking rows up in the cache pays: (share of hits) × (time to measure a row) against the time to look."""

    PROBE = 16
    """One request in so many is looked up although it does not seem to pay, to notice when it does."""

    def __init__(self) -> None:
        self.look = 2e-6
        self.measure = 1.0
        self.hits = 1.0
        self.row: float | None = None
        """As ``measure``, once something was measured."""
        self._turn = 0

    def pays(self) -> bool:
        """Whether the next request should be looked up in the cache."""
        self._turn += 1
        return self.hits * self.measure > self.look or self._turn % self.PROBE == 0

    def looked(self, rows: int, hits: int, seconds: float) -> None:
        """Take in a look for ``rows`` rows: how many were there, and how long it took."""
        self.look += 0.2 * (seconds / rows - self.look)
        self.hits += 0.2 * (hits / rows - self.hits)

    def measured(self, rows: int, seconds: float) -> None:
        """Take in how long measuring ``rows`` rows took."""
        self.measure += 0.2 * (seconds / rows - self.measure)
        self.row = seconds / rows if self.row is None else self.row + 0.2 * (seconds / rows - self.row)

    @property
    def batch_rows(self) -> int:
        """How many rows make a batch that is worth sending."""
        return SPLIT_ROWS if not self.row else max(1, min(SPLIT_ROWS, round(BATCH_SECONDS / self.row)))


@dataclass(eq=False)
class Pool:
    """The hosts of one key and the requests that wait for them."""

    key: str
    seats: list[Seat]
    queue: FairQueue[Job] = field(default_factory=FairQueue)
    always_cache: bool = False
    """Real measurements are remembered whatever that costs; simulations only where it pays."""
    machine: str = ""
    """Fingerprint of the machine if the key does not name one."""
    gauge: Gauge = field(default_factory=Gauge)
    called: bool = False
    """Whether waiting work is about to be given to hosts."""
    served: Counter[str] = field(default_factory=Counter)
    """Rows measured for each sweep."""

    @property
    def lease_rows(self) -> int | None:
        """Real hardware is leased for one placement at a time, so that trials take turns and nothing measured is lost."""
        return 1 if any(seat.host.lease_seconds is not None for seat in self.seats) else None

    def context(self, ask: Ask) -> tuple[str, ...]:
        """What a measurement depends on besides its placement."""
        return measurement_context(ask.problem_hash, ask.protocol, ask.key, self.machine)


class RewardService:
    """See the module's docstring. All methods run in one event loop."""

    def __init__(self, *, max_faults: int = 3, cache_bytes: int = 256 << 20, store: MeasurementStore | None = None) -> None:
        self.store = store
        """Where pools that always cache keep their rows."""
        self.pools: dict[str, Pool] = {}
        self.table = MeasurementTable(cache_bytes)
        self.store_fault = ""
        """Why something could not be kept."""
        self.max_faults = max_faults
        self._pending: dict[int, asyncio.Future[Answer]] = {}
        # Above those of any service before this one, so that a host that outlived it refuses what that one asked for.
        self._token = time.time_ns()
        self._tasks: set[asyncio.Task[None]] = set()

    def add_hosts(self, key: str, hosts: list[Host], *, always_cache: bool = False, machine: str = "") -> None:
        """Let ``hosts`` serve ``key``; those that measure for real as soon as they have their hardware."""
        pool = self.pools.setdefault(key, Pool(key, [], always_cache=always_cache, machine=machine))
        for host in hosts:
            pool.seats.append(Seat(host, waiting=host.lease_seconds is not None))
            if host.lease_seconds is not None:
                self._background(self._await_hardware(pool, pool.seats[-1]))
        self._pump(pool)

    def _background(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _await_hardware(self, pool: Pool, seat: Seat) -> None:
        try:
            await seat.host.ready()
        except Exception as error:
            seat.quarantined, seat.last_fault = True, repr(error)
        finally:
            seat.waiting = False
            self._pump(pool)

    async def evaluate(self, ask: Ask) -> Answer:
        """The measurements of a request, in its rows' order.

        Raises:
            Unserved: at once if no host serves the key.
            EvaluatorFault: if the evaluator raises over this request.
        """
        pool = self.pools.get(ask.key)
        if pool is None:
            raise Unserved.by_anyone(ask.key, sorted(self.pools))
        if all(seat.quarantined for seat in pool.seats):
            last = next((seat.last_fault for seat in pool.seats if seat.last_fault), "unknown")
            raise Unserved(
                f"all {len(pool.seats)} hosts of {ask.key!r} are quarantined after repeated faults (the last: {last}); "
                "see `placewright hosts`"
            )
        if len(ask.placements) == 0:
            return Answer(Rows.unknown(0))
        if ask.shared and not ask.trace and (pool.always_cache or pool.gauge.pays()):
            return await self._through_cache(pool, ask)
        answer = await self._measure(pool, ask, ask.placements, ask.reference)
        if ask.shared and pool.always_cache:  # a trace is not kept, but who needs none may use what it measured
            self._keep(pool, ask, ask.placements, answer.rows)
        return answer

    async def _through_cache(self, pool: Pool, ask: Ask) -> Answer:
        begin = time.perf_counter()
        with self.table.reading():
            slots, new = self.table.slots(pool.context(ask), ask.placements)
            new = self._from_store(pool, ask, slots, new)
            fresh = int(new.sum())
            others = (self._pending.get(s) for s in slots[~new & ~self.table.done(slots)].tolist())
            waits = {future for future in others if future is not None}  # a row twice in this request is nobody else's
            pool.gauge.looked(len(new), len(new) - fresh, time.perf_counter() - begin)
            queue = measuring = 0.0
            if fresh:
                whole = fresh == len(new)
                placements = ask.placements if whole else ask.placements[new]
                answer = await self._fill_all(pool, ask, placements, ask.reference if whole else None, slots[new])
                queue, measuring = answer.queue_seconds, answer.measuring_seconds
            if waits:
                await asyncio.wait(waits)
            return Answer(self.table.read(slots), queue_seconds=queue, measuring_seconds=measuring)

    def _from_store(self, pool: Pool, ask: Ask, slots: np.ndarray, new: np.ndarray) -> np.ndarray:
        """Fill new slots with what an earlier run has measured; which are still to be measured, bool[B]."""
        if self.store is None or not pool.always_cache or not new.any():
            return new
        known, rows = self.store.read(pool.context(ask), ask.placements[new])
        where = np.flatnonzero(new)[known]
        for slot, row in zip(slots[where].tolist(), rows, strict=True):  # one by one: each has the fingerprint of what measured it
            self.table.fill(np.array([slot]), row)
        left = new.copy()
        left[where] = False
        return left

    async def _fill_all(self, pool: Pool, ask: Ask, placements: np.ndarray, reference: Any, slots: np.ndarray) -> Answer:
        """Measure new rows; where each has a lease of its own, each is kept as soon as it is there."""
        size = pool.lease_rows or len(slots)
        parts = []
        for low in range(0, len(slots), size):
            done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            names = slots[low : low + size].tolist()
            self._pending.update(dict.fromkeys(names, done))  # before anything else runs, so that equal requests wait
            rows = placements[low : low + size]
            parts.append(self._fill(pool, ask, rows, reference if len(rows) == len(slots) else None, slots[low : low + size], done))
        answers = await asyncio.gather(*parts, return_exceptions=True)
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer
        return join_answers([answer for answer in answers if isinstance(answer, Answer)])

    async def _fill(
        self, pool: Pool, ask: Ask, placements: np.ndarray, reference: Any, slots: np.ndarray, done: asyncio.Future[Any]
    ) -> Answer:
        """Measure new rows into the table, while others may wait for them."""
        rows = Rows.unknown(len(slots))
        try:
            answer = await self._measure(pool, ask, placements, reference)
            rows = answer.rows
            return answer
        finally:
            self.table.fill(slots, rows)
            self.table.retract(pool.context(ask), placements[rows.outcome == Outcome.INFRASTRUCTURE])
            for slot in slots.tolist():
                del self._pending[slot]
            done.set_result(None)
            if pool.always_cache:
                self._keep(pool, ask, placements, rows)

    def _keep(self, pool: Pool, ask: Ask, placements: np.ndarray, rows: Rows) -> None:
        """Write to the store; a store that fails costs a measurement after a restart, not the sweep."""
        if self.store is None:
            return
        try:
            self.store.write(pool.context(ask), placements, rows)
        except Exception as error:
            self.store_fault = str(error)
            logging.getLogger(__name__).warning("measurements could not be kept: %s", error)

    async def _measure(self, pool: Pool, ask: Ask, placements: np.ndarray, reference: Any) -> Answer:
        """Queue the rows, spread over idle hosts if nobody else waits, and collect the answers."""
        idle = sum(seat.free > 0 for seat in pool.seats) if not pool.queue else 1
        if pool.lease_rows is None:
            parts = max(1, min(idle, len(placements) // pool.gauge.batch_rows))
        else:
            parts = -(-len(placements) // pool.lease_rows)
        bounds = np.linspace(0, len(placements), parts + 1).astype(int).tolist()
        loop = asyncio.get_running_loop()
        now = loop.time()
        jobs = []
        for low, high in itertools.pairwise(bounds):
            rows = placements if parts == 1 else placements[low:high]
            jobs.append(Job(ask, rows, ask.first + low, reference if parts == 1 else None, now, loop.create_future()))
            pool.queue.push(ask.trial, ask.priority, jobs[-1], ask.share)
        if not pool.called:  # requests that come together share batches
            pool.called = True
            loop.call_soon(self._pump, pool)
        answers = await asyncio.gather(*(job.future for job in jobs))
        return join_answers(answers)

    def _pump(self, pool: Pool) -> None:
        """Give waiting work to free hosts, the least busy first."""
        pool.called = False
        while pool.queue:
            seats = self._candidates(pool)
            if not seats:
                for job in pool.queue.drain():
                    resolve(job, unknown(job))
                return
            seat = max(seats, key=lambda s: s.free)
            if seat.free <= 0:
                return
            jobs = self._batch(pool)
            seat.running += 1
            self._background(self._work(pool, seat, jobs))

    @staticmethod
    def _candidates(pool: Pool) -> list[Seat]:
        """The hosts that may take the next job: those that did not fault over it, if there are others."""
        job = pool.queue.peek()
        seats = [s for s in pool.seats if not s.quarantined]
        return [s for s in seats if job is None or id(s) not in job.avoid] or seats

    @staticmethod
    def _batch(pool: Pool) -> list[Job]:
        """The next job and those behind it that can share its batch."""
        job, most = pool.queue.pop(), pool.lease_rows or pool.gauge.batch_rows
        jobs, rows = [], 0
        while job is not None:
            jobs.append(job)
            rows += len(job.placements)
            following = pool.queue.peek()
            if following is None or following.kind != job.kind or rows + len(following.placements) > most:
                break
            job = pool.queue.pop()
        return jobs

    async def _work(self, pool: Pool, seat: Seat, jobs: list[Job]) -> None:
        """One lease: a host measures one batch, within its time limit."""
        head, host = jobs[0], seat.host
        alone = len(jobs) == 1
        placements = head.placements if alone else np.concatenate([j.placements for j in jobs])
        self._token += 1
        clock = asyncio.get_running_loop().time
        token, generation, granted = self._token, seat.generation, clock()
        try:
            if host.lease_seconds is not None:
                await host.grant()
                granted = clock()
            limit = None if host.lease_seconds is None else head.ask.limit or host.lease_seconds
            answer = await asyncio.wait_for(host.measure(head, placements, head.reference if alone else None, token), limit)
        except ServiceError as error:
            self._refuse(pool, jobs, error)
        except Exception as error:  # whatever went wrong went wrong with the host: its work goes elsewhere
            seat.last_fault = repr(error)[:500]
            await self._fault(pool, seat, jobs, generation)
        else:
            seat.in_a_row = 0
            seat.rows += len(placements)
            seat.busy_seconds += answer.measuring_seconds
            pool.gauge.measured(len(placements), answer.measuring_seconds)
            for job in jobs:
                pool.served[job.ask.share.sweep] += len(job.placements)
            for job, part in zip(jobs, split_answer(answer, [len(j.placements) for j in jobs]), strict=True):
                resolve(job, part, granted - job.queued_at)
        finally:
            seat.running -= 1
            self._pump(pool)

    @staticmethod
    def _refuse(pool: Pool, jobs: list[Job], error: ServiceError) -> None:
        """An error that is the requests' own; of several in one batch each is tried by itself, as only one may be to blame."""
        for job in reversed(jobs):
            if len(jobs) > 1:
                job.alone = True
                pool.queue.push(job.ask.trial, job.ask.priority, job, job.ask.share, front=True)
            elif not job.future.done():
                job.future.set_exception(type(error)(str(error)))

    async def _fault(self, pool: Pool, seat: Seat, jobs: list[Job], generation: int) -> None:
        """The host failed: its work goes elsewhere, and it is made new. One process that dies is one fault."""
        for job in reversed(jobs):
            job.attempts += 1
            job.avoid.add(id(seat))
            if job.attempts >= HOST_ATTEMPTS:
                resolve(job, unknown(job))
            else:
                pool.queue.push(job.ask.trial, job.ask.priority, job, job.ask.share, front=True)
        if generation != seat.generation:
            return
        seat.generation += 1
        seat.faults += 1
        seat.in_a_row += 1
        if seat.in_a_row >= self.max_faults:
            seat.quarantined = True
            return
        seat.restarting = True
        self._pump(pool)
        try:
            await seat.host.restart()
            if seat.host.lease_seconds is not None:
                await seat.host.ready()
        except Exception as error:  # a host that cannot be brought back is of no use
            seat.quarantined, seat.last_fault = True, repr(error)[:500]
        finally:
            seat.restarting = False

    def drop(self, sweep: str) -> None:
        """Measure nothing more for a sweep that has gone."""
        for pool in self.pools.values():
            for job in pool.queue.drop(sweep):
                resolve(job, unknown(job))

    def statistics(self) -> dict[str, Any]:
        """Keys with their queue lengths and hosts, for `placewright hosts` and the progress display."""
        keys = {
            key: {"queued": len(p.queue), "served": dict(p.served), "hosts": [s.statistics() for s in p.seats]}
            for key, p in self.pools.items()
        }
        return {"keys": keys, "cache": {"hits": self.table.hits, "misses": self.table.misses}, "store_fault": self.store_fault}
