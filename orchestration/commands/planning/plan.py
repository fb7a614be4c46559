"""What a sweep will cost before it starts: its stages as a DAG, trials, evaluations, and hours from measured or reference rates.

What one trial takes is `orchestration.commands.planning.expected`'s; running does not belong here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from orchestration.analysis.table import plural
from orchestration.commands.planning.expected import Expectation
from orchestration.commands.planning.rates import Rates
from orchestration.commands.planning.reference import Reference, shipped
from orchestration.specs.trial import Trial

if TYPE_CHECKING:
    from orchestration.definition.searches import SearchSpec
    from orchestration.definition.stages import Stage
    from orchestration.definition.sweep import Sweep


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
    """As many as the methods really use: fixed lists, episodes and what ends of itself do not use up a budget. None if some trial is
    bounded by wall time alone."""
    evaluator: str
    learner_seconds: float | None
    """Over all trials of methods with a rate; None if there is none."""
    evaluator_seconds: float | None
    measured: tuple[str, ...]
    """Methods and evaluators that earlier runs have measured here."""
    from_reference: tuple[str, ...]
    """Methods and evaluators whose rates are reference rates, for no earlier run here has measured them."""
    without_rate: tuple[str, ...]
    """Methods and evaluators without any rate."""
    sampler: str | None = None


@dataclass(frozen=True)
class SweepPlan:
    """What a sweep will run."""

    sweep: str
    stages: tuple[StagePlan, ...]
    measured_on: str
    """Where the reference rates come from."""

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
        return {
            "sweep": self.sweep, "trials": self.trials, "evaluations": self.evaluations, "reference_rates_measured_on": self.measured_on,
            "stages": [asdict(s) for s in self.stages],
        }  # fmt: skip


def _sum(values: Sequence[Any]) -> Any:
    return None if any(v is None for v in values) else sum(values)


def _known(values: Sequence[float]) -> float | None:
    return sum(values) if values else None


def make_plan(sweep: Sweep, rates: Rates | None = None, reference: Reference | None = None) -> SweepPlan:
    """The plan of a sweep.

    Args:
        rates: measured by earlier runs.
        reference: what stands in where those say nothing; by default what comes with the package.
    """
    expansion = sweep.expansion()
    trials: dict[str, list[Trial]] = {}
    for trial in (*expansion.trials, *expansion.waiting):
        trials.setdefault(trial.stage, []).append(trial)
    searches: dict[str, list[SearchSpec]] = {}
    for search in (*expansion.searches, *expansion.waiting_searches):
        searches.setdefault(search.stage, []).append(search)
    reference = shipped() if reference is None else reference
    every = [t for stage in trials.values() for t in stage] + [t for stage in searches.values() for s in stage for t in s.templates]
    expectation = Expectation(every, rates or Rates(), reference)
    stages = (_stage_plan(s, trials.get(s.name, []), searches.get(s.name, []), expectation) for s in sweep.stages)
    return SweepPlan(sweep.name, tuple(stages), reference.measured_on)


def _stage_plan(stage: Stage, trials: Sequence[Trial], searches: Sequence[SearchSpec], expectation: Expectation) -> StagePlan:
    counted = [(1, t) for t in trials] + [(s.settings.configurations, t) for s in searches for t in s.templates]
    expected = [(n, t, expectation.of(t)) for n, t in counted]
    every = {name for _, t in counted for name in (t.method, t.evaluator.key)}
    missing = {t.method for _, t, e in expected if e.learner is None} | {t.evaluator.key for _, t, e in expected if e.evaluator is None}
    reference = {name for _, _, e in expected for name in e.reference}
    return StagePlan(
        name=stage.name,
        kind=stage.kind,
        after=tuple(s for s in (stage.source, stage.config_source) if s is not None),
        methods=len(stage.rows),
        problems=len(stage.problems),
        seeds=len(stage.shared.seeds),
        configurations=stage.search.configurations if stage.search is not None else 1,
        trials=sum(n for n, _ in counted),
        evaluations=_sum([None if e.evaluations is None else n * e.evaluations for n, _, e in expected]),
        evaluator=stage.shared.evaluator.key,
        learner_seconds=_known([n * e.learner for n, _, e in expected if e.learner is not None]),
        evaluator_seconds=_known([n * e.evaluator for n, _, e in expected if e.evaluator is not None]),
        measured=tuple(sorted(every - missing - reference)),
        from_reference=tuple(sorted(reference)),
        without_rate=tuple(sorted(missing)),
        sampler=stage.search.sampler.name if stage.search is not None else None,
    )


def render(plan: SweepPlan) -> str:
    """The plan as text for a terminal."""
    most = "at most " if plan.searches else ""
    count = "a budget of wall time" if plan.evaluations is None else f"{most}{plan.evaluations:,} evaluations"
    head = f"{plan.sweep}: {plural(len(plan.stages), 'stage')}, {most}{plural(plan.trials, 'trial')}, {count}"
    return "\n".join([head, *_stage_lines(plan.stages), *_hour_lines(plan)])


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


def _hour_lines(plan: SweepPlan) -> Iterator[str]:
    """How long it takes, from which rates, and what is not in that."""
    stages = plan.stages
    missing = sorted({m for s in stages for m in s.without_rate})
    reference = sorted({m for s in stages for m in s.from_reference})
    parts = _durations(stages)
    if parts:
        measured = any(s.measured for s in stages)
        source = "at measured rates" if measured or not reference else ""
        if reference:
            names = f" ({', '.join(reference)})" if measured else ""
            source += f"{' and ' if source else ''}from reference rates measured on {plan.measured_on}{names}"
        yield f"  {source}: {', '.join(parts)}, before dividing by what runs in parallel"
    if missing:
        yield f"  measured neither here nor for reference, so not counted: {', '.join(missing)}"


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
