"""Foresight: list scheduling guided by learned policies, then a search around what they propose, corrected by measured times.

A policy is a graph network (`methods.foresight.policy`) that says of every operation what each device would cost later (a bias in seconds,
made of PEFT's optimistic cost table and other estimates, weighted for the graph and the operation) and which operation is served first;
list scheduling turns that into a placement (`methods.foresight.schedule`). The policies were trained by an evolution strategy on makespans
relative to HEFT's, over many graphs; those that complement each other are shipped, and tried in the order that suits graphs like this one
(`methods.foresight.experts`), and so are some one-go heuristics. So the first placement costs one evaluation.

After the first ``experts`` placements come the other one-go heuristics, and then the search of `methods.searching.space`, whose kinds are
the policies besides HEFT, CPOP and earliest finish. Where a trace shows that operations take other times than the problem says
(`methods.foresight.beliefs`), policies and search go on with corrected times, and what they now propose is tried first.

For ``throughput`` and ``energy`` the policies were not trained. There the best contiguous split comes first, or the one-go heuristics do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from envs.problem.measurement import Measurements
from envs.problem.problem import Problem
from envs.problem.ranges import Count, CountOrNone
from methods.contract.method import Method, Proposal
from methods.foresight.beliefs import Beliefs
from methods.foresight.experts import HEURISTICS, Experts, shipped
from methods.foresight.features import Features, features
from methods.foresight.policy import guide
from methods.foresight.schedule import guided_schedules
from methods.placing.constraints import fit_memory
from methods.placing.pipeline import best_split
from methods.placing.starts import IDEALS, coarse_starts
from methods.placing.varied_schedules import KINDS, varied_schedules
from methods.searching.space import Points, SpaceSearch, SpaceSettings, one_go_points


@dataclass(frozen=True)
class ForesightConfig(SpaceSettings):
    """How many policies, and how the search around them goes."""

    experts: Count = 10
    """Policies whose placements are tried first."""
    refresh: CountOrNone = 2
    """Placements a round that policies make of corrected times, where the cost model proves wrong; 0 never corrects it."""


class Foresight(Method):
    """One placement problem, without end."""

    Config = ForesightConfig
    wants_trace = True

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._beliefs = Beliefs(self.problem)
        self._begin(shipped())

    def _begin(self, experts: Experts) -> None:
        self._experts, self._features = experts, features(self.problem, self.problem.compute_seconds)
        self._factors, self._round = np.ones(self.problem.compute_seconds.shape), 0
        self._order = experts.order(self._features.graph, self.config.experts)
        self._decoded = self._order[(self._order < KINDS) | (self._order >= HEURISTICS)]
        vars(self).pop("_search", None)

    @cached_property
    def _search(self) -> SpaceSearch:
        """Made when it is first asked for: its starts take time, and whoever builds a method may only want to know that it can be."""
        first = self._first(self.problem, self._features, self._order)
        given = one_go_points(self.problem, int(self.seed.generate_state(1)[0] >> 1))
        plain = self._placed(Points.plain(self.problem, np.arange(KINDS)))
        starts = [given, plain, first] if self.problem.objective == "energy" else [first.join(given), plain]
        kinds = np.unique(np.concatenate((np.arange(KINDS), self._decoded)))
        return SpaceSearch(self.problem, self.config, self.rng, self._decode, starts, kinds)

    def _placed(self, points: Points) -> Points:
        points.placement = fit_memory(self.problem, self._decode(points))
        return points

    def _decode(self, points: Points) -> np.ndarray:
        return _decode(self.problem, self._experts, self._features, points, self._factors)

    def propose(self, n: int) -> list[Proposal]:
        first = None
        if self._beliefs.wrong and self.config.refresh and len(self._decoded):
            turn = (self._round * self.config.refresh + np.arange(self.config.refresh)) % len(self._decoded)
            first = self._placed(Points.plain(self.problem, self._decoded[turn]))
            if len(self._search.elite.value):
                best = self._search.elite.take(np.zeros(1, dtype=np.int64))
                first = self._placed(best).join(first)
            self._round += 1
        return [Proposal(0, self._search.propose(n, first))]

    def update(self, results: Sequence[Measurements]) -> None:
        if self.config.refresh and self._beliefs.update(results[0]):
            self._correct()
        self._search.update(results[0])

    def _correct(self) -> None:
        self._factors = self._beliefs.factors
        self._features = features(self.problem, self.problem.compute_seconds * self._factors)

    def place(self, problem: Problem) -> np.ndarray:
        """The first placement int16[V] that the policies propose."""
        seen = features(problem, problem.compute_seconds)
        return self._first(problem, seen, self._experts.order(seen.graph, 1)).placement[0]

    def _first(self, problem: Problem, seen: Features, order: np.ndarray) -> Points:
        """What heuristics and policies propose, of the kinds int64[N]; what is no list schedule is varied from HEFT, like other starts.

        Of a pipeline it is the best contiguous split that takes no more than a moment.
        """
        if problem.objective == "throughput" and (split := best_split(problem, IDEALS).device) is not None:
            points = Points.plain(problem, np.zeros(1))
            points.placement = fit_memory(problem, split[None, :])
            return points
        coarse = (order >= KINDS) & (order < HEURISTICS)
        points = Points.plain(problem, np.where(coarse, 0, order))
        points.placement = _decode(problem, self._experts, seen, points, np.ones(problem.compute_seconds.shape))
        points.placement[coarse] = coarse_starts(problem, 0)[order[coarse] - KINDS]
        points.placement = fit_memory(problem, points.placement)
        return points

    def policy(self) -> dict[str, Any]:
        return self._experts.state()

    def load_policy(self, policy: Mapping[str, Any]) -> None:
        self._begin(Experts.of(policy))

    def state(self) -> dict[str, Any]:
        beliefs = {"total": self._beliefs.total, "count": self._beliefs.count}
        return {
            **super().state(),
            "beliefs": beliefs,
            "round": self._round,
            "search": self._search.state(),
            "experts": self._experts.state(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        self._begin(Experts.of(state["experts"]))
        search = self._search  # its starts are of the problem as it was given, before any correction
        super().restore(state)
        self._beliefs.total, self._beliefs.count = (np.array(state["beliefs"][key]) for key in ("total", "count"))
        self._round = int(state["round"])
        if self._beliefs.wrong:
            self._correct()
        search.restore(state["search"])


def _decode(problem: Problem, experts: Experts, seen: Features, points: Points, factors: np.ndarray) -> np.ndarray:
    """Placements int16[N, V] of points under seconds that are ``factors`` float64[V, D] times the cost model's."""
    found = np.empty(points.placement.shape, dtype=np.int16)
    varied = np.exp(points.factors.astype(np.float64)) * factors
    plain, guided = np.flatnonzero(points.kind < KINDS), np.flatnonzero(points.kind >= HEURISTICS)
    if len(plain):
        found[plain] = varied_schedules(problem, varied[plain], points.dearer[plain], points.kind[plain])
    if len(guided):
        guidance = guide(seen, experts.thetas[points.kind[guided] - HEURISTICS])
        guidance = guidance._replace(dearer=guidance.dearer * points.dearer[guided])
        found[guided] = guided_schedules(problem, problem.compute_seconds * varied[guided], guidance)
    return found
