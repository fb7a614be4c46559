"""What is believed of an operation's seconds on a device, and how measured times correct it. No placing here."""

from __future__ import annotations

import numpy as np

from envs.problem.measurement import Measurements
from envs.problem.problem import Problem

EXACT = 1e-9
"""Ratios of measured to believed seconds nearer to 1 than this are rounding."""


class Beliefs:
    """Seconds of a problem, corrected by what was measured.

    The cost model may be wrong by a factor of its own for every operation and device. Where the operation ran on the device, the mean of
    the measured logarithms is believed; everywhere else the model's seconds, times the expected factor of a log-normal error whose mean
    and variance are those seen so far. So what was chosen because it looked cheap, and is not, loses to what was not tried.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.total = np.zeros(problem.compute_seconds.shape)
        """Sum of logarithms of measured over believed seconds, float64[V, D]."""
        self.count = np.zeros(problem.compute_seconds.shape)

    def update(self, result: Measurements) -> bool:
        """Takes in traced measurements; whether any differed from what the cost model says."""
        if result.start is None or result.finish is None:
            return False
        model, nodes = self.problem.compute_seconds, np.arange(self.problem.n_nodes)
        for row in np.flatnonzero(result.ok):
            devices, taken = result.placements[row], result.finish[row] - result.start[row]
            said = model[nodes, devices]
            with np.errstate(divide="ignore", invalid="ignore"):
                ratio = np.log(taken / said)
            known = np.isfinite(ratio) & (said > 0)
            # A difference of two times carries their rounding, which is relative to the times and not to the difference.
            noise = np.finfo(np.float64).eps * 8 * result.finish[row] / np.where(said > 0, said, 1.0)
            ratio = np.where(np.abs(ratio) <= np.maximum(EXACT, noise), 0.0, ratio)
            self.total[nodes[known], devices[known]] += ratio[known]
            self.count[nodes[known], devices[known]] += 1.0
        return self.wrong

    @property
    def wrong(self) -> bool:
        """Whether the cost model has been seen to be wrong."""
        return bool(self.total.any())

    @property
    def factors(self) -> np.ndarray:
        """What to multiply the model's seconds by, float64[V, D]."""
        seen = self.count > 0
        if not self.wrong:
            return np.ones(seen.shape)
        mean = self.total / np.maximum(self.count, 1.0)
        expected = np.exp(mean[seen].mean() + mean[seen].var() / 2)
        return np.where(seen, np.exp(mean), expected)
