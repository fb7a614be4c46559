"""The kinds of evaluators that a sweep can name, with their options. Built evaluators and how they are asked belong elsewhere.

A kind is a class derived from `envs.problem.measurement.BaseEvaluator`, or a function annotated to return one; its options are the
parameters of its constructor, so that nothing is listed twice. Installed packages add kinds by the entry point group
``placewright.evaluators``, whose names are those that sweeps use.
"""

from __future__ import annotations

import dataclasses
import inspect
import sys
import types
import typing
import warnings
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property, lru_cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from envs.problem.errors import InputError, nearest
from envs.problem.measurement import BaseEvaluator
from envs.simulators.misjudged import Misjudged
from envs.simulators.relocation import Relocating
from envs.simulators.work_conserving.discipline import Discipline
from methods.contract.config import make_config
from orchestration.rewards.wrappers import CutOff, Failing, Noisy

GROUP = "placewright.evaluators"
OWN = {
    "simulator": "envs.simulators.fifo.evaluator:Simulator",
    "work-conserving": "envs.simulators.work_conserving.evaluator:WorkConservingSimulator",
    "pieces": "envs.simulators.pieces.evaluator:PiecesSimulator",
    "dataflow": "envs.hosts.engine.host:Engine",
    "openvino": "envs.hosts.openvino.host:OpenVinoHost",
}
"""This project's kinds: GiPH's simulator, DOPPLER's, that of compiled pieces, and what measures for real."""
AROUND = {"openvino": "envs.hosts.openvino.choice:ToolkitChoice"}
"""A wrapper that one kind has besides: it is used where its options are given, which are options of the kind."""
FLAT = (Discipline,)
"""Parts whose settings are options by themselves; those of others are given as a mapping, as ``measuring: {repetitions: 5}``."""
WRAPPERS: Mapping[str, Callable[..., BaseEvaluator]] = {
    "cost_error": Misjudged, "measurement_noise": Noisy, "relocation": Relocating, "cut_off": CutOff, "fail": Failing,
}  # fmt: skip
"""Wrappers around whatever simulates, from the inside out, by the option that asks for them: costs that methods see wrongly; noise of the
whole measurement; the cost of moving away from the placement in force; giving up on slow ones; failures as of infrastructure, to try
recovery. The option's value is the wrapper's first setting, or a mapping of several."""
SERVED_SIMULATED, SERVED_REAL = ("local",), ("cache", "host")
"""Options that say who serves the evaluator: whether trials simulate inside their own worker, which any process can; whether a placement
that was measured stands for later ones, and the named host to ask."""


@dataclasses.dataclass(frozen=True)
class Kind:
    """What a name in a sweep stands for."""

    name: str
    make: Callable[..., BaseEvaluator]
    made: type[BaseEvaluator]
    """The class of what `make` gives."""
    around: Callable[..., BaseEvaluator] | None = None
    """A wrapper with options of its own, used where one of those is given (`AROUND`)."""

    @property
    def real(self) -> bool:
        """Whether it measures for real instead of simulating."""
        return self.made.measures_for_real

    @cached_property
    def options(self) -> tuple[str, ...]:
        """All options that a sweep may give."""
        wrappers = () if self.real else tuple(WRAPPERS)
        served = SERVED_REAL if self.real else SERVED_SIMULATED
        around = () if self.around is None else _settings(self.around, skip=1)
        return (*_settings(self.make), *around, *wrappers, *served)

    def build(self, options: Mapping[str, Any]) -> BaseEvaluator:
        """The evaluator of a mapping of options, which may hold those that say who serves it.

        Raises:
            InputError: for an unknown option, naming the nearest known one; for one that is missing, or a value that cannot be.
        """
        unknown = [key for key in options if key not in self.options]
        if unknown:
            raise InputError(f"unknown option {unknown[0]!r} of evaluator {self.name!r}{nearest(unknown[0], self.options)}")
        evaluator = self.make(**_arguments(self.name, self.make, options))
        if self.around is not None:
            given = _arguments(self.name, self.around, options, skip=1, needed=False)
            evaluator = self.around(evaluator, **given) if given else evaluator
        for name, wrapper in WRAPPERS.items() if not self.real else ():
            if (value := options.get(name)) not in (None, 0, False):
                evaluator = _wrapped(name, wrapper, value, evaluator)
        return evaluator


class Kinds(Mapping[str, Kind]):
    """All kinds by name; a package's module is imported when its kind is first looked up."""

    def __getitem__(self, name: str) -> Kind:
        return _loaded(_entries(tuple(sys.path))[name])

    def __iter__(self) -> Iterator[str]:
        return iter(_entries(tuple(sys.path)))

    def __len__(self) -> int:
        return len(_entries(tuple(sys.path)))

    def __contains__(self, name: object) -> bool:
        return name in _entries(tuple(sys.path))


EVALUATORS = Kinds()


@lru_cache(maxsize=4)
def _entries(path: tuple[str, ...]) -> dict[str, EntryPoint]:
    """The entry points by name; what packages are found depends on ``path``. A name that is taken is refused with a warning."""
    found = {name: EntryPoint(name, value, GROUP) for name, value in OWN.items()}
    for entry in sorted(entry_points(group=GROUP), key=lambda e: (e.name, e.value)):
        other = found.setdefault(entry.name, entry)
        if other.value != entry.value:  # the same package may be found twice on the path
            warnings.warn(f"evaluator {entry.name!r} of {entry.value} is not used, since {other.value} has that name", stacklevel=2)
    return found


@lru_cache(maxsize=64)
def _loaded(entry: EntryPoint) -> Kind:
    try:
        make = entry.load()
    except (ImportError, AttributeError) as error:
        raise InputError(f"evaluator {entry.name!r} cannot be loaded from {entry.value}: {error}") from None
    made = make if inspect.isclass(make) else typing.get_type_hints(make).get("return")
    if not (inspect.isclass(made) and issubclass(made, BaseEvaluator)):
        raise InputError(f"evaluator {entry.name!r} is {entry.value}, which is no BaseEvaluator and is not annotated to return one")
    around = AROUND.get(entry.name) if entry.value == OWN.get(entry.name) else None
    return Kind(entry.name, make, made, None if around is None else EntryPoint(entry.name, around, GROUP).load())


def _parameters(make: Callable[..., Any], skip: int = 0) -> list[inspect.Parameter]:
    found = list(inspect.signature(make, eval_str=True).parameters.values())[skip:]
    return [p for p in found if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]


def _settings(make: Callable[..., Any], skip: int = 0) -> list[str]:
    """Names of the options that a constructor has."""
    return [n for p in _parameters(make, skip) for n in (_settings(p.annotation) if p.annotation in FLAT else [p.name])]


def _arguments(kind: str, make: Callable[..., Any], options: Mapping[str, Any], skip: int = 0, needed: bool = True) -> dict[str, Any]:
    """What to call a constructor with, of the options that are its own."""
    arguments: dict[str, Any] = {}
    for p in _parameters(make, skip):
        if p.annotation in FLAT:
            if own := _arguments(kind, p.annotation, options):
                arguments[p.name] = p.annotation(**own)
        elif p.name in options:
            arguments[p.name] = _value(p, options[p.name], f"option {p.name!r} of evaluator {kind!r}")
        elif needed and p.default is p.empty:
            raise InputError(f"evaluator {kind!r} lacks {p.name}; {_HELP.get(p.name, f'give its option {p.name!r}')}")
    return arguments


_HELP = {"devices": "say what stands for the network's, as devices: [cpu:0, cpu:1] or devices: {cpu: CPU, gpu: GPU.1}"}


def _value(p: inspect.Parameter, value: Any, what: str) -> Any:
    """A value as the parameter's type wants it; only numbers, words and parts are looked at, the rest is the constructor's affair."""
    if dataclasses.is_dataclass(p.annotation) and isinstance(p.annotation, type):
        if not isinstance(value, Mapping):
            raise InputError(f"{what} has parts, so it needs a mapping, not {value!r}")
        default = dataclasses.asdict(p.default) if dataclasses.is_dataclass(p.default) and not isinstance(p.default, type) else {}
        return make_config(p.annotation, {**default, **value}, f"{p.name}.")
    union = isinstance(p.annotation, types.UnionType)
    allowed = typing.get_args(p.annotation) if union else (p.annotation,)
    if not all(t in (int, float, bool, str, types.NoneType) for t in allowed) or (value is None and types.NoneType in allowed):
        return value
    if float in allowed and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, allowed) or (isinstance(value, bool) and bool not in allowed):
        raise InputError(f"{what} is {value!r}; it must be {' or '.join(_WORDS[t] for t in allowed)}")
    return value


_WORDS = {float: "a number", int: "a whole number", bool: "true or false", str: "a word", types.NoneType: "null"}


def _wrapped(name: str, wrapper: Callable[..., BaseEvaluator], value: Any, inner: BaseEvaluator) -> BaseEvaluator:
    known = _settings(wrapper, skip=1)
    settings = dict(value) if isinstance(value, Mapping) else {known[0]: value}
    unknown = next((key for key in settings if key not in known), None)
    if unknown is not None or known[0] not in settings:
        wrong = f"lacks {known[0]!r}" if unknown is None else f"has {unknown!r}"
        raise InputError(f"{name} is {value!r}, which {wrong}; write {name}: NUMBER or {{{', '.join(f'{k}: …' for k in known)}}}")
    return wrapper(inner, **_arguments(name, wrapper, settings, skip=1))
