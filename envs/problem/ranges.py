"""Ranges of numbers that dataclasses of settings declare for their fields: checked by whoever reads settings, shown by whoever lists them.

A number has an upper bound where a larger one could only be a slip: nothing could be made of it in the memory of any machine.
"""

from __future__ import annotations

from typing import Annotated

from annotated_types import Interval

LEAST, MOST = 1e-50, 1e50
"""Of work, bytes, speeds, seconds and watts, in whatever units: quotients, products and sums over a graph stay floating-point numbers."""
MOST_TASKS, MOST_DEVICES = 100_000, 4096
"""Of a generated graph and of a generated network, whose links are matrices."""
Tasks = Annotated[int, Interval(ge=1, le=MOST_TASKS)]
Devices = Annotated[int, Interval(ge=1, le=MOST_DEVICES)]
DevicesOrNone = Annotated[int, Interval(ge=0, le=MOST_DEVICES)]
"""0 leaves the number to the problems."""
Count = Annotated[int, Interval(ge=1, le=1_000_000)]
CountOrNone = Annotated[int, Interval(ge=0, le=1_000_000)]
"""0 switches off what is counted, or leaves the number to the method."""
Width = Annotated[int, Interval(ge=1, le=65_536)]
"""Numbers in a layer of a network."""
WidthOrNone = Annotated[int, Interval(ge=0, le=65_536)]
Positive = Annotated[float, Interval(gt=0, le=1e12)]
NotNegative = Annotated[float, Interval(ge=0, le=1e12)]
Share = Annotated[float, Interval(ge=0, le=1)]
ShareAboveNone = Annotated[float, Interval(gt=0, le=1)]
ShareBelowOne = Annotated[float, Interval(ge=0, lt=1)]
