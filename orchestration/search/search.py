"""One search for settings, in deterministic steps: Optuna proposes configurations in batches of fixed size, the driver runs their
trials from rung to rung, and once all of a batch are there, the pruner decides. How trials run and where studies are kept do
not belong here.

Every batch is asked of a fresh in-memory copy of the study as it was after the batch before, by a sampler seeded with the
number of the batch. So what is tried depends on the search alone: not on how many workers there are or in which order trials
end, and a driver that was killed in the middle of a batch asks and decides the same again. The kept study is the record of
what was decided, as far as the ledger holds the trials: what the ledger lacks is asked, run and decided again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import optuna
from optuna.trial import TrialState, create_trial

from envs.problem.errors import InputError
from orchestration.definition.searches import SearchSpec
from orchestration.search.studies import circumstances, decoded, encoded, make_pruner, make_sampler, quiet
from orchestration.specs.canonical import canonical
from orchestration.specs.results import ProblemResult, TrialResult
from orchestration.specs.trial import Trial, TrialTask

BATCH = 8
"""Configurations asked for together; samplers learn, and pruners compare, between batches and at rungs."""
WIDE_BATCH = 64
"""The same where nothing is learned between: random and grid search without a pruner."""
PENALTY = 1e6
"""What a problem without a valid placement counts, as a multiple of its lower bound."""
LEAST_SECONDS = 1e-9
REPORTED = "reported"
"""Attribute of the kept study: what the configurations of a batch that is not decided have reported, by their parameters and rung."""

Known = Callable[[str], TrialResult | None]
"""The record of a trial that paused or ended, by content hash."""


@dataclass
class Configuration:
    """One configuration of the batch that is running."""

    number: int
    values: dict[str, Any]
    trials: list[Trial]
    asked: optuna.Trial
    """In the batch's own copy of the study."""
    twin: int | None = None
    """Number of an earlier configuration with the same values, whose outcome counts for this one too."""
    state: TrialState = TrialState.RUNNING
    outcome: tuple[float, ...] = ()
    excess: dict[str, float] = field(default_factory=dict)
    """By how much it is over each limit; not over it at 0 and below."""


class Search:
    """The driver's end of a search.

    Args:
        open_study: opens the kept study, as `orchestration.search.studies.Studies.open` does, with only so many first trials if a
            number is given.
        known: what is known of trials, in this run or from the ledger.
        recorded: whether the ledger holds a trial.
        bounds: lower bound of every problem's objective, by content hash of its description.
        record: lets the ledger learn of the pruned trials in ``records``.
    """

    def __init__(
        self,
        spec: SearchSpec,
        open_study: Callable[[int | None], optuna.Study],
        known: Known,
        recorded: Callable[[str], bool],
        bounds: Mapping[str, float],
        record: Callable[[Search], None],
    ) -> None:
        self.spec, self.study, self._known, self._recorded, self._bounds = spec, open_study(None), known, recorded, bounds
        self._record = record
        self.note = ""
        """What was wrong with the kept study; empty if nothing was."""
        settings = spec.settings
        self.rungs = settings.reports if settings.asks_pruner else 1
        learns = settings.sampler.name not in ("random", "grid") or settings.pruner.name != "none"
        self._size = BATCH if learns else WIDE_BATCH
        self.over = False
        self.winner: dict[str, Any] | None = None
        self.winning: list[Trial] = []
        """The winner's trials."""
        self.trials: dict[str, Trial] = {}
        """Every trial of every configuration so far, by content hash."""
        self.records: list[tuple[Trial, TrialResult]] = []
        """Pruned trials that the ledger still has to learn of."""
        self._out: set[str] = set()
        self._batch: list[Configuration] = []
        self._rung = 0
        self.decided = self._replay()
        """Configurations in batches that are decided."""
        found = self.study.get_trials(deepcopy=False)
        if any(not t.state.is_finished() for t in found[self.decided :]) or self.note:
            self.study = open_study(self.decided)
        self._reported: dict[str, dict[str, float]] = {k: dict(v) for k, v in self.study.user_attrs.get(REPORTED, {}).items()}
        """What the running batch has reported, in an earlier run too: it counts, should a real measurement not repeat itself."""

    @property
    def most_trials(self) -> int:
        """Trials it has, once it is over; before that the most it may come to."""
        return len(self.trials) if self.over else self.spec.settings.configurations * len(self.spec.templates)

    def advance(self) -> list[TrialTask]:
        """What can be run now and was not handed out before; decides all that can be decided."""
        with quiet():
            return self._advance()

    def _advance(self) -> list[TrialTask]:
        while not self.over:
            if not self._batch and self.decided >= self.spec.settings.configurations:
                self._finish()
                break
            if not self._batch:
                self._ask()
            tasks = self._missing()
            if tasks or self._out:
                return tasks
            self._close_rung()
        return []

    def came_back(self, trial: str) -> None:
        """A trial that was handed out is known now, or must be handed out again."""
        self._out.discard(trial)

    def give_up(self) -> None:
        """End without a winner, because a trial could not be run; running the sweep again goes on from here."""
        self.over = True

    def _replay(self) -> int:
        """The number of configurations in batches that were decided before."""
        done = self.study.get_trials(deepcopy=False)
        most, number = self.spec.settings.configurations, 0
        while number < most:
            batch = done[number : min(number + self._size, most)]
            if len(batch) < min(self._size, most - number) or not all(t.state.is_finished() for t in batch):
                break
            trials = {t.content_hash: t for one in batch for t in self._made(self._values(one.params))}
            if lost := [key for key in trials if not self._recorded(key)]:
                self.note = (
                    f"the ledger lacks {len(lost)} trials of {self.spec.label!r} in stage {self.spec.stage!r} that its study has decided "
                    f"upon; the study is cut to its first {number} configurations, and what is missing runs again"
                )
                break
            self.trials.update(trials)
            number += len(batch)
        return number

    def _trials(self, values: Mapping[str, Any]) -> list[Trial]:
        """The trials of a configuration, noted as part of the search; none if the method refuses it."""
        trials = self._made(values)
        self.trials.update((t.content_hash, t) for t in trials)
        return trials

    def _made(self, values: Mapping[str, Any]) -> list[Trial]:
        try:
            return self.spec.trials(values)
        except InputError:
            return []

    # --- asking

    def _ask(self) -> None:
        """The next batch."""
        decided = self.study.get_trials(deepcopy=False)[: self.decided]
        copy = self._copy(decided)
        seen = {canonical(t.params): t.number for t in reversed(decided)}
        self._rung = 1
        for number in range(self.decided, min(self.decided + self._size, self.spec.settings.configurations)):
            if number < len(self.spec.settings.known):
                copy.enqueue_trial(self._params(self.spec.settings.known[number]))
            asked = copy.ask()
            params = self._suggest(asked)
            twin = seen.setdefault(canonical(params), number)
            values = self._values(params)
            trials = self._trials(values) if twin == number else []
            made = Configuration(number, values, trials, asked, None if twin == number else twin)
            if made.twin is None and not trials:
                made.state = TrialState.FAIL
            self._batch.append(made)

    def _copy(self, before: Sequence[optuna.trial.FrozenTrial]) -> optuna.Study:
        """The study as it was after the batches before, with a sampler of this batch's own."""
        seed = np.random.SeedSequence([self.spec.settings.seed, self.decided]).generate_state(1)
        copy = optuna.create_study(
            # Hyperband draws a trial's bracket by the study's name, so it must be that of the search, wherever it is kept.
            study_name=self.spec.content_hash, directions=["minimize"] * len(self.spec.settings.objectives),
            sampler=make_sampler(self.spec, int(seed[0])), pruner=make_pruner(self.spec.settings.pruner, self.rungs),
        )  # fmt: skip
        copy.add_trials(before)
        return copy

    def _suggest(self, asked: optuna.Trial) -> dict[str, Any]:
        """Draw every parameter whose condition holds; parameters as Optuna keeps them."""
        values: dict[str, Any] = {}
        for p in self.spec.settings.parameters:
            if not p.active(values):
                continue
            if p.kind == "choice":
                values[p.name] = decoded(p, asked.suggest_categorical(p.name, encoded(p)))
            elif p.kind == "int":
                values[p.name] = asked.suggest_int(p.name, int(p.low or 0), int(p.high or 0), step=int(p.step or 1), log=p.log)
            else:
                values[p.name] = asked.suggest_float(p.name, float(p.low or 0), float(p.high or 0), step=p.step, log=p.log)
        return asked.params

    def _values(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """The settings that Optuna's parameters stand for."""
        known = {p.name: p for p in self.spec.settings.parameters}
        return {name: decoded(known[name], value) if known[name].kind == "choice" else value for name, value in params.items()}

    def _params(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """The inverse of `_values`."""
        known = {p.name: p for p in self.spec.settings.parameters}
        made = {}
        for name, value in values.items():
            p = known[name]
            made[name] = encoded(p)[p.choices.index(value)] if p.kind == "choice" else int(value) if p.kind == "int" else float(value)
        return made

    # --- running and deciding

    def _running(self) -> list[Configuration]:
        return [c for c in self._batch if c.twin is None and c.state == TrialState.RUNNING]

    def _until(self, trial: Trial) -> int | None:
        """Where the present rung ends; None for the last."""
        if self._rung >= self.rungs or trial.budget.evaluations is None:
            return None
        return math.ceil(trial.budget.evaluations * self._rung / self.rungs)

    def _missing(self) -> list[TrialTask]:
        tasks = []
        for c in self._running():
            for trial in () if self._passed(c) else c.trials:
                key, until = trial.content_hash, self._until(trial)
                if key not in self._out and not self._enough(self._known(key), until):
                    self._out.add(key)
                    tasks.append(TrialTask(trial, until))
        return tasks

    def _passed(self, c: Configuration) -> bool:
        """Whether a configuration is known to have been followed beyond the present rung, by a driver that was killed."""
        return max(map(int, self._reports(c)), default=0) > self._rung

    def _reports(self, c: Configuration) -> dict[str, float]:
        """What a configuration has reported, by rung; JSON makes texts of the numbers."""
        return self._reported.setdefault(canonical(c.asked.params), {})

    @staticmethod
    def _enough(result: TrialResult | None, until: int | None) -> bool:
        if result is None or result.infrastructure:
            return False
        return result.status in ("finished", "failed") or (until is not None and result.evaluations >= until)

    def _close_rung(self) -> None:
        """All trials are at the rung: report, let the pruner decide, or end the batch."""
        last, rung = self._rung >= self.rungs, str(self._rung)
        for c in self._running():
            if self._passed(c):
                c.asked.report(self._reports(c)[rung], self._rung)
                continue
            found = [r for t in c.trials if (r := self._known(t.content_hash)) is not None and r.status != "failed"]
            if len(found) < len(c.trials):
                c.state = TrialState.FAIL
                continue
            c.outcome = tuple(self._score(o, c.trials, found, last) for o in self.spec.settings.objectives)
            if self.rungs > 1:
                c.asked.report(self._reports(c).setdefault(rung, c.outcome[0]), self._rung)
            if last:
                c.state, c.excess = TrialState.COMPLETE, self._excess(found)
        if self.rungs > 1 and self.study.user_attrs.get(REPORTED) != self._reported:
            self.study.set_user_attr(REPORTED, self._reported)
        for c in self._running() if self.rungs > 1 else ():
            if c.asked.should_prune():
                c.state = TrialState.PRUNED
        for c in self._batch:
            if c.state in (TrialState.PRUNED, TrialState.FAIL):
                self._stop(c)
        if last or not self._running():
            self._record(self)  # first: of a batch that the study knows as decided nobody asks again
            self._tell()
        self._rung += 1

    def _stop(self, c: Configuration) -> None:
        """Record the trials of a configuration that is not followed any further."""
        for trial in c.trials:
            result = self._known(trial.content_hash)
            if result is not None and result.status == "paused":
                self.records.append((trial, replace(result, status="pruned")))

    def _score(self, objective: str, trials: Sequence[Trial], results: Sequence[TrialResult], last: bool) -> float:
        """One objective of a configuration at the present rung: the geometric mean over its trials and their problems."""
        parts: list[float] = []
        for trial, result in zip(trials, results, strict=True):
            if objective == "seconds":
                parts.append(max(result.learner_seconds, LEAST_SECONDS))
                continue
            until = result.evaluations if last else min(self._until(trial) or result.evaluations, result.evaluations)
            for spec, problem in zip(trial.problems, result.problems, strict=True):
                value = best_until(problem, until) if objective == "best" else mean_until(problem, until)
                parts.append(PENALTY if value is None else value / (self._bounds[spec.content_hash] or 1.0))
        return float(np.exp(np.mean(np.log(np.maximum(parts, 1e-300)))))

    def _excess(self, results: Sequence[TrialResult]) -> dict[str, float]:
        spent = max(1, sum(r.evaluations for r in results))
        reached = {
            "seconds": float(np.mean([r.learner_seconds for r in results])),
            "invalid": sum(n for r in results for outcome, n in r.outcomes.items() if outcome != "OK") / spent,
        }
        return {name: reached[name] - limit for name, limit in self.spec.settings.constraints.items()}

    def _tell(self) -> None:
        """Write what became of the batch to the kept study, as far as a driver that was killed has not done so."""
        copies = self._batch[0].asked.study.get_trials(deepcopy=False)
        for c in self._batch:
            done = self.study.get_trials(deepcopy=False)
            if c.number < len(done):
                continue
            reports = {int(rung): value for rung, value in self._reports(c).items()}
            state, values = c.state, c.outcome
            if c.twin is not None:
                twin = done[c.twin]
                state, values, reports = twin.state, tuple(twin.values or ()), twin.intermediate_values
            elif state == TrialState.PRUNED:
                values = (reports[max(reports)],)  # as Optuna itself does
            elif state == TrialState.FAIL:
                values = ()
            asked = copies[c.number]
            limits = {f"constraints:{name}": excess for name, excess in c.excess.items()}  # as Optuna's Trial.set_constraint
            if c.twin is not None:
                limits = {key: value for key, value in done[c.twin].system_attrs.items() if key.startswith("constraints:")}
            self.study.add_trial(
                create_trial(
                    state=state, values=list(values) or None, params=asked.params, distributions=asked.distributions,
                    intermediate_values=reports, system_attrs={**asked.system_attrs, **limits},
                )
            )  # fmt: skip
        if self.study.user_attrs.get(REPORTED):
            self.study.set_user_attr(REPORTED, {})
        self.decided += len(self._batch)
        self._batch, self._reported = [], {}

    def _finish(self) -> None:
        """Choose the winner: the best configuration, with several objectives that of the Pareto front which is best in the first."""
        self.over = True
        complete = [t for t in self.study.get_trials(deepcopy=False) if t.state == TrialState.COMPLETE]
        if complete:
            best = min(complete, key=lambda t: (_over(t), tuple(t.values), t.number))
            self.winner = self._values(best.params)
            self.winning = self._trials(self.winner)

    # --- the record

    def describe(self) -> dict[str, Any]:
        """What was searched how, and every configuration, as JSON values."""
        s = self.spec.settings
        configurations = [
            {
                "number": t.number, "state": t.state.name, "settings": self._values(t.params), "values": t.values,
                "intermediate": {str(k): v for k, v in sorted(t.intermediate_values.items())},
                "trials": [x.content_hash for x in self._trials(self._values(t.params))],
            }
            for t in self.study.get_trials(deepcopy=False)
        ]  # fmt: skip
        return {
            "stage": self.spec.stage, "method": self.spec.label, "search": self.spec.content_hash, **circumstances(self.spec),
            "batch": self._size, "rungs": self.rungs,
            "space": [p.to_json() for p in s.parameters], "objectives": list(s.objectives), "seed": s.seed, "reports": s.reports,
            "winner": self.winner, "configurations": configurations,
            **({"known": list(s.known)} if s.known else {}), **({"constraints": dict(s.constraints)} if s.constraints else {}),
        }  # fmt: skip


def _over(trial: optuna.trial.FrozenTrial) -> float:
    """By how much a configuration is over its limits in all; 0 if it keeps them."""
    return sum(max(0.0, float(value)) for key, value in trial.system_attrs.items() if key.startswith("constraints:"))


def has_failures(study: optuna.Study) -> bool:
    """Whether a configuration failed."""
    return any(t.state == TrialState.FAIL for t in study.get_trials(deepcopy=False))


def best_until(problem: ProblemResult, evaluations: int) -> float | None:
    """The best objective after so many evaluations of the trial; None if no placement was OK by then."""
    best = [p.best for p in problem.curve if p.evaluations <= evaluations]
    return best[-1] if best else None


def mean_until(problem: ProblemResult, evaluations: int) -> float | None:
    """The best so far averaged over so many evaluations; before the first valid placement it counts as that one."""
    points = [p for p in problem.curve if p.evaluations <= evaluations]
    if not points:
        return None
    ends = [p.evaluations for p in points[1:]] + [evaluations + 1]
    begins = [1] + [p.evaluations for p in points[1:]]
    return math.fsum(p.best * (end - begin) for p, begin, end in zip(points, begins, ends, strict=True)) / evaluations
