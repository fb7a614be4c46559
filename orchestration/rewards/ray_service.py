"""The reward service and its hosts as Ray actors, and the client that trials hold. The rules of queueing belong
to ``orchestration/rewards/service.py``."""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import os
import secrets
import time
import traceback
from abc import ABC, abstractmethod
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from envs.problem.errors import InputError
from envs.problem.measurement import BaseEvaluator, Rows
from envs.problem.problem import Problem
from orchestration.rewards.evaluators import (
    InfrastructureError,
    build_evaluator,
    measures_for_real,
    simulates,
)
from orchestration.rewards.kinds import EVALUATORS
from orchestration.rewards.machine_lock import MachineLock
from orchestration.rewards.measurement_store import MeasurementStore
from orchestration.rewards.messages import Answer, Ask, EvaluatorFault, Job, ServiceError, Unserved
from orchestration.rewards.service import Host, RewardService
from orchestration.specs.layout import STORE
from orchestration.specs.trial import EvaluatorSpec

KEPT_PROBLEMS, KEPT_REFERENCES = 256, 4096
"""Problems that a simulator, and a service, keeps; the longest unused goes."""
LOOK_SECONDS = 10.0
"""How often the service looks whether nodes with hardware have come or gone."""
MAX_SIMULATORS = 16
"""Of a node, unless the user says otherwise."""
TOLD_SECONDS = 5.0
"""How long a service waits for a shard's statistics."""


def actor(cls: type, **options: Any) -> Any:
    """An actor class that takes no CPU from the trials; calls are never repeated by Ray, which might measure twice."""
    remote: Any = ray.remote
    return remote(num_cpus=0, max_task_retries=0, **options)(cls)


def on_node(node: str) -> Any:
    """The scheduling strategy that pins an actor to a node, given by its id."""
    return NodeAffinitySchedulingStrategy(node, soft=False)


class Shard(NamedTuple):
    """Who serves simulations on a node."""

    node: str
    handle: Any
    """None for the sweep's own service."""
    hosts: int
    """Simulators that it has, or will have."""


class SimulatorActor:
    """A process that simulates, or, given leases, measures for real."""

    def __init__(self) -> None:
        self.problems: OrderedDict[str, Problem] = OrderedDict()
        self.evaluators: dict[str, Any] = {}
        self.token = 0
        self.machine = MachineLock()

    def ready(self) -> None:
        """Answers once this process is there, and with it the resources that it holds."""

    def take_machine(self) -> None:
        """Wait until nothing else is measured on this machine; the next `measure` gives it back."""
        self.machine.acquire()

    def load(self, problem: Problem) -> None:
        """Keep a problem for later calls that name its hash."""
        self.problems[problem.content_hash] = problem
        if len(self.problems) > KEPT_PROBLEMS:
            self.problems.popitem(last=False)

    def measure(
        self, problem_hash: str, evaluator: str, placements: np.ndarray, seed: int, first: int, trace: bool, token: int | None = None
    ) -> tuple[Answer, int] | ServiceError | None:
        """The answer and this process's id; why there is none, if that is no fault of this process; None for an unknown problem.

        A lease's ``token`` must not be older than the newest seen: what comes late from a lease that has ended is not measured,
        because somebody else has the hardware.

        Raises:
            StaleLease: if it is.
        """
        if token is None:
            return self._measure(problem_hash, evaluator, placements, seed, first, trace)
        with self.machine.held():
            if token < self.token:
                raise StaleLease(f"lease {token} has ended; lease {self.token} has this host")
            self.token = token
            return self._measure(problem_hash, evaluator, placements, seed, first, trace)

    def _measure(
        self, problem_hash: str, evaluator: str, placements: np.ndarray, seed: int, first: int, trace: bool
    ) -> tuple[Answer, int] | ServiceError | None:
        problem = self.problems.get(problem_hash)
        if problem is None:
            return None
        self.problems.move_to_end(problem_hash)
        begin = time.perf_counter()
        try:
            if evaluator not in self.evaluators:
                self.evaluators[evaluator] = _evaluator(evaluator)
            m = self.evaluators[evaluator].evaluate(problem, placements, seed, first=first, trace=trace)
        except InputError as error:
            return ServiceError(str(error))
        except (InfrastructureError, MemoryError, OSError):  # the host's fault: another one may do better
            raise
        except Exception:
            return EvaluatorFault(traceback.format_exc())
        return Answer(Rows.of(m), measuring_seconds=time.perf_counter() - begin), os.getpid()


def _evaluator(described: str) -> BaseEvaluator:
    """The evaluator of its canonical JSON."""
    return build_evaluator(EvaluatorSpec.from_json(json.loads(described)))


class ActorHost(ABC):
    """The service's end of a `SimulatorActor`: how it is started, sent problems and asked. What needs a lease is a subclass's affair."""

    def __init__(self, name: str, problems: Mapping[str, Any], **where: Any) -> None:
        self.name = name
        self.pid: int | None = None
        self._problems = problems
        self._where = where
        self._start()

    def _start(self) -> None:
        self._actor = actor(SimulatorActor, max_restarts=0, **self._where).remote()
        self._sent: set[str] = set()

    async def statistics(self) -> dict[str, Any] | None:
        """Nothing that the service does not know."""
        return None

    @abstractmethod
    def _shown(self, token: int) -> int | None:
        """What of a lease's ``token`` the process sees."""

    async def restart(self) -> None:
        """A new process in place of one that died or went wrong."""
        ray.kill(self._actor, no_restart=True)
        self._start()

    async def measure(self, job: Job, placements: np.ndarray, reference: Any, token: int) -> Answer:
        """The answer for ``placements`` int16[B, V], which are in ``reference`` already if that is given; the problem is sent once.

        Raises:
            ServiceError: what the evaluator said of the request, or that the problem did not arrive twice.
        """
        ask = job.ask
        for _ in range(2):
            if ask.problem_hash not in self._sent:
                self._actor.load.remote(self._problems[ask.problem_hash])
                self._sent.add(ask.problem_hash)
            data = placements if reference is None else reference
            reply = await self._actor.measure.remote(
                ask.problem_hash, ask.evaluator, data, ask.seed, job.first, ask.trace, self._shown(token)
            )
            if reply is not None:
                break
            self._sent.discard(ask.problem_hash)
        if reply is None:
            raise ServiceError(f"problem {ask.problem_hash[:12]} could not be sent to {self.name}")
        if isinstance(reply, ServiceError):
            raise reply
        answer, self.pid = reply
        return answer


class SimulatorHost(ActorHost):
    """The service's end of a process that simulates on its node, beside others and without a lease."""

    slots = 2
    lease_seconds: float | None = None

    def __init__(self, name: str, problems: Mapping[str, Any], node: str) -> None:
        super().__init__(name, problems, scheduling_strategy=on_node(node))

    async def ready(self) -> None:
        """At once: a simulator waits for no hardware of its own."""

    async def grant(self) -> None:
        """At once: simulators run side by side on one machine."""

    def _shown(self, token: int) -> None:
        """Nothing: what comes late from a simulator disturbs nobody."""


class RealHost(ActorHost):
    """The service's end of a process that measures for real: one measurement at a time, within a lease.

    At the end of a lease that was not kept, `restart` kills the process, and with it the child that measures (`envs.hosts.child_process`).
    """

    slots = 1
    lease_seconds: float | None = 3600.0
    """For requests that have no limit of their own."""

    async def ready(self) -> None:
        """Wait for the hardware, which another sweep may hold.

        Raises:
            RuntimeError: if no node has it any more.
        """
        answer = asyncio.ensure_future(asyncio.wrap_future(self._actor.ready.remote().future()))
        while not (await asyncio.wait({answer}, timeout=LOOK_SECONDS))[0]:
            gone = [name for name in self._where.get("resources", {}) if not ray.cluster_resources().get(name)]
            if gone:
                answer.cancel()
                raise RuntimeError(f"no node has {gone[0]!r} any more")
        await answer

    async def grant(self) -> None:
        """Wait until nothing else is measured on the host's machine."""
        await self._actor.take_machine.remote()

    def _shown(self, token: int) -> int:
        """The token, by which the process refuses what comes late from a lease that has ended."""
        return token


class StaleLease(RuntimeError):
    """A request of a lease that has ended."""


def real_hosts(key: str, problems: Mapping[str, Any], have: int = 0) -> list[Host]:
    """The hosts that serve a key such as ``dataflow`` (this machine) or ``dataflow:cpu2`` besides ``have``; none if there are none.

    A node serves ``dataflow:cpu2`` if it was started with that resource (``ray start --resources '{"dataflow:cpu2": 1}'``). A host
    holds one unit of it while it lives, so Ray grants the hardware to one sweep at a time.
    """
    kind, _, name = key.partition(":")
    if not measures_for_real(kind):
        return []
    if not name:
        return [] if have else [RealHost(key, problems, scheduling_strategy=on_node(ray.get_runtime_context().get_node_id()))]
    count = int(ray.cluster_resources().get(key, 0))
    return [RealHost(f"{key}-{i}", problems, resources={key: 1}) for i in range(have, count)]


def offered() -> list[str]:
    """Keys that real hosts would serve if asked."""
    named = [r for r in ray.cluster_resources() if ":" in r and measures_for_real(r.partition(":")[0])]
    return [*(name for name in EVALUATORS if measures_for_real(name)), *named]


def unserved(keys: Iterable[str]) -> str | None:
    """A sentence about the first key that nothing in the cluster serves; None if all are served."""
    known = list(dict.fromkeys([*(name for name in EVALUATORS if simulates(name)), *offered()]))
    missing = next((key for key in keys if key not in known), None)
    return None if missing is None else str(Unserved.by_anyone(missing, known))


class Serving:
    """What reward services on Ray have in common: they are sent problems once, and asked by hash."""

    def __init__(self, store: MeasurementStore | None) -> None:
        self.service = RewardService(store=store)
        self.problems: OrderedDict[str, Any] = OrderedDict()
        """References to problems; the longest unused goes, and is sent again when it is asked for."""
        self._looked: dict[str, float] = {}

    async def register(self, problem: Problem) -> None:
        """Keep a problem, so that requests need only name its hash."""
        if problem.content_hash not in self.problems:
            self.problems[problem.content_hash] = ray.put(problem)
            if len(self.problems) > KEPT_REFERENCES:
                self.problems.popitem(last=False)

    async def evaluate_all(self, asks: list[Ask]) -> list[Answer | ServiceError | None]:
        """As `evaluate`, of several requests in one call: a call costs more than most requests do."""
        return list(await asyncio.gather(*map(self.evaluate, asks)))

    async def evaluate(self, ask: Ask) -> Answer | ServiceError | None:
        """The answer, or why there is none; None if the problem must be registered first."""
        if ask.problem_hash not in self.problems:
            return None
        self.problems.move_to_end(ask.problem_hash)
        if not self._serves(ask):
            return Unserved.by_anyone(ask.key, dict.fromkeys([*sorted(self.service.pools), *offered()]))
        if ask.reference is not None:
            ask = replace(ask, reference=ask.reference[0], placements=await ask.reference[0])
        try:
            return await self.service.evaluate(ask)
        except ServiceError as error:
            return error.with_traceback(None)

    def _serves(self, ask: Ask) -> bool:
        """Take in hosts of nodes that have come since the last look; whether the key is served."""
        key, pool = ask.key, self.service.pools.get(ask.key)
        if pool is None or time.monotonic() - self._looked[key] > LOOK_SECONDS:
            self._looked[key] = time.monotonic()
            usable = 0 if pool is None else sum(not seat.quarantined for seat in pool.seats)
            if hosts := self._hosts(key, usable if ":" in key else len(pool.seats) if pool else 0):
                machine = "" if ":" in key else _evaluator(ask.evaluator).fingerprint
                self.service.add_hosts(key, hosts, always_cache=True, machine=machine)
        return key in self.service.pools

    def _hosts(self, key: str, have: int) -> list[Host]:
        """Hosts that measure for real under ``key``, besides those that it has."""
        return real_hosts(key, self.problems, have)

    async def statistics(self) -> dict[str, Any]:
        """What `RewardService.statistics` counts, and ``pid``, the process of this actor."""
        return {**self.service.statistics(), "pid": os.getpid()}


class ServiceActor(Serving):
    """A sweep's reward service in its own process, in front of a pool of simulators and, once asked for, real hosts.

    Simulations are served by a shard on every node that has CPUs, which are actors of this class too: the one that a sweep starts has
    them come and go with the nodes. A pool starts with the first request for it.

    Args:
        simulators: processes of the pool of simulators of a node; None is one a CPU, at most `MAX_SIMULATORS`.
        folder: where it keeps what is measured for real; None keeps it in memory alone.
        shared: gives the host that stands for the cluster's own service of a key (`orchestration.rewards.cluster_service`), by which
            sweeps of a cluster share its hardware; None measures under this service alone.
    """

    def __init__(
        self, simulators: int | None, folder: Path | None = None, shared: Callable[[str, Mapping[str, Any]], Host] | None = None
    ) -> None:
        super().__init__(None if folder is None else MeasurementStore(folder / STORE))
        self._asked_for, self._shared = simulators, shared
        self._node = ray.get_runtime_context().get_node_id()
        self._shards: dict[str, Shard] = {}
        self._shards_name = secrets.token_hex(8)
        self._looked_for_nodes = -math.inf

    async def shards(self, kind: str, known: str = "") -> tuple[str, list[Shard] | None]:
        """Who serves simulations of ``kind``, one on each node with CPUs; this actor alone if there is none.

        Returns:
            A name for the answer, and the answer; None if it is still that of the name ``known``: on 1,000 nodes it takes 4 ms to send.
        """
        if time.monotonic() - self._looked_for_nodes > LOOK_SECONDS / 2:
            self._looked_for_nodes = time.monotonic()
            self._follow(nodes_with_cpus())
        if self._node in self._shards or not self._shards:
            self._serves_simulations(kind)
        if known == self._shards_name:
            return known, None
        return self._shards_name, list(self._shards.values()) or [Shard(self._node, None, self._simulators(1))]

    def _follow(self, nodes: Mapping[str, int]) -> None:
        """A shard on each of these nodes, given with their CPUs, and on no other."""
        if nodes.keys() != self._shards.keys():
            self._shards_name = secrets.token_hex(8)  # no counter: it would begin anew with this process
        for node in self._shards.keys() - nodes.keys():
            if (gone := self._shards.pop(node).handle) is not None:
                ray.kill(gone)
        for node in nodes.keys() - self._shards.keys():
            handle = None if node == self._node else start_service(self._asked_for, None, node)
            self._shards[node] = Shard(node, handle, self._simulators(nodes[node]))

    def _simulators(self, cpus: int) -> int:
        return self._asked_for or max(1, min(cpus, MAX_SIMULATORS))

    def _serves_simulations(self, kind: str) -> None:
        """A pool for simulators of ``kind``; each kind has its own, so that the cache is used where that pays."""
        if kind not in self.service.pools:
            count = self._simulators(nodes_with_cpus().get(self._node, 1))
            self.service.add_hosts(kind, [SimulatorHost(f"{kind}-{i}@{self._node[:6]}", self.problems, self._node) for i in range(count)])

    def _serves(self, ask: Ask) -> bool:
        if not simulates(ask.key):
            return super()._serves(ask)
        self._serves_simulations(ask.key)
        return True

    def _hosts(self, key: str, have: int) -> list[Host]:
        if self._shared is None:
            return super()._hosts(key, have)
        pool = self.service.pools.get(key)
        usable = pool is not None and not all(seat.quarantined for seat in pool.seats)
        return [] if usable or key not in offered() else [self._shared(key, self.problems)]

    async def statistics(self) -> dict[str, Any]:
        """As its parent, with those of its shards; of what the cluster shares, what its own service tells."""
        found = await super().statistics()
        for key, pool in self.service.pools.items():
            for seat in pool.seats:
                if not seat.quarantined and (told := await seat.host.statistics()) is not None:
                    found["keys"][key] = told
        handles = [shard.handle for shard in self._shards.values() if shard.handle is not None]
        for told in await asyncio.gather(*map(_told, handles)):
            _add_statistics(found, told)
        return found

    async def keys(self) -> list[str]:
        """Keys of the pools that there are, as ``simulator`` or ``dataflow:cpu2``, sorted; pools come with the first request for them."""
        return sorted(self.service.pools)


async def _told(shard: Any) -> dict[str, Any]:
    """A shard's statistics; empty if it is silent, as one whose node has just gone."""
    with contextlib.suppress(ray.exceptions.RayError, TimeoutError):
        found: dict[str, Any] = await asyncio.wait_for(shard.statistics.remote(), TOLD_SECONDS)
        return found
    return {"keys": {}, "cache": {}}


def _add_statistics(found: dict[str, Any], told: dict[str, Any]) -> None:
    """Add those of a shard to ``found``."""
    for key, pool in told["keys"].items():
        known = found["keys"].setdefault(key, {"queued": 0, "served": {}, "hosts": []})
        known["queued"] += pool["queued"]
        known["served"] = dict(Counter(known["served"]) + Counter(pool["served"]))
        known["hosts"] = [*known["hosts"], *pool["hosts"]]
    found["cache"] = {name: count + told["cache"].get(name, 0) for name, count in found["cache"].items()}


def nodes_with_cpus() -> dict[str, int]:
    """Nodes that are there and have CPUs, by id."""
    return {n["NodeID"]: int(n["Resources"]["CPU"]) for n in ray.nodes() if n["Alive"] and n["Resources"].get("CPU", 0) >= 1}


def start_service(
    simulators: int | None,
    folder: Path | None = None,
    node: str | None = None,
    shared: Callable[[str, Mapping[str, Any]], Host] | None = None,
) -> Any:
    """The handle of a new service actor, which ends with this process; Ray restarts it if its own dies.

    Args:
        simulators, folder, shared: see `ServiceActor`.
        node: id of the node on which that folder lies, or which a shard serves.
    """
    where = {} if node is None else {"scheduling_strategy": on_node(node)}
    return actor(ServiceActor, max_restarts=-1, max_concurrency=10_000, **where).remote(simulators, folder, shared)
