"""Hyperparameters from outside: a frozen dataclass plus overrides. No defaults belong here; they stand in the dataclass."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from pydantic import ConfigDict, TypeAdapter, ValidationError

from envs.problem.errors import InputError
from methods.contract.validation import Refusal, fields, parts, refusals

if TYPE_CHECKING:
    from pydantic import TypeAdapter


class SettingsError(InputError):
    """Everything that is wrong with the settings of a dataclass; the text is about the first."""

    def __init__(self, found: Sequence[Refusal]) -> None:
        super().__init__(found[0].message, found[0].cure)
        self.found = tuple(found)

    def __reduce__(self) -> tuple[type, tuple[Any, ...], dict[str, Any]]:
        return SettingsError, (self.found,), {}


def make_config(cls: type, overrides: Mapping[str, Any], where: str = "") -> Any:
    """An instance of the dataclass ``cls`` with ``overrides``, nested by mappings or dotted keys.

    Raises:
        SettingsError: for unknown keys (naming the nearest known ones) and values of the wrong type or out of range.
    """
    try:
        # Through JSON, whose strict reading knows lists where tuples are declared, and takes no word for a number.
        return adapter(cls).validate_json(json.dumps(_nested(overrides)))
    except ValidationError as error:
        found = refusals(error, cls, lambda location: f"setting {where + '.'.join(map(str, location))!r}")
    except TypeError as error:
        raise InputError(f"settings {dict(overrides)} hold what no file can ({error})", "give numbers, words, lists and mappings") from None
    raise SettingsError(found)


@cache
def adapter(cls: type) -> TypeAdapter[Any]:
    """Pydantic's reader of a dataclass: strict, without infinity (but where it is a default), with docstrings as descriptions."""
    for part in _dataclasses(cls):
        # A standard dataclass says here how pydantic reads it; the dataclasses themselves need not know of pydantic.
        if "__pydantic_config__" not in vars(part):
            endless = any(f.default == math.inf for f in dataclasses.fields(part))
            part.__pydantic_config__ = ConfigDict(  # type: ignore[attr-defined]
                extra="forbid", strict=True, allow_inf_nan=endless, use_attribute_docstrings=True
            )
    return TypeAdapter(cls)


def _dataclasses(cls: Any) -> list[type]:
    """``cls`` and the dataclasses among its fields, and theirs."""
    if not dataclasses.is_dataclass(cls) or not isinstance(cls, type):
        return []
    return [cls, *(part for hint in fields(cls).values() for part in _dataclasses(parts(hint)[0]))]


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
    return {k: _nested(v) if isinstance(v, Mapping) else v for k, v in result.items()}
