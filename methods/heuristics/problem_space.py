"""Problem-space search: list schedules of costs that are varied at random, the best variations kept and varied on.

Storer, Wu and Vaccari (Management Science 38(10), 1992) search the problems that a heuristic is shown instead of its solutions: every
point is a good schedule, and neighbours share what matters. Here the heuristics are HEFT, CPOP and earliest finish first, with and
without gaps (`methods.placing.varied_schedules`); a point is one of them, a factor on every operation's seconds on every device, and a
factor on all transfers. Each proposal takes one of the best points, lets some of its factors wander (log-normal steps), and now
and then changes the heuristic or the factor on transfers. With probability ``moves`` it is a move of local search instead
(`methods.placing.moves`), so that both work on the same elite; what gains most is drawn most. Moves of one round that improve the best
point are tried all together in the next.

It starts from the one-go heuristics, so it never ends above them; what moves found, and starts that are no list schedules, are varied from
the point that they came from, or from no variation.
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
from methods.placing.list_scheduling import critical_chain
from methods.placing.meta_ops import enumerate_meta_ops
from methods.placing.moves import OPERATORS, random_move, unit_graph
from methods.placing.starts import good_starts
from methods.placing.varied_schedules import KINDS, varied_schedules

MOST_GAIN = 0.05
"""Gains count up to this, so that one lucky proposal does not decide what is drawn from then on."""
TRIES = 5
"""Times that a proposal is drawn again if it was proposed before."""


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
    moves: Share = 0.25
    """Probability that a proposal is a move of local search, before anything is known of their success."""


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
    chain: np.ndarray
    """Units that fix the objective, bool[N, U]."""
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
        self._unit, self._heads, self._graph = unit_of(self.problem), units(self.problem), unit_graph(self.problem)
        self._queue = self._starts()
        self._elite = self._queue.take(np.zeros(0, dtype=np.int64))
        self._asked = self._elite
        self._seen: set[bytes] = set()
        # Of varying, and of each operator of local search: relative gains on their points, and proposals, forgetting slowly.
        self._success, self._tried = np.full(1 + len(OPERATORS), 0.002), np.full(1 + len(OPERATORS), 2.0)
        self._arm, self._parent = np.zeros(0, dtype=np.int64), np.zeros(0)  # of what was asked last: how, and the value of its point
        self._together = np.zeros((0, self.problem.n_nodes), dtype=np.int16)

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
        return both.take(np.sort(first))

    def _points(self, kind: np.ndarray) -> Points:
        """Points without variation."""
        n, v = len(kind), self.problem.n_nodes
        return Points(
            np.zeros((n, v), dtype=np.int16), np.zeros((n, v, self.problem.n_devices), dtype=np.float32), np.ones(n), kind,
            np.zeros((n, len(self._heads)), dtype=bool), np.full(n, np.inf),
        )  # fmt: skip

    def _decode(self, points: Points) -> np.ndarray:
        factors = np.exp(points.factors.astype(np.float64))
        return fit_memory(self.problem, varied_schedules(self.problem, factors, points.dearer, points.kind))

    def propose(self, n: int) -> list[Proposal]:
        if len(self._queue.value):
            first = np.arange(min(n, len(self._queue.value)))
            self._asked, self._queue = self._queue.take(first), self._queue.take(np.arange(len(first), len(self._queue.value)))
            self._arm = np.full(len(first), -1)
        else:
            self._asked = self._vary(min(n, self.config.batch))
        self._seen.update(map(_key, self._asked.placement))
        return [Proposal(0, self._asked.placement)]

    def _vary(self, n: int) -> Points:
        """Neighbours of the elite, drawn again from twice as far where they were proposed before."""
        points, self._arm, self._parent = self._neighbours(n, self.config.step)
        for k in range(TRIES):
            again = np.array([i for i, p in enumerate(points.placement) if _key(p) in self._seen], dtype=np.int64)
            if not len(again):
                break
            redrawn, self._arm[again], self._parent[again] = self._neighbours(len(again), self.config.step * 2.0 ** (k + 1))
            for key in points.__dataclass_fields__:
                getattr(points, key)[again] = getattr(redrawn, key)
        if len(self._together):
            points.placement[0], self._arm[0] = fit_memory(self.problem, self._together)[0], -1
        return points

    def _neighbours(self, n: int, step: float) -> tuple[Points, np.ndarray, np.ndarray]:
        """New points, how each came about, and the value of the point that it came from."""
        c, rng, problem = self.config, self.rng, self.problem
        rate = self._success / self._tried
        odds = 0.75 * rate / rate.sum() + 0.25 * np.concatenate(([1.0 - c.moves], np.full(len(OPERATORS), c.moves / len(OPERATORS))))
        arm = rng.choice(len(odds), n, p=odds)
        # Moves change little, so they pay on the best point; varied schedules differ enough to profit from others.
        rank = np.where(arm == 0, np.minimum(rng.geometric(c.greed, n) - 1, len(self._elite.value) - 1), 0)
        points = self._elite.take(rank)
        parent, points.value = points.value, np.full(n, np.inf)
        for i in np.flatnonzero(arm > 0):
            chain = np.flatnonzero(points.chain[i])
            units_moved = random_move(self._graph, points.placement[i, self._heads], int(arm[i]) - 1, rng, chain, 0.7)
            points.placement[i] = units_moved[self._unit]
        varied = np.flatnonzero(arm == 0)
        for i in varied:
            some = rng.random(problem.n_nodes) < np.exp(rng.uniform(np.log(2.0 / max(2, problem.n_nodes)), 0.0))
            points.factors[i, some] += step * rng.standard_normal((int(some.sum()), problem.n_devices), dtype=np.float32)
            if rng.random() < c.change_transfers:
                points.dearer[i] = np.exp(0.7 * rng.standard_normal())
            if rng.random() < c.change_heuristic:
                points.kind[i] = rng.integers(KINDS)
        if len(varied):
            points.placement[varied] = self._decode(points.take(varied))
        points.placement = fit_memory(problem, points.placement)
        return points, arm, parent

    def update(self, results: Sequence[Measurements]) -> None:
        result = results[0]
        self._asked.value = result.objective.copy()
        self._learn()
        everything = self._elite.join(self._asked)
        _, first = np.unique(everything.placement, axis=0, return_index=True)
        best = first[np.lexsort((first, everything.value[first]))][: self.config.elite]
        for i in best[best >= len(self._elite.value)]:
            everything.chain[i] = self._chain(result, int(i) - len(self._elite.value))
        self._elite = everything.take(best)

    def _learn(self) -> None:
        """Adds up what each way gained, and puts together the moves that improved the best point, better ones winning."""
        self._together = self._together[:0]
        for arm, value, parent in zip(self._arm, self._asked.value, self._parent, strict=False):
            if arm >= 0:
                self._tried[arm] = 0.99 * self._tried[arm] + 1.0
                gain = 1.0 - value / parent if value < parent else 0.0
                self._success[arm] = 0.99 * self._success[arm] + min(gain, MOST_GAIN)
        if (self._arm < 1).all():
            return
        best = self._elite.value[0]
        better = np.flatnonzero((self._arm > 0) & (self._parent == best) & (self._asked.value < best))
        if len(better) > 1:
            together = self._elite.placement[0].copy()
            for row in better[np.argsort(-self._asked.value[better], kind="stable")]:
                moved = self._asked.placement[row] != self._elite.placement[0]
                together[moved] = self._asked.placement[row][moved]
            self._together = together[None, :]

    def _chain(self, result: Measurements, row: int) -> np.ndarray:
        """The units that fix the objective of a measured placement, bool[U]; all of them where nothing is known."""
        placement, chain = result.placements[row], np.zeros(len(self._heads), dtype=bool)
        if self.problem.objective == "throughput":
            nodes = np.flatnonzero(placement == device_loads(self.problem, placement[None, :])[0].argmax())
        elif result.start is None or result.finish is None or not result.ok[row]:
            nodes = np.arange(self.problem.n_nodes)
        else:
            nodes = critical_chain(self.problem, placement, result.start[row], result.finish[row])
        chain[self._unit[nodes]] = True
        return chain

    def state(self) -> dict[str, Any]:
        points: dict[str, Any] = {name: dict(vars(getattr(self, f"_{name}"))) for name in ("queue", "elite")}
        points |= {"arms": np.stack((self._success, self._tried)), "together": self._together}
        return {**super().state(), **points, "seen": np.frombuffer(b"".join(sorted(self._seen)), dtype=np.uint64).copy()}

    def restore(self, state: dict[str, Any]) -> None:
        super().restore(state)
        for name in ("queue", "elite"):
            setattr(self, f"_{name}", Points(**{key: np.array(value) for key, value in state[name].items()}))
        self._success, self._tried = np.array(state["arms"])
        self._together = np.array(state["together"], dtype=np.int16)
        data = np.ascontiguousarray(state["seen"], dtype=np.uint64).tobytes()
        self._seen = {data[i : i + 8] for i in range(0, len(data), 8)}


def _key(placement: np.ndarray) -> bytes:
    return blake2b(placement.tobytes(), digest_size=8).digest()
