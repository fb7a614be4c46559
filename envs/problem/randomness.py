"""What the random generators of graphs and networks share: streams of a seed, ranges of parameters, grids of parameters."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np

from envs.problem.errors import InputError, nearest

Parameters = TypeVar("Parameters")


def stream(seed: int | np.random.SeedSequence, index: int) -> np.random.Generator:
    """The ``index``-th stream derived from ``seed``; deriving it leaves a `SeedSequence` as it was."""
    if isinstance(seed, int) and seed < 0:
        raise InputError(f"seed is {seed}; it must not be negative")
    base = seed if isinstance(seed, np.random.SeedSequence) else np.random.SeedSequence(seed)
    return np.random.default_rng(np.random.SeedSequence(base.entropy, spawn_key=(*base.spawn_key, index)))


def seed_label(seed: int | np.random.SeedSequence) -> str:
    """The seed as part of a name."""
    return "-".join(map(str, (seed.entropy, *seed.spawn_key))) if isinstance(seed, np.random.SeedSequence) else str(seed)


def check_ranges(parameters: Any, **ranges: tuple[float, float]) -> None:
    """InputError naming the first field of a dataclass that is not a finite number within its range (both ends included).

    Fields whose default is a whole number take whole numbers only.
    """
    defaults = {f.name: f.default for f in dataclasses.fields(parameters)}
    for key, (low, high) in ranges.items():
        value, whole = getattr(parameters, key), isinstance(defaults[key], int)
        number = isinstance(value, int if whole else int | float) and not isinstance(value, bool)
        if not (number and math.isfinite(value) and low <= value <= high):
            limits = f"at least {low:g}" if math.isinf(high) else f"between {low:g} and {high:g}"
            raise InputError(f"{key} is {value!r}; it must be a {'whole ' if whole else ''}number {limits}")


def parameter_grid(base: Parameters, **values: Sequence[Any]) -> list[Parameters]:
    """Copies of the dataclass ``base``, one for every combination of the listed values; the last key varies fastest.

    Appendix B.2 of GiPH: several values may be given to each parameter of the generators.

    Raises:
        InputError: for an unknown parameter or a value out of range.
    """
    known = [f.name for f in dataclasses.fields(base)]  # type: ignore[arg-type]
    for key, options in values.items():
        if key not in known:
            raise InputError(f"unknown parameter {key!r}{nearest(key, known)}")
        if isinstance(options, str) or not isinstance(options, Sequence) or not options:
            raise InputError(f"parameter {key!r} needs a list of values, not {options!r}")
    return [
        dataclasses.replace(base, **dict(zip(values, choice, strict=True)))  # type: ignore[type-var]
        for choice in itertools.product(*values.values())
    ]
