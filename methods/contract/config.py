"""Hyperparameters from outside: a frozen dataclass plus overrides. No defaults belong here; they stand in the dataclass."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping
from typing import Any

from envs.problem.errors import InputError, nearest


def make_config(cls: type, overrides: Mapping[str, Any], where: str = "") -> Any:
    """An instance of the dataclass ``cls`` with ``overrides``, nested by mappings or dotted keys.

    Raises:
        InputError: for an unknown key (naming the nearest known one) or a value of the wrong type.
    """
    hints = typing.get_type_hints(cls)
    known = [f.name for f in dataclasses.fields(cls)]
    values: dict[str, Any] = {}
    for key, value in _nested(overrides).items():
        label = f"{where}{key}"
        if key not in known:
            raise InputError(f"unknown setting {label!r}{nearest(key, known)}")
        values[key] = _convert(hints[key], value, label)
    return cls(**values)


def _nested(overrides: Mapping[str, Any]) -> dict[str, Any]:
    """``{"a.b": 1, "a": {"c": 2}}`` as ``{"a": {"b": 1, "c": 2}}``."""
    result: dict[str, Any] = {}
    for key, value in overrides.items():
        head, _, rest = str(key).partition(".")
        if not rest:
            old = result.get(head)
            result[head] = {**old, **value} if isinstance(old, dict) and isinstance(value, Mapping) else value
        else:
            inner = result.get(head, {})
            result[head] = {**(inner if isinstance(inner, Mapping) else {}), **{rest: value}}
    return result


def _convert(hint: Any, value: Any, label: str) -> Any:
    if dataclasses.is_dataclass(hint):
        if not isinstance(value, Mapping):
            raise InputError(f"setting {label!r} has parts, so it needs a mapping, not {value!r}")
        return make_config(typing.cast(type, hint), value, f"{label}.")
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        if value is None and type(None) in args:
            return None
        errors = []
        for arg in args:
            if arg is not type(None):
                try:
                    return _convert(arg, value, label)
                except InputError as error:
                    errors.append(error)
        raise errors[0]
    if origin is typing.Literal:
        if value not in args:
            raise InputError(f"setting {label!r} is {value!r}{nearest(str(value), map(str, args))}")
        return value
    if origin is tuple:
        if not isinstance(value, list | tuple):
            raise InputError(f"setting {label!r} needs a list, not {value!r}")
        inner = args[0] if len(args) == 2 and args[1] is Ellipsis else None
        if inner is None and len(value) != len(args):
            raise InputError(f"setting {label!r} needs {len(args)} values, not {len(value)}")
        return tuple(_convert(inner or args[i], v, f"{label}[{i}]") for i, v in enumerate(value))
    return _scalar(hint, value, label)


def _scalar(hint: Any, value: Any, label: str) -> Any:
    if hint is float and isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    if hint is int and isinstance(value, int) and not isinstance(value, bool):
        return value
    if hint in (bool, str) and isinstance(value, hint):
        return value
    raise InputError(f"setting {label!r} needs {'a' if hint is not int else 'an'} {hint.__name__}, not {value!r}")
