"""Problem-space search: list schedules of costs that are varied at random, the best variations kept and varied on.

Storer, Wu and Vaccari (Management Science 38(10), 1992) search the problems that a heuristic is shown instead of its solutions: every
point is a good schedule, and neighbours share what matters. Here the heuristics are HEFT, CPOP and earliest finish first, with and
without gaps (`methods.placing.varied_schedules`); a point is one of them, a factor on every operation's seconds on every device, and a
factor on all transfers. A variation takes one of the best points, lets some of its factors wander (log-normal steps), and now
and then changes the heuristic or the factor on transfers.

Local search takes turns with it: a proposal is either a variation or a move from a current placement, which
anneals, drifts over plateaus and restarts (`methods.searching.annealing`), and goes to a better placement whoever found it. What
gained more per proposal is drawn more, and moves of one round that improve the current placement are tried all together in the next.

It starts from the one-go heuristics, so it never ends above them; what moves found, and starts that are no list schedules, are varied from
the point that they came from, or from no variation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from envs.problem.measurement import Measurements
from envs.problem.ranges import Count, Positive, Share, ShareAboveNone
from methods.contract.method import Method, Proposal
from methods.placing.constraints import fit_memory
from methods.placing.meta_ops import enumerate_meta_ops
from methods.placing.starts import good_starts
from methods.placing.varied_schedules import KINDS, varied_schedules
from methods.searching.annealing import Annealing

MOST_GAIN = 0.05
"""Gains count up to this, so that one lucky proposal does not decide what is drawn from then on."""
TRIES = 5
"""Times that a proposal is drawn again if it was proposed before."""
EXPLORE = 0.05
"""Part of the draws that do not depend on what gained before."""


@dataclass(frozen=True)
class ProblemSpaceConfig:
    """How far and how wide to vary."""

    batch: Count = 8
    """Points proposed a round."""
    step: Positive = 0.05
    """Standard deviation of a step of a factor's logarithm."""
    elite: Count = 6
    """Best points that are varied on."""
    greed: ShareAboveNone = 0.4
    """Probability that the best of them is taken, then of the next if it is not, and so on."""
    change_heuristic: Share = 0.3
    """Probability that a varied point changes its heuristic."""
    change_transfers: Share = 0.2
    """Probability that it draws its factor on transfers anew."""
    moves: Share = 0.5
    """Probability that a proposal is a move of local search, where that does not depend on what gained before."""
    temperature: Positive = 0.01
    """Initial temperature of the moves' current placement, as a part of its objective."""
    cooling: ShareAboveNone = 0.97
    """Factor on the temperature a round."""
    patience: Count = 60
    """Rounds without a new best before the moves restart from one of the best points, shaken and hot."""
    critical: Share = 0.7
    """Probability that a move starts on the critical chain."""


@dataclass(eq=False)
class Points:
    """Points of the search and the placements that they stand for, an entry a row."""

    placement: np.ndarray
    """int16[N, V]."""
    factors: np.ndarray
    """Logarithms, float32[N, V, D]."""
    dearer: np.ndarray
    """Factor on transfers, float64[N]."""
    kind: np.ndarray
    """Heuristic, int64[N]."""
    value: np.ndarray
    """Objective, float64[N]; infinite before it is measured."""

    def take(self, rows: np.ndarray) -> Points:
        """Some of them, in that order."""
        return Points(*(getattr(self, key)[rows] for key in self.__dataclass_fields__))

    def join(self, other: Points) -> Points:
        """These and then the others."""
        return Points(*(np.concatenate((getattr(self, key), getattr(other, key))) for key in self.__dataclass_fields__))


class ProblemSpace(Method):
    """One placement problem, without end."""

    Config = ProblemSpaceConfig
    wants_trace = True

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._annealing = Annealing(self.problem, self.config, self.rng)
        self._given = 0  # starts left that are no plain schedules; they come first
        self._queue = self._starts()
        self._elite = self._queue.take(np.zeros(0, dtype=np.int64))
        self._asked = self._elite
        # Of variations and of moves: relative gains, and proposals, forgetting slowly.
        self._gained, self._tried = np.full(2, 0.002), np.full(2, 2.0)
        self._moves = 0  # rows that are moves, of what was asked last; -1: it was starts
        self._starting = True  # whether they were those of the one-go methods, which moves begin from

    def _starts(self) -> Points:
        """Every heuristic on the costs as they are, and the placements of the other one-go methods, each placement once."""
        problem, plain = self.problem, self._points(np.arange(KINDS))
        given = good_starts(problem, int(self.seed.generate_state(1)[0] >> 1))
        if (problem.graph.meta_op >= 0).any():
            given = np.concatenate((given, enumerate_meta_ops(problem)[None, :]))
        others = self._points(np.zeros(len(given), dtype=np.int64))
        others.placement = fit_memory(problem, given)
        plain.placement = self._decode(plain)
        both = others.join(plain)
        _, first = np.unique(both.placement, axis=0, return_index=True)
        self._given = int((first < len(given)).sum())
        return both.take(np.sort(first))

    def _points(self, kind: np.ndarray) -> Points:
        """Points without variation."""
        n, v = len(kind), self.problem.n_nodes
        return Points(
            np.zeros((n, v), dtype=np.int16), np.zeros((n, v, self.problem.n_devices), dtype=np.float32), np.ones(n), kind,
            np.full(n, np.inf),
        )  # fmt: skip

    def _decode(self, points: Points) -> np.ndarray:
        factors = np.exp(points.factors.astype(np.float64))
        return fit_memory(self.problem, varied_schedules(self.problem, factors, points.dearer, points.kind))

    def propose(self, n: int) -> list[Proposal]:
        if len(self._queue.value):
            return [Proposal(0, self._next_starts(n).placement)]
        n = min(n, self.config.batch)
        rate = self._gained / self._tried
        share = EXPLORE * self.config.moves + (1.0 - EXPLORE) * rate[1] / rate.sum()
        self._moves = int(self.rng.binomial(n, share))
        moved = self._elite.take(np.zeros(self._moves, dtype=np.int64))  # what is known of the best point is known of its neighbours
        moved.placement = self._annealing.propose(self._moves)
        self._asked = moved.join(self._vary(n - self._moves))
        return [Proposal(0, self._asked.placement)]

    def _next_starts(self, n: int) -> Points:
        count = min(n, self._given or len(self._queue.value))
        self._starting, self._given = self._given > 0, max(0, self._given - count)
        self._asked, self._queue = self._queue.take(np.arange(count)), self._queue.take(np.arange(count, len(self._queue.value)))
        self._moves = -1
        return self._asked

    def _vary(self, n: int) -> Points:
        """Variations of the elite, drawn again from twice as far where they were proposed before."""
        points = self._variations(n, self.config.step)
        again = np.arange(n)
        for k in range(TRIES):
            again = np.array([i for i in again if not self._annealing.note(points.placement[i])], dtype=np.int64)
            if not len(again):
                break
            redrawn = self._variations(len(again), self.config.step * 2.0 ** (k + 1))
            for key in points.__dataclass_fields__:
                getattr(points, key)[again] = getattr(redrawn, key)
        return points

    def _variations(self, n: int, step: float) -> Points:
        c, rng, problem = self.config, self.rng, self.problem
        points = self._elite.take(np.minimum(rng.geometric(c.greed, n) - 1, len(self._elite.value) - 1))
        for i in range(n):
            some = rng.random(problem.n_nodes) < np.exp(rng.uniform(np.log(2.0 / max(2, problem.n_nodes)), 0.0))
            points.factors[i, some] += step * rng.standard_normal((int(some.sum()), problem.n_devices), dtype=np.float32)
            if rng.random() < c.change_transfers:
                points.dearer[i] = np.exp(0.7 * rng.standard_normal())
            if rng.random() < c.change_heuristic:
                points.kind[i] = rng.integers(KINDS)
        points.placement = self._decode(points)
        return points

    def update(self, results: Sequence[Measurements]) -> None:
        result = results[0]
        self._asked.value = result.objective.copy()
        if self._moves < 0:
            (self._annealing.begin if self._starting else self._annealing.update)(result)
        else:
            self._learn(result.objective)
            self._annealing.update(result)
        everything = self._elite.join(self._asked)
        _, first = np.unique(everything.placement, axis=0, return_index=True)
        self._elite = everything.take(first[np.lexsort((first, everything.value[first]))][: self.config.elite])

    def _learn(self, values: np.ndarray) -> None:
        """Adds up by how much variations were below the best before them, and moves below the placement that they changed."""
        for row, value in enumerate(values):
            arm = int(row < self._moves)
            best = self._annealing.value if arm else self._annealing.best
            gain = 1.0 - value / best if value < best < np.inf else MOST_GAIN if value < best else 0.0
            self._tried[arm] = 0.99 * self._tried[arm] + 1.0
            self._gained[arm] = 0.99 * self._gained[arm] + min(gain, MOST_GAIN)

    def state(self) -> dict[str, Any]:
        points: dict[str, Any] = {name: dict(vars(getattr(self, f"_{name}"))) for name in ("queue", "elite")}
        return {
            **super().state(),
            **points,
            "given": self._given,
            "arms": np.stack((self._gained, self._tried)),
            "annealing": self._annealing.state(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        super().restore(state)
        for name in ("queue", "elite"):
            setattr(self, f"_{name}", Points(**{key: np.array(value) for key, value in state[name].items()}))
        self._gained, self._tried = np.array(state["arms"])
        self._given = int(state["given"])
        self._annealing.restore(state["annealing"])
