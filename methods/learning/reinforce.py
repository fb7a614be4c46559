"""REINFORCE (Williams 1992) as the papers use it: returns, advantages, the update. No environments or networks belong here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from envs.problem.ranges import CountOrNone, NotNegative, Positive, Share
from methods.learning.baselines import against_others, earlier_mean, spread

Baseline = Literal["none", "earlier-rewards", "others"]
"""What is taken off the return of step t: nothing; the mean of the episode's rewards before t (GiPH Appendix B.7); or the mean
return at step t of the other episodes of the same group in the batch."""


@dataclass(frozen=True)
class LearningConfig:
    """How a policy gradient becomes new weights. Defaults are GiPH's (section 5)."""

    discount: Share = 0.97
    """γ: what a reward counts one step later, against one now."""
    discount_gradient: bool = True
    """Weigh the gradient of step t by γ^t (Appendix B.7)."""
    baseline: Baseline = "earlier-rewards"
    """Taken off the return of a step: nothing; the mean of the episode's rewards before it (GiPH, Appendix B.7); or the mean return at that
    step of the other episodes of its group."""
    normalize: bool = False
    """Divide the advantages of a batch by their standard deviation."""
    entropy: NotNegative = 0.0
    """Weight of the policy's entropy in the objective."""
    learning_rate: NotNegative = 0.01
    """Of Adam."""
    final_learning_rate: NotNegative | None = None
    """Reached linearly after ``schedule_updates`` and kept from then on; None keeps the rate fixed."""
    schedule_updates: CountOrNone = 0
    """Updates over which the learning rate falls."""
    clip: Positive | None = None
    """Largest norm of the gradient; None leaves it as it is."""


def discounted_returns(rewards: np.ndarray, discount: float) -> np.ndarray:
    """Sum over t' >= t of γ^(t' - t) r_t', float64[T]."""
    returns = np.zeros(len(rewards) + 1)
    for t in range(len(rewards) - 1, -1, -1):
        returns[t] = rewards[t] + discount * returns[t + 1]
    return returns[:-1]


def advantages(rewards: Sequence[np.ndarray], config: LearningConfig, groups: Sequence[int] | None = None) -> list[np.ndarray]:
    """What the gradient of log π of every step is multiplied by (γ^t aside), for a batch of episodes, float64[T] each.

    Args:
        rewards: of every step of every episode.
        config: discount, baseline, normalisation.
        groups: which episodes belong together for the baseline ``others``; None takes the batch as one group.
    """
    returns = [discounted_returns(np.asarray(r, dtype=np.float64), config.discount) for r in rewards]
    if config.baseline == "earlier-rewards":
        values = [g - earlier_mean(r) for g, r in zip(returns, rewards, strict=True)]
    elif config.baseline == "others":
        values = against_others(returns, [0] * len(returns) if groups is None else groups)
    else:
        values = returns
    if config.normalize and values:
        deviation = spread(np.concatenate(values))
        values = [v / deviation for v in values]
    return values


def step_weights(rewards: Sequence[np.ndarray], config: LearningConfig, groups: Sequence[int] | None = None) -> list[np.ndarray]:
    """Factor of ∇ log π of every step of a batch: γ^t (or 1) times the advantage, averaged over episodes, float64[T] each."""
    values = advantages(rewards, config, groups)
    power = config.discount if config.discount_gradient else 1.0
    return [v * power ** np.arange(len(v)) / len(values) for v in values]


class Learner:
    """Adam on the policy gradient.

    Args:
        network: whose parameters to change.
        config: how.
    """

    def __init__(self, network: nn.Module, config: LearningConfig) -> None:
        self.network, self.config = network, config
        self.optimizer = torch.optim.Adam(network.parameters(), lr=config.learning_rate, fused=True)
        self.updates = 0

    def step(self, parts: Iterable[tuple[Tensor, np.ndarray, Tensor | None]]) -> float:
        """One update from the parts of a batch, whose gradients add up; returns the norm of the gradient.

        Args:
            parts: log π [n] of steps, their `step_weights` [n], and the entropy of the policy there [n] over the number of episodes,
                if it counts. Each part is differentiated before the next is asked for, so only one is in memory.
        """
        self.optimizer.zero_grad(set_to_none=True)
        for log_probs, weights, entropies in parts:
            loss = -(log_probs * torch.from_numpy(weights).to(log_probs.dtype)).sum()
            if entropies is not None:
                loss = loss - self.config.entropy * entropies.sum()
            loss.backward()
        limit = np.inf if self.config.clip is None else self.config.clip
        norm = float(nn.utils.clip_grad_norm_(self.network.parameters(), limit))
        self._set_rate()
        self.optimizer.step()
        self.updates += 1
        return norm

    def _set_rate(self) -> None:
        first, last = self.config.learning_rate, self.config.final_learning_rate
        if last is not None:
            done = min(self.updates / self.config.schedule_updates, 1.0) if self.config.schedule_updates > 0 else 1.0
            for group in self.optimizer.param_groups:
                group["lr"] = first + (last - first) * done

    def state(self) -> dict[str, Any]:
        """Weights, moments of Adam and the number of updates."""
        names = [name for name, _ in self.network.named_parameters()]
        moments = self.optimizer.state_dict()["state"]
        return {
            "network": {key: value.clone() for key, value in self.network.state_dict().items()},
            "moments": {names[i]: {key: torch.as_tensor(v).clone() for key, v in m.items()} for i, m in moments.items()},
            "updates": self.updates,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from a `state`."""
        self.network.load_state_dict(state["network"])
        names = [name for name, _ in self.network.named_parameters()]
        saved = self.optimizer.state_dict()
        saved["state"] = {names.index(name): m for name, m in state["moments"].items()}
        self.optimizer.load_state_dict(saved)
        self.updates = int(state["updates"])


def seeded_network(build: Any, seed: np.random.SeedSequence) -> Any:
    """``build()`` with torch's initialisation drawn from ``seed``, leaving torch's own random stream as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(seed.generate_state(1, np.uint64)[0] >> 1))
        return build()
