"""Proximal policy optimisation (Schulman et al. 2017) and REINFORCE on whole placements. No networks and no problems belong here.

Every decision of a placement (a device for one operation) shares the placement's reward. Rewards become advantages by a
`methods.learning.baselines.RunningBaseline`; advantages become weights of ∇ log π, which `methods.learning.reinforce.Learner` applies, by
`surrogate_weights` for PPO or as they are for REINFORCE.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from envs.problem.measurement import Measurements, Outcome
from envs.problem.ranges import Count, CountOrNone, NotNegative, Positive, ShareBelowOne


@dataclass(frozen=True)
class PolicyGradientConfig:
    """How sampled placements become new weights. Defaults are those of Mars (section 4.2)."""

    algorithm: Literal["ppo", "reinforce"] = "ppo"
    """``reinforce`` takes one step on all samples and has no use for ``epochs``, ``minibatches``, ``clip_ratio`` and ``ratio``."""
    samples: Count = 10
    """Placements of each problem that are drawn from one policy."""
    window: Count = 20
    """Latest placements of each problem that an update learns from; the first update waits until there are so many."""
    epochs: Count = 3
    """Times that an update goes over its placements."""
    minibatches: Count = 4
    """Parts into which the placements of an epoch are shuffled, each of them one step of Adam."""
    clip_ratio: Positive = 0.2
    """ε of the clipped objective."""
    ratio: Literal["decision", "placement"] = "decision"
    """Whether the ratio of new to old probability is that of each decision or of the placement as a whole."""
    baseline: Literal["none", "average", "ema"] = "ema"
    """Taken off the reward: nothing, the mean of all earlier rewards of the problem, or their exponential moving average."""
    decay: ShareBelowOne = 0.99
    """μ of the exponential moving average (Mars, equation 7)."""
    normalize: bool = False
    """Instead of the baseline, take the mean of an update's rewards off, problem by problem, and divide by their standard deviation."""
    entropy: NotNegative = 0.001
    """Weight of the policy's entropy in the objective."""
    learning_rate: NotNegative = 3e-4
    """Of Adam."""
    clip: Positive | None = 1.0
    """Largest norm of the gradient; None leaves it as it is."""
    average: ShareBelowOne = 0.0
    """Decay of the running average of the weights, update by update, which is what a search leaves behind to place or start others with;
    0 leaves the last ones."""
    invalid_seconds: Positive = 100.0
    """What a placement that cannot run counts as; reward -10."""
    slow_seconds: NotNegative = 0.0
    """What a placement counts as that takes this long or longer, or was given up as too slow; 0 for no such limit."""
    patience: CountOrNone = 0
    """Updates without a better placement after which the search ends; 0 goes on until the budget is spent."""


def root_rewards(result: Measurements, config: PolicyGradientConfig) -> np.ndarray:
    """The reward -√r of every placement (GDP section 4.1, Mars equation 7), float64[B]; failures by ``config``."""
    value = np.where(result.ok, result.objective, config.invalid_seconds)
    if config.slow_seconds:
        slow = (result.ok & (result.objective >= config.slow_seconds)) | (result.outcome == Outcome.TOO_SLOW)
        value = np.where(slow, config.slow_seconds, value)
    return -np.sqrt(value)


def surrogate_weights(log_probs: Tensor, old: Tensor, advantages: Tensor, config: PolicyGradientConfig) -> Tensor:
    """What ∇ log π of each decision is multiplied by in the gradient of min(r A, clip(r, 1 - ε, 1 + ε) A), [B, L].

    With r = π / π_old that gradient is r A ∇ log π, or zero where clipping makes the objective flat.

    Args:
        log_probs: log π of the decisions now, [B, L].
        old: log π when they were drawn, [B, L].
        advantages: one a placement, [B].
        config: ε, and whether r is that of a decision or of a placement.
    """
    difference = log_probs.detach() - old
    if config.ratio == "placement":
        difference = difference.sum(dim=1, keepdim=True).expand_as(difference)
    ratio, a = difference.exp(), advantages[:, None]
    flat = ((a > 0) & (ratio > 1 + config.clip_ratio)) | ((a < 0) & (ratio < 1 - config.clip_ratio))
    return torch.where(flat, torch.zeros_like(ratio), ratio * a)


def minibatches(n: int, config: PolicyGradientConfig, rng: np.random.Generator) -> Iterator[np.ndarray]:
    """Rows of every update on ``n`` samples: shuffled parts, anew in each epoch; all of them once for REINFORCE."""
    if config.algorithm == "reinforce":
        yield np.arange(n)
        return
    for _ in range(config.epochs):
        yield from np.array_split(rng.permutation(n), min(config.minibatches, n))
