"""What a declared type accepts, in words, and pydantic's refusals as sentences of this project. What is declared does not belong here."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from annotated_types import Ge, Gt, Interval, Le, Lt, MaxLen, MinLen

from envs.problem.errors import suggestion

if typing.TYPE_CHECKING:
    from pydantic import ValidationError

Location = tuple[str | int, ...]
KEY = "[key]"
"""Last part of a location that means the key of a mapping, not its value."""
NAME_CURE = "use letters, digits and . _ - + =, beginning with a letter or digit, at most 80"
_WORDS = {int: "a whole number", float: "a number", bool: "true or false", str: "a word"}


@dataclass(frozen=True)
class Refusal:
    """One value that is refused: where it stands, the sentence, and the cure."""

    location: Location
    message: str
    cure: str = "change it"


def shown(value: Any) -> str:
    """An offending value for a message; long ones shortened."""
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, list | tuple):
        return "a list"
    text = "nothing" if value is None else repr(value)
    return text if len(text) <= 80 else f"{text[:60]}… ({len(text)} characters)"


def describe(hint: Any) -> str:
    """What a type takes, in words: ``Annotated[int, Ge(1)]`` is "a whole number of at least 1"."""
    base = parts(hint)[0]
    origin, args = typing.get_origin(base), typing.get_args(base)
    if origin is typing.Literal:
        return f"one of {', '.join(map(str, args))}"
    if origin in (typing.Union, types.UnionType):
        return " or ".join(describe(a) for a in args if a is not type(None))
    if origin in (tuple, list):
        return "a list"
    if base not in _WORDS:
        known = list(fields(base))[:4]
        return f"a mapping with keys such as {', '.join(known)}" if known else "a mapping"
    return " ".join(filter(None, (_WORDS[base], range_words(bounds(hint)))))


def bounds(hint: Any) -> dict[str, float]:
    """The limits of a number by their names: ``ge``, ``gt``, ``le``, ``lt``."""
    found: dict[str, float] = {}
    for limit in parts(hint)[1]:
        for one in limit if isinstance(limit, Interval) else (limit,):
            if isinstance(one, Ge | Gt | Le | Lt):
                name = type(one).__name__.lower()
                found[name] = typing.cast(float, getattr(one, name))
    return found


def range_words(found: Mapping[str, float]) -> str:
    """The limits that `bounds` finds, in words: "of at least 1", "from 0 to 1"; empty if there are none."""
    if "ge" in found and "le" in found:
        return f"from {found['ge']:.15g} to {found['le']:.15g}"
    words = {"ge": "of at least", "gt": "above", "le": "at most", "lt": "below"}
    return " and ".join(f"{word} {found[name]:.15g}" for name, word in words.items() if name in found)


def parts(hint: Any) -> tuple[Any, tuple[Any, ...]]:
    """A type without its annotations and without ``| None``, and the annotations."""
    limits: tuple[Any, ...] = ()
    while True:
        if typing.get_origin(hint) is Annotated:
            hint, *more = typing.get_args(hint)
            limits = (*limits, *(m for m in more if isinstance(m, Interval | Ge | Gt | Le | Lt | MinLen | MaxLen)))
        elif typing.get_origin(hint) in (typing.Union, types.UnionType):
            left = [a for a in typing.get_args(hint) if a is not type(None)]
            if len(left) != 1:
                return hint, limits
            hint = left[0]
        else:
            return hint, limits


def fields(hint: Any) -> dict[str, Any]:
    """The types of what a dataclass or a pydantic model consists of, by the names that stand in a file; empty for anything else."""
    base, _ = parts(hint)
    if not isinstance(base, type):
        return {}
    if dataclasses.is_dataclass(base):
        hints = typing.get_type_hints(base, include_extras=True)
        return {f.name: hints[f.name] for f in dataclasses.fields(base)}
    declared = getattr(base, "model_fields", {})
    hints = typing.get_type_hints(base, include_extras=True) if declared else {}
    return {f.alias or name: hints[name] for name, f in declared.items()}


def type_at(hint: Any, location: Location) -> Any:
    """The type of what stands at a location inside a value of type ``hint``; None if nothing is declared there."""
    for part in location:
        base, _ = parts(hint)
        origin, args = typing.get_origin(base), typing.get_args(base)
        if origin in (tuple, list):
            hint = args[0] if origin is list or args[1:] == (...,) else args[int(part)]
        elif origin in (dict, Mapping) and args:
            hint = args[1]
        else:
            hint = fields(base).get(str(part))
    return hint


def refusals(error: ValidationError, cls: Any, name: typing.Callable[[Location], str]) -> list[Refusal]:
    """Everything that pydantic refused of a value for ``cls``.

    Args:
        name: what a location is called at the beginning of a sentence, such as ``setting 'rate'``.
    """
    return [_refusal(e, cls, name) for e in error.errors(include_url=False)]


def _refusal(error: Any, cls: Any, name: typing.Callable[[Location], str]) -> Refusal:
    location, kind, value = tuple(error["loc"]), error["type"], error["input"]
    what = name(location)
    if kind == "value_error":
        raised = error["ctx"]["error"]
        return Refusal(location, getattr(raised, "message", str(raised)), getattr(raised, "cure", ""))
    if kind in ("extra_forbidden", "unexpected_keyword_argument"):
        known = fields(type_at(cls, location[:-1]))
        return Refusal(location, f"unknown {what}", suggestion(str(location[-1]), known) or "remove it, for there are none")
    if kind == "missing":
        return Refusal(location[:-1], f"{name(location[:-1])} lacks {location[-1]!r}", "add it")
    if kind == "string_pattern_mismatch" or (kind == "string_too_long" and location[-1] == KEY):
        word = "" if location[-1] == KEY else f" {shown(value)}"
        return Refusal(location, f"{what}{word} is no proper name", NAME_CURE)
    hint = type_at(cls, location)
    if kind == "literal_error":
        return Refusal(location, f"{what} is {shown(value)}", suggestion(str(value), map(str, typing.get_args(parts(hint)[0]))))
    limit = f" (at most {error['ctx']['max_length']} long)" if kind in ("string_too_long", "too_long") else ""
    return Refusal(location, f"{what} needs {describe(hint)}{limit}, not {shown(value)}")
