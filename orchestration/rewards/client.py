"""A trial's side of a reward service on Ray."""

from __future__ import annotations

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
from orchestration.rewards.evaluators import EvaluationError, InfrastructureError, build_evaluator, remembered
from orchestration.rewards.messages import Answer, Ask, EvaluatorFault, ServiceError, Unserved
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


class ServiceClient(Wrapper):
    """The service with the face of the evaluator that it has measure, ``inner``; several requests of one call are in flight together.

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
        asks: list[Ask] = [self._ask(r) for r in requests]
        answers: dict[int, Answer] = {}
        patiently = Retrying(
            stop=stop_after_attempt(1 + len(RECONNECT)), wait=wait_chain(*map(wait_fixed, RECONNECT)),
            retry=retry_if_exception_type(RayActorError),
        )  # fmt: skip
        try:
            patiently(self._collect, requests, asks, answers)
        except RetryError:
            raise InfrastructureError(f"the reward service did not answer for {sum(RECONNECT):.0f} s") from None
        self._queued += max((a.queue_seconds for a in answers.values()), default=0.0)
        return [answer(answers[i].rows, r, self.protocol) for i, r in enumerate(requests)]

    def _collect(self, requests: Sequence[Request], asks: Sequence[Ask], answers: dict[int, Answer]) -> None:
        """Send what has no answer yet, until everything has one.

        Raises:
            RayActorError: if the service does not answer; what it answered before is in ``answers``.
        """
        while missing := [i for i in range(len(asks)) if i not in answers]:
            calls = [self._service.evaluate.remote(asks[i]) for i in missing]
            silence: RayActorError | None = None
            for i, call in zip(missing, calls, strict=True):
                try:
                    reply: Any = _waiter.submit(ray.get, call).result()
                except RayActorError as error:
                    silence = error
                    continue
                except RayError:  # a value got lost on its way: like any failure of infrastructure
                    reply = Answer(Rows.unknown(len(requests[i].placements)))
                if reply is None:
                    self._service.register.remote(requests[i].problem)
                elif isinstance(reply, ServiceError):
                    raise RAISED[type(reply)](str(reply))
                else:
                    answers[i] = reply
            if silence is not None:
                raise silence

    def _ask(self, r: Request) -> Ask:
        placements = as_placements(r.problem, r.placements)
        reference = None
        if placements.nbytes > INLINE_BYTES:
            reference, placements = [ray.put(placements)], placements[:0]
        return Ask(
            self._trial, self._key, self._evaluator, self.protocol, self._shared, r.problem.content_hash, placements,
            r.seed, r.first, r.trace and self.traces, self._priority, reference, self.lease_seconds,
        )  # fmt: skip
