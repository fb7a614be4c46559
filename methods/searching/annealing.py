"""Simulated annealing over moves of one placement: the engine of local search, which other searches take turns with. No starts belong here.

What makes it strong at small budgets:

- most moves start on the critical chain of the current placement's measured trace (what fixes the makespan now; a period is fixed by the
  device with the largest load);
- moves take along 2 .. V/2 operations (log-uniform), because single moves are too local on real models; kinds of moves
  that succeed are drawn more often;
- if several moves of a batch improve, the next batch tries them all together;
- no placement is proposed twice while others are at hand; without progress it restarts from another good placement,
  shaken, and reheats.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from envs.problem.distinct import first_of_equals
from envs.problem.measurement import Measurements
from envs.problem.problem import Problem
from envs.problem.ranges import Count, Positive, Share, ShareAboveNone
from envs.simulators.period import device_loads
from methods.placing.constraints import fit_units, fitting, unit_of, units
from methods.placing.list_scheduling import critical_chain, planned
from methods.placing.moves import OPERATORS, propose_move, unit_graph
from methods.searching.unseen import Seen

STUCK = 5
"""Rounds without an improvement by moves before a better placement that others found is gone to. While moves improve their own placement
it is left to them: those of list schedules are scattered, so that moves of connected operations gain less there."""


@dataclass(frozen=True)
class AnnealingSettings:
    """How hot and how patient to search."""

    temperature: Positive = 0.01
    """Initial temperature of the moves' current placement, as a part of its objective."""
    cooling: ShareAboveNone = 0.97
    """Factor on the temperature a round."""
    patience: Count = 60
    """Rounds without a new best before the moves restart from one of the best placements, shaken and hot."""
    critical: Share = 0.7
    """Probability that a move starts on the critical chain."""
    elite: Count = 6
    """Best placements that are kept, to restart from and to vary."""


class Annealing:
    """The current placement of a search, and moves from it.

    Args:
        problem: what is placed.
        settings: see `AnnealingSettings`.
        rng: what it draws from; it belongs to the method, which keeps its state.
    """

    def __init__(self, problem: Problem, settings: AnnealingSettings, rng: np.random.Generator) -> None:
        self.problem, self.settings, self.rng = problem, settings, rng
        self._unit, self._heads = unit_of(problem), units(problem)
        self._graph, self._fitting = unit_graph(problem), fitting(problem)
        self._current = np.zeros(0, dtype=np.int16)  # device of every unit
        self._value = np.inf
        self._chain = np.zeros(0, dtype=np.int64)  # units on the critical chain of the current placement
        self._elite = np.zeros((0, len(self._heads)), dtype=np.int16)  # best first
        self._elite_values = np.zeros(0)
        self._temperature = settings.temperature
        self._idle = 0  # rounds since the last new best
        self._stuck = 0  # rounds since moves last improved the current placement
        self._other: tuple[np.ndarray, float, np.ndarray] | None = None  # the best that others found: devices of units, objective, chain
        self._success = np.ones(len(OPERATORS))
        self._tried = np.full(len(OPERATORS), 2.0)
        self._together: np.ndarray | None = None  # the improving moves of the last batch, all at once
        self._seen = Seen()
        self._operators: list[int] = []  # of the placements proposed last; -1 is none

    @property
    def value(self) -> float:
        """The current placement's objective; infinite before it is known."""
        return self._value

    @property
    def best(self) -> float:
        """The best objective measured so far."""
        return float(self._elite_values[0]) if len(self._elite_values) else np.inf

    def propose(self, n: int) -> np.ndarray:
        """``n`` moved placements int16[n, V], of which `update` is told next."""
        batch, self._operators = np.empty((0, len(self._heads)), dtype=np.int16), []
        if n and self._together is not None and self._seen.add(self._together):
            batch, self._operators = self._together[None, :], [-1]
        if n > len(batch):
            rate = self._success / self._tried
            odds = 0.5 * rate / rate.sum() + 0.5 / len(rate)
            more, operators = self._seen.neighbours(
                self.rng, self._graph, self._fitting, self._current, odds, self._chain, self.settings.critical, n - len(batch)
            )
            batch, self._operators = np.concatenate((batch, more)), self._operators + operators.tolist()
        return batch.take(self._unit, axis=1, mode="clip")

    def _fit(self, candidate: np.ndarray) -> np.ndarray:
        fit_units(candidate, self._fitting)
        return candidate

    def note(self, placement: np.ndarray) -> bool:
        """Remembers a placement int16[V] as proposed; False if it was before."""
        return self._seen.add(placement[self._heads])

    def begin(self, result: Measurements) -> None:
        """Takes in measured starts, of which the best so far becomes the current placement."""
        for placement in result.placements:
            self.note(placement)
        self._remember(result.placements[:, self._heads], result.objective)
        row = int(np.argmin(result.objective))
        if result.objective[row] < self._value or len(self._current) == 0:
            self._move_to(result, row)

    def update(self, result: Measurements) -> None:
        """Takes in a round: first the rows of `propose`, then any that others proposed, to which it goes once it is `STUCK`."""
        candidates, values = result.placements[:, self._heads], result.objective
        best_before, value_before, own = self.best, self._value, len(self._operators)
        self._remember(candidates, values)
        self._learn(values[:own])
        self._together = self._combine(candidates[:own], values[:own])
        if own:
            row = int(np.argmin(values[:own]))
            if values[row] <= self._value or self.rng.random() < self._tolerance(float(values[row])):
                self._move_to(result, row)
        self._stuck = 0 if self._value < value_before else self._stuck + 1
        row = int(np.argmin(values))
        if row >= own and values[row] < best_before:
            self._other = (candidates[row].copy(), float(values[row]), self._chain_of(result, row))
        if self._stuck >= STUCK and self._other is not None and self._other[1] < self._value:
            self._current, self._value, self._chain = self._other
            self._other, self._together = None, None
        self._temperature *= self.settings.cooling
        self._idle = 0 if values.min() < best_before else self._idle + 1
        if self._idle >= self.settings.patience:
            self._restart()

    def _tolerance(self, worse: float) -> float:
        """Probability of going to a ``worse`` value (Metropolis, relative); 0 if it did not run or the current value is 0."""
        if not np.isfinite(worse) or self._value <= 0:
            return 0.0
        return float(np.exp((1.0 - worse / self._value) / self._temperature))

    def _move_to(self, result: Measurements, row: int) -> None:
        self._current, self._value = result.placements[row, self._heads].copy(), float(result.objective[row])
        self._chain = self._chain_of(result, row)

    def _chain_of(self, result: Measurements, row: int) -> np.ndarray:
        """The units that fix the objective of a measured placement."""
        placement = result.placements[row]
        if self.problem.objective == "throughput":  # what fixes a period is the device with the largest load
            slowest = device_loads(self.problem, placement[None, :])[0].argmax()
            return self._units_of(placement == slowest)
        if result.start is None or result.finish is None or not result.ok[row]:
            schedule = planned(self.problem, placement)
            start, finish = schedule.start, schedule.finish
        else:
            start, finish = result.start[row], result.finish[row]
        return self._units_of(critical_chain(self.problem, placement, start, finish))

    def _units_of(self, nodes: np.ndarray) -> np.ndarray:
        """The units of some nodes, ascending, int64[N]."""
        there = np.zeros(len(self._heads), dtype=bool)
        there[self._unit[nodes]] = True
        return np.flatnonzero(there)

    def _remember(self, candidates: np.ndarray, values: np.ndarray) -> None:
        """Keeps the best distinct placements."""
        if len(self._elite) == self.settings.elite and values.min() >= self._elite_values[-1]:
            return
        everything, worth = np.concatenate((self._elite, candidates)), np.concatenate((self._elite_values, values))
        first = first_of_equals(everything)
        keep = first[np.argsort(worth[first], kind="stable")][: self.settings.elite]
        self._elite, self._elite_values = everything[keep], worth[keep]

    def _learn(self, values: np.ndarray) -> None:
        """Adds up which operators improved the current placement, forgetting slowly."""
        for operator, value in zip(self._operators, values, strict=True):
            if operator >= 0:
                self._tried[operator] = 0.99 * self._tried[operator] + 1.0
                self._success[operator] = 0.99 * self._success[operator] + float(value < self._value)

    def _combine(self, candidates: np.ndarray, values: np.ndarray) -> np.ndarray | None:
        """All improving moves of a batch at once, the better ones winning where they disagree; None if fewer than two improve."""
        better = np.flatnonzero(values < self._value)
        if len(better) < 2:
            return None
        together = self._current.copy()
        for row in better[np.argsort(-values[better], kind="stable")]:
            moved = candidates[row] != self._current
            together[moved] = candidates[row][moved]
        return self._fit(together)

    def _restart(self) -> None:
        """Back to one of the good placements, shaken by a few moves, and hot again."""
        current = self._elite[int(self.rng.integers(len(self._elite)))]
        for _ in range(int(self.rng.integers(1, 4))):
            seed, size = int(self.rng.integers(len(current))), int(self.rng.integers(2, max(3, len(current) // 4)))
            current = propose_move(self._graph, current, int(self.rng.integers(len(OPERATORS))), seed, size, self.rng.random(4))
        self._current, self._value = self._fit(current), np.inf
        self._chain, self._together = np.zeros(0, dtype=np.int64), None
        self._temperature, self._idle = self.settings.temperature, 0

    def state(self) -> dict[str, Any]:
        """All that is needed to go on, but the generator."""
        return {
            "current": self._current,
            "numbers": np.array([self._value, self._temperature]),
            "idle": self._idle,
            "stuck": self._stuck,
            "other": None if self._other is None else list(self._other),
            "chain": self._chain,
            "elite": self._elite,
            "elite_values": self._elite_values,
            "operators": np.stack((self._success, self._tried)),
            "together": self._together,
            "seen": self._seen.hashes(),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """The inverse of `state`."""
        self._idle, self._stuck = int(state["idle"]), int(state["stuck"])
        other = state["other"]
        self._other = None if other is None else (np.asarray(other[0]), float(other[1]), np.asarray(other[2]))
        self._value, self._temperature = (float(x) for x in state["numbers"])
        self._current, self._chain = np.asarray(state["current"]), np.asarray(state["chain"])
        self._elite, self._elite_values = np.asarray(state["elite"]), np.asarray(state["elite_values"])
        self._success, self._tried = np.array(state["operators"])
        self._together = None if state["together"] is None else np.asarray(state["together"])
        self._seen = Seen(np.asarray(state["seen"], dtype=np.uint64))
