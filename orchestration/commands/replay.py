"""Measuring a recorded placement again and saying whether it agrees. Searching for placements does not belong here."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import mlflow

from envs.hosts.processor import processor
from envs.problem.errors import InputError
from envs.problem.measurement import Evaluator, Outcome
from orchestration.folder.ledger import entries
from orchestration.rewards.evaluators import build_evaluator, close_evaluators, measures_for_real
from orchestration.specs.layout import LEDGER
from orchestration.specs.results import ProblemResult, TrialResult, placement_array
from orchestration.specs.secrets import resolved_uri
from orchestration.specs.sources import recorded_problem
from orchestration.specs.trial import Trial
from orchestration.tracking.provenance import quiet_environment
from orchestration.tracking.store_checks import default_uri

TOLERANCE = 0.1
"""How far a real measurement may be from the recorded one, as a share of it, if it does not say how much it varies."""
SIGMAS = 4.0
LEAST_HASH = 6
"""Fewest digits by which a trial may be named."""


@dataclass(frozen=True)
class Replay:
    """One placement, then and now."""

    problem: str
    recorded: float
    """Objective, seconds or joules."""
    measured: float
    outcome: str
    tolerance: float
    """Largest difference that counts as agreement; 0 where a measurement repeats itself bit for bit."""
    note: str = ""

    @property
    def agrees(self) -> bool:
        """Whether the two are the same measurement."""
        return self.outcome == Outcome.OK.name and abs(self.measured - self.recorded) <= self.tolerance

    def text(self) -> str:
        """One line that says whether the placement gave what was recorded."""
        if self.outcome != Outcome.OK.name:
            return f"{self.problem}: recorded {self.recorded:.6g}, now {self.outcome}{f' ({self.note})' if self.note else ''}: DISAGREES"
        change = (self.measured / self.recorded - 1) * 100 if self.recorded else math.inf
        verdict = "agrees" if self.agrees else "DISAGREES"
        within = " exactly" if self.tolerance == 0 else f" within {self.tolerance:.3g}"
        return f"{self.problem}: recorded {self.recorded:.9g}, now {self.measured:.9g} ({change:+.2f} %): {verdict}{within}"


def find_run(run: str, output: Path, tracking_uri: str | None = None) -> tuple[Trial, TrialResult]:
    """The recorded trial whose content hash begins with ``run``, or that the MLflow run of this id belongs to.

    Raises:
        InputError: if there is none, or more than one.
    """
    found = _by_hash(run, output)
    if not found:
        key = _trial_of_run(run, output, tracking_uri)
        found = _by_hash(key, output) if key else {}
    if not found:
        raise InputError(f"no trial and no MLflow run {run!r} in {output}; give a trial's hash (runs.csv lists them) or a run's id")
    if len(found) > 1:
        raise InputError(f"{run!r} is the beginning of {len(found)} trials; give more digits")
    return next(iter(found.values()))


def _by_hash(prefix: str, output: Path) -> dict[str, tuple[Trial, TrialResult]]:
    if len(prefix) < LEAST_HASH:
        raise InputError(f"{prefix!r} is too short to name a trial; give at least {LEAST_HASH} digits of its hash")
    return {result.trial: (trial, result) for trial, result in _recorded(output) if result.trial.startswith(prefix)}


def _recorded(output: Path) -> Iterator[tuple[Trial, TrialResult]]:
    for ledger in sorted(output.glob(f"*/{LEDGER}")):
        yield from entries(ledger.parent)


def _trial_of_run(run: str, output: Path, tracking_uri: str | None) -> str | None:
    """The trial that an MLflow run belongs to; None if there is no such run."""

    uri = default_uri(output) if tracking_uri is None else resolved_uri(tracking_uri)
    if tracking_uri is None and not (output / "mlflow.db").exists():
        return None
    quiet_environment()

    try:
        return mlflow.MlflowClient(uri).get_run(run).data.tags.get("trial")
    except mlflow.MlflowException:
        return None


def elsewhere(result: TrialResult) -> str:
    """A sentence if another processor computed the result; empty if it was this one, or if that was not kept."""
    if result.processor in ("", processor()):
        return ""
    return (
        f"computed on {result.processor}; this is {processor()}, where running the trial again may learn something else: "
        "sums in another order have other last bits"
    )


def replay(trial: Trial, result: TrialResult) -> list[Replay]:
    """Measure the best placement of each of the trial's problems again, with the seed and protocol that found it.

    Raises:
        InputError: if nothing was recorded that could be measured, or a problem is another one today.
    """
    evaluator = build_evaluator(trial.evaluator)
    try:
        made = [_one(trial, i, p, evaluator) for i, p in enumerate(result.problems) if p.objective is not None]
    finally:
        close_evaluators([evaluator])
    if not made:
        raise InputError(f"trial {trial.short} recorded no valid placement, so there is nothing to measure again")
    return made


def _one(trial: Trial, index: int, recorded: ProblemResult, evaluator: Evaluator) -> Replay:
    problem = recorded_problem(trial.problems[index], recorded.problem_hash)
    placement = placement_array(recorded)
    if placement is None or recorded.objective is None:
        raise InputError(f"trial {trial.short} recorded no placement of {recorded.name}")
    m = evaluator.evaluate(problem, placement[None, :], recorded.seed, first=recorded.first)
    tolerance, now = 0.0, float(m.objective[0])
    if measures_for_real(trial.evaluator.kind):
        tolerance = TOLERANCE * recorded.objective
        if m.samples is not None and len(m.samples[0]) > 1 and math.isfinite(now) and m.seconds[0] > 0:
            spread = float(m.samples[0].std(ddof=1)) * now / float(m.seconds[0])
            tolerance = max(tolerance, SIGMAS * spread)
    notes = m.notes or ("",)
    return Replay(recorded.name, recorded.objective, now, Outcome(int(m.outcome[0])).name, tolerance, notes[0])
