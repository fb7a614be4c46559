"""What is taken off rewards before they become advantages. How advantages change weights does not belong here.

Four kinds, by what a reward is compared with: earlier rewards of its episode (`earlier_mean`), the other episodes of its batch
(`against_others`), and earlier episodes, by their mean (`RunningMean`, `RunningBaseline`) or by mean and variance (`RunningMoments`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np


def earlier_mean(rewards: np.ndarray) -> np.ndarray:
    """Mean of the rewards before each step, 0 at the first, float64[T] (GiPH, Appendix B.7)."""
    before = np.cumsum(rewards) - rewards
    return before / np.maximum(np.arange(len(rewards)), 1)


def against_others(returns: list[np.ndarray], groups: Sequence[int]) -> list[np.ndarray]:
    """Each return less the mean return at that step of the other episodes of its group that last as long; float64[T] each."""
    padded = np.full((len(returns), max((len(g) for g in returns), default=0)), np.nan)
    for row, g in zip(padded, returns, strict=True):
        row[: len(g)] = g
    same = np.equal.outer(groups, groups).astype(np.float64) - np.eye(len(returns))
    count, total = same @ ~np.isnan(padded), same @ np.nan_to_num(padded)
    others = total / np.maximum(count, 1)
    return [g - o[: len(g)] for g, o in zip(returns, others, strict=True)]


def spread(values: np.ndarray) -> float:
    """The standard deviation to divide by; 1 where all are equal."""
    return float(values.std()) or 1.0


class RunningMean:
    """Mean of all values so far, or their exponential moving average.

    Args:
        keep: weight of the average so far beside a new value; None counts all values alike.
        share: weight of the new value; None takes ``1 - keep``.
    """

    def __init__(self, keep: float | None = None, share: float | None = None) -> None:
        self.keep = keep
        self.share = 1 - keep if share is None and keep is not None else share
        self.count, self.value = 0, 0.0

    def add(self, value: float) -> float:
        """Take in a value; returns the mean with it."""
        if self.keep is None or self.share is None:
            self.value += (value - self.value) / (self.count + 1)
        else:
            self.value = value if self.count == 0 else self.share * value + self.keep * self.value
        self.count += 1
        return self.value

    def state(self) -> dict[str, Any]:
        """What `restore` goes on from."""
        return {"count": self.count, "value": float(self.value)}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a `state`."""
        self.count, self.value = int(state["count"]), float(state["value"])


class RunningBaseline(RunningMean):
    """The running baseline of one problem's rewards.

    Args:
        kind: ``none`` takes nothing off, ``average`` the mean of all earlier rewards, ``ema`` their exponential moving average.
        decay: μ of the latter.
    """

    def __init__(self, kind: Literal["none", "average", "ema"], decay: float) -> None:
        super().__init__(decay if kind == "ema" else None)
        self.kind = kind

    def advantages(self, rewards: np.ndarray) -> np.ndarray:
        """R_t - B_t of rewards in the order of their trials, float64[B].

        ``ema``: B_t = (1 - μ) R_t + μ B_(t-1), B_1 = R_1 (Mars, equation 7). ``average``: the mean of R_1 … R_(t-1), and R_1 for
        the first trial, which nothing came before (GDP section 4.1).
        """
        out = np.empty(len(rewards))
        for i, reward in enumerate(rewards.tolist()):
            before = self.value if self.count else reward
            after = self.add(reward)
            out[i] = reward - {"none": 0.0, "average": before, "ema": after}[self.kind]
        return out


class RunningMoments:
    """Mean and variance of the rewards of several problems, and their slowest success (DOPPLER section 5.1).

    Args:
        problems: how many.
        memory: rewards that count, exponentially; None counts all alike.
        failure_factor: a failure's cost is this many times that of the slowest success.
        standardize: divide advantages by the standard deviation of earlier rewards.
    """

    def __init__(self, problems: int, memory: int | None, failure_factor: float, standardize: bool) -> None:
        self.memory, self.failure_factor, self.standardize = memory, failure_factor, standardize
        self.rows = np.zeros((problems, 4))
        """Of each problem: how many, mean, variance, slowest success; float64[P, 4]."""

    def advantage(self, problem: int, objective: float) -> float:
        """Reward (the objective, negative) minus the mean of the problem's earlier ones, within ±10; 0 for the first."""
        count, mean, variance, worst = self.rows[problem]
        if np.isfinite(objective):
            worst = max(worst, objective)
        elif worst == 0.0:  # nothing has succeeded yet, so there is nothing to compare a failure with
            return 0.0
        reward = -(objective if np.isfinite(objective) else self.failure_factor * worst)
        advantage = reward - mean if count else 0.0
        if self.standardize:
            deviation = np.sqrt(variance)
            advantage = advantage / deviation if deviation > 1e-12 * abs(mean) else float(np.sign(advantage))
        share = 1.0 / (count + 1 if self.memory is None else min(count + 1, self.memory))
        difference = reward - mean
        self.rows[problem] = (count + 1, mean + share * difference, (1.0 - share) * (variance + share * difference**2), worst)
        return float(np.clip(advantage, -10.0, 10.0))
