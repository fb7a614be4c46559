"""Which of many placements are the same one. What is kept of them is the caller's affair."""

from __future__ import annotations

import numpy as np


def first_of_equals(rows: np.ndarray) -> np.ndarray:
    """The first of every set of equal rows of an array [N, ...], ascending, int64[M].

    The same as ``np.sort(np.unique(rows, axis=0, return_index=True)[1])``, which sorts all rows where comparing their bytes is enough.
    """
    first: dict[bytes, int] = {}
    for i, row in enumerate(rows):
        first.setdefault(row.tobytes(), i)
    return np.fromiter(first.values(), dtype=np.int64, count=len(first))
