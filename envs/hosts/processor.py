"""Which processor this is: real times depend on it, and the last bits of learned numbers. What else a machine has is `discovery`'s."""

from __future__ import annotations

import platform
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

_WIDTHS = {"avx512f": "AVX-512", "avx2": "AVX2", "asimd": "NEON"}
"""Flags by which compilers and kernels choose how many numbers they take at once, the widest first."""


@lru_cache(maxsize=1)
def model_name() -> str:
    """What the maker calls it, e.g. ``AMD EPYC 9654``."""
    return _line("model name") or platform.processor() or platform.machine()


@lru_cache(maxsize=1)
def processor() -> str:
    """The model and the widest instructions, e.g. ``AMD EPYC 9654 with AVX-512``.

    Sums in another order have other last bits, and a learner multiplies the difference. So a learned figure is repeated to the last bit
    only on a processor of the same kind.
    """
    flags = (_line("flags") or _line("Features")).split()
    return f"{model_name()}{next((f' with {name}' for flag, name in _WIDTHS.items() if flag in flags), '')}"


def _line(key: str) -> str:
    """What Linux says of the first processor; empty if nothing."""
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.partition(":")[0].strip() == key:
                return line.partition(":")[2].strip()
    return ""
