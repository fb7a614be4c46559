"""Evaluators around evaluators: noise, failures, a cut-off."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from envs.problem.columns import columns
from envs.problem.errors import InputError
from envs.problem.measurement import Evaluator, Measurements, Outcome, Rows, Wrapper
from envs.problem.problem import Problem


@dataclass(frozen=True)
class Noisy(Wrapper):
    """Multiplies every measured time by a log-normal factor of scale ``sigma``, as a real machine's jitter does.

    Row i draws from the stream (seed, first + i), so the noise does not depend on how a batch is split.
    """

    inner: Evaluator
    sigma: float

    def __post_init__(self) -> None:
        if not 0.0 < self.sigma < 1.0:
            raise InputError(f"measurement_noise is {self.sigma}; it must be in (0, 1)")

    @property
    def protocol(self) -> str:
        """What is measured, and how much noise is put on it."""
        return f"{self.inner.protocol} measurement_noise={self.sigma}"

    @property
    def deterministic(self) -> bool:
        """The noise depends on the seed."""
        return False

    def evaluate(self, problem: Problem, placements: np.ndarray, seed: int = 0, *, first: int = 0, trace: bool = False) -> Measurements:
        """``seconds`` and ``objective`` of row i times its factor exp(sigma z), z normal; a trace keeps the times without noise."""
        m = self.inner.evaluate(problem, placements, seed, first=first, trace=trace)
        normal = [np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(1, first + i))).standard_normal() for i in range(len(m))]
        factor = np.exp(self.sigma * np.array(normal))
        return replace(m, seconds=m.seconds * factor, objective=m.objective * factor, protocol=self.protocol)


@dataclass(frozen=True)
class CutOff(Wrapper):
    """Gives up on placements that take ``seconds`` or longer: TOO_SLOW, as a measuring host's limit makes of them (Mars, section 3.4)."""

    inner: Evaluator
    seconds: float

    def __post_init__(self) -> None:
        if not self.seconds > 0.0:
            raise InputError(f"cut_off is {self.seconds}; it must be above 0")

    @property
    def protocol(self) -> str:
        """What is measured, and until when."""
        return f"{self.inner.protocol} cut_off={self.seconds}"

    def evaluate(self, problem: Problem, placements: np.ndarray, seed: int = 0, *, first: int = 0, trace: bool = False) -> Measurements:
        """As ``inner``, but rows that ran for too long have no objective."""
        m = self.inner.evaluate(problem, placements, seed, first=first, trace=trace)
        late = m.ok & (m.seconds >= self.seconds)
        outcome = np.where(late, Outcome.TOO_SLOW, m.outcome).astype(m.outcome.dtype)
        return replace(
            m, outcome=outcome, seconds=np.where(late, np.nan, m.seconds), objective=np.where(late, np.inf, m.objective),
            protocol=self.protocol,
        )  # fmt: skip


@dataclass
class Failing(Wrapper):
    """Fails a share ``rate`` of the measurements as infrastructure does; asked again, the same row is drawn anew.

    For trying out recovery: results are those of the inner evaluator, because a failure is measured again.
    """

    inner: Evaluator
    rate: float

    def __post_init__(self) -> None:
        if not 0.0 < self.rate < 1.0:
            raise InputError(f"fail is {self.rate}; it must be in (0, 1)")
        self._calls = 0

    def evaluate(self, problem: Problem, placements: np.ndarray, seed: int = 0, *, first: int = 0, trace: bool = False) -> Measurements:
        """The inner rows, of which the failed ones are INFRASTRUCTURE without times; every call draws anew which those are."""
        m = self.inner.evaluate(problem, placements, seed, first=first, trace=trace)
        self._calls += 1
        failed = np.random.default_rng([seed, first, self._calls]).random(len(m)) < self.rate
        gone = {name: c.without(getattr(m, name), failed) for name, c in columns(Rows).items() if c.of_trace or name in _FAILS}
        return replace(m, **gone)


_FAILS = ("outcome", "seconds", "objective", "samples", "deviation")
"""Besides the trace, what a row that failed for reasons of infrastructure has none of."""
