"""Search around the best placements so far. How policies learn does not belong here, nor do networks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from envs.problem.distinct import first_of_equals
from envs.problem.errors import InputError
from envs.problem.ranges import CountOrNone, NotNegative, Share


@dataclass(frozen=True)
class SearchConfig:
    """What the papers do not have; all of it is off by default."""

    keep: CountOrNone = 0
    """Best distinct placements of each problem that are kept."""
    imitate: NotNegative = 0.0
    """Weight of the kept placements' log-likelihood in every minibatch; the samples' objective has weight 1."""
    vary: Share = 0.0
    """Share of a policy's placements that repeat a kept one but for one region, where the policy decides anew. Only these decisions are
    learned from, against the reward of the placement that was varied."""
    critical: Share = 0.0
    """Probability that such a region begins with an operation on the critical path of the kept placement's schedule (as estimated by
    `methods.placing.list_scheduling.planned`), instead of with any operation."""
    regions: CountOrNone = 0
    """Draw the devices of a region of neighbouring operations with the same noise: a random number of regions, log-uniform from 1 to this.
    Each device is as likely as the policy says, but neighbours agree where their probabilities do. 0 draws each by itself."""
    relabel: bool = False
    """Give devices that differ in nothing but their index one order in every placement (`methods.placing.twin_devices`), so that what is
    learned of different graphs does not contradict itself."""
    demonstrate: bool = False
    """Let the first placements of every problem be those of the heuristics that local search starts from (`methods.placing.starts`). What
    comes of it is to be called demonstrated."""

    def __post_init__(self) -> None:
        if (self.imitate or self.vary or self.demonstrate) and not self.keep:
            raise InputError(
                "settings 'imitate', 'vary' and 'demonstrate' are about kept placements; set 'keep' to how many, for example 8"
            )


class Elites:
    """The best distinct decisions of one problem, best first."""

    def __init__(self, keep: int, length: int) -> None:
        self.keep = keep
        self.actions = np.zeros((0, length), dtype=np.int32)
        self.rewards = np.zeros(0)

    def add(self, actions: np.ndarray, rewards: np.ndarray) -> None:
        """Keep the best of those kept and ``actions`` [B, L]."""
        everything, worth = np.concatenate((self.actions, actions)), np.concatenate((self.rewards, rewards))
        first = first_of_equals(everything)
        best = first[np.argsort(-worth[first], kind="stable")][: self.keep]
        self.actions, self.rewards = everything[best].astype(np.int32), worth[best]

    def pick(self, count: int, rng: np.random.Generator) -> np.ndarray:
        """``count`` of the kept ones, better ones more often, int64[count]."""
        return (len(self.rewards) * rng.random(count) ** 2).astype(np.int64)

    def state(self) -> dict[str, Any]:
        return {"actions": self.actions.copy(), "rewards": self.rewards.copy()}

    def restore(self, state: dict[str, Any]) -> None:
        self.actions, self.rewards = np.asarray(state["actions"], dtype=np.int32), np.asarray(state["rewards"])
