"""Measurements until every row has one: what failed for reasons of infrastructure is asked for again."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from tenacity import RetryError, Retrying, retry_if_result, stop_after_attempt, wait_exponential

from envs.problem.measurement import Evaluator, Measurements, Outcome, Request
from orchestration.rewards.evaluators import InfrastructureError

MEASUREMENT_ATTEMPTS = 8
"""How often a measurement that failed for reasons of infrastructure is asked for before the trial gives up."""
MEASUREMENT_PAUSE = 0.05
"""Seconds before the second attempt; doubled after each."""


def measure(evaluator: Evaluator, requests: Sequence[Request]) -> list[Measurements]:
    """Measurements of all requests without a row of outcome INFRASTRUCTURE: those are asked for again, after a pause.

    Raises:
        InfrastructureError: if some row still fails at the last attempt.
    """
    results: list[Measurements] = []
    first = [_ask(evaluator, requests, results)]
    if not first[0]:  # as nearly always: a search asks thousands of times
        return results
    again = Retrying(
        stop=stop_after_attempt(MEASUREMENT_ATTEMPTS), wait=wait_exponential(multiplier=MEASUREMENT_PAUSE), retry=retry_if_result(bool)
    )
    try:
        again(lambda: first.pop() if first else _ask(evaluator, requests, results))
    except RetryError as error:
        count = error.last_attempt.result()
        raise InfrastructureError(
            f"{count} measurements failed {MEASUREMENT_ATTEMPTS} times for reasons of infrastructure ({evaluator.protocol})"
        ) from None
    return results


def _ask(evaluator: Evaluator, requests: Sequence[Request], results: list[Measurements]) -> int:
    """Ask for everything, or for the rows of ``results`` that have no measurement yet; how many of them then have none."""
    if not results:
        results += evaluator.evaluate_many(requests)
    else:
        missing = [(i, rows) for i, m in enumerate(results) for rows in _runs(m.outcome == Outcome.INFRASTRUCTURE)]
        again = [requests[i]._replace(placements=requests[i].placements[rows], first=requests[i].first + rows.start) for i, rows in missing]
        for (i, rows), m in zip(missing, evaluator.evaluate_many(again), strict=True):
            results[i] = results[i].put(rows, m)
    return sum(int((m.outcome == Outcome.INFRASTRUCTURE).sum()) for m in results)


def _runs(mask: np.ndarray) -> list[slice]:
    """Contiguous runs of True."""
    edges = np.flatnonzero(np.diff(np.concatenate(([0], mask.astype(np.int8), [0]))))
    return [slice(int(a), int(b)) for a, b in zip(edges[::2], edges[1::2], strict=True)]
