"""A trial's side of a reward service on Ray."""

from __future__ import annotations

import contextlib
import itertools
import math
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import ray
from ray.exceptions import RayActorError, RayError
from tenacity import RetryError, Retrying, retry_if_exception_type, stop_after_attempt, wait_chain, wait_fixed

from envs.problem.errors import InputError
from envs.problem.measurement import Measurements, Request, Rows, Wrapper, answer
from envs.problem.problem import Problem
from envs.simulators.fifo.evaluator import as_placements
from orchestration.rewards.evaluators import EvaluationError, InfrastructureError, build_evaluator, remembered, simulates
from orchestration.rewards.messages import Answer, Ask, EvaluatorFault, ServiceError, Unserved, join_answers
from orchestration.rewards.ray_service import Shard
from orchestration.specs.canonical import canonical
from orchestration.specs.trial import EvaluatorSpec

INLINE_BYTES = 90_000
"""Placements up to this size travel inside the call (Ray's own limit is 100 KiB); larger ones through the object store."""


RECONNECT = (0.1, 0.3, 1.0, 3.0, 10.0)
"""Seconds to wait before each further try when the service does not answer."""


RAISED = {ServiceError: InputError, Unserved: InfrastructureError, EvaluatorFault: EvaluationError}
"""What the service refuses, as the trial sees it."""

_waiter = ThreadPoolExecutor(1, "placewright-waits")
"""Waits for the service's answers. In a task's main thread `ray.get` gives the task's CPU back meanwhile, and Ray starts the next
trial on it: many times more trials than CPUs would run, each with its memory."""


SENDING_SECONDS = 4e-3
"""CPU time that a request costs its trial, the service and a simulator together, most of it Ray's (measured with 8 rows, so nearly none of
it simulation): simulations that take less are done by the trial itself."""
CUT_SECONDS = 0.2
"""Simulations that take longer are cut into parts of at least so long, for several nodes."""
SHARDS_SECONDS = 10.0
"""How long a process takes a service's nodes to be the same."""
FORGET_SECONDS = 5.0
"""A wait for a node counts half after so many seconds."""

PATIENCE = 0.1
"""Seconds more for each of them: the more processes there are, the less often each asks, while one that dies is noticed at once."""

_shards: dict[Any, tuple[float, str, list[Shard]]] = {}
"""What each service said last of its shards: when, and under which name."""


class ServiceClient(Wrapper):
    """The service with the face of the evaluator that it has measure, ``inner``; several requests of one call are in flight together.

    Simulations go to the node that answers soonest, this one if none is better; short ones are done here. What comes back does not
    depend on where it was made: noise belongs to a row.

    Raises:
        InputError: if the evaluator cannot measure what is asked.
        EvaluationError: if it raises.
        InfrastructureError: at once if no host serves its key, naming those that are served; if the service does not come back.
    """

    def __init__(self, service: Any, spec: EvaluatorSpec, trial: str, priority: int = 0) -> None:
        self.inner = build_evaluator(spec)
        self._shared = self.inner.deterministic or remembered(spec)
        self._queued = 0.0
        self._service, self._key, self._trial, self._priority = service, spec.key, trial, priority
        self._evaluator = canonical(spec.to_json())
        self._simulates = simulates(spec.key)
        self._row_seconds: dict[str, float] = {}
        """How long a row of each problem takes, at best."""
        self._waits: dict[str, tuple[float, float]] = {}
        """How long each node let its simulators be waited for the last time, and when that was."""

    @property
    def queue_seconds(self) -> float:
        """How long the service let its hosts be waited for."""
        return self._queued

    def describe(self) -> Sequence[str]:
        """Nothing: the devices are those of hosts elsewhere."""
        return ()

    def check_machine(self) -> None:
        """Nothing is measured on this machine."""

    def evaluate(self, problem: Problem, placements: np.ndarray, seed: int = 0, *, first: int = 0, trace: bool = False) -> Measurements:
        """What the service has measured or remembers."""
        return self.evaluate_many([Request(problem, placements, seed, first, trace)])[0]

    def evaluate_many(self, requests: Sequence[Request]) -> list[Measurements]:
        """Answers in the order of ``requests``, all of which are in flight at once; asked again where the service was restarted."""
        if self._simulates and (expected := sum(map(self._seconds, requests))) <= SENDING_SECONDS:
            with contextlib.suppress(Exception):  # whose fault that is, the service says
                return self._here(requests, expected)
        parts = [(i, part) for i, r in enumerate(requests) for part in self._parts(r)]
        asks = [self._ask(part) for _, part in parts]
        answers: dict[int, Answer] = {}
        patiently = Retrying(
            stop=stop_after_attempt(1 + len(RECONNECT)), wait=wait_chain(*map(wait_fixed, RECONNECT)),
            retry=retry_if_exception_type(RayActorError),
        )  # fmt: skip
        try:
            patiently(self._collect, [part for _, part in parts], asks, answers)
        except RetryError:
            raise InfrastructureError(f"the reward service did not answer for {sum(RECONNECT):.0f} s") from None
        self._queued += max((a.queue_seconds for a in answers.values()), default=0.0)
        of: list[list[Answer]] = [[] for _ in requests]
        for k, (i, _) in enumerate(parts):
            of[i].append(answers[k])
        return [answer(join_answers(found).rows, r, self.protocol) for found, r in zip(of, requests, strict=True)]

    def _here(self, requests: Sequence[Request], expected: float) -> list[Measurements]:
        """Simulate in this process, and correct what is known of how long that takes."""
        begin = time.perf_counter()
        found = self.inner.evaluate_many(requests)
        if expected > 0.0:
            factor = 0.5 + 0.5 * (time.perf_counter() - begin) / expected
            for problem in {r.problem.content_hash for r in requests if len(r.placements)}:
                self._row_seconds[problem] *= factor
        return found

    def _seconds(self, r: Request) -> float:
        """How long a request takes a simulator, as far as is known."""
        return len(r.placements) * self._row_seconds.get(r.problem.content_hash, math.inf) if len(r.placements) else 0.0

    def _parts(self, r: Request) -> list[Request]:
        """A request, or its parts for several nodes if it takes long."""
        seconds = self._seconds(r) if self._simulates else 0.0
        if not CUT_SECONDS < seconds < math.inf or (most := sum(s.hosts for s in self._shards())) < 2:
            return [r]
        count = min(int(seconds / CUT_SECONDS) + 1, most, len(r.placements))
        bounds = np.linspace(0, len(r.placements), count + 1).astype(int).tolist()
        return [r._replace(placements=r.placements[a:b], first=r.first + a) for a, b in itertools.pairwise(bounds)]

    def _collect(self, requests: Sequence[Request], asks: Sequence[Ask], answers: dict[int, Answer]) -> None:
        """Send what has no answer yet, until everything has one.

        Raises:
            RayActorError: if a service does not answer; what was answered before is in ``answers``.
        """
        while missing := [i for i in range(len(asks)) if i not in answers]:
            calls = [(shard, own, self._send(shard, [asks[i] for i in own])) for shard, own in self._divided(requests, missing)]
            silence: RayActorError | None = None
            for shard, own, call in calls:
                try:
                    replies: Any = _waiter.submit(ray.get, call).result()
                except RayActorError as error:
                    silence = error
                    _shards.pop(self._service, None)  # its node may have gone
                    self._waits[shard.node] = sum(RECONNECT), time.monotonic()
                    continue
                except RayError:  # a value got lost on its way: like any failure of infrastructure
                    replies = [Answer(Rows.unknown(len(requests[i].placements))) for i in own]
                self._take(shard, requests, own, replies, answers)
            if silence is not None:
                raise silence

    def _send(self, shard: Shard, asks: list[Ask]) -> Any:
        return (shard.handle or self._service).evaluate_all.remote(asks)

    def _take(
        self, shard: Shard, requests: Sequence[Request], own: Sequence[int], replies: Sequence[Any], answers: dict[int, Answer]
    ) -> None:
        """Keep a shard's replies, and what they tell of how long things take."""
        unknown: dict[str, Problem] = {}
        for i, reply in zip(own, replies, strict=True):
            if reply is None:
                unknown[requests[i].problem.content_hash] = requests[i].problem
            elif isinstance(reply, ServiceError):
                raise RAISED[type(reply)](str(reply))
            else:
                answers[i] = reply
                if reply.measuring_seconds:
                    name, seconds = requests[i].problem.content_hash, reply.measuring_seconds / len(requests[i].placements)
                    self._row_seconds[name] = min(seconds, self._row_seconds.get(name, math.inf))
        if waits := [reply.queue_seconds for reply in replies if isinstance(reply, Answer)]:
            self._waits[shard.node] = min(waits), time.monotonic()  # for what others have there; all but the first wait for each other too
        for problem in unknown.values():
            (shard.handle or self._service).register.remote(problem)

    def _divided(self, requests: Sequence[Request], indices: Sequence[int]) -> list[tuple[Shard, list[int]]]:
        """Who is asked for which of the requests: each goes where it would be done soonest."""
        shards = self._shards()
        if len(shards) == 1:
            return [(shards[0], list(indices))]
        here, now = ray.get_runtime_context().get_node_id(), time.monotonic()
        until = []
        for shard in shards:
            waited, when = self._waits.get(shard.node, (0.0, now))
            until.append(waited * 0.5 ** ((now - when) / FORGET_SECONDS) + (0.0 if shard.node == here else SENDING_SECONDS))
        given: list[list[int]] = [[] for _ in shards]
        for i in indices:
            best = until.index(min(until))
            given[best].append(i)
            seconds = self._seconds(requests[i])
            until[best] += (seconds if seconds < math.inf else 0.0) / shards[best].hosts
        return [(shard, own) for shard, own in zip(shards, given, strict=True) if own]

    def _shards(self) -> list[Shard]:
        """Whom to ask: for simulations one on each node, for all else the sweep's service."""
        if not self._simulates:
            return [Shard("", None, 1)]
        when, name, known = _shards.get(self._service, (-math.inf, "", []))
        if time.monotonic() - when > SHARDS_SECONDS + PATIENCE * len(known):
            answer: Any = _waiter.submit(ray.get, self._service.shards.remote(self._key, name)).result()
            name, known = answer[0], known if answer[1] is None else answer[1]
            _shards[self._service] = time.monotonic(), name, known
        return known

    def _ask(self, r: Request) -> Ask:
        placements = as_placements(r.problem, r.placements)
        reference = None
        if placements.nbytes > INLINE_BYTES:
            reference, placements = [ray.put(placements)], placements[:0]
        return Ask(
            self._trial, self._key, self._evaluator, self.protocol, self._shared, r.problem.content_hash, placements,
            r.seed, r.first, r.trace and self.traces, self._priority, reference, self.lease_seconds,
        )  # fmt: skip
