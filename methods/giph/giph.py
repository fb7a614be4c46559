"""GiPH: generalizable placement learning for adaptive heterogeneous computing.

A policy that relocates one task at a time, for any graph on any network. The placement is seen as a gpNet
(`methods.nets.gpnet`), a graph network embeds every feasible (task, device) pair, and a score function turns the
embeddings into the probabilities of moving there. Trained by REINFORCE on one problem or many; with ``learn: false`` and a
loaded policy it searches, which needs measurements (there is no zero-shot placement). The variants of Appendix B.6 are values
of ``variant``; ``potential: none`` leaves out the start-time potential (Figure 15).

Beyond the paper, off by default: batches of episodes; repeated episodes from one start whose mean return is the baseline of each
(``repeats``, ``learning.baseline: others``); normalised advantages, entropy, a falling learning rate; reward for
improving on the best placement (``reward: best``); a start-time potential that counts the queue (``potential: queue``); features
of the schedule's critical paths (``paths``); one unit for all times (``scaling: unit``).

Differences from the paper:

- The reward is the decrease of the objective, divided by the objective of the episode's first placement that ran, so that problems weigh
  alike. (Section 4.1 prints the increase and then maximises.) A placement that cannot run counts as twice the worst so far.
- Equation 1 prints a sum of messages; as section 5 says, the mean is taken.
- Features are scaled, of which the paper says nothing: to [-1, 1] over what a problem's features can be under any placement, and
  the start-time potential over the options of each state; constant features are 0. 1 / bandwidth stands for bandwidth, since the latter
  is infinite within a device.
- The earliest possible start is when the last input arrives by the cost model, given the measured finish of the
  parents. It is computed for the present device too, where it is negative for a task that waited in the queue.
- Each direction has its own node transform, as it has its own message and aggregation functions. Biases are everywhere.
- Equation 4 starts GiPH-k from the raw features, which messages of embeddings cannot take; here its k rounds start from the transformed,
  and there are k of them (the equation counts t from 0 to k).
- GiPH-NE keeps a node transform, without which the sum in equation 1 has no common size: messages and means have the size of the
  8 features, embeddings of 5 come out (Table 5). GraphSAGE-NE is PyTorch Geometric's SAGEConv with mean aggregation.
- GiPH-task-EFT embeds the task graph as the subgraph of the pivots, with the same networks; EFT counts the queue and may leave a
  task where it is (`methods.placing.list_scheduling.earliest_finish_device`).
- Training goes through all problems in random order before any comes again; the paper samples them.
- Of the paper's supplements, the time per sample of each variant is left out.
- A co-location group moves as one task and counts once in |V|. Where masks would leave no move, a task may move twice running.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from envs.problem.problem import Problem
from envs.problem.ranges import Count, Positive, Width
from methods.giph.policy import Scorer, Variant, allowed_options, log_softmax, pick
from methods.learning.stepwise import Episode, EpisodeConfig, EpisodeMethod, Steps
from methods.nets.gpnet import GpNets, make_layout
from methods.nets.gpnet_features import Potential, feature_count, node_features
from methods.placing.list_scheduling import earliest_finish_device


@dataclass(frozen=True)
class GiphConfig(EpisodeConfig):
    """Settings of GiPH; defaults as in the paper."""

    variant: Variant = "giph"
    """The policy's network: GiPH (section 4.2), or one of those that Appendix B.6 compares it with; ``giph-k`` passes messages k times,
    ``giph-task-eft`` chooses tasks only and moves each to where it ends earliest."""
    rounds: Count = 3
    """k of ``giph-k``."""
    potential: Potential = "inputs"
    """Start-time potential among the features (Appendix B.7): left out (Figure 15), when all inputs would be there, or when the tasks
    ahead in the device's queue would be done as well (not in the paper)."""
    paths: bool = False
    """Add what the schedule says of each option: gain in finish time, slack, and lateness for its children (not in the paper)."""
    scaling: Literal["range", "unit", "log"] = "range"
    """``range`` maps each feature to [-1, 1]; ``log`` too, but 1 / bandwidth, communication times and potentials by their logarithms, where
    they span decades; ``unit`` measures all times of a problem in its mean compute time."""
    embedding: Width = 5
    """Length of the embedding in each direction (Table 4)."""
    hidden: Width = 16
    """Hidden units of the score function (Table 5)."""
    length: Positive = 2.0
    """Steps of an episode for each task (section 5)."""


class Giph(EpisodeMethod):
    """Search by a learned policy over gpNets."""

    Config = GiphConfig
    config: GiphConfig

    def __init__(self, config: Any, problems: Sequence[Problem], seed: np.random.SeedSequence | int) -> None:
        super().__init__(config, problems, seed)
        self.by_task = config.variant == "giph-task-eft"
        self.layout = make_layout(problems, single=self.by_task, scaling=config.scaling)
        self.movable = np.concatenate([p.feasible.sum(axis=1) > 1 for p in problems])
        self._live: tuple[list[Episode], GpNets] | None = None

    def _build(self) -> nn.Module:
        c = self.config
        return Scorer(c.variant, feature_count(c.potential, c.paths), c.embedding, c.hidden, c.rounds)

    @classmethod
    def episode_steps(cls, config: Any, problem: Problem) -> int:
        return max(1, round(super().episode_steps(config, problem) / 2 * config.length))

    def _choices(self, problem: int) -> int:
        first, stop = self.layout.task_ptr[problem], self.layout.task_ptr[problem + 1]
        return int(self.layout.option_ptr[stop] - self.layout.option_ptr[first])

    def _scores(self, nets: GpNets, parts: list[Steps]) -> tuple[Tensor, np.ndarray]:
        """Scores of all options and which of them are allowed."""
        start, finish = (np.concatenate([getattr(s.episode, key)[s.rows].ravel() for s in parts]) for key in ("start", "finish"))
        last = np.concatenate([s.episode.last[s.rows] for s in parts])
        c = self.config
        features = node_features(nets, start, finish, c.potential, paths=c.paths, rescale=c.scaling != "unit")
        allowed = np.empty(nets.n_options, dtype=np.bool_)
        allowed_options(nets.layout, nets.states, nets.pivot, last, self.by_task, self.movable, allowed)
        return self.network(nets, features), allowed

    def _nets(self, parts: list[Steps]) -> GpNets:
        of = np.repeat([s.episode.problem for s in parts], [s.stop - s.begin for s in parts])
        return GpNets(self.layout, of, np.concatenate([s.episode.placement[s.rows].ravel() for s in parts]))

    def _move(self, episodes: list[Episode]) -> None:
        parts = [Steps(e, e.now, e.now + 1) for e in episodes]
        if self._live is None or self._live[0] != episodes:
            self._live = (episodes, self._nets(parts))
        nets = self._live[1]
        with torch.no_grad():
            scores, allowed = self._scores(nets, parts)
        values = scores.numpy().astype(np.float64)
        if not self.config.greedy:
            values += self.steps_rng.gumbel(size=len(values))
        values[~allowed] = -np.inf
        chosen = pick(values, nets.states.option_at)
        tasks, devices = np.empty((2, len(episodes)), dtype=np.int64)
        for k, (e, option) in enumerate(zip(episodes, chosen, strict=True)):
            tasks[k], devices[k] = self._apply(e, int(option - nets.states.option_at[k]))
        nets.relocate(np.arange(len(episodes)), tasks, devices)

    def _apply(self, e: Episode, action: int) -> tuple[int, int]:
        """Take the chosen option (counted within its problem); returns task and device."""
        problem, first = self.problems[e.problem], int(self.layout.task_ptr[e.problem])
        option = int(self.layout.option_ptr[first]) + action
        task = int(np.searchsorted(self.layout.option_ptr, option, side="right")) - 1 - first
        now = e.now
        if self.by_task:
            device = earliest_finish_device(problem, task, e.placement[now], e.start[now], e.finish[now])
        else:
            device = int(self.layout.option_device[option])
        placement = e.placement[now].copy()
        leader = problem.leaders[task]
        placement[problem.leaders == leader] = device
        e.choose(action, placement, first + int(leader))
        return task, device

    def _log_probs(self, parts: list[Steps]) -> tuple[Tensor, Tensor]:
        nets = self._nets(parts)
        scores, allowed = self._scores(nets, parts)
        begins = nets.states.option_at
        log_p = log_softmax(scores, allowed, begins)
        actions = np.concatenate([s.episode.action[s.rows] for s in parts])
        entropy = torch.zeros(0)
        if self.config.learning.entropy:
            finite = log_p.masked_fill(~torch.from_numpy(allowed), 0.0)
            segment = torch.from_numpy(np.repeat(np.arange(len(actions)), np.diff(begins)))
            entropy = torch.zeros(len(actions)).index_add(0, segment, -finite.exp() * finite * torch.from_numpy(allowed))
        return log_p[torch.from_numpy(begins[:-1] + actions)], entropy
