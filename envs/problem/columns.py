"""Batches of rows whose values are declared once, as fields of a dataclass, and what is done with any such batch: cut, join, fill in.

What the values mean is not known here (`envs.problem.measurement`). A new value of every row is one new field there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import MISSING, dataclass, fields, replace
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np

T = TypeVar("T")


@dataclass(frozen=True)
class Column:
    """How a batch of B rows holds one value of each.

    Numbers are one array ``dtype[B]`` (or ``dtype[B, …]``), arrays whose length differs from row to row (``tail`` is given) a tuple of
    B arrays ``dtype[N, *tail]``, and texts a tuple of B strings. A column that the whole batch lacks is None.
    """

    dtype: type
    """numpy's scalar type, or `str`."""
    missing: Any = None
    """The number of a row that lacks it in a batch of which other rows have it; such an array or text is empty."""
    tail: tuple[int, ...] | None = None
    """Shape of a row's array behind its first axis, for arrays of differing length."""
    of_trace: bool = False
    """Whether it belongs to the trace, which is made anew whenever it is asked for: neither cached nor stored."""
    optional: bool = False
    """Whether whole batches may lack it; filled in from the field's default."""

    @property
    def numbers(self) -> bool:
        """Whether a batch's values are one array."""
        return self.dtype is not str and self.tail is None

    def lacking(self, count: int) -> Any:
        """What stands for ``count`` rows without this value; for numbers one each, whatever their shape."""
        if self.numbers:
            return np.full(count, self.missing, dtype=self.dtype)
        return ("" if self.dtype is str else np.empty((0, *(self.tail or ())), dtype=self.dtype),) * count

    def without(self, values: Any, rows: np.ndarray) -> Any:
        """A batch's ``values`` with those of ``rows`` bool[B] taken away; None stays None."""
        if values is None:
            return None
        if self.numbers:
            return np.where(rows.reshape(-1, *(1,) * (values.ndim - 1)), self.dtype(self.missing), values)
        return tuple(empty if gone else v for v, gone, empty in zip(values, rows, self.lacking(len(rows)), strict=True))

    def joined(self, parts: Sequence[Any], lengths: Sequence[int]) -> Any:
        """The values of consecutive parts, of which some may be None."""
        known = [p for p in parts if p is not None]
        if not known:
            return None
        if not self.numbers:
            return tuple(x for p, n in zip(parts, lengths, strict=True) for x in (self.lacking(n) if p is None else p))
        shape, dtype = known[0].shape[1:], known[0].dtype
        return np.concatenate([np.full((n, *shape), self.missing, dtype) if p is None else p for p, n in zip(parts, lengths, strict=True)])


def column(dtype: type, missing: Any = None, *, tail: tuple[int, ...] | None = None, of_trace: bool = False) -> dict[str, Column]:
    """The metadata that makes a dataclass's field a `Column`: ``outcome: np.ndarray = field(metadata=column(np.int8))``."""
    return {"column": Column(dtype, missing, tail, of_trace)}


def columns(rows: Any) -> dict[str, Column]:
    """The columns of a dataclass or of an instance of it, by name, in the order of their declaration; not to be changed."""
    return _columns(rows if isinstance(rows, type) else type(rows))


@lru_cache(maxsize=64)
def _columns(rows: type) -> dict[str, Column]:
    return {
        f.name: replace(f.metadata["column"], optional=f.default is not MISSING) for f in fields(rows) if "column" in f.metadata
    }  # fmt: skip


def take(rows: T, part: slice) -> T:
    """These rows of a column, whatever it is made of."""
    return replace(rows, **{k: v[part] for k in columns(rows) if (v := getattr(rows, k)) is not None})  # type: ignore[type-var]


def join(parts: Sequence[Any], lengths: Sequence[int]) -> dict[str, Any]:
    """The columns of consecutive parts as one, by name; what only some parts have is missing in the rows of the others."""
    return {name: c.joined([getattr(p, name) for p in parts], lengths) for name, c in columns(parts[0]).items()}
