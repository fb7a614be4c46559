"""Measuring for real in a trial's own process, without the reward service: the same rules of what is kept and what runs at once."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import numpy as np

from envs.problem.measurement import Measurements, Request, Rows, Wrapper, answer, join_rows
from envs.problem.problem import Problem
from envs.simulators.fifo.evaluator import as_placements
from orchestration.rewards.evaluators import build_evaluator, remembered
from orchestration.rewards.machine_lock import MachineLock
from orchestration.rewards.measurement_store import MeasurementStore, measurement_context
from orchestration.specs.layout import STORE
from orchestration.specs.trial import EvaluatorSpec


class LocalHost(Wrapper):
    """An evaluator that measures one placement at a time on this machine and keeps each in the sweep's store as soon as it is there.

    What the store knows is not measured again, unless a trace is asked for or the sweep says ``cache: false``.
    """

    def __init__(self, spec: EvaluatorSpec, store: MeasurementStore) -> None:
        self.inner = build_evaluator(spec)
        self._store = store if remembered(spec) else None
        self._key, self._machine = spec.key, "" if ":" in spec.key else self.inner.fingerprint
        self._lock = MachineLock()

    def evaluate(self, problem: Problem, placements: np.ndarray, seed: int = 0, *, first: int = 0, trace: bool = False) -> Measurements:
        """What the store knows, and measurements of the rest."""
        placements = as_placements(problem, placements)
        if trace and self.inner.traces:
            with self._lock.held():
                found = self.inner.evaluate(problem, placements, seed, first=first, trace=True)
            self._keep(problem, placements, Rows.of(found))
            return found
        rows = [self._row(problem, placements[i : i + 1], seed, first + i) for i in range(len(placements))]
        return answer(join_rows(rows or [Rows.unknown(0)]), Request(problem, placements, seed, first), self.protocol)

    def _row(self, problem: Problem, placement: np.ndarray, seed: int, first: int) -> Rows:
        if self._store is not None:
            _, known = self._store.read(self._context(problem), placement)
            if known:
                return known[0]
        with self._lock.held():
            rows = Rows.of(self.inner.evaluate(problem, placement, seed, first=first))
        self._keep(problem, placement, rows)
        return rows

    def _keep(self, problem: Problem, placements: np.ndarray, rows: Rows) -> None:
        if self._store is not None:
            self._store.write(self._context(problem), placements, rows)

    def _context(self, problem: Problem) -> tuple[str, ...]:
        return measurement_context(problem.content_hash, self.protocol, self._key, self._machine)


@lru_cache(maxsize=4)
def sweep_store(folder: Path) -> MeasurementStore:
    """The store of the sweep in ``folder``, opened once in this process: while it runs the sweep it is the only writer."""
    return MeasurementStore(folder / STORE)
