"""How the process of a trial handles memory. What a trial does does not belong here."""

from __future__ import annotations

import ctypes

LARGEST, KEPT = 32 * 2**20, 2**30
"""Bytes: blocks up to the first (the most that glibc allows) come from the heap, of which so much stays when it is freed."""
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3


def keep_freed_memory() -> None:
    """Freed memory stays with the process, where glibc would hand it back.

    A network asks for the same blocks in every pass; each page of a new one costs a fault, which is up to a fifth of a learner's time.
    Does nothing where the C library is not glibc.
    """
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):
        libc.mallopt(_MMAP_THRESHOLD, LARGEST)
        libc.mallopt(_TRIM_THRESHOLD, KEPT)
