"""Measurements until every row has one: what failed for reasons of infrastructure is asked for again."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from envs.problem.measurement import Evaluator, Measurements, Outcome
from orchestration.rewards.evaluators import InfrastructureError, Request, evaluate_all

ATTEMPTS = 8
"""How often a measurement that failed for reasons of infrastructure is asked for before the trial gives up."""


FIRST_PAUSE = 0.05
"""Seconds before the second attempt; doubled after each."""


def measure(evaluator: Evaluator, requests: Sequence[Request]) -> list[Measurements]:
    """Measurements of all requests without a row of outcome INFRASTRUCTURE: those are asked for again, after a pause.

    Raises:
        InfrastructureError: if some row still fails at the last attempt.
    """
    results = evaluate_all(evaluator, requests)
    for attempt in range(1, ATTEMPTS + 1):
        missing = [(i, rows) for i, m in enumerate(results) for rows in _runs(m.outcome == Outcome.INFRASTRUCTURE)]
        if not missing:
            return results
        if attempt == ATTEMPTS:
            break
        time.sleep(FIRST_PAUSE * 2 ** (attempt - 1))
        again = [requests[i]._replace(placements=requests[i].placements[rows], first=requests[i].first + rows.start) for i, rows in missing]
        for (i, rows), m in zip(missing, evaluate_all(evaluator, again), strict=True):
            results[i] = _put(results[i], rows, m)
    count = sum(rows.stop - rows.start for _, rows in missing)
    raise InfrastructureError(f"{count} measurements failed {ATTEMPTS} times for reasons of infrastructure ({evaluator.protocol})")


def _runs(mask: np.ndarray) -> list[slice]:
    """Contiguous runs of True."""
    edges = np.flatnonzero(np.diff(np.concatenate(([0], mask.astype(np.int8), [0]))))
    return [slice(int(a), int(b)) for a, b in zip(edges[::2], edges[1::2], strict=True)]


def _put(whole: Measurements, rows: slice, part: Measurements) -> Measurements:
    """``whole`` with ``rows`` replaced by a measurement of the same placements."""
    changed: dict[str, Any] = {}
    for key in ("outcome", "seconds", "objective", "start", "finish", "deviation", "compile_seconds"):
        old, new = getattr(whole, key), getattr(part, key)
        if old is not None and new is not None:
            old = old.copy()
            old[rows] = new
            changed[key] = old
    for key in ("samples", "notes"):
        old, new = getattr(whole, key), getattr(part, key)
        if old is not None and new is not None:
            changed[key] = (*old[: rows.start], *new, *old[rows.stop :])
    return replace(whole, host=part.host or whole.host, **changed)
