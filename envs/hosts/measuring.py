"""The measuring protocol: how often a placement runs, which runs count, and when to give up. Nothing is measured here."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from envs.problem.errors import InputError
from envs.problem.measurement import exactly

STATISTICS = ("mean", "median", "min")


@dataclass(frozen=True)
class Measuring:
    """How a measurement is made of runs.

    DOPPLER averages 10 executions (the default); HSDAG runs 10 and averages the last 5 (``average_last=5``); Mars runs 15 and
    drops the first 5 (``warm_up=5, repetitions=10``) and cuts bad placements off (``cut_off``).

    Raises:
        InputError: for counts that leave no run, an unknown statistic, or a time that is not positive.
    """

    warm_up: int = 1
    """Runs before those that are kept."""
    repetitions: int = 10
    """Runs whose times are kept as raw samples."""
    average_last: int | None = None
    """How many of the last samples count; None counts all."""
    statistic: str = "mean"
    """What becomes of them: mean, median or min."""
    cut_off: float = float("inf")
    """Seconds after which one run is given up, and with it the placement, as TOO_SLOW."""
    time_limit: float = 60.0
    """Seconds for all runs of one placement together, after which the measuring process is killed."""

    def __post_init__(self) -> None:
        if self.warm_up < 0 or self.repetitions < 1:
            raise InputError(f"warm_up is {self.warm_up} and repetitions {self.repetitions}; at least 0 and 1 are needed")
        if self.average_last is not None and not 1 <= self.average_last <= self.repetitions:
            raise InputError(f"average_last is {self.average_last}; it must be between 1 and the {self.repetitions} repetitions")
        if self.statistic not in STATISTICS:
            raise InputError(f"unknown statistic {self.statistic!r}; known are {', '.join(STATISTICS)}")
        if not (self.cut_off > 0 and 0 < self.time_limit < math.inf):
            raise InputError(f"cut_off is {self.cut_off} s and time_limit {self.time_limit} s; both must be positive, and the limit finite")

    @property
    def text(self) -> str:
        """For protocols, where it is part of a measurement's identity."""
        last = "" if self.average_last is None else f" last={self.average_last}"
        cut = "" if self.cut_off == float("inf") else f" cut={exactly(self.cut_off)}"
        return f"{self.warm_up}+{self.repetitions}{last} {self.statistic}{cut}"

    def counted(self, samples: np.ndarray) -> np.ndarray:
        """The samples that count."""
        return samples if self.average_last is None else samples[-self.average_last :]

    def seconds(self, samples: np.ndarray) -> float:
        """The measurement's value of its raw samples, seconds."""
        counted = self.counted(samples)
        if self.statistic == "min":
            return float(counted.min())
        return float(np.median(counted) if self.statistic == "median" else counted.mean())

    def dispersion(self, samples: np.ndarray) -> float:
        """Standard deviation of the samples that count, seconds; NaN for less than two."""
        counted = self.counted(samples)
        return float(np.std(counted, ddof=1)) if counted.size > 1 else float("nan")
