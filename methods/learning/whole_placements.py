"""Search by a policy that draws whole placements: what GDP, Mars, HDP and the RNN placer share. No networks belong here.

A policy proposes some placements of every problem; when all are measured, the weights change by PPO or REINFORCE
(`methods.learning.ppo`), and the next policy proposes.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from envs.problem.errors import InputError
from envs.problem.measurement import Measurements
from envs.problem.problem import Problem
from methods.contract.method import Proposal
from methods.learning.baselines import RunningBaseline
from methods.learning.learned import LearnedMethod
from methods.learning.ppo import PolicyGradientConfig, minibatches, root_rewards, surrogate_weights
from methods.learning.reinforce import LearningConfig
from methods.nets.decisions import Decisions
from methods.placing.constraints import fastest_feasible, fit_memory

View = TypeVar("View")


@dataclass(eq=False)
class Sample:
    """One placement that was drawn, measured, and may be learned from."""

    problem: int
    actions: np.ndarray
    """Decisions, int32[L]."""
    log_probs: np.ndarray
    """log π of each when it was drawn, float32[L]."""
    reward: float = 0.0
    advantage: float = 0.0
    drawn: np.ndarray | None = None
    """Which decisions the policy made, bool[L]; None if all. The others were taken from an earlier placement."""
    reference: float | None = None
    """Reward of that placement, which the sample's is compared with instead of the baseline."""


class SampledMethod(LearnedMethod, Generic[View]):
    """Draws placements and learns from them. ``config.learning`` says how, ``config.repair`` whether memory is made to fit.

    Subclasses build a network that is called with a view of a problem, decisions to score or None, and noise to draw
    with or None, and returns `Decisions`.
    """

    devices: int
    """How many devices the policy chooses among."""

    def __init__(self, config: Any, problems: Sequence[Problem], seed: np.random.SeedSequence | int) -> None:
        super().__init__(config, problems, seed)
        self.learning: PolicyGradientConfig = config.learning
        self.devices = self._device_count(getattr(config, "devices", 0))
        self.views: list[View] = [self._view(p) for p in problems]
        learning = LearningConfig(learning_rate=self.learning.learning_rate, entropy=self.learning.entropy, clip=self.learning.clip)
        self.learn_with(self._build, learning)
        # self.rng shuffles; draws have a stream of their own, so an update does not change what a policy draws
        self.sampling = np.random.default_rng(self.stream(1))
        self.averaged: dict[str, Tensor] = {}
        self.baselines = [RunningBaseline(self.learning.baseline, self.learning.decay) for _ in problems]
        self.pending: list[list[int]] = []
        self.samples: list[Sample] = []
        self._asked: list[list[Sample]] = []
        self.best = [np.inf] * len(problems)
        self.stale = 0

    def _device_count(self, wanted: int) -> int:
        largest = max(p.n_devices for p in self.problems)
        if wanted and largest > wanted:
            raise InputError(f"setting 'devices' is {wanted}, but a network has {largest}; raise it")
        return wanted or largest

    @abstractmethod
    def _view(self, problem: Problem) -> View:
        """What the network is shown of a problem."""

    @abstractmethod
    def _build(self) -> nn.Module:
        """The network, freshly initialised by torch's random stream."""

    @abstractmethod
    def _noise(self, view: View, count: int) -> Any:
        """Gumbel noise to draw ``count`` placements with, by ``self.sampling``."""

    @abstractmethod
    def _device_of(self, view: View, actions: np.ndarray) -> np.ndarray:
        """Devices of all operations, int16[B, V], as the decisions [B, L] say."""

    def placements(self, problem: Problem, devices: np.ndarray) -> np.ndarray:
        """Placements int16[B, V] on feasible devices with groups together; their memory made to fit if ``repair`` is on."""
        together = problem.colocate(devices)
        allowed = problem.feasible[np.arange(problem.n_nodes), together]
        together = np.where(allowed, together, fastest_feasible(problem)).astype(np.int16)
        return fit_memory(problem, together) if self.config.repair else together

    def propose(self, n: int) -> list[Proposal]:
        if self.learning.patience and self.stale >= self.learning.patience:
            return []
        if not self.pending:
            self.pending = [[k, self.learning.samples] for k in range(len(self.problems))]
        self._asked, proposals = [], []
        while n > 0 and self.pending:
            problem, left = self.pending[0]
            count = min(left, n)
            proposals.append(self._draw(problem, count))
            self.pending[0][1] -= count
            if left == count:
                self.pending.pop(0)
            n -= count
        return proposals

    def _draw(self, problem: int, count: int) -> Proposal:
        view = self.views[problem]
        with torch.no_grad():
            made: Decisions = self.network(view, None, self._noise(view, count))
        actions, log_probs = made.actions.numpy().astype(np.int32), made.log_probs.numpy().astype(np.float32)
        self._asked.append([Sample(problem, a, p) for a, p in zip(actions, log_probs, strict=True)])
        return Proposal(problem, self.placements(self.problems[problem], self._device_of(view, actions)))

    def update(self, results: Sequence[Measurements]) -> None:
        better = False
        for asked, result in zip(self._asked, results, strict=True):
            problem = asked[0].problem
            rewards = root_rewards(result, self.learning)
            own = np.array([s.reference is None for s in asked])
            advantages = rewards - np.array([s.reference or 0.0 for s in asked])
            advantages[own] = self.baselines[problem].advantages(rewards[own])
            for sample, reward, advantage in zip(asked, rewards.tolist(), advantages.tolist(), strict=True):
                sample.reward, sample.advantage = reward, advantage
            self.samples += asked
            self._measured(asked, result)
            found = float(np.min(result.objective, initial=np.inf))
            better |= found < self.best[problem]
            self.best[problem] = min(self.best[problem], found)
        self._asked = []
        self.stale = -1 if better else self.stale  # 0 after the update that this round ends with
        if not self.pending:
            self._forget()
            if all(sum(s.problem == k for s in self.samples) >= self.learning.window for k in range(len(self.problems))):
                self._learn()
                self.stale += 1
                if self.learning.algorithm == "reinforce":
                    self.samples = []

    def _measured(self, asked: list[Sample], result: Measurements) -> None:
        """What else is made of measured samples; nothing here."""

    def _forget(self) -> None:
        """Keep the latest ``window`` samples of every problem."""
        kept: list[Sample] = []
        for k in range(len(self.problems)):
            kept += [s for s in self.samples if s.problem == k][-self.learning.window :]
        self.samples = kept

    def _learn(self) -> None:
        advantages = self._whitened() if self.learning.normalize else np.array([s.advantage for s in self.samples])
        for rows in minibatches(len(self.samples), self.learning, self.rng):
            self.learner.step(self._parts(rows, advantages))
            if self.learning.average:
                self._average()

    def _average(self) -> None:
        """Move the averaged weights towards the present ones; early on, the average is that of all updates so far."""
        kept = min(self.learning.average, 1 - 1 / self.learner.updates)
        for key, value in self.network.state_dict().items():
            self.averaged[key] = torch.lerp(value, self.averaged[key], kept) if key in self.averaged else value.clone()

    def _whitened(self) -> np.ndarray:
        """Advantages by problem: rewards less their mean, or less what they are compared with, over the standard deviation, at most 3."""
        values = np.array([s.reward - (s.reference or 0.0) for s in self.samples])
        kinds = np.array([2 * s.problem + (s.reference is not None) for s in self.samples])
        for kind in np.unique(kinds).tolist():
            mine = values[kinds == kind]
            mine = mine if kind % 2 else mine - mine.mean()
            values[kinds == kind] = mine / (float(np.sqrt((mine**2).mean())) or 1.0)
        return values.clip(-3.0, 3.0)

    def _parts(self, rows: np.ndarray, advantages: np.ndarray) -> Iterator[tuple[Tensor, np.ndarray, Tensor | None]]:
        """Scored decisions of one minibatch, a problem at a time, weighed so that every placement counts the same."""
        of = np.array([self.samples[r].problem for r in rows])
        for k in np.unique(of).tolist():
            mine = rows[of == k]
            shown, weight = self._imitated(k)
            actions = np.concatenate((np.stack([self.samples[r].actions for r in mine]), shown))
            scored: Decisions = self.network(self.views[k], torch.from_numpy(actions.astype(np.int64)), None)
            log_probs = scored.log_probs[: len(mine)]
            value = torch.from_numpy(advantages[mine].astype(np.float32))
            if self.learning.algorithm == "ppo":
                old = torch.from_numpy(np.stack([self.samples[r].log_probs for r in mine]))
                weights = surrogate_weights(log_probs, old, value, self.learning)
            else:
                weights = value[:, None].expand_as(log_probs)
            size = len(rows) * actions.shape[1]
            shares = (weights * self._shares(mine) / size).numpy()
            entropy = scored.entropy[: len(mine)] / size if self.learning.entropy else None
            yield scored.log_probs, np.concatenate((shares, np.full(shown.shape, weight / max(shown.size, 1), np.float32))), entropy

    def _shares(self, rows: np.ndarray) -> Tensor:
        """How much each decision counts, float32[B, L]: all the same, or those that were drawn more and the others not at all."""
        out = np.ones((len(rows), len(self.samples[rows[0]].actions)), dtype=np.float32)
        for share, sample in zip(out, (self.samples[r] for r in rows), strict=True):
            if sample.drawn is not None:
                share[:] = sample.drawn * (len(share) / max(int(sample.drawn.sum()), 1))
        return torch.from_numpy(out)

    def _imitated(self, problem: int) -> tuple[np.ndarray, float]:
        """Decisions int32[E, L] that every minibatch makes likelier besides, and their weight beside the samples'; none here."""
        return np.zeros((0, len(self.samples[0].actions)), dtype=np.int32), 0.0

    def place(self, problem: Problem) -> np.ndarray:
        """The most probable placement under the policy, decision by decision."""
        if problem.n_devices > self.devices:
            raise InputError(
                f"this policy chooses among {self.devices} devices, but network {problem.network.name!r} has {problem.n_devices}; "
                f"train with 'devices: {problem.n_devices}'"
            )
        view, present = self._view(problem), {key: value.clone() for key, value in self.network.state_dict().items()}
        self.network.load_state_dict(self.averaged or present)
        actions = self._most_probable(view)
        self.network.load_state_dict(present)
        return self.placements(problem, self._device_of(view, actions))[0]

    def _most_probable(self, view: View) -> np.ndarray:
        """Decisions int64[1, L], each the most probable."""
        with torch.no_grad():
            made: Decisions = self.network(view, None, None)
        return made.actions.numpy()

    def state(self) -> dict[str, Any]:
        return {
            **super().state(),
            "sampling": self.sampling.bit_generator.state,
            "averaged": {key: value.clone() for key, value in self.averaged.items()},
            "baselines": [b.state() for b in self.baselines],
            "pending": [list(p) for p in self.pending],
            "samples": [dict(s.__dict__) for s in self.samples],
            "best": [float(b) if np.isfinite(b) else None for b in self.best],
            "stale": self.stale,
        }

    def restore(self, state: dict[str, Any]) -> None:
        super().restore(state)
        self.sampling.bit_generator.state = state["sampling"]
        self.averaged = {key: torch.as_tensor(value).clone() for key, value in state["averaged"].items()}
        for baseline, saved in zip(self.baselines, state["baselines"], strict=True):
            baseline.restore(saved)
        self.pending = [list(p) for p in state["pending"]]
        self.samples = [Sample(**s) for s in state["samples"]]
        self.best = [np.inf if b is None else float(b) for b in state["best"]]
        self.stale = int(state["stale"])

    def policy(self) -> dict[str, Any]:
        return {"network": {key: value.clone() for key, value in self.averaged.items()}} if self.averaged else super().policy()


def gumbel(rng: np.random.Generator, shape: tuple[int, ...]) -> Tensor:
    """Gumbel noise as float32: the greatest of log π + noise is a draw from π."""
    return torch.from_numpy(rng.gumbel(size=shape).astype(np.float32))
