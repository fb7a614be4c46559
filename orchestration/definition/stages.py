"""The ``stages`` section: what each stage does, on what, from where. Expanding stages to trials does not belong here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

from envs.problem.errors import nearest
from orchestration.definition.execution import EXECUTION_KEYS, Execution, read_execution
from orchestration.definition.issues import Issues, Mark
from orchestration.definition.methods import MethodRow, MethodTable, checked
from orchestration.definition.problems import ProblemTable
from orchestration.definition.searches import SearchSettings, read_search
from orchestration.definition.view import View, with_cure
from orchestration.rewards.evaluators import build_evaluator, remembered
from orchestration.rewards.kinds import EVALUATORS
from orchestration.specs.trial import KINDS, EvaluatorSpec, FrozenDict, ProblemSpec, TrialKind

HELD_OUT = "held-out"
_PER = ("problem", "network", "graph", "all")
SHARED_KEYS = ("seeds", "budget", "evaluator", "search", *EXECUTION_KEYS)
"""Keys that the sweep gives for all stages and a stage may change."""
STAGE_KEYS = ("kind", "from", "config_from", "on", "hold_out", "per", "methods", "config", *SHARED_KEYS)
_BUDGET_KEYS = ("evaluations", "evaluations_per_node", "seconds", "minutes", "hours", "confirm")
_IN_SECONDS = {"seconds": 1.0, "minutes": 60.0, "hours": 3600.0}


@dataclass(frozen=True)
class BudgetSpec:
    """A budget, perhaps in proportion to the number of operations."""

    evaluations: int | None = None
    per_node: float | None = None
    """Evaluations per operation of the trial's problems (GiPH searches 2 |V| steps)."""
    seconds: float | None = None
    confirm: int = 0
    """Measurements that choose among the best placements in the end."""

    @property
    def counts(self) -> bool:
        """Whether it limits evaluations, not wall time alone."""
        return self.evaluations is not None or self.per_node is not None


@dataclass(frozen=True)
class Shared:
    """What a stage uses unless it says otherwise."""

    seeds: tuple[int, ...]
    budget: BudgetSpec | None
    evaluator: EvaluatorSpec
    execution: Execution


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


@dataclass
class StageReader:
    """Reads stages in an order in which every stage comes after those it needs."""

    problems: ProblemTable
    methods: MethodTable
    evaluators: Mapping[str, EvaluatorSpec]
    issues: Issues
    shared: Shared

    def __post_init__(self) -> None:
        self.done: dict[str, Stage] = {}

    def read_all(self, section: View) -> list[Stage]:
        """All stages in order of need; records unknown names and cycles."""
        if not section.mapping(None, "stages"):
            return []
        views = {n: v for n, v in section.children() if v.check_name(n, "stage", v.key_mark)}
        if not views:
            section.error("stages are empty; add one, or remove the key")
        needs = {name: self._needs(view, views) for name, view in views.items()}
        left = dict(views)
        while left:
            ready = [n for n in left if needs[n].isdisjoint(left)]
            if not ready:
                for name, view in left.items():
                    view.issues.add(
                        view.key_mark,
                        f"stage {name!r} can never start: it waits for {', '.join(sorted(needs[name] & set(left)))} in a cycle; "
                        "remove a 'from' or 'config_from'",
                    )
                break
            for name in ready:
                stage = self.read(name, left.pop(name))
                if stage is not None:
                    self.done[name] = stage
        return list(self.done.values())

    def _needs(self, view: View, known: Mapping[str, View]) -> set[str]:
        needed = set()
        for key in ("from", "config_from"):
            child = view.child(key)
            if child is None or child.value is None:
                continue
            name = child.string()
            if name is None:
                continue
            if name in known:
                needed.add(name)
            else:
                child.error(f"unknown stage {name!r}{nearest(name, known)}")
        return needed

    def read(self, name: str, view: View) -> Stage | None:
        """One stage whose needs are read; None if something in it is wrong (recorded)."""
        before = len(self.issues.found)
        if not view.mapping(STAGE_KEYS, f"stage {name!r}"):
            return None
        source, config_source = self._stage(view.child("from")), self._stage(view.child("config_from"))
        if (view.has("from") and source is None) or (view.has("config_from") and config_source is None):
            return None  # that stage does not exist or has errors of its own, which are recorded
        kind = self._kind(view, source)
        shared = read_shared(view, self.shared, self.evaluators)
        rows = self._rows(view, kind, source, config_source)
        folds, problems = self._problems(view, kind, source)
        per = self._per(view, kind, source, bool(folds), rows, problems)
        search_view = view.child("search")
        search = None if search_view is None or search_view.value is None else read_search(search_view, rows)
        if search is not None and search.asks_pruner and shared.budget is not None and not shared.budget.counts:
            at = (search_view or view).child("pruner") or view
            at.error(
                f"pruner {search.pruner.name!r} compares trials after the same number of evaluations, but the budget is wall time alone; "
                "add evaluations to the budget, or use pruner: none"
            )
        if search_view is not None and config_source is not None:
            search_view.error("a stage cannot search and take a search's winner; remove search or config_from")
        if config_source is not None and config_source.search is None:
            where = view.child("config_from") or view
            where.error(f"stage {config_source.name!r} is no search, so it has no winner; point config_from at a stage with 'search'")
        if source is not None and source.search is not None:
            (view.child("from") or view).error(
                f"stage {source.name!r} is a search, which leaves many checkpoints; use config_from to take its winner"
            )
        if shared.budget is None and kind != "zero-shot":
            whole = view.path == name  # the one stage of a sweep without stages
            what = "the sweep has no budget; add" if whole else f"stage {name!r} has no budget; add to it or to the sweep"
            view.error(f"{what} budget: {{evaluations: 1000}}")
        if shared.budget is not None and shared.budget.confirm and shared.evaluator.kind == "openvino" and remembered(shared.evaluator):
            (view.child("budget") or view).error(
                "budget confirms the best placements by measuring them again, but this evaluator measures no placement twice; "
                "add cache: false to it, or leave confirm out"
            )
        if len(self.issues.found) > before or (search_view is not None and search_view.value is not None and search is None):
            return None
        return Stage(
            name, kind, tuple(rows), tuple(problems), per, folds,
            None if source is None else source.name, None if config_source is None else config_source.name, search, shared, view.key_mark,
        )  # fmt: skip

    def _stage(self, view: View | None) -> Stage | None:
        if view is None or view.value is None:
            return None
        return self.done.get(str(view.value))

    def _kind(self, view: View, source: Stage | None) -> TrialKind:
        given = view.child("kind")
        name = view.path.rpartition(".")[2]
        kind = given.choice(KINDS, "kind of stage") if given is not None else name if name in KINDS else "finetune" if source else "search"
        if kind in ("finetune", "zero-shot") and source is None:
            view.error(f"a {kind} stage starts from another stage's checkpoint; add from: and the name of that stage")
        if kind == "zero-shot" and view.has("search"):
            view.error("a zero-shot stage has nothing to search with; search in the stage it starts from")
        if kind == "zero-shot" and view.has("budget"):
            (view.child("budget") or view).error(
                "a zero-shot stage measures one placement of each problem, so it takes no budget; remove it"
            )
        return cast(TrialKind, kind or "search")

    def _rows(self, view: View, kind: str, source: Stage | None, config_source: Stage | None) -> list[MethodRow]:
        given = view.child("methods")
        if given is not None and given.value is not None:
            rows = self.methods.select(given)
        elif source is not None:
            rows = list(source.rows)
        elif config_source is not None:
            rows = [self.methods.rows[r.label] for r in config_source.rows]
        else:
            rows = [r for r in self.methods.rows.values() if kind != "pretrain" or r.learns]
        if not rows and self.methods.rows and not self.methods.broken:
            view.error("no method of this sweep can be trained in advance; add one that learns, or make the stage kind: search")
        config = view.child("config")
        rows = [row for r in rows if (row := checked(r, config)) is not None]
        self._check_rows(given or view, kind, rows, source, config_source)
        return rows

    def _check_rows(self, view: View, kind: str, rows: list[MethodRow], source: Stage | None, config_source: Stage | None) -> None:
        for row in rows:
            if (kind == "pretrain" or source is not None) and not row.learns:
                doing = (
                    "be trained in advance"
                    if kind == "pretrain"
                    else f"start from the checkpoint of stage {source.name!r}"
                    if source
                    else ""
                )
                view.error(f"method {row.label!r} does not learn, so it cannot {doing}; leave it to a search stage of its own by 'methods'")
            if kind == "zero-shot" and not row.places:
                view.error(f"method {row.label!r} has no zero-shot placement; use kind: finetune")
            for other, what in ((source, "checkpoint"), (config_source, "winner")):
                if other is not None and row.label not in {r.label for r in other.rows} and not self.methods.broken:
                    view.error(f"stage {other.name!r} has no {what} of method {row.label!r}; add the method to that stage's methods")

    def _problems(self, view: View, kind: str, source: Stage | None) -> tuple[tuple[tuple[str, ...], ...], list[ProblemSpec]]:
        on, hold = view.child("on"), view.child("hold_out")
        wants_held_out = on is not None and on.value == HELD_OUT
        if wants_held_out and (source is None or not source.folds):
            on.error("on: held-out needs a stage with hold_out to start from; add from:, or hold_out: each there")  # type: ignore[union-attr]
            return (), []
        if source is not None and source.folds and (on is None or on.value is None or wants_held_out):
            if kind == "pretrain":
                return source.folds, list(source.problems)
            held = {g for fold in source.folds for g in fold}
            return (), [p for p in source.problems if p.graph_label in held]
        if source is not None and source.per == "problem" and (on is None or on.value is None):
            return (), list(source.problems)
        before = len(self.issues.found)
        selection = self.problems.select(on)
        if hold is None or hold.value is None:
            return (), selection.problems
        if len(self.issues.found) > before:
            return (), selection.problems
        if kind != "pretrain":
            hold.error(f"hold_out belongs to the stage that trains on the others, not to a {kind} stage; move it to a pretrain stage")
        return self._folds(hold, selection.graphs), selection.problems

    def _folds(self, view: View, graphs: list[str]) -> tuple[tuple[str, ...], ...]:
        """``each`` graph in turn, or every listed graph or group in turn; the rest is trained on."""
        if view.value == "each":
            folds: list[tuple[str, ...]] = [(g,) for g in graphs]
        else:
            folds = []
            for item in view.items():
                name = item.string()
                unit = () if name is None else self.problems.graphs.labels(item, name)
                outside = [g for g in unit if g not in graphs]
                if outside and self.problems.complete:
                    item.error(f"hold_out names graph {outside[0]!r}, which this stage is not on; it is on {', '.join(graphs[:8])}")
                elif unit:
                    folds.append(tuple(unit))
        if len({g for f in folds for g in f}) < sum(map(len, folds)):
            view.error("hold_out holds a graph out twice; list each once")
        if self.problems.complete and any(len(f) == len(graphs) for f in folds):
            view.error(
                f"hold_out leaves nothing to train on: the stage has {len(graphs)} graph{'s' * (len(graphs) != 1)}; put more graphs in 'on'"
            )
        return tuple(folds)

    def _per(self, view: View, kind: str, source: Stage | None, folded: bool, rows: list[MethodRow], problems: list[ProblemSpec]) -> str:
        given = view.child("per")
        default = "problem" if kind != "pretrain" else source.per if source is not None and source.folds else "all"
        per = default if given is None else given.choice(_PER, "value of per") or default
        if folded and per not in ("all", "network"):
            (given or view).error(f"hold_out trains on several graphs together, so per: {per} cannot be; use per: all or per: network")
        together = folded or len(group_problems(problems, per)) < len(problems)
        for row in rows:
            if together and not row.cls.many_problems and (row.learns or (kind == "search" and source is None)):
                at = given or view
                at.error(f"method {row.label!r} places one problem at a time, but a trial of this stage has several; set per: problem")
        return per


def group_problems(problems: list[ProblemSpec] | tuple[ProblemSpec, ...], per: str) -> dict[str, list[ProblemSpec]]:
    """The problems of each trial, by what they share."""
    groups: dict[str, list[ProblemSpec]] = {}
    for p in problems:
        key = {"problem": p.label, "network": p.network_label, "graph": p.graph_label, "all": ""}[per]
        groups.setdefault(key, []).append(p)
    return groups


def read_shared(view: View, default: Shared, evaluators: Mapping[str, EvaluatorSpec]) -> Shared:
    """The shared keys of a mapping, with those of ``default`` where it says nothing."""
    seeds, budget, evaluator = view.child("seeds"), view.child("budget"), view.child("evaluator")
    return replace(
        default,
        seeds=default.seeds if seeds is None else tuple(seeds.integers("seeds")),
        budget=default.budget if budget is None or budget.value is None else read_budget(budget),
        evaluator=default.evaluator if evaluator is None else read_evaluator(evaluator, evaluators) or default.evaluator,
        execution=read_execution(view).over(default.execution),
    )


def read_budget(view: View) -> BudgetSpec:
    """``1000`` (evaluations) or a mapping with evaluations, evaluations_per_node, one of seconds, minutes, hours, and confirm."""
    if isinstance(view.value, int | float) and not isinstance(view.value, bool):
        return BudgetSpec(view.integer())
    if not view.mapping(_BUDGET_KEYS, "budget"):
        return BudgetSpec(1)
    evaluations, per_node, confirm = (view.child(key) for key in ("evaluations", "evaluations_per_node", "confirm"))
    times = {k: child for k in _IN_SECONDS if (child := view.child(k)) is not None}
    seconds = None
    if len(times) > 1:
        view.error(f"budget gives its time twice, by {' and '.join(times)}; keep one")
    for unit, child in times.items():
        number = child.number(0, exclusive=True)
        seconds = None if number is None else number * _IN_SECONDS[unit]
    if evaluations is not None and per_node is not None:
        view.error("budget gives evaluations and evaluations_per_node; keep one")
    if evaluations is None and per_node is None and not times:
        view.error("budget is empty; give evaluations, seconds or both")
    return BudgetSpec(
        None if evaluations is None else evaluations.integer(),
        None if per_node is None else per_node.number(0, exclusive=True),
        seconds,
        0 if confirm is None else confirm.integer() or 0,
    )


def read_evaluator(view: View, named: Mapping[str, EvaluatorSpec]) -> EvaluatorSpec | None:
    """The name of a declared evaluator, a kind, or a mapping with ``kind`` and its options."""
    if not view.is_mapping:
        text = view.string()
        if text is None:
            return None
        if text in named:
            return named[text]
        head, _, host = text.partition(":")
        return _checked_evaluator(view, head, {"host": host} if host else {}, named)
    kind_view = view.child("kind")
    if kind_view is None:
        view.error("evaluator lacks 'kind'; add kind: simulator")
        return None
    kind = kind_view.string()
    if kind is None:
        return None
    options = {k: v.plain() for k, v in view.children() if k != "kind"}
    if kind in EVALUATORS:
        view.mapping(("kind", *EVALUATORS[kind].options), f"evaluator {kind!r}")
    return _checked_evaluator(kind_view, kind, options, named)


def _checked_evaluator(view: View, kind: str, options: Mapping[str, Any], named: Mapping[str, EvaluatorSpec]) -> EvaluatorSpec | None:
    if kind not in EVALUATORS:  # nobody could serve it: hosts measure by the kinds that this package knows
        view.error(f"unknown evaluator {kind!r}{nearest(kind, [*named, *EVALUATORS])}")
        return None
    spec = EvaluatorSpec(kind, FrozenDict(options))
    if all(k in EVALUATORS[kind].options for k in options):
        try:
            build_evaluator(spec)
        except (ValueError, TypeError) as error:
            view.error(with_cure(f"evaluator {kind!r}: {error}"))
            return None
    return spec
