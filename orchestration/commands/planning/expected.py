"""What one trial will take: evaluations by what its method really uses, seconds by measured or by reference rates. Sums over a sweep belong
to `orchestration.commands.planning.plan`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from envs.problem.errors import InputError
from envs.problem.problem import Problem
from methods.contract.method import Method
from methods.contract.registry import configure, method_class
from orchestration.commands.planning.rates import Rates
from orchestration.commands.planning.reference import Reference
from orchestration.specs.canonical import FrozenDict
from orchestration.specs.sources import build_problem, measures_costs, must_be_captured
from orchestration.specs.trial import ProblemSpec, Trial
from orchestration.trials.progress import CONTENDERS

Key = tuple[str, ...]
"""Content hashes of a trial's problems."""


@dataclass(frozen=True)
class Expected:
    """Of one trial."""

    evaluations: int | None
    """None if only wall time bounds it."""
    learner: float | None
    """Seconds; None where nothing was ever measured."""
    evaluator: float | None
    """Seconds; None where nothing was ever measured. 0 if only wall time bounds the trial: then ``learner`` is all of it."""
    reference: tuple[str, ...] = ()
    """What of it rests on reference rates: the method, the evaluator's key or both."""


class _NotYet(Exception):
    """A graph is not on disk yet, or its costs are measured when it is loaded: a plan does neither."""


class Expectation:
    """Expected costs of trials. What the problems say about them is looked at once, when the trials are first seen.

    Args:
        trials: all that will be asked for; put together by their problems, of which only one trial's are held at a time.
    """

    def __init__(self, trials: Sequence[Trial], rates: Rates, reference: Reference) -> None:
        self._rates, self._reference = rates, reference
        self._wanted: dict[tuple[str, FrozenDict, Key], int | None] = {}
        self._nodes: dict[Key, float | None] = {}
        problems = {_key(t): t.problems for t in trials}
        methods: dict[Key, dict[tuple[str, FrozenDict], None]] = {key: {} for key in problems}
        for trial in trials:
            if trial.kind != "zero-shot":
                methods[_key(trial)][trial.method, trial.config] = None
        for key, specs in problems.items():
            self._nodes[key] = _mean_nodes(specs)
            for method, config in methods[key]:
                self._wanted[method, config, key] = _wanted(method, config, specs)

    def of(self, trial: Trial) -> Expected:
        """What the trial will take, as far as that is known."""
        limits = [trial.budget.evaluations, self._limit(trial)]
        known = [n for n in limits if n is not None]
        if not known:
            return Expected(None, trial.budget.seconds, 0.0)
        evaluations = min(known)
        total = evaluations + _confirming(trial, evaluations)
        learner, by_method = self._seconds(trial, self._rates.learner_rate(trial), "learner", trial.method, evaluations)
        evaluator, by_evaluator = self._seconds(trial, self._rates.evaluator_rate(trial), "evaluator", trial.evaluator.key, total)
        return Expected(total, learner, evaluator, by_method + by_evaluator)

    def _limit(self, trial: Trial) -> int | None:
        """After how many evaluations the trial ends of itself."""
        if trial.kind == "zero-shot":
            return None
        wanted = self._wanted[trial.method, trial.config, _key(trial)]
        if wanted is not None:
            return wanted
        end = self._rates.end(trial)
        end = self._reference.ends.get(trial.method) if end is None else end
        return None if end is None else round(end)

    def _seconds(
        self, trial: Trial, measured: float | None, kind: str, name: str, evaluations: int
    ) -> tuple[float | None, tuple[str, ...]]:
        rate, source = measured, tuple[str, ...]()
        if rate is None:
            rate, source = self._reference.rate(kind, name, self._nodes[_key(trial)]), (name,)
            if rate is not None and kind == "learner":
                cls, config = _configured(trial.method, trial.config)
                rate *= cls.effort(config)
        if rate is None:
            return None, ()
        return min(rate * evaluations, trial.budget.seconds or float("inf")), source


def _key(trial: Trial) -> Key:
    return tuple(p.content_hash for p in trial.problems)


def _confirming(trial: Trial, evaluations: int) -> int:
    """Measurements of the best placements at the end of a trial."""
    if not trial.budget.confirm or trial.kind == "pretrain":
        return 0
    best = max(1, min(CONTENDERS, evaluations // len(trial.problems)))
    return len(trial.problems) * best * max(1, trial.budget.confirm // best)


def _problems(specs: Sequence[ProblemSpec]) -> list[Problem]:
    if any(must_be_captured(s) or measures_costs(s) for s in specs):
        raise _NotYet
    return [build_problem(s) for s in specs]


def _wanted(method: str, config: FrozenDict, specs: Sequence[ProblemSpec]) -> int | None:
    """`Method.wanted_evaluations`, None too where that depends on a graph that cannot be had yet."""
    try:
        cls, configured = _configured(method, config)
        return cls.wanted_evaluations(configured, lambda: _problems(specs))
    except (_NotYet, InputError):  # what is wrong with a problem is said where problems are checked
        return None


@lru_cache(maxsize=256)
def _configured(method: str, config: FrozenDict) -> tuple[type[Method], Any]:
    """The method's class and its settings, looked up once: thousands of trials share them."""
    return method_class(method), configure(method, config)


def _mean_nodes(specs: Sequence[ProblemSpec]) -> float | None:
    """Mean operations of the problems; None if one cannot be had yet."""
    try:
        problems = _problems(specs)
    except (_NotYet, InputError):
        return None
    return sum(p.n_nodes for p in problems) / len(problems)
