"""The reward service: requests in, measurements out, hosts behind. Ray-free, so that every rule can be tested by itself;
``orchestration/hosts.py`` puts it and its hosts into actors. What a host measures does not belong here.

Requests queue per key (``simulator``, ``openvino:flex170``), fair between trials, by priority. Rows already measured come
from a content cache, rows in flight are measured once, small requests of one problem share a batch, large ones are spread
over idle hosts. A host that faults ``max_faults`` times in a row is quarantined and its work goes elsewhere.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from envs.measurement import Outcome
from orchestration.cache import MeasurementTable, Rows, join
from orchestration.queues import FairQueue
from orchestration.store import MeasurementStore

SPLIT_ROWS = 256
"""Fewest rows worth a host of their own: larger requests are spread over hosts, smaller ones share a batch up to so many."""
ATTEMPTS = 3
"""How many hosts may fault over a batch before its rows come back as INFRASTRUCTURE."""


class ServiceError(Exception):
    """A request that cannot be served; the message says why and what is served."""


@dataclass(frozen=True)
class Ask:
    """One request: placements of one problem, to be measured under one key."""

    trial: str
    key: str
    evaluator: str
    """Canonical JSON of the evaluator's description, for hosts that serve several."""
    protocol: str
    shared: bool
    """Whether equal content gives equal measurements, whatever the seed, so that rows may be shared."""
    problem_hash: str
    placements: np.ndarray
    """int16[B, V]."""
    seed: int
    first: int
    trace: bool = False
    priority: int = 0
    reference: Any = None
    """Where the placements lie in Ray's object store, if they do; hosts then read them from there."""


@dataclass(frozen=True)
class Answer:
    """The measured rows of an `Ask`, or of a batch."""

    rows: Rows
    start: np.ndarray | None = None
    finish: np.ndarray | None = None
    queue_seconds: float = 0.0
    """Longest wait of a row for its host."""
    measuring_seconds: float = 0.0
    """Host time spent."""


@dataclass(eq=False)
class Job:
    """Rows that one host measures in one go: all or a part of an `Ask`."""

    ask: Ask
    placements: np.ndarray
    first: int
    reference: Any
    queued_at: float
    future: asyncio.Future[Answer]
    attempts: int = 0
    avoid: set[int] = field(default_factory=set)
    """Hosts that faulted over it (ids of their seats)."""

    @property
    def kind(self) -> tuple[Hashable, ...]:
        """Jobs of equal kind may share a batch; only where neither seeds nor traces tell rows apart."""
        ask = self.ask
        own = None if ask.shared and not ask.trace else id(self)
        return ask.problem_hash, ask.evaluator, ask.protocol, own


class Host(Protocol):
    """Something that measures."""

    name: str
    pid: int | None
    """Process that measures, once known."""
    slots: int
    """Batches it may hold at once; 1 for real hardware, 2 for simulators so that they never wait for the next one."""
    lease_seconds: float | None
    """Time limit of one batch from the moment it is granted; None for simulators."""

    async def measure(self, job: Job, placements: np.ndarray, reference: Any, token: int) -> Answer:
        """Measure ``placements``; any exception is a fault of the host, except `ServiceError`."""
        ...

    async def restart(self) -> None:
        """Make it usable again after a fault, or raise."""
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
    rows: int = 0
    busy_seconds: float = 0.0
    since: float = field(default_factory=time.monotonic)

    @property
    def free(self) -> int:
        return 0 if self.quarantined or self.restarting else self.host.slots - self.running

    def statistics(self) -> dict[str, Any]:
        """What it did so far; ``utilisation`` is the share of its time in which it measured."""
        lived = max(time.monotonic() - self.since, 1e-9)
        return {
            "name": self.host.name, "pid": self.host.pid, "running": self.running, "measurements": self.rows, "faults": self.faults,
            "quarantined": self.quarantined, "utilisation": self.busy_seconds / lived,
        }  # fmt: skip


class Gauge:
    """Decides whether looking rows up in the cache pays: (share of hits) × (time to measure a row) against the time to look."""

    PROBE = 16
    """One request in so many is looked up although it does not seem to pay, to notice when it does."""

    def __init__(self) -> None:
        self.look = 2e-6
        self.measure = 1.0
        self.hits = 1.0
        self._turn = 0

    def pays(self) -> bool:
        self._turn += 1
        return self.hits * self.measure > self.look or self._turn % self.PROBE == 0

    def looked(self, rows: int, hits: int, seconds: float) -> None:
        self.look += 0.2 * (seconds / rows - self.look)
        self.hits += 0.2 * (hits / rows - self.hits)

    def measured(self, rows: int, seconds: float) -> None:
        self.measure += 0.2 * (seconds / rows - self.measure)


@dataclass(eq=False)
class Pool:
    """The hosts of one key and the requests that wait for them."""

    key: str
    seats: list[Seat]
    queue: FairQueue[Job] = field(default_factory=FairQueue)
    always_cache: bool = False
    """Real measurements are remembered whatever that costs; simulations only where it pays."""
    gauge: Gauge = field(default_factory=Gauge)


class RewardService:
    """See the module's docstring. All methods run in one event loop."""

    def __init__(self, *, max_faults: int = 3, cache_bytes: int = 256 << 20, store: MeasurementStore | None = None) -> None:
        self.store = store
        """Where pools that always cache keep their rows."""
        self.pools: dict[str, Pool] = {}
        self.table = MeasurementTable(cache_bytes)
        self.max_faults = max_faults
        self._pending: dict[int, asyncio.Future[Answer]] = {}
        # Above those of any service before this one, so that a host that outlived it refuses what that one asked for.
        self._token = time.time_ns()
        self._tasks: set[asyncio.Task[None]] = set()

    def add_hosts(self, key: str, hosts: list[Host], *, always_cache: bool = False) -> None:
        """Let ``hosts`` serve ``key``."""
        pool = self.pools.setdefault(key, Pool(key, [], always_cache=always_cache))
        pool.seats += [Seat(h) for h in hosts]
        self._pump(pool)

    async def evaluate(self, ask: Ask) -> Answer:
        """The measurements of a request, in its rows' order.

        Raises:
            ServiceError: at once if no host serves the key.
        """
        pool = self.pools.get(ask.key)
        if pool is None:
            known = ", ".join(sorted(self.pools)) or "none"
            raise ServiceError(f"no host serves {ask.key!r}; served are: {known}")
        if all(seat.quarantined for seat in pool.seats):
            raise ServiceError(f"all {len(pool.seats)} hosts of {ask.key!r} are quarantined after repeated faults; see `placewright hosts`")
        if len(ask.placements) == 0:
            empty = np.empty(0)
            return Answer(Rows(empty.astype(np.int8), empty, empty, ""))
        if ask.shared and not ask.trace and (pool.always_cache or pool.gauge.pays()):
            return await self._through_cache(pool, ask)
        return await self._measure(pool, ask, ask.placements, ask.reference)

    async def _through_cache(self, pool: Pool, ask: Ask) -> Answer:
        begin = time.perf_counter()
        with self.table.reading():
            slots, new = self.table.slots(context(ask), ask.placements)
            new = self._from_store(pool, ask, slots, new)
            fresh = int(new.sum())
            others = (self._pending.get(s) for s in slots[~new & ~self.table.done(slots)].tolist())
            waits = {future for future in others if future is not None}  # a row twice in this request is nobody else's
            pool.gauge.looked(len(new), len(new) - fresh, time.perf_counter() - begin)
            queue = measuring = 0.0
            if fresh:
                whole = fresh == len(new)
                placements = ask.placements if whole else ask.placements[new]
                answer = await self._fill(pool, ask, placements, ask.reference if whole else None, slots[new])
                queue, measuring = answer.queue_seconds, answer.measuring_seconds
            if waits:
                await asyncio.wait(waits)
            return Answer(self.table.read(slots), queue_seconds=queue, measuring_seconds=measuring)

    def _from_store(self, pool: Pool, ask: Ask, slots: np.ndarray, new: np.ndarray) -> np.ndarray:
        """Fill new slots with what an earlier run has measured; which are still to be measured, bool[B]."""
        if self.store is None or not pool.always_cache or not new.any():
            return new
        known, rows = self.store.read(context(ask), ask.placements[new])
        if rows is None:
            return new
        where = np.flatnonzero(new)[known]
        for i, slot in enumerate(slots[where].tolist()):  # one by one: each has the fingerprint of what measured it
            self.table.fill(np.array([slot]), one_row(rows, i))
        left = new.copy()
        left[where] = False
        return left

    async def _fill(self, pool: Pool, ask: Ask, placements: np.ndarray, reference: Any, slots: np.ndarray) -> Answer:
        """Measure new rows into the table, while others may wait for them."""
        done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        names = slots.tolist()
        self._pending.update(dict.fromkeys(names, done))
        rows = failure(len(slots))
        try:
            answer = await self._measure(pool, ask, placements, reference)
            rows = answer.rows
            return answer
        finally:
            self.table.fill(slots, rows)
            self.table.retract(context(ask), placements[rows.outcome == Outcome.INFRASTRUCTURE])
            if self.store is not None and pool.always_cache:
                self.store.write(context(ask), placements, rows)
            for slot in names:
                del self._pending[slot]
            done.set_result(None)

    async def _measure(self, pool: Pool, ask: Ask, placements: np.ndarray, reference: Any) -> Answer:
        """Queue the rows, spread over idle hosts if nobody else waits, and collect the answers."""
        idle = sum(seat.free > 0 for seat in pool.seats) if not pool.queue else 1
        parts = max(1, min(idle, len(placements) // SPLIT_ROWS))
        bounds = np.linspace(0, len(placements), parts + 1).astype(int).tolist()
        loop, now = asyncio.get_running_loop(), time.monotonic()
        jobs = []
        for low, high in itertools.pairwise(bounds):
            rows = placements if parts == 1 else placements[low:high]
            jobs.append(Job(ask, rows, ask.first + low, reference if parts == 1 else None, now, loop.create_future()))
            pool.queue.push(ask.trial, ask.priority, jobs[-1])
        self._pump(pool)
        answers = await asyncio.gather(*(job.future for job in jobs))
        return join_answers(answers)

    def _pump(self, pool: Pool) -> None:
        """Give waiting work to free hosts, the least busy first."""
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
            task = asyncio.get_running_loop().create_task(self._work(pool, seat, jobs))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    @staticmethod
    def _candidates(pool: Pool) -> list[Seat]:
        """The hosts that may take the next job: those that did not fault over it, if there are others."""
        job = pool.queue.peek()
        seats = [s for s in pool.seats if not s.quarantined]
        return [s for s in seats if job is None or id(s) not in job.avoid] or seats

    @staticmethod
    def _batch(pool: Pool) -> list[Job]:
        """The next job and those behind it that can share its batch."""
        job = pool.queue.pop()
        jobs, rows = [], 0
        while job is not None:
            jobs.append(job)
            rows += len(job.placements)
            following = pool.queue.peek()
            if following is None or following.kind != job.kind or rows + len(following.placements) > SPLIT_ROWS:
                break
            job = pool.queue.pop()
        return jobs

    async def _work(self, pool: Pool, seat: Seat, jobs: list[Job]) -> None:
        """One lease: a host measures one batch, within its time limit."""
        head, host = jobs[0], seat.host
        alone = len(jobs) == 1
        placements = head.placements if alone else np.concatenate([j.placements for j in jobs])
        self._token += 1
        granted = time.monotonic()
        try:
            call = host.measure(head, placements, head.reference if alone else None, self._token)
            answer = await (call if host.lease_seconds is None else asyncio.wait_for(call, host.lease_seconds))
        except ServiceError as error:
            for job in jobs:
                if not job.future.done():
                    job.future.set_exception(ServiceError(str(error)))
        except Exception:  # whatever went wrong went wrong with the host: its work goes elsewhere
            await self._fault(pool, seat, jobs)
        else:
            seat.in_a_row = 0
            seat.rows += len(placements)
            seat.busy_seconds += answer.measuring_seconds
            pool.gauge.measured(len(placements), answer.measuring_seconds)
            for job, part in zip(jobs, split_answer(answer, [len(j.placements) for j in jobs]), strict=True):
                resolve(job, part, granted - job.queued_at)
        finally:
            seat.running -= 1
            self._pump(pool)

    async def _fault(self, pool: Pool, seat: Seat, jobs: list[Job]) -> None:
        seat.faults += 1
        seat.in_a_row += 1
        for job in reversed(jobs):
            job.attempts += 1
            job.avoid.add(id(seat))
            if job.attempts >= ATTEMPTS:
                resolve(job, unknown(job))
            else:
                pool.queue.push(job.ask.trial, job.ask.priority, job, front=True)
        if seat.in_a_row >= self.max_faults:
            seat.quarantined = True
        elif not seat.restarting:
            seat.restarting = True
            self._pump(pool)
            try:
                await seat.host.restart()
            except Exception:  # a host that cannot be brought back is of no use
                seat.quarantined = True
            finally:
                seat.restarting = False

    def statistics(self) -> dict[str, Any]:
        """Keys with their queue lengths and hosts, for `placewright hosts` and the progress display."""
        keys = {key: {"queued": len(p.queue), "hosts": [s.statistics() for s in p.seats]} for key, p in self.pools.items()}
        return {"keys": keys, "cache": {"hits": self.table.hits, "misses": self.table.misses}}


def context(ask: Ask) -> tuple[str, ...]:
    """What a measurement depends on besides its placement: hosts of different keys are different machines."""
    return ask.problem_hash, ask.protocol, ask.key


def one_row(rows: Rows, i: int) -> Rows:
    """Row ``i`` by itself."""
    cut = slice(i, i + 1)
    return Rows(
        rows.outcome[cut], rows.seconds[cut], rows.objective[cut], rows.host,
        None if rows.samples is None else rows.samples[cut], None if rows.notes is None else rows.notes[cut],
    )  # fmt: skip


def resolve(job: Job, answer: Answer, waited: float = 0.0) -> None:
    """Hand a job's answer to whoever waits for it."""
    if not job.future.done():
        rows, measuring = answer.rows, answer.measuring_seconds
        job.future.set_result(Answer(rows, answer.start, answer.finish, waited, measuring))


def failure(rows: int) -> Rows:
    """Rows of which nothing is known."""
    return Rows(np.full(rows, Outcome.INFRASTRUCTURE, dtype=np.int8), np.full(rows, np.nan), np.full(rows, np.inf), "")


def unknown(job: Job) -> Answer:
    """The answer to a job that no host could do."""
    times = np.full(job.placements.shape, np.nan) if job.ask.trace else None
    return Answer(failure(len(job.placements)), times, times)


def join_answers(parts: list[Answer]) -> Answer:
    """Consecutive parts of one request as one answer."""
    if len(parts) == 1:
        return parts[0]
    traced = [p for p in parts if p.start is not None]
    start = finish = None
    if len(traced) == len(parts):
        start = np.concatenate([p.start for p in parts if p.start is not None])
        finish = np.concatenate([p.finish for p in parts if p.finish is not None])
    queue, measuring = max(p.queue_seconds for p in parts), sum(p.measuring_seconds for p in parts)
    return Answer(join([p.rows for p in parts]), start, finish, queue, measuring)


def split_answer(answer: Answer, lengths: list[int]) -> list[Answer]:
    """A batch's answer cut into its jobs' parts."""
    if len(lengths) == 1:
        return [answer]
    parts, low, total = [], 0, sum(lengths)
    for length in lengths:
        cut = slice(low, low + length)
        r = answer.rows
        rows = Rows(
            r.outcome[cut], r.seconds[cut], r.objective[cut], r.host,
            None if r.samples is None else r.samples[cut], None if r.notes is None else r.notes[cut],
        )  # fmt: skip
        parts.append(Answer(rows, measuring_seconds=answer.measuring_seconds * length / total))
        low += length
    return parts
