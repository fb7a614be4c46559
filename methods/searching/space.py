"""A search over points, each of which stands for a placement: the engine of problem-space search, in turn with moves. No heuristics here.

A point is one way of making a placement (a *kind*, such as HEFT), a factor on every operation's seconds on every device, and a factor
on all transfers; what decodes points is the method's. A variation takes one of the best points, lets some of its factors wander
(log-normal steps), and now and then changes the kind or the factor on transfers. Every proposal is a variation or a move
(`methods.searching.annealing`); what gained more per proposal is drawn more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from envs.problem.distinct import first_of_equals
from envs.problem.measurement import Measurements
from envs.problem.problem import Problem
from envs.problem.ranges import Count, Positive, Share, ShareAboveNone
from methods.placing.constraints import fit_memory
from methods.placing.meta_ops import enumerate_meta_ops
from methods.placing.starts import good_starts
from methods.searching.annealing import Annealing, AnnealingSettings

MOST_GAIN = 0.05
"""Gains count up to this, so that one lucky proposal does not decide what is drawn from then on."""
TRIES = 5
"""Times that a proposal is drawn again if it was proposed before."""
DECISIVE = 2.0
"""Power of the gains per proposal by which proposals are drawn. Proportional shares (1.0) leave a third of them to variations on training
steps, where moves have long been out of their reach."""
EXPLORE = 0.05
"""Part of the draws that do not depend on what gained before."""


@dataclass(frozen=True)
class SpaceSettings(AnnealingSettings):
    """How far and how wide to vary."""

    batch: Count = 8
    """Points proposed a round."""
    step: Positive = 0.05
    """Standard deviation of a step of a factor's logarithm."""
    greed: ShareAboveNone = 0.4
    """Probability that the best of them is taken, then of the next if it is not, and so on."""
    change_heuristic: Share = 0.3
    """Probability that a varied point changes its heuristic."""
    change_transfers: Share = 0.2
    """Probability that it draws its factor on transfers anew."""
    moves: Share = 0.5
    """Probability that a proposal is a move of local search, where that does not depend on what gained before."""


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
    """int64[N]."""
    value: np.ndarray
    """Objective, float64[N]; infinite before it is measured."""

    def take(self, rows: np.ndarray) -> Points:
        """Some of them, in that order."""
        return Points(*(getattr(self, key)[rows] for key in self.__dataclass_fields__))

    def join(self, other: Points) -> Points:
        """These and then the others."""
        return Points(*(np.concatenate((getattr(self, key), getattr(other, key))) for key in self.__dataclass_fields__))

    def put(self, rows: np.ndarray, other: Points) -> None:
        """Replaces some of them."""
        for key in self.__dataclass_fields__:
            getattr(self, key)[rows] = getattr(other, key)

    @staticmethod
    def plain(problem: Problem, kind: np.ndarray) -> Points:
        """Points without variation, not decoded, a kind each."""
        n, v = len(kind), problem.n_nodes
        factors = np.zeros((n, v, problem.n_devices), dtype=np.float32)
        return Points(np.zeros((n, v), dtype=np.int16), factors, np.ones(n), kind.astype(np.int64), np.full(n, np.inf))


def one_go_points(problem: Problem, seed: int) -> Points:
    """The placements of the one-go methods that apply, as points of the first kind."""
    given = good_starts(problem, seed)
    if (problem.graph.meta_op >= 0).any():
        given = np.concatenate((given, enumerate_meta_ops(problem)[None, :]))
    points = Points.plain(problem, np.zeros(len(given)))
    points.placement = fit_memory(problem, given)
    return points


class SpaceSearch:
    """The state of a search.

    Args:
        problem: what is placed.
        settings: see `SpaceSettings`.
        rng: what it draws from; it belongs to the method, which keeps its state.
        decode: makes placements int16[N, V] of points.
        starts: batches of points to begin with, placed; moves begin from those of the first batch.
        kinds: what a variation may change its kind to.
    """

    def __init__(
        self, problem: Problem, settings: SpaceSettings, rng: np.random.Generator, decode: Callable[[Points], np.ndarray],
        starts: list[Points], kinds: np.ndarray,
    ) -> None:  # fmt: skip
        self.problem, self.settings, self.rng, self.kinds = problem, settings, rng, kinds
        self._make = decode
        self._annealing = Annealing(problem, settings, rng)
        whole = starts[0]
        for batch in starts[1:]:
            whole = whole.join(batch)
        first = first_of_equals(whole.placement)
        self._given = int((first < len(starts[0].value)).sum())  # starts left that moves begin from; they come first
        self._queue = whole.take(first)
        self.elite = self._queue.take(np.zeros(0, dtype=np.int64))
        self._asked = self.elite
        # Of variations and of moves: relative gains, and proposals, forgetting slowly.
        self._gained, self._tried = np.full(2, 0.002), np.full(2, 2.0)
        self._moves = 0  # rows that are moves, of what was asked last; -1: it was starts
        self._starting = True  # whether they were those that moves begin from

    def decode(self, points: Points) -> np.ndarray:
        """The placements int16[N, V] that points stand for."""
        return fit_memory(self.problem, self._make(points))

    def propose(self, n: int, first: Points | None = None) -> np.ndarray:
        """At most ``n`` placements int16[B, V]; ``first`` are points that are asked before any variation is, if they are new."""
        if len(self._queue.value):
            return self._next_starts(n).placement
        n = min(n, self.settings.batch)
        asked = self.elite.take(np.zeros(0, dtype=np.int64))
        if first is not None:
            new = [i for i in range(len(first.value)) if self._annealing.note(first.placement[i])]
            asked = first.take(np.array(new[:n], dtype=np.int64))
            n -= len(asked.value)
        rate = (self._gained / self._tried) ** DECISIVE
        share = EXPLORE * self.settings.moves + (1.0 - EXPLORE) * rate[1] / rate.sum()
        self._moves = int(self.rng.binomial(n, share))
        moved = self.elite.take(np.zeros(self._moves, dtype=np.int64))  # what is known of the best point is known of its neighbours
        moved.placement = self._annealing.propose(self._moves)
        self._asked = moved.join(asked).join(self._vary(n - self._moves))
        return self._asked.placement

    def _next_starts(self, n: int) -> Points:
        count = min(n, self._given or len(self._queue.value))
        self._starting, self._given = self._given > 0, max(0, self._given - count)
        self._asked, self._queue = self._queue.take(np.arange(count)), self._queue.take(np.arange(count, len(self._queue.value)))
        self._moves = -1
        return self._asked

    def _vary(self, n: int) -> Points:
        """Variations of the elite, drawn again from twice as far where they were proposed before."""
        points = self._variations(n, self.settings.step)
        again = np.arange(n)
        for k in range(TRIES):
            again = np.array([i for i in again if not self._annealing.note(points.placement[i])], dtype=np.int64)
            if not len(again):
                break
            redrawn = self._variations(len(again), self.settings.step * 2.0 ** (k + 1))
            points.put(again, redrawn)
        return points

    def _variations(self, n: int, step: float) -> Points:
        c, rng, problem = self.settings, self.rng, self.problem
        points = self.elite.take(np.minimum(rng.geometric(c.greed, n) - 1, len(self.elite.value) - 1))
        for i in range(n):
            some = rng.random(problem.n_nodes) < np.exp(rng.uniform(np.log(2.0 / max(2, problem.n_nodes)), 0.0))
            points.factors[i, some] += step * rng.standard_normal((int(some.sum()), problem.n_devices), dtype=np.float32)
            if rng.random() < c.change_transfers:
                points.dearer[i] = np.exp(0.7 * rng.standard_normal())
            if rng.random() < c.change_heuristic:
                points.kind[i] = self.kinds[rng.integers(len(self.kinds))]
        points.placement = self.decode(points)
        return points

    def update(self, result: Measurements) -> None:
        """Takes in what `propose` asked for."""
        self._asked.value = result.objective.copy()
        if self._moves < 0:
            (self._annealing.begin if self._starting else self._annealing.update)(result)
        else:
            self._learn(result.objective)
            self._annealing.update(result)
        everything = self.elite.join(self._asked)
        first = first_of_equals(everything.placement)
        self.elite = everything.take(first[np.argsort(everything.value[first], kind="stable")][: self.settings.elite])

    def _learn(self, values: np.ndarray) -> None:
        """Adds up by how much variations were below the best before them, and moves below the placement that they changed."""
        for row, value in enumerate(values):
            arm = int(row < self._moves)
            best = self._annealing.value if arm else self._annealing.best
            gain = 1.0 - value / best if value < best < np.inf else MOST_GAIN if value < best else 0.0
            self._tried[arm] = 0.99 * self._tried[arm] + 1.0
            self._gained[arm] = 0.99 * self._gained[arm] + min(gain, MOST_GAIN)

    def state(self) -> dict[str, Any]:
        """All that is needed to go on, but the generator."""
        points = {"queue": dict(vars(self._queue)), "elite": dict(vars(self.elite))}
        return {**points, "given": self._given, "arms": np.stack((self._gained, self._tried)), "annealing": self._annealing.state()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """The inverse of `state`."""
        self._queue, self.elite = (Points(**{k: np.array(v) for k, v in state[name].items()}) for name in ("queue", "elite"))
        self._gained, self._tried = np.array(state["arms"])
        self._given = int(state["given"])
        self._annealing.restore(state["annealing"])
