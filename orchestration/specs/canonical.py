"""Read-only JSON values and their one text and hash. What is described by them does not belong here."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any, NoReturn


class FrozenDict(dict):
    """A read-only, hashable dict of JSON values (lists become tuples); ``json`` and ``pickle`` treat it as a dict."""

    def __init__(self, values: Mapping[str, Any] = {}) -> None:
        super().__init__({str(k): freeze(v) for k, v in values.items()})

    def _refuse(self, *_args: Any, **_kwargs: Any) -> NoReturn:
        raise TypeError("this mapping is read-only")

    __setitem__ = __delitem__ = update = pop = popitem = clear = setdefault = __ior__ = _refuse  # type: ignore[assignment]

    def __reduce__(self) -> tuple[Any, ...]:
        return FrozenDict, (dict(self),)

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(canonical(self))


def freeze(value: Any) -> Any:
    """``value`` with every mapping a `FrozenDict` and every list a tuple."""
    if isinstance(value, FrozenDict):
        return value
    if isinstance(value, Mapping):
        return FrozenDict(value)
    return tuple(freeze(v) for v in value) if isinstance(value, list | tuple) else value


def canonical(value: Any) -> str:
    """The one JSON text of a value: sorted keys, no spaces; equal on every machine and in every process."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def content_hash(value: Any) -> str:
    """sha256 (64 hex digits) of the canonical JSON text."""
    return hashlib.sha256(canonical(value).encode()).hexdigest()
