"""What a sweep will cost before it starts: its stages as a DAG, trials, evaluations, and hours from measured rates.

Running does not belong here; rates are read from the ledgers that earlier runs left.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from envs.problem.errors import InputError
from orchestration.analysis.table import plural
from orchestration.folder.ledger import entries
from orchestration.specs.layout import LEDGER
from orchestration.specs.trial import Trial

if TYPE_CHECKING:
    from orchestration.definition.searches import SearchSpec
    from orchestration.definition.stages import Stage
    from orchestration.definition.sweep import Sweep


@dataclass
class Rates:
    """Measured seconds an evaluation of the budget: of each method's learner and of each evaluator's key.

    A rate is kept by name (``heft``, ``dataflow:cpu2``) and by name and problem (``heft@HASH``); the narrower known one is used.
    """

    learner: dict[str, float] = field(default_factory=dict)
    evaluator: dict[str, float] = field(default_factory=dict)

    @staticmethod
    def from_file(path: Path) -> Rates:
        """Rates written by `to_file`; InputError if the file is none of those."""
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
            return Rates(_numbers(data["learner"]), _numbers(data["evaluator"]))
        except OSError as error:
            raise InputError(f"rates file {path} cannot be read ({error.strerror}); check the path") from None
        except (ValueError, KeyError, TypeError, AttributeError):
            raise InputError(
                f'rates file {path} must hold seconds an evaluation as {{"learner": {{"heft": 1e-3}}, "evaluator": {{"simulator": 1e-5}}}}'
            ) from None

    def to_file(self, path: Path) -> None:
        """Write the plan as JSON, for programs."""
        path.write_text(json.dumps(asdict(self), indent=1, sort_keys=True) + "\n", encoding="utf-8")

    @staticmethod
    def from_runs(folder: Path) -> Rates:
        """Rates of all trials recorded in the sweep directories under ``folder``; damaged ledgers are passed over."""

        sums: dict[tuple[str, str], tuple[float, int]] = {}
        for ledger in sorted(folder.glob(f"*/{LEDGER}")):
            try:
                for trial, result in entries(ledger.parent):
                    # Of the budget, not of what was used: a method that ends early will do so again.
                    evaluations = trial.budget.evaluations or result.evaluations
                    if result.evaluations:
                        evaluator = trial.evaluator.key
                        for kind, name, seconds in (
                            ("learner", trial.method, result.learner_seconds),
                            ("evaluator", evaluator, result.evaluation_seconds),
                        ):
                            for key in (name, _narrow(name, trial)):
                                old = sums.get((kind, key), (0.0, 0))
                                sums[kind, key] = (old[0] + seconds, old[1] + evaluations)
            except (InputError, KeyError, TypeError):
                continue
        rates = Rates()
        for (kind, key), (seconds, evaluations) in sums.items():
            getattr(rates, kind)[key] = seconds / evaluations
        return rates

    def seconds(self, trial: Trial) -> tuple[float | None, float | None]:
        """Expected seconds of the trial's learner and of its evaluator, None where nothing was measured."""
        if trial.budget.evaluations is None:
            return trial.budget.seconds, None
        learner, evaluator = (
            _times(rates.get(_narrow(name, trial), rates.get(name)), trial.budget.evaluations)
            for rates, name in ((self.learner, trial.method), (self.evaluator, trial.evaluator.key))
        )
        if trial.budget.seconds is not None:
            learner = trial.budget.seconds if learner is None else min(learner, trial.budget.seconds)
            evaluator = None if evaluator is None else min(evaluator, trial.budget.seconds)
        return learner, evaluator


def _numbers(data: Mapping[str, Any]) -> dict[str, float]:
    numbers = {str(k): float(v) for k, v in data.items()}
    if not all(math.isfinite(v) and v >= 0 for v in numbers.values()):
        raise ValueError("not a rate")
    return numbers


def _narrow(name: str, trial: Trial) -> str:
    return f"{name}@{trial.problems[0].content_hash[:16]}" if len(trial.problems) == 1 else name


def _times(rate: float | None, evaluations: int) -> float | None:
    return None if rate is None else rate * evaluations


@dataclass(frozen=True)
class StagePlan:
    """What one stage will run; for a search these are upper bounds, because trials are pruned and configurations repeat."""

    name: str
    kind: str
    after: tuple[str, ...]
    """Stages it waits for."""
    methods: int
    problems: int
    seeds: int
    configurations: int
    """Most configurations a search tries for each method; 1 without a search."""
    trials: int
    evaluations: int | None
    """None if the budget is wall time alone."""
    evaluator: str
    learner_seconds: float | None
    """Over all trials; None without a rate for some method."""
    evaluator_seconds: float | None
    without_rate: tuple[str, ...]
    """Methods and evaluators that no earlier run has measured."""
    sampler: str | None = None


@dataclass(frozen=True)
class SweepPlan:
    """What a sweep will run."""

    sweep: str
    stages: tuple[StagePlan, ...]

    @property
    def searches(self) -> bool:
        """Whether some of the numbers are upper bounds."""
        return any(s.sampler for s in self.stages)

    @property
    def trials(self) -> int:
        """Number of trials over all stages."""
        return sum(s.trials for s in self.stages)

    @property
    def evaluations(self) -> int | None:
        """Over all stages; None if a stage has a budget of wall time alone."""
        return _sum([s.evaluations for s in self.stages])

    def to_json(self) -> dict[str, Any]:
        """As a dict of JSON values."""
        return {"sweep": self.sweep, "trials": self.trials, "evaluations": self.evaluations, "stages": [asdict(s) for s in self.stages]}


def _sum(values: Sequence[Any]) -> Any:
    return None if any(v is None for v in values) else sum(values)


def make_plan(sweep: Sweep, rates: Rates | None = None) -> SweepPlan:
    """The plan of a sweep, hours from ``rates`` where they are known."""
    expansion = sweep.expansion()
    trials: dict[str, list[Trial]] = {}
    for trial in (*expansion.trials, *expansion.waiting):
        trials.setdefault(trial.stage, []).append(trial)
    searches: dict[str, list[SearchSpec]] = {}
    for search in (*expansion.searches, *expansion.waiting_searches):
        searches.setdefault(search.stage, []).append(search)
    return SweepPlan(
        sweep.name,
        tuple(_stage_plan(s, trials.get(s.name, []), searches.get(s.name, []), rates or Rates()) for s in sweep.stages),
    )


def _stage_plan(stage: Stage, trials: Sequence[Trial], searches: Sequence[SearchSpec], rates: Rates) -> StagePlan:
    counted = [(1, t) for t in trials] + [(s.settings.configurations, t) for s in searches for t in s.templates]
    evaluations = _sum([None if t.budget.evaluations is None else n * t.budget.evaluations for n, t in counted])
    times = [(n, *rates.seconds(t)) for n, t in counted]
    missing = {t.method for (_, t), (_, a, _) in zip(counted, times, strict=True) if a is None}
    missing |= {t.evaluator.key for (_, t), (_, _, b) in zip(counted, times, strict=True) if b is None}
    return StagePlan(
        name=stage.name,
        kind=stage.kind,
        after=tuple(s for s in (stage.source, stage.config_source) if s is not None),
        methods=len(stage.rows),
        problems=len(stage.problems),
        seeds=len(stage.shared.seeds),
        configurations=stage.search.configurations if stage.search is not None else 1,
        trials=sum(n for n, _ in counted),
        evaluations=evaluations,
        evaluator=stage.shared.evaluator.key,
        learner_seconds=_sum([None if a is None else n * a for n, a, _ in times]),
        evaluator_seconds=_sum([None if b is None else n * b for n, _, b in times]),
        without_rate=tuple(sorted(missing)),
        sampler=stage.search.sampler.name if stage.search is not None else None,
    )


def render(plan: SweepPlan) -> str:
    """The plan as text for a terminal."""
    most = "at most " if plan.searches else ""
    count = "a budget of wall time" if plan.evaluations is None else f"{most}{plan.evaluations:,} evaluations"
    head = f"{plan.sweep}: {plural(len(plan.stages), 'stage')}, {most}{plural(plan.trials, 'trial')}, {count}"
    return "\n".join([head, *_stage_lines(plan.stages), *_hour_lines(plan.stages)])


def _stage_lines(stages: Sequence[StagePlan]) -> Iterator[str]:
    rows = []
    for s in stages:
        what = f"{plural(s.methods, 'method')} x {plural(s.problems, 'problem')} x {plural(s.seeds, 'seed')}"
        if s.sampler is not None:
            what += f" x {s.configurations} configurations ({s.sampler})"
        bound = "<= " if s.sampler is not None else ""
        evaluations = "by time" if s.evaluations is None else f"{bound}{s.evaluations:,}"
        name = f"{' + '.join(s.after)} -> {s.name}" if s.after else s.name
        rows.append((name, s.kind, f"{bound}{s.trials:,}", evaluations, s.evaluator, what))
    header = ("stage", "kind", "trials", "evaluations", "evaluator", "methods x problems x seeds")
    widths = [max(len(r[i]) for r in (header, *rows)) for i in range(len(header))]
    for row in (header, *rows):
        cells = (c.rjust(w) if i in (2, 3) else c.ljust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True)))
        yield ("  " + "  ".join(cells)).rstrip()


def _hour_lines(stages: Sequence[StagePlan]) -> Iterator[str]:
    missing = sorted({m for s in stages for m in s.without_rate})
    parts = _durations(stages)
    if parts:
        yield f"  at measured rates: {', '.join(parts)}, before dividing by what runs in parallel"
    if missing:
        yield f"  not measured before: {', '.join(missing)}"


def _durations(stages: Iterable[StagePlan]) -> list[str]:
    stages = list(stages)
    learner = sum(s.learner_seconds for s in stages if s.learner_seconds is not None)
    parts = [f"learners {duration(learner)}"] if any(s.learner_seconds is not None for s in stages) else []
    for key in dict.fromkeys(s.evaluator for s in stages):
        known = [s.evaluator_seconds for s in stages if s.evaluator == key and s.evaluator_seconds is not None]
        if known:
            parts.append(f"{key} {duration(sum(known))}")
    return parts


def duration(seconds: float) -> str:
    """``12 s``, ``3.5 min`` or ``7.2 h``."""
    if seconds < 120:
        return f"{seconds:.3g} s"
    return f"{seconds / 60:.1f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
