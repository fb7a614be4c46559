"""Numbers of a report, and how people read them. A table is made of these and becomes text only when it is shown."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

NONE = "–"
"""What stands where there is no number."""

Number = float | int | None


@dataclass(frozen=True)
class Quantity:
    """A number with what belongs to it: the ends of its interval, its deviation, how many values are behind it."""

    show: Callable[..., str]
    """Makes the text, from ``numbers`` as keyword arguments."""
    numbers: Mapping[str, Number] = field(default_factory=dict)
    """``value`` (in ``unit``), and maybe ``low``, ``high``, ``deviation``, ``error``, ``n``, …; unrounded, NaN or None if unknown."""
    unit: str = ""

    def __str__(self) -> str:
        return self.show(**self.numbers)

    def to_json(self) -> dict[str, Any]:
        """The numbers by name, and the unit if there is one; what is infinite or unknown is None."""
        return {key: finite(x) for key, x in self.numbers.items()} | ({"unit": self.unit} if self.unit else {})


TableCell = str | Quantity
"""What stands in a cell of a table."""


def quantity(show: Callable[..., str], unit: str = "", **numbers: Number) -> Quantity:
    """A `Quantity` from its numbers by name."""
    return Quantity(show, numbers, unit)


def finite(value: Number) -> Number:
    """A number as JSON can hold it: None where it is infinite or unknown."""
    if value is None or not math.isfinite(value):
        return None
    return int(value) if float(value).is_integer() and not isinstance(value, float) else float(value)


def known(value: Number) -> bool:
    """Whether there is a number: neither None nor NaN."""
    return value is not None and not math.isnan(value)


def decimals(digits: int) -> Callable[..., str]:
    """Shows a finite number with so many digits after the point, anything else as a dash."""
    return lambda value, **_: f"{value:.{digits}f}" if value is not None and math.isfinite(value) else NONE


def whole(value: Number) -> str:
    """A whole number with separators of thousands."""
    return NONE if value is None else f"{value:,}"


def score(value: float, digits: int = 3) -> str:
    """Three digits after the point, fewer for large ones."""
    if math.isnan(value):
        return NONE
    if math.isinf(value):
        return "∞"
    return f"{value:.{digits}f}" if abs(value) < 100 else f"{value:.1f}" if abs(value) < 10_000 else f"{value:.2e}"


def interval(digits: int = 3) -> Callable[..., str]:
    """Shows ``1.234 [1.200, 1.270]``; without brackets where resampling says nothing."""

    def show(value: float, low: float, high: float) -> str:
        if math.isnan(low):
            return score(value, digits)
        return f"{score(value, digits)} [{score(low, digits)}, {score(high, digits)}]"

    return show


def percent(value: float | None) -> str:
    """A gap, in percent."""
    if value is None or math.isnan(value):
        return NONE
    if math.isinf(value):
        return "∞"
    if abs(value) < 5e-5:
        value = 0.0
    return f"{value:.1%}" if abs(value) < 10 else f"{value:,.0%}"


def signed_percent(value: float) -> str:
    """A change, in percent, with its sign."""
    text = percent(value)
    return f"+{text}" if math.isfinite(value) and value > 5e-5 else text.replace("-", "−")


def p_value(value: float, **_: Number) -> str:
    """A p-value with two significant digits."""
    return NONE if math.isnan(value) else "<0.0001" if value < 1e-4 else f"{value:.2g}"


def count(value: float) -> str:
    """A mean of counts: digits after the point only where it is small and not whole."""
    return NONE if math.isnan(value) else f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.1f}"


def seconds(value: float) -> str:
    """A time of minutes in whole seconds, a short one to the hundredth."""
    return NONE if math.isnan(value) else f"{value:,.0f}" if value >= 100 else f"{value:.2f}"


def significant(value: Number) -> str:
    """Four significant digits, never in exponents within nine orders of magnitude; a dash for what is infinite or unknown."""
    if value is None or not math.isfinite(value):
        return NONE
    if value == 0:
        return "0"
    magnitude = math.floor(math.log10(abs(value)))
    return f"{value:.3e}" if magnitude < -5 else f"{value:,.{max(0, 3 - magnitude)}f}"


def over_seeds(value: float, deviation: float, n: int, of: int) -> str:
    """``12.34 ± 0.05``; ``(n/of)`` behind it where only n of so many runs found a placement."""
    if not math.isfinite(value):
        return NONE
    text = significant(value)
    places = len(text.partition(".")[2])
    spread = f"{deviation:.{places}f}" if math.isfinite(deviation) and "e" not in text else ""
    if spread.strip("0."):
        text += f" ± {spread}"
    return text if n == of else f"{text} ({n}/{of})"


def with_error(value: float, error: float, **_: Number) -> str:
    """Mean and standard error, three digits after the point."""
    return NONE if math.isnan(value) else f"{value:.3f}" + (f" ± {error:.3f}" if math.isfinite(error) else "")


def shares(better: float, equal: float, worse: float) -> str:
    """Three shares, in percent: ``12.3 / 4.5 / 83.2``."""
    return NONE if math.isnan(better) else " / ".join(f"{100 * s:.1f}" for s in (better, equal, worse))
