"""What is asked of the reward service and what it answers, and the cutting and joining of both. Queues and hosts do not belong here."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from envs.problem.measurement import Rows, join_rows
from orchestration.rewards.fair_queue import NOBODY, Share


class ServiceError(Exception):
    """A request that cannot be served because of what it asks; the message says why. No fault of a host."""


class Unserved(ServiceError):
    """A request that no host serves now; another time it may be served."""

    @staticmethod
    def by_anyone(key: str, known: Iterable[str]) -> Unserved:
        """No host serves ``key``, but these are served."""
        return Unserved(f"no host serves {key!r}; served are: {', '.join(known) or 'none'}")


class EvaluatorFault(ServiceError):
    """What the evaluator raised over a request, as a traceback: the fault of the problem or the evaluator, not of the host."""


@dataclass(frozen=True)
class Ask:
    """A `Request` as the service gets it: the problem by its hash, and who is to measure it under which key, for whom."""

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
    limit: float | None = None
    """Seconds within which real hardware must have measured one placement; None leaves it to the host."""
    share: Share = NOBODY
    """For whom, where several sweeps ask one service."""


@dataclass(frozen=True)
class Answer:
    """The measured rows of an `Ask` or of a batch, and what they took of the service's hosts."""

    rows: Rows
    queue_seconds: float = 0.0
    """Longest wait of a row for its host."""
    measuring_seconds: float = 0.0
    """Time that hosts spent on the rows, seconds, summed over hosts; 0 for what was known."""


@dataclass(eq=False)
class Job:
    """All or a part of an `Ask` as the service queues it: rows that one host measures in one go."""

    ask: Ask
    placements: np.ndarray
    first: int
    reference: Any
    queued_at: float
    future: asyncio.Future[Answer]
    attempts: int = 0
    avoid: set[int] = field(default_factory=set)
    """Hosts that faulted over it (ids of their seats)."""
    alone: bool = False
    """Whether it must not share a batch, because the batch that it was in raised an error."""

    @property
    def kind(self) -> tuple[Hashable, ...]:
        """Jobs of equal kind may share a batch; only where neither seeds nor traces tell rows apart."""
        ask = self.ask
        own = None if ask.shared and not ask.trace and not self.alone else id(self)
        return ask.problem_hash, ask.evaluator, ask.protocol, own


def resolve(job: Job, answer: Answer, waited: float = 0.0) -> None:
    """Hand a job's answer to whoever waits for it."""
    if not job.future.done():
        job.future.set_result(replace(answer, queue_seconds=waited + answer.queue_seconds))


def unknown(job: Job) -> Answer:
    """The answer to a job that no host could do."""
    return Answer(Rows.unknown(len(job.placements)))


def join_answers(parts: list[Answer]) -> Answer:
    """Consecutive parts of one request as one answer."""
    queue, measuring = max(p.queue_seconds for p in parts), sum(p.measuring_seconds for p in parts)
    return Answer(join_rows([p.rows for p in parts]), queue, measuring)


def split_answer(answer: Answer, lengths: list[int]) -> list[Answer]:
    """A batch's answer cut into its jobs' parts; the time is shared out by rows."""
    ends = list(itertools.accumulate(lengths))
    return [
        Answer(answer.rows.take(slice(end - n, end)), answer.queue_seconds, answer.measuring_seconds * n / ends[-1])
        for n, end in zip(lengths, ends, strict=True)
    ]
