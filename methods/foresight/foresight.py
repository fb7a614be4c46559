"""Foresight: list scheduling guided by learned policies, then a search around what they propose, corrected by measured times.

A policy is a graph network (`methods.foresight.policy`) that says of every operation what each device would cost later (a bias in seconds,
made of PEFT's optimistic cost table and other estimates, weighted for the graph and the operation) and which operation is served first;
list scheduling turns that into a placement (`methods.foresight.schedule`). The policies were trained by an evolution strategy on makespans
relative to HEFT's, over many graphs; those that complement each other are shipped (`methods.foresight.experts`).

Before anything is measured, all policies and some variations of them are planned, and those whose own plans end first are proposed
(`methods.foresight.planning`): the first placement costs one evaluation and a few hundred list schedules. Without plans, policies and some
one-go heuristics are tried in the order that was best on graphs like this one. After these ``experts`` placements come the other one-go
heuristics, and then the search of `methods.searching.space`, whose kinds are the policies besides HEFT, CPOP and earliest finish. Where a
trace shows that operations take other times than the problem says (`methods.foresight.beliefs`), policies and search go on with
corrected times, and what they now propose is tried first.

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
from methods.foresight.decoding import Decoder
from methods.foresight.experts import HEURISTICS, Experts, shipped
from methods.foresight.planning import planned
from methods.placing.constraints import fit_memory
from methods.placing.pipeline import best_split
from methods.placing.starts import IDEALS, coarse_starts
from methods.placing.varied_schedules import KINDS
from methods.searching.space import Points, SpaceSearch, SpaceSettings, one_go_points


@dataclass(frozen=True)
class ForesightConfig(SpaceSettings):
    """How many policies, and how the search around them goes."""

    experts: Count = 10
    """Placements by policies that are tried first."""
    plans: CountOrNone = 320
    """Variations of policies that are planned to choose these; 0 plans nothing and goes by what was best on graphs alike."""
    learned: bool = True
    """Whether policies have been learned; without, HEFT is the only one. To see what learning is worth."""
    refresh: CountOrNone = 2
    """Placements a round that policies make of corrected times, where the cost model proves wrong; 0 never corrects it."""


class Foresight(Method):
    """One placement problem, without end."""

    Config = ForesightConfig
    wants_trace = True

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._beliefs = Beliefs(self.problem)
        self._begin(shipped() if self.config.learned else shipped().unlearned())

    def _begin(self, experts: Experts) -> None:
        self._experts, self._decoder, self._round = experts, Decoder(self.problem, experts), 0
        vars(self).pop("_first", None)
        vars(self).pop("_search", None)

    @cached_property
    def _first(self) -> Points:
        return self._proposed(self.problem, self._decoder, self.config.experts)

    @property
    def _policies(self) -> np.ndarray:
        """Kinds of the list schedules that are tried first, int64[N]; a policy is one that has been learned."""
        return np.array(list(dict.fromkeys(int(k) for k in self._first.kind)))

    @cached_property
    def _search(self) -> SpaceSearch:
        """Made when it is first asked for: its starts take time, and whoever builds a method may only want to know that it can be."""
        given = one_go_points(self.problem, int(self.seed.generate_state(1)[0] >> 1))
        plain = self._decoder.placed(Points.plain(self.problem, np.arange(KINDS)))
        starts = [given, plain, self._first] if self.problem.objective == "energy" else [self._first.join(given), plain]
        kinds = np.unique(np.concatenate((np.arange(KINDS), self._policies)))
        return SpaceSearch(self.problem, self.config, self.rng, lambda points: self._decoder.decode(points)[0], starts, kinds)

    def propose(self, n: int) -> list[Proposal]:
        first = None
        if self._beliefs.wrong and self.config.refresh:
            turn = (self._round * self.config.refresh + np.arange(self.config.refresh)) % len(self._policies)
            first = self._decoder.placed(Points.plain(self.problem, self._policies[turn]))
            if len(self._search.elite.value):
                best = self._search.elite.take(np.zeros(1, dtype=np.int64))
                first = self._decoder.placed(best).join(first)
            self._round += 1
        return [Proposal(0, self._search.propose(n, first))]

    def update(self, results: Sequence[Measurements]) -> None:
        if self.config.refresh and self._beliefs.update(results[0]):
            self._correct()
        self._search.update(results[0])

    def _correct(self) -> None:
        self._decoder = Decoder(self.problem, self._experts, self._beliefs.factors)

    def place(self, problem: Problem) -> np.ndarray:
        """The first placement int16[V] that is proposed."""
        return self._proposed(problem, Decoder(problem, self._experts), 1).placement[0]

    def _proposed(self, problem: Problem, decoder: Decoder, count: int) -> Points:
        """The first ``count`` points: of a pipeline the best contiguous split that takes no more than a moment, else what plans
        best, or, without plans or if none fits, what was best on graphs alike. What is no list schedule is varied from HEFT, like other
        starts.
        """
        if problem.objective == "throughput" and (split := best_split(problem, IDEALS).device) is not None:
            points = Points.plain(problem, np.zeros(1))
            points.placement = fit_memory(problem, split[None, :])
            return points
        if self.config.plans and problem.objective == "makespan":
            points = planned(decoder, self.config.plans, np.random.default_rng(0))
            if len(points.value):
                return points.take(np.arange(min(count, len(points.value))))
        order = self._experts.order(decoder.features.graph, count)
        coarse = (order >= KINDS) & (order < HEURISTICS)
        points = decoder.placed(Points.plain(problem, np.where(coarse, 0, order)))
        points.placement[coarse] = coarse_starts(problem, 0)[order[coarse] - KINDS]
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
