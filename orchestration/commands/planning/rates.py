"""Seconds an evaluation, and where methods end of themselves: read from the ledgers that earlier runs left. What a sweep will run does not
belong here."""

from __future__ import annotations

import json
import math
import statistics
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from envs.problem.errors import InputError
from orchestration.folder.ledger import entries
from orchestration.specs.canonical import content_hash
from orchestration.specs.layout import LEDGER
from orchestration.specs.results import TrialResult
from orchestration.specs.trial import Trial


@dataclass
class Rates:
    """Measured seconds an evaluation: of each method's learner and of each evaluator's key.

    A rate is kept by name (``heft``, ``dataflow:cpu2``), by name and configuration (``giph#HASH``), by name and problem (``heft@HASH``) and
    by all three; the narrowest known one is used. No rate has start-up in it: a trial's clock stands still while code is compiled, and of
    the trials alike the median counts, so that the first of a process weighs no more than the others.
    """

    learner: dict[str, float] = field(default_factory=dict)
    evaluator: dict[str, float] = field(default_factory=dict)
    ends: dict[str, float] = field(default_factory=dict)
    """Evaluations after which methods ended that most often end before their budget does."""

    @staticmethod
    def from_file(path: Path) -> Rates:
        """Rates written by `to_file`; InputError if the file is none of those."""
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
            return Rates(_numbers(data["learner"]), _numbers(data["evaluator"]), _numbers(data.get("ends", {})))
        except OSError as error:
            raise InputError(f"rates file {path} cannot be read ({error.strerror}); check the path") from None
        except (ValueError, KeyError, TypeError, AttributeError):
            raise InputError(
                f'rates file {path} must hold seconds an evaluation as {{"learner": {{"heft": 1e-3}}, "evaluator": {{"simulator": 1e-5}}}}'
            ) from None

    def to_file(self, path: Path) -> None:
        """Write the rates as JSON, for `from_file`."""
        path.write_text(json.dumps(asdict(self), indent=1, sort_keys=True) + "\n", encoding="utf-8")

    @staticmethod
    def from_runs(folder: Path) -> Rates:
        """Rates of all trials recorded in the sweep directories under ``folder``; damaged ledgers are passed over."""
        seen = _Seen()
        for ledger in sorted(folder.glob(f"*/{LEDGER}")):
            try:
                for trial, result in entries(ledger.parent):
                    seen.add(trial, result)
            except (InputError, KeyError, TypeError):
                continue
        return Rates(seen.rates("learner"), seen.rates("evaluator"), seen.ends())

    def learner_rate(self, trial: Trial) -> float | None:
        """Seconds of the trial's method for one evaluation, None if it was not measured."""
        return _narrowest(self.learner, _method_keys(trial))

    def evaluator_rate(self, trial: Trial) -> float | None:
        """Seconds of the trial's evaluator for one evaluation, None if it was not measured."""
        return _narrowest(self.evaluator, _evaluator_keys(trial))

    def end(self, trial: Trial) -> float | None:
        """After how many evaluations trials like this ended of themselves, None if they went on as long as they might."""
        return _narrowest(self.ends, _method_keys(trial))


class _Seen:
    """What the trials of all ledgers took: per name, the seconds and evaluations of trials that are alike in all but the seed."""

    def __init__(self) -> None:
        self._took: dict[tuple[str, tuple[str, ...]], list[tuple[float, int]]] = defaultdict(list)
        self._used: dict[str, list[tuple[int, bool]]] = defaultdict(list)

    def add(self, trial: Trial, result: TrialResult) -> None:
        """Take in one trial; those without an evaluation say nothing."""
        if not result.evaluations:
            return
        self._took["learner", _method_keys(trial)].append((result.learner_seconds, result.evaluations))
        self._took["evaluator", _evaluator_keys(trial)].append((result.evaluation_seconds, result.evaluations))
        if result.status == "finished" and trial.budget.evaluations is not None and trial.kind != "zero-shot":
            for key in _method_keys(trial):
                self._used[key].append((result.evaluations, result.evaluations < trial.budget.evaluations))

    def rates(self, kind: str) -> dict[str, float]:
        """By every key: the median seconds an evaluation of trials alike, and the mean of those by their evaluations."""
        sums: dict[str, tuple[float, int]] = {}
        for (what, keys), took in self._took.items():
            if what == kind:
                rate, evaluations = statistics.median(s / n for s, n in took), sum(n for _, n in took)
                for key in keys:
                    seconds, before = sums.get(key, (0.0, 0))
                    sums[key] = (seconds + rate * evaluations, before + evaluations)
        return {key: seconds / evaluations for key, (seconds, evaluations) in sums.items()}

    def ends(self) -> dict[str, float]:
        """By every key whose trials mostly ended early: after how many evaluations those did."""
        found = {}
        for key, used in self._used.items():
            early = [n for n, ended in used if ended]
            if 2 * len(early) > len(used):
                found[key] = statistics.fmean(early)
        return found


def _method_keys(trial: Trial) -> tuple[str, ...]:
    """Names of a method's rates, the narrowest first."""
    configured = f"{trial.method}#{content_hash(trial.config)[:8]}"
    return (*_on_problem(configured, trial), *_on_problem(trial.method, trial), configured, trial.method)


def _evaluator_keys(trial: Trial) -> tuple[str, ...]:
    return (*_on_problem(trial.evaluator.key, trial), trial.evaluator.key)


def _on_problem(name: str, trial: Trial) -> Iterator[str]:
    if len(trial.problems) == 1:
        yield f"{name}@{trial.problems[0].content_hash[:16]}"


def _narrowest(rates: Mapping[str, float], keys: tuple[str, ...]) -> float | None:
    return next((rates[key] for key in keys if key in rates), None)


def _numbers(data: Mapping[str, Any]) -> dict[str, float]:
    numbers = {str(k): float(v) for k, v in data.items()}
    if not all(math.isfinite(v) and v >= 0 for v in numbers.values()):
        raise ValueError("not a rate")
    return numbers
