"""What comes back when placements are scored, and the one face of everything that scores them."""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NamedTuple, Protocol, Self, runtime_checkable

import numpy as np

from envs.problem.columns import column, columns, join, take
from envs.problem.problem import Problem

SIMULATED = "simulated"
"""The fingerprint of all simulators, which give the same on every machine."""


class Outcome(enum.IntEnum):
    """How a measurement ended. All but INFRASTRUCTURE are properties of the placement."""

    OK = 0
    INVALID = 1
    OUT_OF_MEMORY = 2
    TOO_SLOW = 3
    INFRASTRUCTURE = 4


_OK = int(Outcome.OK)
"""NumPy compares with it five times as fast."""


@dataclass(frozen=True, eq=False)
class Rows:
    """What was found out about B placements, a value each: the only declaration of what belongs to a row.

    Caches, stores, services and retries carry whatever is declared here as a `column`, without naming it. Which placements they are, of
    which problem, is known from the request; `Measurements` says that too.
    """

    outcome: np.ndarray = field(metadata=column(np.int8, Outcome.INFRASTRUCTURE))
    """`Outcome` codes, int8[B]."""
    seconds: np.ndarray = field(metadata=column(np.float64, np.nan))
    """Makespan, seconds, float64[B]; NaN unless OK."""
    objective: np.ndarray = field(metadata=column(np.float64, np.inf))
    """The problem's objective (seconds or joules), to be minimised, float64[B]; +inf unless OK."""
    host: str
    """Fingerprint of what measured it; of several, joined by ``+``."""
    samples: tuple[np.ndarray, ...] | None = field(default=None, metadata=column(np.float64, tail=()))
    """Raw samples of each placement, seconds, B arrays, where a host repeats its measurement."""
    notes: tuple[str, ...] | None = field(default=None, metadata=column(str))
    """A sentence a placement, why it is not OK."""
    deviation: np.ndarray | None = field(default=None, metadata=column(np.float64, np.nan))
    """Standard deviation of the samples that count, seconds, float64[B], where a host repeats its measurement; NaN unless OK."""
    compile_seconds: np.ndarray | None = field(default=None, metadata=column(np.float64, 0.0))
    """Time that it took to make each placement ready to run when it was measured, float64[B], where that takes any; no part of
    ``seconds``."""
    start: np.ndarray | None = field(default=None, metadata=column(np.float64, np.nan, of_trace=True))
    """Start of every operation, seconds, float64[B, V], if a trace was asked for."""
    finish: np.ndarray | None = field(default=None, metadata=column(np.float64, np.nan, of_trace=True))
    """Finish of every operation, seconds, float64[B, V], if a trace was asked for."""
    transfers: tuple[np.ndarray, ...] | None = field(default=None, metadata=column(np.float64, tail=(5,), of_trace=True))
    """Producer, sender, receiver, start and finish (seconds) of each transfer, B arrays float64[T, 5], if a trace was asked
    for and the evaluator knows transfers as tasks."""

    def __len__(self) -> int:
        return len(self.outcome)

    @property
    def ok(self) -> np.ndarray:
        """Which placements ran, bool[B]."""
        return self.outcome == _OK

    def take(self, rows: slice) -> Self:
        """The rows that an index or a slice picks, as a batch of their own."""
        return take(self, rows)

    @staticmethod
    def of(rows: Rows) -> Rows:
        """The values alone: of `Measurements` what does not say which placements they are."""
        return Rows(host=rows.host, **{name: getattr(rows, name) for name in columns(Rows)})

    @staticmethod
    def unknown(count: int) -> Rows:
        """Rows of which nothing is known, for reasons of infrastructure."""
        values: dict[str, Any] = {name: c.lacking(count) for name, c in columns(Rows).items() if not c.optional}
        return Rows(host="", **values)

    def put(self, rows: slice, part: Rows) -> Self:
        """These with ``rows`` replaced by another measurement of the same placements."""
        parts = [Rows.of(self.take(slice(0, rows.start))), Rows.of(part), Rows.of(self.take(slice(rows.stop, None)))]
        found = join_rows([p for p in parts if len(p)] or parts[:1])
        return replace(self, host=found.host, **{name: getattr(found, name) for name in columns(Rows)})


def join_rows(parts: Sequence[Rows]) -> Rows:
    """Consecutive rows as one; what only some parts have is empty, NaN or 0 in the others."""
    if len(parts) == 1:
        return parts[0]
    hosts = sorted({h for p in parts for h in p.host.split("+") if h})
    return Rows(host="+".join(hosts), **join(parts, [len(p) for p in parts]))


@dataclass(frozen=True, eq=False, kw_only=True)
class Measurements(Rows):
    """The answer to a request: `Rows`, and all that is needed to measure them again. ``batch[i]`` is one of them (a batch of 1)."""

    problem_hash: str
    placements: np.ndarray = field(metadata=column(np.int16))
    """int16[B, V]."""
    seed: int
    """With ``first``, what stochastic evaluators derive their noise from: placement i uses stream (seed, first + i)."""
    protocol: str
    """How it was measured, e.g. ``simulator:fifo``; equal protocol, problem, placement and seed repeat the measurement."""
    first: int = 0

    def __getitem__(self, index: int) -> Measurements:
        i = range(len(self))[index]
        return self.take(slice(i, i + 1))

    def take(self, rows: slice) -> Self:
        """The contiguous rows of a batch, keeping each row's noise stream."""
        begin, stop, step = rows.indices(len(self))
        if step != 1:
            raise ValueError(f"rows must be contiguous, not step {step}")
        return replace(super().take(slice(begin, stop)), first=self.first + begin)


def answer(rows: Rows, request: Request, protocol: str) -> Measurements:
    """What was found out about the placements of ``request``."""
    return Measurements(
        problem_hash=request.problem.content_hash, placements=np.asarray(request.placements), seed=request.seed, first=request.first,
        protocol=protocol, host=rows.host, **{name: getattr(rows, name) for name in columns(Rows)},
    )  # fmt: skip


def concatenate(parts: Sequence[Measurements]) -> Measurements:
    """Consecutive parts of one request joined again; all must share problem, seed, protocol and host."""
    return replace(parts[0], **join(parts, [len(p) for p in parts]))


def exactly(number: float) -> str:
    """A number as protocols hold it: short where that is all of it, else in full, so that no two are written alike."""
    return text if float(text := f"{number:g}") == number else repr(float(number))


class Request(NamedTuple):
    """What an evaluator is asked: one call of `Evaluator.evaluate`."""

    problem: Problem
    placements: np.ndarray
    """int16[B, V]."""
    seed: int
    first: int
    trace: bool = False


@runtime_checkable
class Evaluator(Protocol):
    """All that is asked of what scores placements: simulators, hosts, clients of services, and wrappers around any of them.

    `BaseEvaluator` has the usual answers, so that a new one need only say `protocol`, `deterministic` and how to `evaluate`."""

    @property
    def protocol(self) -> str:
        """How this evaluator measures; part of a measurement's identity."""
        ...

    @property
    def deterministic(self) -> bool:
        """True if the seed does not matter, so that results may be shared between seeds."""
        ...

    @property
    def fingerprint(self) -> str:
        """What measures, as `Rows.host` names it: ``simulated``, or the machine as far as times depend on it."""
        ...

    @property
    def traces(self) -> bool:
        """Whether it can tell when each operation ran; asked for a trace nevertheless, it measures without one."""
        ...

    @property
    def lease_seconds(self) -> float | None:
        """How long real hardware may take over one placement; None for a simulator, which any process can run beside others."""
        ...

    @property
    def queue_seconds(self) -> float:
        """How long requests have waited so far for hardware that others had; no part of what a measurement costs."""
        ...

    def evaluate(self, problem: Problem, placements: np.ndarray, seed: int = 0, *, first: int = 0, trace: bool = False) -> Measurements:
        """Score ``placements`` int16[B, V]; row i draws its noise from stream (seed, first + i); a trace adds start and finish.

        Raises:
            InputError: if the placements do not have V columns. A placement that cannot run is an outcome, not an error.
        """
        ...

    def evaluate_many(self, requests: Sequence[Request]) -> list[Measurements]:
        """Answers in order; whoever can keep several requests in flight does."""
        ...

    def check_machine(self) -> None:
        """Look whether this machine has what is needed to measure; nothing is started.

        Raises:
            InputError: naming what is not there.
        """
        ...

    def describe(self) -> Sequence[str]:
        """A sentence for each device that measures, for reports; none if there is nothing to say."""
        ...

    def close(self) -> None:
        """End processes and threads, if there are any; harmless if there are none (any more). Measuring again starts them again."""
        ...


class BaseEvaluator(ABC):
    """The answers of an evaluator that simulates, in this process, one request after another. Closed at the end of a ``with``."""

    measures_for_real: ClassVar[bool] = False
    """Whether it takes a machine to itself, for a time that is measured: such are leased, remembered, and one at a time."""

    @property
    @abstractmethod
    def protocol(self) -> str:
        """See `Evaluator.protocol`; every evaluator has its own."""

    @property
    @abstractmethod
    def deterministic(self) -> bool:
        """See `Evaluator.deterministic`; True only if every seed gives the same."""

    @property
    def fingerprint(self) -> str:
        """`SIMULATED`, unless an evaluator measures on a machine."""
        return SIMULATED

    @property
    def traces(self) -> bool:
        """Traces can be asked for."""
        return True

    @property
    def lease_seconds(self) -> float | None:
        """No hardware to be leased."""
        return None

    @property
    def queue_seconds(self) -> float:
        """0: nobody waits for an evaluator that is not shared."""
        return 0.0

    @abstractmethod
    def evaluate(self, problem: Problem, placements: np.ndarray, seed: int = 0, *, first: int = 0, trace: bool = False) -> Measurements:
        """See `Evaluator.evaluate`; every evaluator has its own."""

    def evaluate_many(self, requests: Sequence[Request]) -> list[Measurements]:
        """Answers the requests one after another, in their order."""
        return [self.evaluate(r.problem, r.placements, r.seed, first=r.first, trace=r.trace) for r in requests]

    def check_machine(self) -> None:  # noqa: B027 (a default, not a gap)
        """Any machine will do."""

    def describe(self) -> Sequence[str]:
        """Nothing to say of devices that are simulated."""
        return ()

    def close(self) -> None:  # noqa: B027
        """No processes to end."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Wrapper(BaseEvaluator):
    """An evaluator around another, ``inner``, which answers whatever the wrapper does not change."""

    inner: Evaluator

    @property
    def protocol(self) -> str:
        """What is measured does not differ."""
        return self.inner.protocol

    @property
    def deterministic(self) -> bool:
        """Whether ``inner`` gives every seed the same."""
        return self.inner.deterministic

    @property
    def fingerprint(self) -> str:
        """What ``inner`` measures on."""
        return self.inner.fingerprint

    @property
    def traces(self) -> bool:
        """Whether ``inner`` knows when operations ran."""
        return self.inner.traces

    @property
    def lease_seconds(self) -> float | None:
        """How long ``inner`` may take over a placement."""
        return self.inner.lease_seconds

    @property
    def queue_seconds(self) -> float:
        """How long ``inner`` has waited."""
        return self.inner.queue_seconds

    def check_machine(self) -> None:
        """Look whether ``inner`` finds here what it needs."""
        self.inner.check_machine()

    def describe(self) -> Sequence[str]:
        """The devices of ``inner``."""
        return self.inner.describe()

    def close(self) -> None:
        """Close ``inner``, which may have processes of its own."""
        self.inner.close()
