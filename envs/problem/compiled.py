"""How compiled loops are compiled: by Numba, kept on disk, without the interpreter's lock, and without counting references to arrays.

Numba counts a reference wherever an array is taken out of a tuple of arrays, which is most of the time of an event loop whose state is such
tuples (DECISIONS 69). What is compiled here makes no array and returns numbers or nothing: with counting left out, an array that it
made would not compile, and one that it returned would be freed while the caller holds it.
"""

from __future__ import annotations

from typing import Any

import numba

_OPTIONS: dict[str, Any] = {"cache": True, "nogil": True, "_nrt": False}

FAST = {"contract", "reassoc", "nsz"}
"""Floating-point freedoms of sums: any order and fused multiply-add; NaN and infinity are as they are."""

loop = numba.njit(**_OPTIONS)
"""A function of numbers and arrays that makes no array and returns none."""

part = numba.njit(**_OPTIONS, forceinline=True)
"""The same, made a part of the loops that call it, which would otherwise copy a hundred words of arguments."""

fast_loop = numba.njit(**_OPTIONS, fastmath=FAST)
"""A `loop` with `FAST` sums."""
