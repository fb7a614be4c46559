"""What methods there are, what they can do and what can be set, from their classes and configurations. No method is run here.

Names, types, choices and defaults are those of the dataclasses; only what a field means is read from the source text, where it stands
under the field.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import itertools
import json
import sys
import textwrap
import types
import typing
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from methods.contract import registry
from methods.contract.fixed_list import FixedList
from methods.contract.method import Method
from methods.contract.validation import bounds, range_words

REQUIRED = "required"
"""Shown instead of a default where there is none."""


@dataclass(frozen=True)
class Setting:
    """One field of a method's config; those of a nested part have dotted names."""

    name: str
    type: str
    choices: tuple[Any, ...]
    """All values that are allowed, if they can be listed."""
    bounds: dict[str, float]
    """Limits of a number by their names: ``ge``, ``gt``, ``le``, ``lt``."""
    default: Any
    """JSON value, or `REQUIRED`."""
    help: str
    """What its docstring says, on one line."""


@dataclass(frozen=True)
class MethodInfo:
    """One method: what it is, can do and lets one set."""

    name: str
    summary: str
    """First sentence or sentences of its module's docstring, on one line."""
    source: str
    """The module, and the package if it is not ours."""
    fixed_list: bool
    """It has a list of placements to try, and no search."""
    learns: bool
    """It has a policy that another trial can start from."""
    pretrains: bool
    """It can train without rewards."""
    zero_shot: bool
    """Its policy places without a measurement."""
    many_problems: bool
    """It trains on several problems at once."""
    seeded: bool
    """It draws, so that seeds differ."""
    settings: tuple[Setting, ...]

    @property
    def abilities(self) -> str:
        """What it can do, in words."""
        words = {
            "tries a fixed list": self.fixed_list, "learns": self.learns, "pretrains": self.pretrains, "places zero-shot": self.zero_shot,
            "many problems at once": self.many_problems, "ignores the seed": not self.seeded,
        }  # fmt: skip
        return ", ".join(word for word, so in words.items() if so) or "searches one problem at a time"


def describe(name: str | None = None, progress: Callable[[str], None] = lambda name: None) -> list[MethodInfo]:
    """All methods by name, or the one called ``name``; importing the learners takes seconds, so each is told to ``progress`` before.

    Raises:
        InputError: with the nearest name if there is none of that name.
    """
    found = []
    for n in [name] if name else registry.names():
        progress(n)
        found.append(_method(n, registry.method_class(n)))
    return found


def _method(name: str, method: type[Method]) -> MethodInfo:
    outside = registry.outside().get(name)
    package = f" (package {outside.dist.name})" if outside and outside.dist else ""

    def has(own: str) -> bool:
        return getattr(method, own) is not getattr(Method, own)

    return MethodInfo(
        name=name,
        summary=" ".join((inspect.getdoc(sys.modules[method.__module__]) or inspect.getdoc(method) or "").partition("\n\n")[0].split()),
        source=method.__module__ + package,
        fixed_list=issubclass(method, FixedList),
        learns=has("policy"),
        pretrains=has("pretrain"),
        zero_shot=has("place"),
        many_problems=method.many_problems,
        seeded=method.seeded,
        settings=tuple(settings_of(method.Config)),
    )


def settings_of(config: Any, prefix: str = "", made: Any = None) -> Iterator[Setting]:
    """Fields of a config dataclass, inherited ones too, and of its parts; ``made`` is the default of a part, which may be of its own."""
    hints, said = typing.get_type_hints(config, include_extras=True), docstrings(config)
    for f in dataclasses.fields(config):
        hint, name, limits = _bare(hints[f.name]), prefix + f.name, bounds(hints[f.name])
        default = getattr(made, f.name) if made else f.default if f.default_factory is dataclasses.MISSING else f.default_factory()
        if dataclasses.is_dataclass(hint):
            yield from settings_of(hint, f"{name}.", None if default is dataclasses.MISSING else default)
            continue
        given = REQUIRED if default is dataclasses.MISSING else json.loads(json.dumps(default))
        yield Setting(name, type_text(hint), _choices(hint), limits, given, said.get(f.name, ""))


def docstrings(config: type) -> dict[str, str]:
    """What stands under each field, on one line; a class that redefines a field without a word keeps the word of its base."""
    found: dict[str, str] = {}
    for owner in reversed(config.__mro__):
        if not dataclasses.is_dataclass(owner):
            continue
        try:
            body = typing.cast(ast.ClassDef, ast.parse(textwrap.dedent(inspect.getsource(owner))).body[0]).body
        except OSError:  # a class made at run time has no source
            continue
        for field, after in itertools.pairwise(body):
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(after, ast.Expr):
                found[field.target.id] = " ".join(str(ast.literal_eval(after.value)).split())
    return found


def _bare(hint: Any) -> Any:
    """A type without annotations such as the range of a number, also in a union."""
    if typing.get_origin(hint) is typing.Annotated:
        return typing.get_args(hint)[0]
    parts = _parts(hint)
    return typing.Union[tuple(map(_bare, parts))] if len(parts) > 1 else hint  # noqa: UP007 (their number is not known)


def _parts(hint: Any) -> list[Any]:
    """The alternatives of a union, or the one type."""
    return list(typing.get_args(hint)) if typing.get_origin(hint) in (typing.Union, types.UnionType) else [hint]


def type_text(hint: Any) -> str:
    """A type in words: `int or null`."""
    return " or ".join(_one_type(part) for part in _parts(hint))


def _one_type(hint: Any) -> str:
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if hint is type(None):
        return "null"
    if origin is typing.Literal:
        return "choice"
    if origin is tuple:
        inner = [type_text(a) for a in args if a is not Ellipsis]
        return f"list of {inner[0]}" if Ellipsis in args else f"list of {', '.join(inner)}"
    return str(getattr(hint, "__name__", hint))


def _choices(hint: Any) -> tuple[Any, ...]:
    return tuple(c for part in _parts(hint) for c in typing.get_args(part) if typing.get_origin(part) is typing.Literal)


def shown(value: Any) -> str:
    """A value as a sweep would say it."""
    return value if isinstance(value, str) else json.dumps(value)


def text(found: list[MethodInfo], whole: bool = False) -> str:
    """The list for a terminal; ``whole`` adds what each setting means."""
    lines, width = [], max(len(m.name) for m in found)
    for m in found:
        lines.append(f"{m.name:<{width}}  {m.summary}")
        indent = " " * (width + 2)
        lines.append(f"{indent}[{m.abilities}; {m.source}]")
        if whole:
            for s in m.settings:
                of = " | ".join(map(shown, s.choices)) if s.choices else " ".join(filter(None, (s.type, range_words(s.bounds))))
                lines.append(f"{indent}{s.name}: {of} = {shown(s.default)}")
                lines += textwrap.wrap(s.help, 110, initial_indent=indent + "    ", subsequent_indent=indent + "    ")
        elif m.settings:
            settings = ", ".join(f"{s.name}={shown(s.default)}" for s in m.settings)
            lines += textwrap.wrap(settings, 120, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False)
    return "\n".join(lines) + "\n"
