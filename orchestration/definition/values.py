"""The kinds of values that stand in a sweep, and what its sections have in common; the sections themselves are in `models`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, ClassVar

from annotated_types import Interval
from pydantic import BaseModel, BeforeValidator, ConfigDict, StringConstraints, WithJsonSchema, model_validator

from envs.problem.errors import InputError
from envs.problem.ranges import Count, CountOrNone
from methods.contract.validation import shown
from orchestration.specs.sources import DOCUMENTS

MAX_RANGE = 100_000
_RANGE = re.compile(r"^([0-9]+)\.\.([0-9]+)$")
NAME = r"^[A-Za-z0-9][A-Za-z0-9._+=-]*$"


def whole(value: Any) -> Any:
    """``1e3`` is a whole number, too."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def listed(value: Any) -> Any:
    """A scalar counts as a list of one, null as none."""
    return () if value is None else value if isinstance(value, tuple) else (value,)


def whole_numbers(value: Any) -> tuple[int, ...]:
    """Different whole numbers: ``[0, 1, 2]``, ``0..24`` (both ends included) or one number; InputError if it is none of these."""
    found: list[int] = []
    for item in listed(value):
        span = _RANGE.match(item) if isinstance(item, str) and len(item) < 40 else None
        if span:
            low, high = int(span[1]), int(span[2])
            if low > high or high - low >= MAX_RANGE:
                raise InputError(f"{item!r} is no range", f"write low..high, at most {MAX_RANGE} numbers")
            found.extend(range(low, high + 1))
        elif isinstance(item, int) and not isinstance(item, bool) and 0 <= item < 2**63:
            found.append(item)
        else:
            raise InputError(f"seeds need whole numbers from 0, such as [0, 1, 2] or 0..9, not {shown(item)}", "change it")
    if len(set(found)) < len(found):
        raise InputError(f"seeds hold {next(x for x in found if found.count(x) > 1)} twice", "remove one")
    if not found:
        raise InputError("seeds are empty", "give at least one, such as [0]")
    return tuple(found)


def _numbers_or_range(schema: dict[str, Any]) -> WithJsonSchema:
    return WithJsonSchema({"anyOf": [schema, {"type": "array", "items": schema, "minItems": 1}]})


Name = Annotated[str, StringConstraints(pattern=NAME, max_length=80), BeforeValidator(lambda v: str(v) if type(v) is int else v)]
Word = Annotated[str, StringConstraints(min_length=1, max_length=4096)]
Words = Annotated[
    tuple[Word, ...],
    BeforeValidator(listed),
    WithJsonSchema({"anyOf": [{"type": "string", "minLength": 1}, {"type": "array", "items": {"type": "string", "minLength": 1}}]}),
]
Seeds = Annotated[
    tuple[int, ...],
    BeforeValidator(whole_numbers),
    _numbers_or_range({"anyOf": [{"type": "integer", "minimum": 0}, {"type": "string", "pattern": r"^[0-9]+\.\.[0-9]+$"}]}),
]
Evaluations = Annotated[int, Interval(ge=0, le=1_000_000_000), BeforeValidator(whole)]
WholeCount = Annotated[Count, BeforeValidator(whole)]
WholeCountOrNone = Annotated[CountOrNone, BeforeValidator(whole)]
Time = Annotated[float, Interval(gt=0, le=1e9)]
Values = Annotated[tuple[Any, ...], WithJsonSchema({"type": "array", "minItems": 1})]
Vary = Annotated[dict[str, Any], WithJsonSchema({"type": "object", "additionalProperties": {"type": ["array", "string"], "minItems": 1}})]
Costs = Annotated[Any, WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "object", "required": ["kind"]}]})]


def short(*forms: str | dict[str, Any], words: Iterable[str] = ()) -> ConfigDict:
    """Settings of a model that may be written shorter: as one of some words, or in other forms (JSON types or schemas)."""
    others: list[dict[str, Any]] = [{"enum": list(words)}] if words else []
    for form in forms:
        others.append(
            {"type": "array", "items": {"type": "string"}} if form == "array" else {"type": form} if isinstance(form, str) else form
        )

    def widen(schema: dict[str, Any]) -> None:
        mapping = dict(schema)
        schema.clear()
        schema["anyOf"] = [mapping, *others]

    return ConfigDict(json_schema_extra=widen)


class Or:
    """Widens the JSON Schema of a list by a single item, of a mapping by a list of names, as the validator beside it does."""

    def __init__(self, names: bool = False) -> None:
        self.names = names

    def __get_pydantic_json_schema__(self, core: Any, handler: Any) -> dict[str, Any]:
        whole = handler(core)
        return {"anyOf": [whole, {"type": "array", "items": {"type": "string"}, "minItems": 1} if self.names else whole["items"]]}


class Section(BaseModel):
    """A mapping of known keys."""

    model_config = ConfigDict(
        extra="forbid", strict=True, frozen=True, allow_inf_nan=False, use_attribute_docstrings=True, protected_namespaces=()
    )
    null_means: ClassVar[tuple[str, ...]] = ()
    """Keys whose null is not as if they were absent."""

    @model_validator(mode="before")
    @classmethod
    def _expand(cls, value: Any) -> Any:
        value = value if isinstance(value, dict) else cls.shorthand(value)
        if not isinstance(value, dict):
            return value
        known = {f.alias or n for n, f in cls.model_fields.items() if not f.is_required() and (f.alias or n) not in cls.null_means}
        return {k: v for k, v in value.items() if v is not None or k not in known}

    @staticmethod
    def shorthand(value: Any) -> Any:
        """The mapping that is meant by a value that is none; the value itself if there is no such."""
        return value


def by_stem(value: Any) -> Any:
    """A list of names and files as a mapping from their labels."""
    value = (value,) if isinstance(value, str) else value
    if not isinstance(value, tuple):
        return value
    if not value:
        raise InputError("the list is empty", "add at least one")
    if not all(isinstance(v, str) and v for v in value):
        raise InputError("a list here holds names and files only", "write a mapping from labels to settings")
    labels = [Path(v).stem if Path(v).suffix in (*DOCUMENTS, ".onnx", ".xml") else v for v in value]
    if len(set(labels)) < len(labels):
        raise InputError(f"{max(labels, key=labels.count)!r} is given twice", "rename one")
    return dict(zip(labels, value, strict=True))


def by_name(value: Any) -> Any:
    """A list of method names as a mapping."""
    if not isinstance(value, tuple):
        return value
    if len({repr(v) for v in value}) < len(value):
        raise InputError(f"method label {max(value, key=value.count)!r} is used twice", "rename one")
    if not all(isinstance(v, str | int) for v in value):
        raise InputError("a list of methods holds names only", "write a mapping from labels to settings")
    return {str(v): {} for v in value}
