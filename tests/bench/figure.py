"""One measured figure, and how to time things on a shared, noisy machine."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Figure:
    """A line of the table in docs/results/speed.md."""

    name: str
    value: float
    unit: str
    target: str
    met: bool
    note: str = ""


def at_least(name: str, value: float, unit: str, target: float, note: str = "") -> Figure:
    """A figure that should not fall below ``target``."""
    return Figure(name, value, unit, f"≥ {target:g}", value >= target, note)


def at_most(name: str, value: float, unit: str, target: float, note: str = "") -> Figure:
    """A figure that should not exceed ``target``."""
    return Figure(name, value, unit, f"≤ {target:g}", value <= target, note)


def seconds(action: Callable[[], object]) -> float:
    """Wall seconds of one call."""
    begin = time.perf_counter()
    action()
    return time.perf_counter() - begin


def side_by_side(*actions: Callable[[], object], rounds: int = 5) -> list[float]:
    """The best wall seconds of each action, measured in turns so that a busy spell of the machine touches all alike."""
    best = [float("inf")] * len(actions)
    for _ in range(rounds):
        best = [min(b, seconds(a)) for b, a in zip(best, actions, strict=True)]
    return best
