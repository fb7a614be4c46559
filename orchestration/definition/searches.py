"""The ``search`` section: a space over a method's settings, a sampler, a pruner, objectives. Optuna's study is run elsewhere."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from envs.problem.errors import InputError, nearest
from orchestration.definition.methods import MethodRow, override
from orchestration.definition.view import View, with_cure
from orchestration.specs.trial import FrozenDict, Trial, content_hash

SAMPLERS = {
    "tpe": "TPESampler",
    "random": "RandomSampler",
    "grid": "GridSampler",
    "cma-es": "CmaEsSampler",
    "nsga-ii": "NSGAIISampler",
}
PRUNERS = {
    "none": "NopPruner",
    "median": "MedianPruner",
    "asha": "SuccessiveHalvingPruner",
    "hyperband": "HyperbandPruner",
}
OBJECTIVES = ("best", "curve", "seconds")
"""All minimised and averaged (geometric mean) over a configuration's problems and seeds: ``best``, the best objective reached
relative to the problem's lower bound; ``curve``, the mean of the best so far over the budget, likewise relative;
``seconds``, the learner's time, which depends on the machine."""

_KEYS = ("space", "configurations", "sampler", "pruner", "objectives", "seed", "reports", "storage")
_PARAMETER_KEYS = ("float", "int", "choice", "log", "step", "when")
_SET_BY_US = ("self", "seed", "search_space", "constraints_func")


@dataclass(frozen=True)
class Parameter:
    """One searched setting.

    ``condition`` maps other parameters to the values of theirs under which this one is asked for; else its base value holds.
    """

    name: str
    """Dotted name of the setting."""
    kind: str
    """``float``, ``int`` or ``choice``."""
    low: float | int | None = None
    high: float | int | None = None
    choices: tuple[Any, ...] = ()
    log: bool = False
    step: float | int | None = None
    condition: FrozenDict = field(default_factory=FrozenDict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "choices", tuple(self.choices))
        object.__setattr__(self, "condition", FrozenDict(self.condition))

    def active(self, values: Mapping[str, Any]) -> bool:
        """Whether this one is asked for, given the values of the parameters before it."""
        return all(name in values and values[name] in wanted for name, wanted in self.condition.items())

    def grid(self) -> list[Any] | None:
        """All values, or None if they cannot be listed."""
        if self.kind == "choice":
            return list(self.choices)
        if self.low is None or self.high is None or self.log or (self.kind == "float" and self.step is None):
            return None
        step = self.step or 1
        return [self.low + i * step for i in range(int((self.high - self.low) / step + 1e-9) + 1)]

    def edges(self) -> list[Any]:
        """Values that the method must accept for the whole range to be acceptable."""
        return list(self.choices) if self.kind == "choice" else [self.low, self.high]

    def to_json(self) -> dict[str, Any]:
        """As a dict of JSON values."""
        return {
            "name": self.name, "kind": self.kind, "low": self.low, "high": self.high, "choices": list(self.choices),
            "log": self.log, "step": self.step, "condition": self.condition,
        }  # fmt: skip


@dataclass(frozen=True)
class Component:
    """A sampler or pruner by our name, with options of Optuna's class of that name."""

    name: str
    options: FrozenDict = field(default_factory=FrozenDict)

    @property
    def class_name(self) -> str:
        """Optuna's name of it."""
        return {**SAMPLERS, **PRUNERS}[self.name]


@dataclass(frozen=True)
class SearchSettings:
    """A ``search`` section, before it is known which method and problems it is for."""

    parameters: tuple[Parameter, ...]
    configurations: int
    """Most configurations to try."""
    sampler: Component
    pruner: Component
    objectives: tuple[str, ...] = ("best",)
    seed: int = 0
    reports: int = 10
    """Intermediate bests a trial reports to the pruner, evenly over its budget."""
    storage: str | None = None
    """URL of the database that keeps the study; None keeps it in the sweep's directory. Not part of the identity."""

    @property
    def asks_pruner(self) -> bool:
        """Whether trials stop on the way for the pruner to judge them."""
        return self.pruner.name != "none" and self.reports > 1

    def size(self) -> int | None:
        """Number of configurations of a finite space without conditions; None otherwise."""
        grids = [p.grid() for p in self.parameters]
        if any(g is None for g in grids) or any(p.condition for p in self.parameters):
            return None
        total = 1
        for grid in grids:
            total *= len(grid or ())
        return total


@dataclass(frozen=True)
class SearchSpec:
    """One search: the settings, and the trials (one per problem and seed) that every configuration is tried on."""

    stage: str
    row: MethodRow
    settings: SearchSettings
    templates: tuple[Trial, ...]
    """Trials with the base configuration; `trials` gives those of another."""

    @property
    def label(self) -> str:
        """The method's label."""
        return self.row.label

    @cached_property
    def content_hash(self) -> str:
        """sha256 of everything that determines the search; its name in Optuna's storage."""
        s = self.settings
        return content_hash(
            [
                "search-1", [p.to_json() for p in s.parameters], s.configurations, [s.sampler.name, s.sampler.options],
                [s.pruner.name, s.pruner.options], s.objectives, s.seed, s.reports, [t.content_hash for t in self.templates],
            ]
        )  # fmt: skip

    @property
    def short(self) -> str:
        """The first 12 hex digits of the content hash."""
        return self.content_hash[:12]

    def config(self, values: Mapping[str, Any]) -> FrozenDict:
        """The whole configuration with the searched settings set; InputError if the method refuses it."""
        return override(self.row.method, self.row.config, values)

    def trials(self, values: Mapping[str, Any]) -> list[Trial]:
        """The trials of one configuration, in the order of the templates."""
        config = self.config(values)
        return [replace(t, config=config) for t in self.templates]


def read_search(view: View, rows: Sequence[MethodRow]) -> SearchSettings | None:
    """A ``search`` section for the given rows; None if something in it is wrong (recorded)."""
    before = len(view.issues.found)
    if not view.mapping(_KEYS, "search", required=("space",)):
        return None
    parameters = _read_space(view.child("space"), rows)
    sampler = _component(view.child("sampler"), "tpe", SAMPLERS, "optuna.samplers", "sampler")
    pruner = _component(view.child("pruner"), "none", PRUNERS, "optuna.pruners", "pruner")
    given = view.child("objectives")
    objectives = ("best",) if given is None else tuple(_objectives(given))
    count, seed, reports, storage = (view.child(k) for k in ("configurations", "seed", "reports", "storage"))
    configurations = None if count is None else count.integer(1)
    settings = SearchSettings(
        tuple(parameters),
        configurations or 1,
        sampler or Component("tpe"),
        pruner or Component("none"),
        objectives,
        (0 if seed is None else seed.integer()) or 0,
        (10 if reports is None else reports.integer(1)) or 10,
        None if storage is None else _storage(storage),
    )
    if len(view.issues.found) > before:
        return None
    settings = _complete(view, settings, configurations)
    return settings if len(view.issues.found) == before else None


def _complete(view: View, settings: SearchSettings, configurations: int | None) -> SearchSettings:
    """Checks what depends on several parts; a grid's number of configurations is the size of the grid."""
    name, several = settings.sampler.name, len(settings.objectives) > 1
    sampler, pruner = view.child("sampler") or view, view.child("pruner") or view
    conditional = next((p for p in settings.parameters if p.condition), None)
    if name == "grid":
        endless = next((p.name for p in settings.parameters if p.grid() is None), None)
        if endless is not None:
            sampler.error(f"sampler 'grid' needs finite parameters, but {endless!r} is continuous; give it a step or choices")
        elif conditional is not None:
            sampler.error(f"sampler 'grid' cannot have conditions, but {conditional.name!r} has 'when'; use tpe or random")
        else:
            size = settings.size() or 1
            return replace(settings, configurations=min(size, configurations or size))
    elif configurations is None:
        view.error(f"search lacks 'configurations'; say how many sampler {name!r} may try")
    if name == "cma-es":
        choice = next((p.name for p in settings.parameters if p.kind == "choice"), None)
        if choice is not None or conditional is not None or several:
            why = f"{choice!r} is a choice" if choice else "it has conditions" if conditional else "it has several objectives"
            sampler.error(f"sampler 'cma-es' searches numbers for one objective, but {why}; use tpe")
    if several and settings.pruner.name != "none":
        pruner.error(f"pruner {settings.pruner.name!r} cannot serve several objectives; use pruner: none")
    return settings


def _storage(view: View) -> str | None:
    url = view.string()
    if url is not None and "://" not in url and not url.startswith(("env:", "file:")):
        view.error(f"storage {url!r} is no URL of a database; write postgresql://user@host/database, env:NAME, file:PATH or nothing")
    return url


def _objectives(view: View) -> list[str]:
    found = [name for item in view.items() if (name := item.choice(OBJECTIVES, "objective of a search")) is not None]
    if len(set(found)) != len(found):
        view.error(f"objectives hold {max(found, key=found.count)!r} twice; remove one")
    return found or ["best"]


def _component(view: View | None, default: str, known: Mapping[str, str], module: str, what: str) -> Component | None:
    """A sampler or pruner by name, or a mapping with ``name`` and options of Optuna's class."""
    if view is None or view.value is None:
        return Component(default)
    if not view.is_mapping:
        name = view.choice(list(known), what)
        return None if name is None else Component(name)
    name_view = view.child("name")
    if name_view is None:
        view.error(f"{what} lacks 'name'; known are {', '.join(known)}")
        return None
    name = name_view.choice(list(known), what)
    if name is None:
        return None
    import importlib

    cls = getattr(importlib.import_module(module), known[name])
    options = [p for p in inspect.signature(cls).parameters if p not in _SET_BY_US]
    before = len(view.issues.found)
    view.mapping(["name", *options], f"{what} {name!r}")
    given = {k: v.plain() for k, v in view.children() if k != "name"}
    if len(view.issues.found) == before and name != "grid":
        try:
            cls(**given)
        except (ValueError, TypeError, ImportError) as error:
            view.error(with_cure(f"{what} {name!r} cannot take {given}: {error}", "change its options"))
            return None
    return Component(name, FrozenDict(given))


def _read_space(view: View | None, rows: Sequence[MethodRow]) -> list[Parameter]:
    if view is None or not view.mapping(None, "space"):
        return []
    if not view.value:
        view.error("space is empty; name at least one setting, such as {temperature: {float: [0.1, 10], log: true}}")
    found: dict[str, Parameter] = {}
    for name, entry in view.children():
        parameter = _read_parameter(name, entry)
        if parameter is None:
            continue
        found[name] = parameter
        for row in rows:
            _check_edges(row, parameter, entry)
    conditions = {name: entry.child("when") for name, entry in view.children() if name in found and entry.has("when")}
    for name, condition in conditions.items():
        if condition is not None:
            found[name] = replace(found[name], condition=_read_condition(name, condition, found))
    return _ordered(view, found)


def _check_edges(row: MethodRow, parameter: Parameter, entry: View) -> None:
    for value in parameter.edges():
        try:
            override(row.method, row.config, {parameter.name: value})
        except (InputError, ValueError) as error:
            entry.error(with_cure(f"method {row.label!r} cannot take {parameter.name} = {value!r}: {error}", "change the space"))
            return


def _read_parameter(name: str, view: View) -> Parameter | None:
    if isinstance(view.value, list):
        return _choices(name, view)
    if not view.mapping(_PARAMETER_KEYS, f"parameter {name!r}"):
        return None
    kinds = [k for k in ("float", "int", "choice") if k in view.value]
    if len(kinds) != 1:
        view.error(f"parameter {name!r} needs exactly one of float, int and choice; write {{float: [low, high]}}")
        return None
    kind = kinds[0]
    body = view.child(kind)
    log, step = view.child("log"), view.child("step")
    if body is None:
        return None
    if kind == "choice":
        if log is not None or step is not None:
            view.error(f"parameter {name!r} is a choice, which has no log and no step; remove them")
        return _choices(name, body)
    return _numeric(name, kind, view, body, bool(log.boolean()) if log is not None else False, step)


def _choices(name: str, view: View) -> Parameter | None:
    values = view.plain()
    if not isinstance(values, list) or not values:
        view.error(f"parameter {name!r} needs a list of choices, not {values!r}; write choice: [first, second]")
        return None
    if len({repr(v) for v in values}) != len(values):
        view.error(f"parameter {name!r} holds a choice twice; remove one")
        return None
    return Parameter(name, "choice", choices=tuple(values))


def _numeric(name: str, kind: str, view: View, body: View, log: bool, step_view: View | None) -> Parameter | None:
    bounds = body.plain()
    right = int if kind == "int" else (int, float)
    if not isinstance(bounds, list) or len(bounds) != 2 or any(isinstance(b, bool) or not isinstance(b, right) for b in bounds):
        body.error(f"parameter {name!r} needs two {'whole ' if kind == 'int' else ''}numbers, not {bounds!r}; write {kind}: [low, high]")
        return None
    low, high = bounds if kind == "int" else map(float, bounds)
    if not low < high:
        body.error(f"parameter {name!r} has low {low} not below high {high}; swap or change them")
        return None
    if log and low <= 0:
        body.error(f"parameter {name!r} is on a log scale from {low}; begin above 0, or remove log")
        return None
    step = None
    if step_view is not None:
        step = step_view.integer(1) if kind == "int" else step_view.number(0, exclusive=True)
        if log and step is not None:
            view.error(f"parameter {name!r} has both log and step; remove one")
            return None
    return Parameter(name, kind, low, high, log=log, step=step)


def _read_condition(name: str, view: View, found: Mapping[str, Parameter]) -> FrozenDict:
    if not view.mapping(None, f"when of parameter {name!r}"):
        return FrozenDict()
    condition = {}
    for other, wanted in view.children():
        values = [i.plain() for i in wanted.items()]
        if other not in found or other == name:
            wanted.issues.add(
                wanted.key_mark, f"when of {name!r} names {other!r}, which is not searched{nearest(other, set(found) - {name})}"
            )
        elif found[other].kind != "choice":
            wanted.issues.add(wanted.key_mark, f"when of {name!r} names {other!r}, which is no choice; make it one")
        else:
            unknown = next((v for v in values if v not in found[other].choices), None)
            if unknown is not None:
                wanted.error(f"when of {name!r}: {other!r} never is {unknown!r}{nearest(str(unknown), map(str, found[other].choices))}")
            condition[other] = values
    return FrozenDict(condition)


def _ordered(view: View, found: Mapping[str, Parameter]) -> list[Parameter]:
    """Parameters after those that their conditions name; a cycle is recorded."""
    order: list[Parameter] = []
    done: set[str] = set()
    left = list(found.values())
    while left:
        ready = [p for p in left if set(p.condition) <= done]
        if not ready:
            view.error(f"conditions form a cycle through {', '.join(p.name for p in left)}; remove one 'when'")
            return order
        order.extend(ready)
        done.update(p.name for p in ready)
        left = [p for p in left if p.name not in done]
    return order
