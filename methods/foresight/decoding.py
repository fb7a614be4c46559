"""What points of the search stand for: placements by heuristics and policies, and what their own schedules plan. No search belongs here.

Kinds of points are, in this order: the list schedules of `methods.placing.varied_schedules`, the coarse heuristics (which are not decoded),
the policies as they were trained, and the policies where nodes are served in the order in which they become ready. The last plan closer to
what happens where devices serve what is ready first.
"""

from __future__ import annotations

import numpy as np

from envs.problem.problem import Problem
from methods.foresight.experts import HEURISTICS, Experts
from methods.foresight.features import features
from methods.foresight.policy import guide
from methods.foresight.schedule import Guidance, guided_schedules
from methods.placing.constraints import fit_memory
from methods.placing.varied_schedules import KINDS, varied_schedules
from methods.searching.space import Points

AT_ONCE = 1e6
"""Patience with which the time of becoming ready decides who is served."""


class Decoder:
    """Heuristics and policies on one problem.

    Args:
        problem: what is placed.
        experts: the policies.
        factors: on the problem's seconds, as they are believed to be, float64[V, D].
    """

    def __init__(self, problem: Problem, experts: Experts, factors: np.ndarray | None = None) -> None:
        self.problem, self._experts = problem, experts
        self._factors = np.ones(problem.compute_seconds.shape) if factors is None else factors
        self._believed = problem.compute_seconds * self._factors
        self.features = features(problem, self._believed)
        self._guidance: dict[int, Guidance] = {}

    @property
    def policies(self) -> np.ndarray:
        """Kinds of the policies, int64[2K]: as they were trained, then in order of readiness."""
        return HEURISTICS + np.arange(2 * len(self._experts.thetas))

    def decode(self, points: Points) -> tuple[np.ndarray, np.ndarray]:
        """Placements int16[N, V] that fit the memory, and when they end by their own plans, seconds float64[N].

        A plan is infinite where there is none: for kinds that are no policies, and where a placement had to be changed to fit.
        """
        found = np.empty(points.placement.shape, dtype=np.int16)
        planned, varied = np.full(len(found), np.inf), np.exp(points.factors.astype(np.float64))
        plain, guided = np.flatnonzero(points.kind < KINDS), np.flatnonzero(points.kind >= HEURISTICS)
        if len(plain):
            found[plain] = varied_schedules(self.problem, varied[plain] * self._factors, points.dearer[plain], points.kind[plain])
        if len(guided):
            guidance = self._guide(points.kind[guided])
            guidance = guidance._replace(dearer=guidance.dearer * points.dearer[guided])
            found[guided], planned[guided] = guided_schedules(self.problem, self._believed, varied[guided], guidance)
        fitted = fit_memory(self.problem, found)
        return fitted, np.where((fitted == found).all(axis=1), planned, np.inf)

    def placed(self, points: Points) -> Points:
        """The same points with their placements."""
        points.placement = self.decode(points)[0]
        return points

    def _guide(self, kinds: np.ndarray) -> Guidance:
        """Guidance of the policies ``kinds``, which is kept."""
        thetas = self._experts.thetas
        which = (kinds - HEURISTICS) % len(thetas)
        new = np.array([k for k in np.unique(which) if k not in self._guidance], dtype=np.int64)
        if len(new):
            made = guide(self.features, thetas[new])
            self._guidance |= {int(k): Guidance(*(part[i] for part in made)) for i, k in enumerate(new)}
        rows = [self._guidance[int(k)] for k in which]
        guidance = Guidance(*(np.stack([row[i] for row in rows]) for i in range(len(Guidance._fields))))
        early = kinds >= HEURISTICS + len(thetas)
        return guidance._replace(patience=np.where(early, AT_ONCE, guidance.patience), gaps=guidance.gaps & ~early)
