"""Local search: simulated annealing over moves of single operations, pairs, chains, clusters and stretches of the graph.

Every round proposes a batch of neighbours of the current placement; the best of them becomes the current one by the Metropolis
rule on relative differences. What makes it strong at small budgets:

- it starts from the best of the one-go heuristics (`methods.placing.starts`), HEFT among them, so it never ends above them;
- most moves start on the critical chain of the current placement's measured trace (what fixes the makespan now; a period is fixed by the
  device with the largest load);
- moves take along 2 .. V/2 operations (log-uniform), because single moves are too local on real models; kinds of moves
  that succeed are drawn more often;
- if several moves of a batch improve, the next batch tries them all together;
- no placement is proposed twice while others are at hand; without progress it restarts from another good placement,
  shaken, and reheats.

The budget is the number of evaluated placements, as for every method.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import numpy as np

from envs.problem.measurement import Measurements
from envs.problem.ranges import Count, Positive, Share, ShareAboveNone
from envs.simulators.period import device_loads
from methods.contract.method import Method, Proposal
from methods.placing.constraints import fit_memory, unit_of, units
from methods.placing.list_scheduling import critical_chain, planned
from methods.placing.moves import OPERATORS, propose_move, random_move, unit_graph
from methods.placing.starts import good_starts


@dataclass(frozen=True)
class LocalSearchConfig:
    """How wide and how hot to search."""

    batch: Count = 8
    """Neighbours proposed a round."""
    temperature: Positive = 0.01
    """Initial temperature, as a part of the current objective."""
    cooling: ShareAboveNone = 0.97
    """Factor on the temperature a round."""
    patience: Count = 60
    """Rounds without a new best before a restart."""
    critical: Share = 0.7
    """Probability that a move starts on the critical chain."""
    elite: Count = 6
    """Good placements kept to restart from."""


class LocalSearch(Method):
    """Improves one placement by moves, restarting from the best ones found, until the budget is spent."""

    Config = LocalSearchConfig
    wants_trace = True

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._unit, self._heads = unit_of(self.problem), units(self.problem)
        self._graph = unit_graph(self.problem)
        self._starts = good_starts(self.problem, int(self.seed.generate_state(1)[0] >> 1))
        self._started = 0
        self._current = np.zeros(0, dtype=np.int16)  # device of every unit
        self._value = np.inf
        self._chain = np.zeros(0, dtype=np.int64)  # units on the critical chain of the current placement
        self._elite = np.zeros((0, len(self._heads)), dtype=np.int16)  # best first
        self._elite_values = np.zeros(0)
        self._temperature = self.config.temperature
        self._idle = 0  # rounds since the last new best
        self._success = np.ones(len(OPERATORS))
        self._tried = np.full(len(OPERATORS), 2.0)
        self._together: np.ndarray | None = None  # the improving moves of the last batch, all at once
        self._seen: set[bytes] = set()
        self._operators: list[int] = []  # of the placements proposed last; -1 is none

    def propose(self, n: int) -> list[Proposal]:
        if self._started < len(self._starts):
            rows = self._starts[self._started : self._started + n]
            return [Proposal(0, rows)]
        batch, self._operators = [], []
        if self._together is not None and self._note(self._together):
            batch.append(self._together)
            self._operators.append(-1)
        for _ in range(min(n, self.config.batch) - len(batch)):
            candidate, operator = self._neighbour()
            batch.append(candidate)
            self._operators.append(operator)
        return [Proposal(0, np.stack(batch)[:, self._unit])]

    def _neighbour(self) -> tuple[np.ndarray, int]:
        """A neighbour not proposed before, if one is found in a few tries, and its operator."""
        rate = self._success / self._tried
        odds = 0.5 * rate / rate.sum() + 0.5 / len(rate)
        for _ in range(20):
            operator = int(self.rng.choice(len(OPERATORS), p=odds))
            candidate = self._fit(random_move(self._graph, self._current, operator, self.rng, self._chain, self.config.critical))
            if self._note(candidate):
                break
        return candidate, operator

    def _fit(self, candidate: np.ndarray) -> np.ndarray:
        return fit_memory(self.problem, candidate[self._unit][None, :])[0, self._heads]

    def _note(self, candidate: np.ndarray) -> bool:
        """Remembers a placement of units; False if it was proposed before."""
        key = blake2b(candidate.tobytes(), digest_size=8).digest()
        new = key not in self._seen
        self._seen.add(key)
        return new

    def update(self, results: Sequence[Measurements]) -> None:
        result = results[0]
        candidates, values = result.placements[:, self._heads], result.objective
        best_before = self._elite_values[0] if len(self._elite_values) else np.inf
        self._remember(candidates, values)
        row = int(np.argmin(values))
        if self._started < len(self._starts):
            self._started += len(values)
            for candidate in candidates:
                self._note(candidate)
            if values[row] < self._value or len(self._current) == 0:
                self._move_to(result, row)
            return
        self._learn(values)
        self._together = self._combine(candidates, values)
        if values[row] <= self._value or self.rng.random() < self._tolerance(float(values[row])):
            self._move_to(result, row)
        self._temperature *= self.config.cooling
        self._idle = 0 if values[row] < best_before else self._idle + 1
        if self._idle >= self.config.patience:
            self._restart()

    def _tolerance(self, worse: float) -> float:
        """Probability of going to a ``worse`` value (Metropolis, relative); 0 if it did not run or the current value is 0."""
        if not np.isfinite(worse) or self._value <= 0:
            return 0.0
        return float(np.exp((1.0 - worse / self._value) / self._temperature))

    def _move_to(self, result: Measurements, row: int) -> None:
        placement = result.placements[row]
        self._current, self._value = placement[self._heads].copy(), float(result.objective[row])
        if self.problem.objective == "throughput":  # what fixes a period is the device with the largest load
            slowest = device_loads(self.problem, placement[None, :])[0].argmax()
            self._chain = np.unique(self._unit[placement == slowest])
            return
        if result.start is None or result.finish is None or not result.ok[row]:
            schedule = planned(self.problem, placement)
            start, finish = schedule.start, schedule.finish
        else:
            start, finish = result.start[row], result.finish[row]
        self._chain = np.unique(self._unit[critical_chain(self.problem, placement, start, finish)])

    def _remember(self, candidates: np.ndarray, values: np.ndarray) -> None:
        """Keeps the best distinct placements."""
        everything, worth = np.concatenate((self._elite, candidates)), np.concatenate((self._elite_values, values))
        _, first = np.unique(everything, axis=0, return_index=True)
        keep = first[np.lexsort((first, worth[first]))][: self.config.elite]
        self._elite, self._elite_values = everything[keep], worth[keep]

    def _learn(self, values: np.ndarray) -> None:
        """Counts which operators improved the current placement, forgetting slowly."""
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
        self._temperature, self._idle = self.config.temperature, 0

    def state(self) -> dict[str, Any]:
        return {
            **super().state(),
            "started": self._started,
            "current": self._current,
            "numbers": np.array([self._value, self._temperature]),
            "idle": self._idle,
            "chain": self._chain,
            "elite": self._elite,
            "elite_values": self._elite_values,
            "operators": np.stack((self._success, self._tried)),
            "together": self._together,
            "seen": np.frombuffer(b"".join(sorted(self._seen)), dtype=np.uint64).copy(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        super().restore(state)
        self._started, self._idle = int(state["started"]), int(state["idle"])
        self._value, self._temperature = (float(x) for x in state["numbers"])
        self._current, self._chain = np.asarray(state["current"]), np.asarray(state["chain"])
        self._elite, self._elite_values = np.asarray(state["elite"]), np.asarray(state["elite_values"])
        self._success, self._tried = np.array(state["operators"])
        self._together = None if state["together"] is None else np.asarray(state["together"])
        data = np.ascontiguousarray(state["seen"], dtype=np.uint64).tobytes()
        self._seen = {data[i : i + 8] for i in range(0, len(data), 8)}
