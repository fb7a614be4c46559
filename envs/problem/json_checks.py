"""Checks of values that came from JSON: types, keys, numbers, each with a message that says where. Nothing of any format belongs here."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping
from typing import Any

from envs.problem.errors import InputError, nearest


def without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of a JSON parser's pairs; InputError for a key given twice (JSON itself would keep the last)."""
    result = dict(pairs)
    if len(result) != len(pairs):
        seen: set[str] = set()
        twice = next(k for k, _ in pairs if k in seen or seen.add(k))  # type: ignore[func-returns-value]
        raise InputError(f"key {twice!r} is given twice in one object; remove one")
    return result


def check_keys(given: Mapping[str, Any], known: Collection[str], where: str) -> None:
    """InputError naming the first key of ``given`` that is not among ``known``, and the nearest one that is."""
    names = known if len(known) < 30 else frozenset(known)
    unknown = next((key for key in given if key not in names), None)
    if unknown is not None:
        raise InputError(f"{where} has an unknown key {unknown!r}{hint(unknown, known)}")


def need(given: Mapping[str, Any], key: str, where: str) -> Any:
    """``given[key]``; InputError if it is not there."""
    if key not in given:
        raise InputError(f"{where} lacks {key!r}")
    return given[key]


def as_object(value: Any, known: Collection[str], where: str) -> dict[str, Any]:
    """``value`` if it is an object with known keys only."""
    if not isinstance(value, dict):
        raise InputError(f"{where} must be an object, not {short(value)}")
    check_keys(value, known, where)
    return value


def as_list(value: Any, where: str) -> list[Any]:
    """``value`` if it is a list."""
    if not isinstance(value, list | tuple):
        raise InputError(f"{where} must be a list, not {short(value)}")
    return list(value)


def as_string(value: Any, where: str) -> str:
    """``value`` if it is a string."""
    if not isinstance(value, str):
        raise InputError(f"{where} must be a string, not {short(value)}")
    return value


def as_strings(value: Any, where: str) -> list[str]:
    """``value`` if it is a list of strings."""
    return [as_string(item, where) for item in as_list(value, where)]


def as_number(value: Any, where: str) -> float:
    """A finite float, not negative: no quantity of the format may be either."""
    if type(value) is float or type(value) is int:
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if 0 <= number < math.inf:
            return number
        raise InputError(f"{where} is {short(value)}; it must be finite and not negative")
    raise InputError(f"{where} must be a number, not {short(value)}")


def as_limit(value: Any, where: str, unlimited: bool) -> float:
    """A number, or where ``null`` means unlimited, infinity."""
    return math.inf if value is None and unlimited else as_number(value, where)


def device_index(value: Any, position: Mapping[str, int], where: str) -> int:
    """The position of a device's name; InputError naming the nearest known one."""
    if not isinstance(value, str) or value not in position:
        raise InputError(f"{where} names device {short(value)}, which the network does not have{hint(value, position)}")
    return position[value]


def hint(word: Any, known: Collection[str]) -> str:
    """`nearest`, without listing or comparing with very many names."""
    if not isinstance(word, str) or len(known) > 5000:
        return ""
    hint = nearest(word, known)
    return hint if len(known) <= 20 or hint.startswith("; did") else ""


def short(value: Any) -> str:
    """A value as JSON would write it, cut to fit a message."""
    text = json.dumps(value, default=repr)
    return text if len(text) <= 60 else text[:57] + "..."
