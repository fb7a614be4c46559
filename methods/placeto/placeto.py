"""Placeto: visit every node once and choose its device (Addanki et al. 2019), as GiPH section 5 and Appendix B.7 compare with it.

An episode starts from a placement and visits the operations in topological order; at each, the policy chooses a device among
those it may use, from an embedding of the whole graph: message passing along the edges and against them, then the visited node's
embedding beside the means over its ancestors, its descendants and all that runs in parallel. The policy knows devices by their
number only, so it fits networks of at most ``devices`` devices, and what it learned of one network says little of another.

Trained by REINFORCE on one problem or many; with ``learn: false`` it searches. A traversal needs no measurement, so `place` is
zero-shot. `pretrain` is the stage that DOPPLER gives Placeto for comparison (its Appendix H.4): imitation of critical path.

Differences from the paper:

- Placeto's own paper leaves the order of visits open and trains on measured run times; here the order is topological, rewards are the
  decrease of the objective by each step, relative to the objective of the episode's start, and the learner is that of GiPH.
- Features follow GiPH's Appendix B.7: mean compute time over feasible devices and mean bytes of the out-edges, scaled to [-1, 1] in each
  problem; the present device as its number scaled to [-1, 1]; visited now; visited before.
- Pools are means. Each direction has its own node transform. Infeasible devices have probability 0.
- A co-location group is visited once, at its first task, and moves as one.
- With ``exploration`` a share of devices is drawn at random, falling to nothing over the updates of the learning rate's schedule, as
  DOPPLER trains it (section 7.1, from 0.5); otherwise, and in the rest, devices are drawn from the policy.
- GiPH's discount (γ = 0.97, of the gradient too) is the default: late visits of a long episode hardly count. DOPPLER's sweeps set 1.
- DOPPLER does not say how it pre-trains Placeto; here critical path's own schedule is taught, from random first placements, in the
  states that following it leads to.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from envs.problem.errors import InputError
from envs.problem.problem import Problem
from envs.problem.ranges import Count, CountOrNone, NotNegative, Share, Width
from methods.learning.reinforce import Learner, LearningConfig
from methods.learning.stepwise import Episode, EpisodeConfig, EpisodeMethod, Steps
from methods.placeto.network import Arrays, PlacetoNetwork, Traversal, Visits, log_probabilities, traversal
from methods.placing.constraints import fit_memory, random_placements, units
from methods.placing.list_scheduling import critical_path


@dataclass(frozen=True)
class PlacetoConfig(EpisodeConfig):
    """Settings of Placeto; defaults as in GiPH's section 5 and Table 5."""

    rounds: Count = 8
    """k, rounds of message passing."""
    hidden: Width = 32
    """Hidden units of the policy."""
    devices: CountOrNone = 0
    """Devices that the policy can choose among; 0 takes the largest network of the problems."""
    passes: Count = 1
    """Traversals of an episode; a later one goes on from where the one before ended."""
    exploration: Share = 0.0
    """Probability of a random device, falling linearly to 0 over ``learning.schedule_updates``."""
    imitation_episodes: CountOrNone = 0
    """Traversals of `pretrain`, over all problems; each is an update."""
    imitation_learning_rate: NotNegative = 1e-3
    """Of Adam, in `pretrain`."""

    def __post_init__(self) -> None:
        if not 0.0 <= self.exploration <= 1.0:
            raise InputError(f"setting 'exploration' is {self.exploration}; a probability is between 0 and 1")
        if self.exploration and not self.learning.schedule_updates:
            raise InputError("setting 'exploration' falls over 'learning.schedule_updates'; set that to 1 or more")


def _critical_path(problem: Problem) -> np.ndarray:
    """Critical path's placement with the lowest index among equals, int64[V]."""
    schedule = critical_path(problem, entries_everywhere=True)
    return fit_memory(problem, schedule.device[None, :].astype(np.int16))[0].astype(np.int64)


class Placeto(EpisodeMethod):
    """Device by device through the graph, from a learned policy."""

    Config = PlacetoConfig
    wants_trace = False
    config: PlacetoConfig
    network: PlacetoNetwork

    def __init__(self, config: Any, problems: Sequence[Problem], seed: np.random.SeedSequence | int) -> None:
        largest = max((p.n_devices for p in problems), default=1)
        self.devices = config.devices or largest
        if largest > self.devices:
            raise InputError(f"setting 'devices' is {config.devices}, but a network has {largest}; raise it")
        super().__init__(config, problems, seed)
        self.tasks = [traversal(p, self.devices) for p in problems]
        self._arrays: Arrays | None = None
        """Of the network, during a batch of episodes, in which it does not change."""

    def _build(self) -> nn.Module:
        return PlacetoNetwork(self.config.rounds, self.config.hidden, self.devices)

    @classmethod
    def episode_steps(cls, config: Any, problem: Problem) -> int:
        return len(units(problem)) * int(config.passes)

    def _choices(self, problem: int) -> int:
        return self.problems[problem].n_nodes

    def _visits(self, steps: Steps, visit: np.ndarray) -> Visits:
        """The steps as states; ``visit`` counts through the episode."""
        tasks = self.tasks[steps.episode.problem]
        return Visits(tasks, steps.episode.placement[steps.rows], visit % len(tasks.order))

    def _values(self, arrays: Arrays, tasks: Traversal, placement: np.ndarray, visit: int) -> np.ndarray:
        return log_probabilities(tasks, arrays, placement, visit % len(tasks.order), self.config.rounds)

    def _move(self, episodes: list[Episode]) -> None:
        if self._arrays is None or any(e.step == 0 for e in episodes):
            self._arrays = self.network.arrays()
        values = np.stack([self._values(self._arrays, self.tasks[e.problem], e.placement[e.now], e.step) for e in episodes])
        if not self.config.greedy:
            values += self.steps_rng.gumbel(size=values.shape)
        explore = self.config.exploration * max(0.0, 1.0 - self.learner.updates / max(self.config.learning.schedule_updates, 1))
        if explore and self.config.learn:
            anew = self.steps_rng.random(len(values)) < explore
            values[anew] = np.where(np.isfinite(values[anew]), self.steps_rng.random((int(anew.sum()), values.shape[1])), -np.inf)
        for e, device in zip(episodes, values.argmax(axis=1).tolist(), strict=True):
            tasks = self.tasks[e.problem]
            task = int(tasks.order[e.step % len(tasks.order)])
            placement = e.placement[e.now].copy()
            placement[self.problems[e.problem].leaders == task] = device
            e.choose(device, placement, task)

    def _log_probs(self, parts: list[Steps]) -> tuple[Tensor, Tensor]:
        log_p = self.network([self._visits(s, np.arange(s.begin, s.stop)) for s in parts])
        actions = torch.from_numpy(np.concatenate([s.episode.action[s.rows] for s in parts]))
        entropy = -(log_p.exp() * log_p.clamp(min=-1e9)).sum(dim=1)
        return log_p.gather(1, actions[:, None]).squeeze(1), entropy

    def pretrain(self, problems: Sequence[Problem]) -> dict[str, float]:
        """Cross-entropy with the devices of critical path, visit by visit (DOPPLER, Appendix H.4 and equation 2)."""
        learner = Learner(self.network, LearningConfig(learning_rate=self.config.imitation_learning_rate))
        rng, losses = np.random.default_rng(self.stream(3)), []
        for episode in range(self.config.imitation_episodes):
            k = episode % len(problems)
            tasks, taught = self.tasks[k], _critical_path(self.problems[k])
            turn = np.arange(len(tasks.order))
            start = random_placements(self.problems[k], 1, rng)[0].astype(np.int64)
            placement = np.where(tasks.turn < turn[:, None], taught, start)
            log_p = self.network([Visits(tasks, placement, turn)])
            wanted = log_p.gather(1, torch.from_numpy(taught[tasks.order])[:, None]).squeeze(1)
            learner.step([(wanted, np.full(len(turn), 1.0 / len(turn)), None)])
            losses.append(-float(wanted.detach().mean()))
        return {"imitation_loss_first": losses[0], "imitation_loss": losses[-1]} if losses else {}

    def place(self, problem: Problem) -> np.ndarray:
        """The most probable devices in one traversal from a random placement."""
        if problem.n_devices > self.devices:
            raise InputError(
                f"this policy chooses among {self.devices} devices, but network {problem.network.name!r} has {problem.n_devices}; "
                f"train with 'devices: {problem.n_devices}'"
            )
        tasks = traversal(problem, self.devices)
        placement = random_placements(problem, 1, np.random.default_rng(self.stream(2)))[0]
        arrays = self.network.arrays()
        for turn, task in enumerate(tasks.order):
            placement[problem.leaders == task] = int(self._values(arrays, tasks, placement, turn).argmax())
        return fit_memory(problem, placement[None, :])[0]
