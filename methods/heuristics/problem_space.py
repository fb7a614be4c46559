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
from functools import cached_property
from typing import Any

import numpy as np

from envs.problem.measurement import Measurements
from methods.contract.method import Method, Proposal
from methods.placing.constraints import fit_memory
from methods.placing.varied_schedules import KINDS, varied_schedules
from methods.searching.space import Points, SpaceSearch, SpaceSettings, one_go_points


@dataclass(frozen=True)
class ProblemSpaceConfig(SpaceSettings):
    """How far and how wide to vary."""


class ProblemSpace(Method):
    """One placement problem, without end."""

    Config = ProblemSpaceConfig
    wants_trace = True

    @cached_property
    def _search(self) -> SpaceSearch:
        """Made when it is first asked for: its starts take time, and whoever builds a method may only want to know that it can be."""
        given, kinds = one_go_points(self.problem, int(self.seed.generate_state(1)[0] >> 1)), np.arange(KINDS)
        plain = Points.plain(self.problem, kinds)
        plain.placement = fit_memory(self.problem, self._decode(plain))
        return SpaceSearch(self.problem, self.config, self.rng, self._decode, [given, plain], kinds)

    def _decode(self, points: Points) -> np.ndarray:
        return varied_schedules(self.problem, np.exp(points.factors.astype(np.float64)), points.dearer, points.kind)

    def propose(self, n: int) -> list[Proposal]:
        return [Proposal(0, self._search.propose(n))]

    def update(self, results: Sequence[Measurements]) -> None:
        self._search.update(results[0])

    def state(self) -> dict[str, Any]:
        return {**super().state(), **self._search.state()}

    def restore(self, state: dict[str, Any]) -> None:
        super().restore(state)
        self._search.restore(state)
