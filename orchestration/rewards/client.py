"""A trial's side of a reward service on Ray."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import ray
from ray.exceptions import RayActorError, RayError

from envs.problem.errors import InputError
from envs.problem.measurement import Measurements
from envs.problem.problem import Problem
from orchestration.rewards.evaluators import EvaluationError, InfrastructureError, Request, build_evaluator, lease_seconds, remembered
from orchestration.rewards.messages import Answer, Ask, EvaluatorFault, ServiceError, Unserved, failure
from orchestration.specs.canonical import canonical
from orchestration.specs.trial import EvaluatorSpec

INLINE_BYTES = 90_000
"""Placements up to this size travel inside the call (Ray's own limit is 100 KiB); larger ones through the object store."""


RECONNECT = (0.1, 0.3, 1.0, 3.0, 10.0)
"""Seconds to wait before each further try when the service does not answer."""


RAISED = {ServiceError: InputError, Unserved: InfrastructureError, EvaluatorFault: EvaluationError}
"""What the service refuses, as the trial sees it."""


@dataclass(frozen=True)
class _Sent:
    request: Request
    ask: Ask


class ServiceClient:
    """The service with the face of an evaluator; several requests of one call are in flight together.

    Raises:
        InputError: if the evaluator cannot measure what is asked.
        EvaluationError: if it raises.
        InfrastructureError: at once if no host serves its key, naming those that are served; if the service does not come back.
    """

    def __init__(self, service: Any, spec: EvaluatorSpec, trial: str, priority: int = 0) -> None:
        local = build_evaluator(spec)
        self.protocol = local.protocol
        self.deterministic = local.deterministic
        self._shared = local.deterministic or remembered(spec)
        self._traces, self._limit = getattr(local, "traces", True), lease_seconds(local)
        self.queue_seconds = 0.0
        self._service, self._key, self._trial, self._priority = service, spec.key, trial, priority
        self._evaluator = canonical(spec.to_json())

    def evaluate(self, problem: Problem, placements: np.ndarray, seed: int = 0, *, first: int = 0, trace: bool = False) -> Measurements:
        """See `envs.problem.measurement.Evaluator.evaluate`."""
        return self.evaluate_many([Request(problem, placements, seed, first, trace)])[0]

    def evaluate_many(self, requests: Sequence[Request]) -> list[Measurements]:
        """Answers in order."""
        sent = [_Sent(r, self._ask(r)) for r in requests]
        answers: list[Answer | None] = [None] * len(sent)
        pauses = iter(RECONNECT)
        while missing := [i for i, a in enumerate(answers) if a is None]:
            calls = [self._service.evaluate.remote(sent[i].ask) for i in missing]
            silent = False
            for i, call in zip(missing, calls, strict=True):
                try:
                    reply = ray.get(call)
                except RayActorError:
                    silent = True
                    continue
                except RayError:  # a value got lost on its way: like any failure of infrastructure
                    reply = Answer(failure(len(sent[i].ask.placements) or len(sent[i].request.placements)))
                if reply is None:
                    self._service.register.remote(sent[i].request.problem)
                elif isinstance(reply, ServiceError):
                    raise RAISED[type(reply)](str(reply))
                else:
                    answers[i] = reply
            if silent:
                self._wait(pauses)
        done = [a for a in answers if a is not None]
        self.queue_seconds += max((a.queue_seconds for a in done), default=0.0)
        return [self._measurements(s.request, a) for s, a in zip(sent, done, strict=True)]

    def _ask(self, r: Request) -> Ask:
        placements = np.ascontiguousarray(r.placements, dtype=np.int16)
        reference = None
        if placements.nbytes > INLINE_BYTES:
            reference, placements = [ray.put(placements)], placements[:0]
        return Ask(
            self._trial, self._key, self._evaluator, self.protocol, self._shared, r.problem.content_hash, placements,
            r.seed, r.first, r.trace and self._traces, self._priority, reference, self._limit,
        )  # fmt: skip

    def _wait(self, pauses: Any) -> None:
        pause = next(pauses, None)
        if pause is None:
            raise InfrastructureError(f"the reward service did not answer for {sum(RECONNECT):.0f} s")
        time.sleep(pause)

    def _measurements(self, request: Request, a: Answer) -> Measurements:
        rows = a.rows
        return Measurements(
            problem_hash=request.problem.content_hash, placements=np.asarray(request.placements), outcome=rows.outcome,
            seconds=rows.seconds, objective=rows.objective, seed=request.seed, protocol=self.protocol, host=rows.host,
            first=request.first, start=a.start, finish=a.finish, transfers=a.transfers, samples=rows.samples, notes=rows.notes,
            deviation=rows.deviation, compile_seconds=rows.compile_seconds,
        )  # fmt: skip
