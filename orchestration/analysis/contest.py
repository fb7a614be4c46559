"""Placements that are measured against each other."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from envs.problem.problem import Problem
from orchestration.analysis.statistics import Interval, stratified_bootstrap
from orchestration.specs.trial import EvaluatorSpec


@dataclass
class Contestant:
    """One placement in the contest, and every time it was measured."""

    names: list[str]
    """Who found it: method, and stage where there are several; more than one where methods found the same."""
    seed: int
    trial: str
    placement: np.ndarray
    """int16[V]."""
    evaluator: EvaluatorSpec
    recorded: float
    """Objective in the search that found it, seconds or joules."""
    protocol: str = ""
    values: list[float] = field(default_factory=list)
    """Objective, one a round; +inf where it did not run."""
    notes: dict[str, None] = field(default_factory=dict)
    """Why it did not run, each reason once."""

    @property
    def name(self) -> str:
        """Everybody who found this placement, in one text."""
        return ", ".join(self.names)


@dataclass
class Contest:
    """All candidates of one problem."""

    problem: Problem
    name: str
    scale: tuple[float, str]
    """Factor and unit for people."""
    candidates: list[Contestant]
    devices: list[str] = field(default_factory=list)
    """What measured, in words."""

    def against(self, candidate: Contestant, baseline: Contestant) -> Interval:
        """Median over rounds of objective / baseline's of the same round, less 1, with its 95 % bootstrap interval."""
        ratio = np.array(candidate.values) / np.array(baseline.values) - 1.0
        low, high = stratified_bootstrap(ratio, np.zeros(len(ratio), dtype=np.int64), lambda x: np.median(x, axis=-1))
        return Interval(float(np.median(ratio)), float(low), float(high))
