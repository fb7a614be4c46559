"""The ``stages`` section: what each stage does, on what, from where. Expanding stages to trials does not belong here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import cast

from envs.problem.errors import InputError, suggestion
from methods.contract.validation import Location
from orchestration.definition.document import Document
from orchestration.definition.execution import ExecutionSettings, read_execution
from orchestration.definition.issues import Mark
from orchestration.definition.methods import MethodRow, MethodTable, checked
from orchestration.definition.models import Budget, EvaluatorModel, SharedKeys, StageModel
from orchestration.definition.problems import ProblemTable
from orchestration.definition.searches import SearchSettings, read_search
from orchestration.rewards.evaluators import build_evaluator, remembered
from orchestration.rewards.kinds import EVALUATORS
from orchestration.specs import hosts
from orchestration.specs.policies import Policy, is_reference, read_policy
from orchestration.specs.trial import KINDS, EvaluatorSpec, FrozenDict, ProblemSpec, TrialKind

HELD_OUT = "held-out"
_APART = [(key,) for key in ("search", *SharedKeys.model_fields)]
"""Keys of a stage that say nothing about its methods and problems."""


@dataclass(frozen=True)
class Shared:
    """What a stage uses unless it says otherwise."""

    seeds: tuple[int, ...]
    budget: Budget | None
    evaluator: EvaluatorSpec
    execution: ExecutionSettings


@dataclass(frozen=True)
class Stage:
    """One stage, checked by itself and against the others."""

    name: str
    kind: TrialKind
    rows: tuple[MethodRow, ...]
    problems: tuple[ProblemSpec, ...]
    """What it places or trains on; with ``folds`` the union over them."""
    per: str
    """One trial for every ``problem``, ``network`` or ``graph``, or one for ``all``."""
    folds: tuple[tuple[str, ...], ...]
    """Labels of the graphs held out together, one fold after another; empty without hold_out."""
    source: str | None
    """Name of the stage whose checkpoint it starts from."""
    config_source: str | None
    """Name of the search whose winner configures it."""
    search: SearchSettings | None
    shared: Shared
    mark: Mark
    policy: Policy | None = None
    """What it starts from that is no stage: a registered model, or a policy's folder."""
    config: FrozenDict = field(default_factory=FrozenDict)
    """Settings that the stage changes itself; they are in `rows` already."""


@dataclass
class StageReader:
    """Reads stages in an order in which every stage comes after those it needs."""

    doc: Document
    problems: ProblemTable
    methods: MethodTable
    evaluators: Mapping[str, EvaluatorSpec]
    shared: Shared
    store: str | None = None
    """MLflow's store with registered models."""

    def __post_init__(self) -> None:
        self.done: dict[str, Stage] = {}

    def read_all(self, models: Mapping[str, StageModel]) -> list[Stage]:
        """All stages in order of need; records unknown names and cycles."""
        if not models and not self.doc.broken("stages"):
            self.doc.error(("stages",), "stages are empty", "add one, or remove the key")
        needs = {name: self._needs(name, model, models) for name, model in models.items()}
        left = dict(models)
        while left:
            ready = [n for n in left if needs[n].isdisjoint(left)]
            if not ready:
                for name in left:
                    waits = ", ".join(sorted(needs[name] & set(left)))
                    cure = "remove a 'from' or 'config_from'"
                    self.doc.error(("stages", name), f"stage {name!r} can never start: it waits for {waits} in a cycle", cure, key=True)
                break
            for name in ready:
                stage = self.read(name, left.pop(name), ("stages", name))
                if stage is not None:
                    self.done[name] = stage
        return list(self.done.values())

    def _needs(self, name: str, model: StageModel, known: Mapping[str, StageModel]) -> set[str]:
        needed = {key: other for key, other in (("from", model.source), ("config_from", model.config_from)) if other is not None}
        for key, other in needed.items():
            if key == "from" and is_reference(other):
                continue
            if other not in known and other not in self.doc.broken("stages"):
                self.doc.error(("stages", name, key), f"unknown stage {other!r}", suggestion(other, known))
        return set(needed.values()) & set(known)

    def read(self, name: str, model: StageModel, path: Location) -> Stage | None:
        """One stage whose needs are read; None if something in it is wrong (recorded)."""
        doc, before = self.doc, len(self.doc.issues.found)
        policy = self._policy(model, path) if model.source and is_reference(model.source) else None
        source, config_source = (None if n is None else self.done.get(n) for n in (model.source, model.config_from))
        if (model.source and source is None and policy is None) or (model.config_from and config_source is None):
            return None  # that stage does not exist or has errors of its own, which are recorded
        if path and any(p[:2] == path and p[2:3] not in _APART for p in doc.wrong):
            return None  # what was left out as wrong decides what else would be
        kind = self._kind(name, model, path, source is not None or policy is not None)
        shared = read_shared(doc, path, model, self.shared, self.evaluators)
        rows = self._rows(model, path, kind, source, config_source, policy)
        folds, problems = self._problems(model, path, kind, source)
        per = self._per(model, path, kind, source, bool(folds), rows, problems)
        if problems:
            shared = replace(shared, evaluator=self._with_models(model, path, shared.evaluator, problems))
        search = None if model.search is None else read_search(doc, (*path, "search"), model.search, rows)
        if search is not None and search.asks_pruner and shared.budget is not None and not shared.budget.counts:
            doc.error(
                (*path, "search", "pruner"),
                f"pruner {search.pruner.name!r} compares trials after the same number of evaluations, but the budget is wall time alone",
                "add evaluations to the budget, or use pruner: none",
            )
        self._check_sources(model, path, source, config_source)
        if shared.budget is None and kind != "zero-shot" and not any("budget" in p for p in doc.wrong):
            what = f"stage {name!r} has no budget; add to it or to the sweep" if path else "the sweep has no budget; add"
            doc.error(path, f"{what} budget: {{evaluations: 1000}}")
        if shared.budget is not None and shared.budget.confirm and shared.evaluator.kind == "openvino" and remembered(shared.evaluator):
            doc.error(
                (*path, "budget"),
                "budget confirms the best placements by measuring them again, but this evaluator measures no placement twice",
                "add cache: false to it, or leave confirm out",
            )
        if len(doc.issues.found) > before or (model.search is not None and search is None):
            return None
        return Stage(
            name,
            kind,
            tuple(rows),
            tuple(problems),
            per,
            folds,
            None if policy is not None else model.source,
            model.config_from,
            search,
            shared,
            doc.mark(path, True),
            policy,
            FrozenDict(model.config or {}),
        )

    def _with_models(
        self, model: StageModel, path: Location, given: EvaluatorSpec, problems: Sequence[ProblemSpec]
    ) -> EvaluatorSpec:  # fmt: skip
        """The evaluator with what the problems' own files say of it; what is missing is recorded."""
        try:
            spec = hosts.completed(given, problems)
            if hosts.is_incomplete(given):
                build_evaluator(spec)
        except InputError as error:
            where = (*path, "evaluator") if model.evaluator is not None or not path else ("evaluator",)
            self.doc.error(where, f"evaluator {given.kind!r}: {error.message}", error.cure)
            return given
        return spec

    def _check_sources(self, model: StageModel, path: Location, source: Stage | None, config_source: Stage | None) -> None:
        if model.search is not None and config_source is not None:
            self.doc.error((*path, "search"), "a stage cannot search and take a search's winner", "remove search or config_from")
        if config_source is not None and config_source.search is None:
            cure = "point config_from at a stage with 'search'"
            self.doc.error((*path, "config_from"), f"stage {config_source.name!r} is no search, so it has no winner", cure)
        if source is not None and source.search is not None:
            cure = "use config_from to take its winner"
            self.doc.error((*path, "from"), f"stage {source.name!r} is a search, which leaves many checkpoints", cure)

    def _policy(self, model: StageModel, path: Location) -> Policy | None:
        """What ``from`` names that is no stage; recorded if it is not there."""
        at = (*path, "from")
        try:
            return read_policy(str(model.source), Path(self.doc.mark(at).file).parent, self.store)
        except InputError as error:
            self.doc.error(at, error.message, error.cure)
            return None

    def _kind(self, name: str, model: StageModel, path: Location, starts: bool) -> TrialKind:
        kind = model.kind or (name if path and name in KINDS else "finetune" if starts else "search")
        if kind in ("finetune", "zero-shot") and not starts:
            cure = "add from: and the name of that stage, or models:/NAME/VERSION"
            self.doc.error(path, f"a {kind} stage starts from another stage's checkpoint", cure)
        if kind == "zero-shot" and model.search is not None:
            self.doc.error(path, "a zero-shot stage has nothing to search with", "search in the stage it starts from")
        if kind == "zero-shot" and model.budget is not None:
            what = "a zero-shot stage measures one placement of each problem, so it takes no budget"
            self.doc.error((*path, "budget"), what, "remove it")
        return cast(TrialKind, kind)

    def _rows(
        self, model: StageModel, path: Location, kind: str, source: Stage | None, config_source: Stage | None, policy: Policy | None
    ) -> list[MethodRow]:
        if model.methods is not None:
            rows = self.methods.select(self.doc, (*path, "methods"), model.methods)
        elif source is not None:
            rows = list(source.rows)
        elif policy is not None:
            rows = [r for r in self.methods.rows.values() if r.method == policy.method]
        elif config_source is not None:
            rows = [self.methods.rows[r.label] for r in config_source.rows]
        else:
            rows = [r for r in self.methods.rows.values() if kind != "pretrain" or r.learns]
        if not rows and self.methods.rows and not self.methods.broken and not self._wrong_below((*path, "methods")):
            cure = "add one that learns, or make the stage kind: search"
            what = "no method of this sweep can be trained in advance"
            if policy is not None:
                what, cure = (
                    f"no method of this sweep is {policy.method!r}, which learned {policy.name}",
                    f"add {policy.method}: to methods",
                )
            self.doc.error(path, what, cure)
        if policy is not None:
            other = next((r for r in rows if r.method != policy.method), None)
            if other is not None:
                what = f"method {other.label!r} is {other.method!r}, but {policy.name} was learned by {policy.method!r}"
                self.doc.error((*path, "methods"), what, "name rows of that method by 'methods'")
                rows = [r for r in rows if r.method == policy.method]
            # A policy fits the network of the settings it was learned with.
            rows = [row for r in rows if (row := checked(self.doc, (*path, "from"), r, policy.config)) is not None]
        rows = [row for r in rows if (row := checked(self.doc, (*path, "config"), r, model.config)) is not None]
        self._check_rows((*path, "methods"), kind, rows, source, config_source)
        return rows

    def _wrong_below(self, path: Location) -> bool:
        return any(p[: len(path)] == path for p in self.doc.wrong)

    def _check_rows(self, path: Location, kind: str, rows: list[MethodRow], source: Stage | None, config_source: Stage | None) -> None:
        error = self.doc.error
        for row in rows:
            if (kind == "pretrain" or source is not None) and not row.learns:
                doing = f"start from the checkpoint of stage {source.name!r}" if source else "be trained in advance"
                cure = "leave it to a search stage of its own by 'methods'"
                error((*path, row.label), f"method {row.label!r} does not learn, so it cannot {doing}", cure)
            if kind == "zero-shot" and not row.places:
                error((*path, row.label), f"method {row.label!r} has no zero-shot placement", "use kind: finetune")
            for other, what in ((source, "checkpoint"), (config_source, "winner")):
                if other is not None and row.label not in {r.label for r in other.rows} and not self.methods.broken:
                    cure = "add the method to that stage's methods"
                    error((*path, row.label), f"stage {other.name!r} has no {what} of method {row.label!r}", cure)

    def _problems(
        self, model: StageModel, path: Location, kind: str, source: Stage | None
    ) -> tuple[tuple[tuple[str, ...], ...], list[ProblemSpec]]:
        on, hold = (*path, "on"), (*path, "hold_out")
        wants_held_out = model.on is not None and model.on.graphs == (HELD_OUT,)
        if wants_held_out and (source is None or not source.folds):
            self.doc.error(on, "on: held-out needs a stage with hold_out to start from", "add from:, or hold_out: each there")
            return (), []
        if source is not None and source.folds and (model.on is None or wants_held_out):
            if kind == "pretrain":
                return source.folds, list(source.problems)
            held = {g for fold in source.folds for g in fold}
            return (), [p for p in source.problems if p.graph_label in held]
        if source is not None and source.per == "problem" and model.on is None:
            return (), list(source.problems)
        before = len(self.doc.issues.found)
        problems = self.problems.select(on, model.on)
        if not problems and model.on is not None and self.problems.complete and len(self.doc.issues.found) == before:
            self.doc.error(on, "this selects no problem", "name graphs and networks, or leave it out")
        if model.hold_out is None or len(self.doc.issues.found) > before:
            return (), problems
        if kind != "pretrain":
            what = f"hold_out belongs to the stage that trains on the others, not to a {kind} stage"
            self.doc.error(hold, what, "move it to a pretrain stage")
        return self._folds(hold, model.hold_out, list(dict.fromkeys(p.graph_label for p in problems))), problems

    def _folds(self, path: Location, names: Sequence[str], graphs: list[str]) -> tuple[tuple[str, ...], ...]:
        """``each`` graph in turn, or every listed graph or group in turn; the rest is trained on."""
        if names == ("each",):
            folds: list[tuple[str, ...]] = [(g,) for g in graphs]
        else:
            folds = []
            for name in names:
                unit = self.problems.graphs.labels(self.doc, path, name)
                outside = [g for g in unit if g not in graphs]
                if outside and self.problems.complete:
                    what = f"hold_out names graph {outside[0]!r}, which this stage is not on"
                    self.doc.error((*path, name), what, f"it is on {', '.join(graphs[:8])}")
                elif unit:
                    folds.append(tuple(unit))
        if len({g for f in folds for g in f}) < sum(map(len, folds)):
            self.doc.error(path, "hold_out holds a graph out twice", "list each once")
        if self.problems.complete and any(len(f) == len(graphs) for f in folds):
            count = f"{len(graphs)} graph{'s' * (len(graphs) != 1)}"
            self.doc.error(path, f"hold_out leaves nothing to train on: the stage has {count}", "put more graphs in 'on'")
        return tuple(folds)

    def _per(
        self, model: StageModel, path: Location, kind: str, source: Stage | None, folded: bool, rows: list[MethodRow],
        problems: list[ProblemSpec],
    ) -> str:  # fmt: skip
        path = (*path, "per")
        per = model.per or ("problem" if kind != "pretrain" else source.per if source is not None and source.folds else "all")
        if folded and per not in ("all", "network"):
            what = f"hold_out trains on several graphs together, so per: {per} cannot be"
            self.doc.error(path, what, "use per: all or per: network")
        together = folded or len(group_problems(problems, per)) < len(problems)
        for row in rows:
            if together and not row.cls.many_problems and (row.learns or (kind == "search" and source is None)):
                what = f"method {row.label!r} places one problem at a time, but a trial of this stage has several"
                self.doc.error(path, what, "set per: problem")
        return per


def group_problems(problems: list[ProblemSpec] | tuple[ProblemSpec, ...], per: str) -> dict[str, list[ProblemSpec]]:
    """The problems of each trial, by what they share."""
    groups: dict[str, list[ProblemSpec]] = {}
    for p in problems:
        key = {"problem": p.label, "network": p.network_label, "graph": p.graph_label, "all": ""}[per]
        groups.setdefault(key, []).append(p)
    return groups


def read_shared(doc: Document, path: Location, keys: SharedKeys, default: Shared, evaluators: Mapping[str, EvaluatorSpec]) -> Shared:
    """The shared keys of a section, with those of ``default`` where it says nothing."""
    evaluator = None if keys.evaluator is None else read_evaluator(doc, (*path, "evaluator"), keys.evaluator, evaluators)
    return replace(
        default,
        seeds=keys.seeds or default.seeds,
        budget=keys.budget or default.budget,
        evaluator=evaluator or default.evaluator,
        execution=read_execution(keys).over(default.execution),
    )


def read_evaluator(doc: Document, path: Location, given: EvaluatorModel, named: Mapping[str, EvaluatorSpec]) -> EvaluatorSpec | None:
    """A declared evaluator by its name, or a kind with its options; None if something is wrong (recorded)."""
    kind, options = given.kind, given.model_extra or {}
    if kind in named and not options:
        return named[kind]
    if kind not in EVALUATORS:  # nobody could serve it: hosts measure by the kinds that this package knows
        if kind not in doc.broken("evaluators"):
            doc.error((*path, "kind"), f"unknown evaluator {kind!r}", suggestion(kind, [*named, *EVALUATORS]))
        return None
    unknown = [key for key in options if key not in EVALUATORS[kind].options]
    for key in unknown:
        doc.error((*path, key), f"unknown key {key!r} in evaluator {kind!r}", suggestion(key, EVALUATORS[kind].options), key=True)
    spec = EvaluatorSpec(kind, FrozenDict(options))
    try:
        if not unknown and not hosts.is_incomplete(spec):  # that is built with its stage's problems
            build_evaluator(spec)
    except InputError as error:
        doc.error((*path, "kind"), f"evaluator {kind!r}: {error.message}", error.cure)
        return None
    except (ValueError, TypeError) as error:
        doc.error((*path, "kind"), f"evaluator {kind!r}: {error}", "change its options")
        return None
    return spec
