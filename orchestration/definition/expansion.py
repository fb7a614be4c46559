"""From stages to trials: every method x problem x seed of every stage, each after the trial whose checkpoint it starts from.

A pure function of the sweep (and of the winners of its searches so far), in an order that is always the same.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from envs.problem.errors import InputError
from orchestration.definition import models
from orchestration.definition.methods import MethodRow, flatten
from orchestration.definition.searches import SearchSpec
from orchestration.definition.stages import Stage, group_problems
from orchestration.specs.sources import count_nodes
from orchestration.specs.trial import Budget, ProblemSpec, Trial


class UnfittingStage(InputError):
    """A stage whose trials find nothing to start from."""

    def __init__(self, stage: Stage, message: str, cure: str) -> None:
        super().__init__(message, cure)
        self.stage = stage


@dataclass(frozen=True)
class Expansion:
    """What there is to run."""

    trials: tuple[Trial, ...]
    """All trials that are known now, parents before children."""
    searches: tuple[SearchSpec, ...]
    """All searches whose trials are known now."""
    waiting: tuple[Trial, ...]
    """Stand-ins (base configuration) for the trials that a search's winner will configure; to be counted, not to be run."""
    waiting_searches: tuple[SearchSpec, ...]
    """Stand-ins for searches that depend on another search's winner."""


@dataclass
class _Made:
    """The trials of one stage for one label and seed, by what a child may look for."""

    by_problem: dict[str, Trial] = field(default_factory=dict)
    by_network: dict[str, list[Trial]] = field(default_factory=dict)
    by_fold: dict[tuple[str, ...], list[Trial]] = field(default_factory=dict)
    all: list[Trial] = field(default_factory=list)

    def add(self, trial: Trial, fold: tuple[str, ...]) -> None:
        self.all.append(trial)
        self.by_fold.setdefault(fold, []).append(trial)
        if len(trial.problems) == 1:
            self.by_problem[trial.problems[0].label] = trial
        for network in {p.network_label for p in trial.problems}:
            self.by_network.setdefault(network, []).append(trial)


class Expander:
    """Expands stages one after another; ``winners`` maps a search's content hash to its best configuration's settings."""

    def __init__(self, stages: Sequence[Stage], winners: Mapping[str, Mapping[str, Any]]) -> None:
        self.stages, self.winners = stages, winners
        self.made: dict[tuple[str, str, int], _Made] = {}
        self.seeds: dict[tuple[str, str], dict[int, None]] = {}
        """Of (stage, label), in order, each once."""
        self.waits: set[tuple[str, str]] = set()
        """(stage, label) whose trials are stand-ins."""
        self.found: dict[tuple[str, str], SearchSpec] = {}
        self.carried: dict[tuple[str | None, str], dict[str, Any]] = {}
        """The settings that a search found for (stage, label), there or in a stage that it starts from."""

    def expand(self) -> Expansion:
        """All stages; InputError if a trial finds no checkpoint to start from."""
        trials: list[Trial] = []
        waiting: list[Trial] = []
        for stage in self.stages:
            for row in stage.rows:
                resolved = self._configured(stage, row)
                key = (stage.name, row.label)
                if resolved is None or (stage.source, row.label) in self.waits:
                    self.waits.add(key)
                row = resolved or row  # noqa: PLW2901
                made = list(self._trials(stage, row))
                if stage.search is not None:
                    self.found[key] = SearchSpec(stage.name, row, stage.search, tuple(made))
                else:
                    (waiting if key in self.waits else trials).extend(made)
        return Expansion(
            tuple(trials),
            tuple(s for k, s in self.found.items() if k not in self.waits),
            tuple(waiting),
            tuple(s for k, s in self.found.items() if k in self.waits),
        )

    def _configured(self, stage: Stage, row: MethodRow) -> MethodRow | None:
        """The row with the winner's settings; None if the search it waits for is not over.

        What a stage was trained with travels to those that start from it, for a policy fits the network of its own settings alone; what
        such a stage says itself stands.
        """
        own = flatten(stage.config)
        values = {k: own.get(k, v) for k, v in self.carried.get((stage.source, row.label), {}).items()}
        if stage.config_source is not None:
            key = (stage.config_source, row.label)
            winner = None if key in self.waits else self.winners.get(self.found[key].content_hash)
            if winner is None:
                return None
            values |= winner
        self.carried[stage.name, row.label] = values
        return row.with_settings(values) if values else row

    def _trials(self, stage: Stage, row: MethodRow) -> Iterator[Trial]:
        execution = row.execution.over(stage.shared.execution).arguments()
        for fold, problems in self._groups(stage):
            budget = _budget(None if stage.kind == "zero-shot" else stage.shared.budget, problems)
            for seed in stage.shared.seeds:
                parent = self._start(stage, row, problems, fold, seed)
                trial = Trial(
                    row.method, row.label, row.config, tuple(problems), stage.shared.evaluator, budget, seed,
                    stage=stage.name, kind=stage.kind, parent=parent, **execution,
                )  # type: ignore[arg-type]  # fmt: skip
                self.made.setdefault((stage.name, row.label, seed), _Made()).add(trial, fold)
                self.seeds.setdefault((stage.name, row.label), {})[seed] = None
                yield trial

    def _start(self, stage: Stage, row: MethodRow, problems: Sequence[ProblemSpec], fold: tuple[str, ...], seed: int) -> str | None:
        """What the trial starts from: another by its hash, or a policy from elsewhere by that of its content."""
        if stage.policy is not None:
            return stage.policy.digest
        return None if stage.source is None else self._parent(stage, row, problems, fold, seed).content_hash

    @staticmethod
    def _groups(stage: Stage) -> Iterator[tuple[tuple[str, ...], list[ProblemSpec]]]:
        """What each trial is on: (graphs held out, problems)."""
        for fold in stage.folds or ((),):
            problems = [p for p in stage.problems if p.graph_label not in fold]
            for group in group_problems(problems, stage.per).values():
                yield fold, group

    def _parent(self, stage: Stage, row: MethodRow, problems: Sequence[ProblemSpec], fold: tuple[str, ...], seed: int) -> Trial:
        """The trial of the source stage with the same method and seed that fits these problems."""
        source = str(stage.source)
        seeds = self.seeds.get((source, row.label), {})
        if seed not in seeds and len(seeds) != 1:
            raise UnfittingStage(
                stage,
                f"stage {stage.name!r} has seed {seed}, but stage {source!r} ran {row.label!r} with seeds {', '.join(map(str, seeds))}",
                "give both the same seeds, or that stage a single one",
            )
        made = self.made[source, row.label, seed if seed in seeds else next(iter(seeds))]
        chosen = _fitting(made, problems, fold)
        if len(chosen) != 1:
            label = problems[0].label if len(problems) == 1 else f"{len(problems)} problems"
            count = "no trial" if not chosen else f"{len(chosen)} trials"
            raise UnfittingStage(
                stage,
                f"stage {stage.name!r} starts {row.label!r} on {label} from stage {source!r}, which has {count} that fit",
                "put the same problems in both, or train that stage once with per: all",
            )
        return chosen[0]


def _fitting(made: _Made, problems: Sequence[ProblemSpec], fold: tuple[str, ...]) -> list[Trial]:
    graphs = {p.graph_label for p in problems}
    if fold:
        candidates = made.by_fold.get(fold, [])
    elif any(made.by_fold.keys()):
        candidates = [t for held, trials in made.by_fold.items() if graphs <= set(held) for t in trials]
    else:
        candidates = made.all
        if len(candidates) > 1 and len(problems) == 1 and problems[0].label in made.by_problem:
            return [made.by_problem[problems[0].label]]
    if len(candidates) > 1:
        networks = {p.network_label for p in problems}
        same = [t for t in candidates if networks <= {p.network_label for p in t.problems}]
        candidates = same if len(networks) == 1 else candidates
        whole = [t for t in candidates if graphs == {p.graph_label for p in t.problems}]
        candidates = whole or candidates
    return candidates


def _budget(spec: models.Budget | None, problems: Sequence[ProblemSpec]) -> Budget:
    if spec is None:  # zero-shot: one placement a problem
        return Budget(len(problems))
    evaluations = spec.evaluations
    if spec.evaluations_per_node is not None:
        evaluations = max(1, math.ceil(spec.evaluations_per_node * sum(count_nodes(p) for p in problems)))
    return Budget(evaluations, spec.time, spec.confirm)


def equal_trials(trials: Sequence[Trial]) -> tuple[Trial, Trial] | None:
    """Two trials that are one and the same but for their labels; None if all differ."""
    seen: dict[str, Trial] = {}
    for trial in trials:
        other = seen.setdefault(trial.content_hash, trial)
        if other is not trial:
            return other, trial
    return None
