"""The ``search`` section: a space over a method's settings, a sampler, a pruner, objectives. Optuna's study is run elsewhere."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from envs.problem.errors import InputError, suggestion
from methods.contract.validation import Location, shown
from orchestration.definition.document import Document
from orchestration.definition.methods import MethodRow, override
from orchestration.definition.models import PRUNERS, SAMPLERS, ParameterModel, PrunerModel, SamplerModel, Search
from orchestration.specs.trial import FrozenDict, Trial, content_hash

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

    def holds(self, value: Any) -> bool:
        """Whether a value is one that may be drawn."""
        if self.kind == "choice":
            return value in self.choices
        if isinstance(value, bool) or not isinstance(value, int | float) or self.low is None or self.high is None:
            return False
        whole = self.kind != "int" or float(value).is_integer()
        steps = (value - self.low) / self.step if self.step else 0.0
        return whole and self.low <= value <= self.high and abs(steps - round(steps)) < 1e-9

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
    known: tuple[FrozenDict, ...] = ()
    """Configurations that are tried first, whole or in part."""
    constraints: FrozenDict = field(default_factory=FrozenDict)
    """Most ``seconds`` and most ``invalid`` of a configuration."""

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
                *([[s.known, s.constraints]] if s.known or s.constraints else []),
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


def read_search(doc: Document, path: Location, given: Search, rows: Sequence[MethodRow]) -> SearchSettings | None:
    """The ``search`` section at ``path`` for the given rows; None if something in it is wrong (recorded)."""
    before = len(doc.issues.found)
    parameters = _read_space(doc, (*path, "space"), given.space, rows)
    sampler = _component(doc, (*path, "sampler"), given.sampler, "optuna.samplers")
    pruner = _component(doc, (*path, "pruner"), given.pruner, "optuna.pruners")
    if len(set(given.objectives)) < len(given.objectives):
        doc.error((*path, "objectives"), f"objectives hold {max(given.objectives, key=given.objectives.count)!r} twice", "remove one")
    if given.storage is not None and "://" not in given.storage and not given.storage.startswith(("env:", "file:")):
        cure = "write postgresql://user@host/database, env:NAME, file:PATH or nothing"
        doc.error((*path, "storage"), f"storage {given.storage!r} is no URL of a database", cure)
    settings = SearchSettings(
        tuple(parameters), given.configurations or 1, sampler, pruner, given.objectives, given.seed, given.reports, given.storage,
        tuple(FrozenDict(k) for k in given.known), FrozenDict({k: v for k, v in given.constraints.model_dump().items() if v is not None}),
    )  # fmt: skip
    _check_known(doc, (*path, "known"), settings)
    if len(doc.issues.found) == before:
        settings = _complete(doc, path, settings, given.configurations)
    return settings if len(doc.issues.found) == before else None


def _check_known(doc: Document, path: Location, settings: SearchSettings) -> None:
    """Configurations to begin with lie in the space."""
    space = {p.name: p for p in settings.parameters}
    if settings.known and settings.sampler.name == "grid":
        doc.error(path, "sampler 'grid' tries every configuration anyway", "leave known out")
    for i, values in enumerate(settings.known):
        for name, value in values.items():
            if name not in space:
                doc.error((*path, i, name), f"known configuration {i + 1} sets {name!r}, which is not searched", suggestion(name, space))
            elif not space[name].holds(value):
                doc.error(
                    (*path, i, name), f"known configuration {i + 1} has {name} = {shown(value)}, which the space does not hold", "widen it"
                )


def _complete(doc: Document, path: Location, settings: SearchSettings, configurations: int | None) -> SearchSettings:
    """Checks what depends on several parts; a grid's number of configurations is the size of the grid."""
    name, several = settings.sampler.name, len(settings.objectives) > 1
    sampler = (*path, "sampler")
    conditional = next((p for p in settings.parameters if p.condition), None)
    if name == "grid":
        endless = next((p.name for p in settings.parameters if p.grid() is None), None)
        if endless is not None:
            doc.error(sampler, f"sampler 'grid' needs finite parameters, but {endless!r} is continuous", "give it a step or choices")
        elif conditional is not None:
            doc.error(sampler, f"sampler 'grid' cannot have conditions, but {conditional.name!r} has 'when'", "use tpe or random")
        else:
            size = settings.size() or 1
            return replace(settings, configurations=min(size, configurations or size))
    elif configurations is None and (*path, "configurations") not in doc.wrong:
        doc.error(path, "search lacks 'configurations'", f"say how many sampler {name!r} may try")
    if name == "cma-es":
        choice = next((p.name for p in settings.parameters if p.kind == "choice"), None)
        if choice is not None or conditional is not None or several:
            why = f"{choice!r} is a choice" if choice else "it has conditions" if conditional else "it has several objectives"
            doc.error(sampler, f"sampler 'cma-es' searches numbers for one objective, but {why}", "use tpe")
    if several and settings.pruner.name != "none":
        doc.error((*path, "pruner"), f"pruner {settings.pruner.name!r} cannot serve several objectives", "use pruner: none")
    return settings


def _component(doc: Document, path: Location, given: SamplerModel | PrunerModel, module: str) -> Component:
    """A sampler or pruner, with options that Optuna's class accepts."""
    what, options = f"{path[-1]} {given.name!r}", given.model_extra or {}
    component = Component(given.name, FrozenDict(options))
    if not options:
        return component
    cls = getattr(importlib.import_module(module), component.class_name)
    known = [p for p in inspect.signature(cls).parameters if p not in _SET_BY_US]
    unknown = [key for key in options if key not in known]
    for key in unknown:
        doc.error((*path, key), f"unknown key {key!r} in {what}", suggestion(key, ["name", *known]), key=True)
    if not unknown and given.name != "grid":
        try:
            cls(**options)
        except (ValueError, TypeError, ImportError) as error:
            doc.error(path, f"{what} cannot take {options}: {error}", "change its options")
    return component


def _read_space(doc: Document, path: Location, space: Mapping[str, ParameterModel], rows: Sequence[MethodRow]) -> list[Parameter]:
    if not space and path not in doc.wrong and not doc.broken(*map(str, path)):
        doc.error(path, "space is empty", "name at least one setting, such as {temperature: {float: [0.1, 10], log: true}}")
    found: dict[str, Parameter] = {}
    for name, given in space.items():
        parameter = doc.attempt((*path, name), lambda name=name, given=given: _parameter(name, given))
        if parameter is not None:
            found[name] = parameter
            _check_edges(doc, (*path, name), parameter, rows)
    for name, parameter in list(found.items()):
        if space[name].when:
            found[name] = replace(parameter, condition=_condition(doc, (*path, name, "when"), name, space[name].when, found))
    return _ordered(doc, path, found)


def _check_edges(doc: Document, path: Location, parameter: Parameter, rows: Sequence[MethodRow]) -> None:
    for row in rows:
        for value in parameter.edges():
            try:
                override(row.method, row.config, {parameter.name: value})
            except ValueError as error:
                message, cure = (error.message, error.cure) if isinstance(error, InputError) else (str(error), "change the space")
                doc.error(path, f"method {row.label!r} cannot take {parameter.name} = {shown(value)}: {message}", cure)
                break


def _parameter(name: str, given: ParameterModel) -> Parameter:
    """The parameter; InputError if its keys do not fit together."""
    kinds = {k: v for k, v in (("float", given.floats), ("int", given.ints), ("choice", given.choice)) if v is not None}
    if len(kinds) != 1:
        raise InputError(f"parameter {name!r} needs exactly one of float, int and choice", "write {float: [low, high]}")
    kind, values = next(iter(kinds.items()))
    if kind == "choice":
        if given.log or given.step is not None:
            raise InputError(f"parameter {name!r} is a choice, which has no log and no step", "remove them")
        if not values:
            raise InputError(f"parameter {name!r} has no choices", "write choice: [first, second]")
        if len({repr(v) for v in values}) != len(values):
            raise InputError(f"parameter {name!r} holds a choice twice", "remove one")
        return Parameter(name, kind, choices=values)
    low, high = values
    if not low < high:
        raise InputError(f"parameter {name!r} has low {low} not below high {high}", "swap or change them")
    if given.log and low <= 0:
        raise InputError(f"parameter {name!r} is on a log scale from {low}", "begin above 0, or remove log")
    if given.log and given.step is not None:
        raise InputError(f"parameter {name!r} has both log and step", "remove one")
    step = given.step
    if kind == "int" and step is not None:
        if not step.is_integer():
            raise InputError(f"parameter {name!r} has step {step:g}", "give whole numbers a whole step")
        step = int(step)
    return Parameter(name, kind, low, high, log=given.log, step=step)


def _condition(doc: Document, path: Location, name: str, when: Mapping[str, Any], found: Mapping[str, Parameter]) -> FrozenDict:
    condition = {}
    for other, wanted in when.items():
        values = wanted if isinstance(wanted, tuple) else (wanted,)
        at = (*path, other)
        if other not in found or other == name:
            doc.error(at, f"when of {name!r} names {other!r}, which is not searched", suggestion(other, set(found) - {name}), key=True)
        elif found[other].kind != "choice":
            doc.error(at, f"when of {name!r} names {other!r}, which is no choice", "make it one", key=True)
        else:
            choices = found[other].choices
            for value in values:
                if value not in choices:
                    doc.error(at, f"when of {name!r}: {other!r} never is {shown(value)}", suggestion(str(value), map(str, choices)))
            condition[other] = values
    return FrozenDict(condition)


def _ordered(doc: Document, path: Location, found: Mapping[str, Parameter]) -> list[Parameter]:
    """Parameters after those that their conditions name; a cycle is recorded."""
    order: list[Parameter] = []
    left = dict(found)
    while left:
        ready = [p for p in left.values() if not set(p.condition) & set(left)]
        if not ready:
            doc.error(path, f"conditions form a cycle through {', '.join(left)}", "remove one 'when'")
            return order
        order.extend(ready)
        left = {name: p for name, p in left.items() if p not in ready}
    return order
