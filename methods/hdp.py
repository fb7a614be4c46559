"""HDP: a hierarchical model for device placement (Mirhoseini et al., ICLR 2018).

A feed-forward network, the grouper, draws a group for every operation; a sequence-to-sequence network with attention, the placer, reads
the groups and draws a device for each. Both learn from the reward -√r by REINFORCE: one grouping and four placements of its groups make
an update. ``learning: {algorithm: ppo, samples: 10, window: 20, entropy: 0.001, decay: 0.99, learning_rate: 3e-4}`` trains it as Mars does
its grouper-placer baseline (section 4.2 there).

Differences from the paper:

- Operation types are hashed codes (`methods.nets.op_features`) with a learned embedding; shapes are on a log scale; up to six inputs and
  six outputs are named by their position. A group is seen as the mean of its members' features and its edges to other groups.
- The published rate 0.1 of Adam was used with parameter servers that update asynchronously. It is 0.001 here: at 0.1 the policy becomes
  deterministic within a few updates. The noise that the paper adds to the logits of the first 500 steps is left out.
- There are at most as many groups as operations. Groups that stay empty do not count in the gradient.
- Operations of one co-location group of the problem are grouped as one. A group's devices are those that all members may use;
  where there is none, members go to the fastest device they may use. ``repair`` moves what overflows memory.
- A placement that cannot run counts as 100 s. The baseline is a moving average of rewards with decay 0.9.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from envs.problem.problem import Problem
from envs.problem.ranges import Count, NotNegative, Positive, ShareBelowOne, Width, WidthOrNone
from methods.learning.ppo import PolicyGradientConfig
from methods.learning.whole_placements import SampledMethod, gumbel
from methods.nets.decisions import Decisions, decide
from methods.nets.op_features import FeatureEncoder, OpFeatureConfig, OpGraph, op_graph
from methods.nets.products import Linear
from methods.nets.seq2seq import Seq2Seq


@dataclass(frozen=True)
class HdpLearningConfig(PolicyGradientConfig):
    """REINFORCE with one grouping and four placements of its groups (equations 4 and 6)."""

    algorithm: Literal["ppo", "reinforce"] = "reinforce"
    samples: Count = 4
    window: Count = 4
    decay: ShareBelowOne = 0.9
    entropy: NotNegative = 0.0
    learning_rate: NotNegative = 1e-3


@dataclass(frozen=True)
class HdpConfig:
    """Settings of HDP, with the paper's values as defaults."""

    features: OpFeatureConfig = field(default_factory=OpFeatureConfig)
    groups: Width = 256
    """Groups that the grouper chooses among."""
    grouper_hidden: Width = 64
    """Hidden units of the grouper."""
    embedding: Width = 64
    """Length of an operation's features as the placer sees them."""
    hidden: Width = 512
    """Units of the placer's decoder, and of its encoder's two directions together."""
    attention: WidthOrNone = 0
    """Units of the attention; 0 takes ``hidden``."""
    tanh_constant: NotNegative = 5.0
    """C of logits C·tanh(logits / T)."""
    temperature: Positive = 10.0
    """T of logits C·tanh(logits / T)."""
    repair: bool = False
    """Move what overflows a device's memory before a placement is proposed (not in the paper)."""
    learning: HdpLearningConfig = field(default_factory=HdpLearningConfig)


class Noise(NamedTuple):
    """What a grouping and the placements of its groups are drawn with."""

    groups: Tensor
    """[1, N, G]."""
    devices: Tensor
    """[B, G, D]."""


class HdpNetwork(nn.Module):
    """Grouper and placer. Decisions are the groups of all N units, then the devices of all G groups."""

    def __init__(self, config: HdpConfig, groups: int, devices: int) -> None:
        super().__init__()
        self.groups = groups
        self.hidden = FeatureEncoder(config.features, config.grouper_hidden)
        self.grouper = Linear(config.grouper_hidden, groups)
        self.encoder = FeatureEncoder(config.features, config.embedding)
        self.placer = Seq2Seq(
            config.embedding + groups, devices, config.hidden, config.attention,
            tanh_constant=config.tanh_constant, temperature=config.temperature, keep=config.learning.algorithm == "reinforce",
        )  # fmt: skip

    def group_features(self, view: OpGraph, group: Tensor) -> Tensor:
        """Mean features of every group and its edges to other groups, [S, G, embedding + G], for groupings ``group`` [S, N]."""
        s, g = len(group), self.groups
        index = (group + g * torch.arange(s)[:, None]).flatten()
        features = self.encoder(view)
        size = torch.bincount(index, minlength=s * g).clamp(min=1)
        mean = torch.zeros(s * g, features.shape[1]).index_add(0, index, features.repeat(s, 1)) / size[:, None]
        edges = torch.from_numpy(view.coarse.edges)
        links = torch.zeros(s, g * g)
        links.scatter_(1, group[:, edges[:, 0]] * g + group[:, edges[:, 1]], 1.0)
        return torch.cat((mean.view(s, g, -1), links.view(s, g, g)), dim=2)

    def group_devices(self, view: OpGraph, group: Tensor) -> Tensor:
        """Devices that all members of each group may use, bool[S, G, D]; all devices where there is none."""
        refused = torch.zeros(len(group), self.groups, view.allowed.shape[1])
        spread = (~view.allowed).float().expand(len(group), -1, -1)
        refused.scatter_add_(1, group[:, :, None].expand_as(spread), spread)
        allowed = refused == 0
        return allowed | ~allowed.any(dim=2, keepdim=True)

    def forward(self, view: OpGraph, actions: Tensor | None, noise: Noise | None) -> Decisions:
        given = (None, None) if actions is None else (actions[:, : view.n], actions[:, view.n :])
        drawn = (None, None) if noise is None else noise
        groups = decide(self.grouper(torch.relu(self.hidden(view)))[None], None, given[0], drawn[0])
        group = groups.actions
        if len(group) > 1 and bool((group == group[:1]).all()):  # placements of one grouping, read once for all of them
            group = group[:1]
        devices = self.placer(self.group_features(view, group), self.group_devices(view, group), given[1], drawn[1])
        batch = len(devices.actions)
        used = torch.zeros(len(group), self.groups).scatter_(1, group, 1.0)
        return Decisions(
            torch.cat((group.expand(batch, -1), devices.actions), dim=1),
            torch.cat((groups.log_probs.expand(batch, -1), devices.log_probs * used), dim=1),
            torch.cat((groups.entropy.expand(batch, -1), devices.entropy * used), dim=1),
        )


class Hdp(SampledMethod[OpGraph]):
    """Groups operations and places the groups, both learned."""

    Config = HdpConfig
    config: HdpConfig
    toy_config = {"hidden": 16, "groups": 8, "learning.learning_rate": 0.01}  # noqa: RUF012 (read only)

    def _view(self, problem: Problem) -> OpGraph:
        return op_graph(problem, self.config.features, self.devices)

    def _build(self) -> nn.Module:
        return HdpNetwork(self.config, self._groups, self.devices)

    @property
    def _groups(self) -> int:
        return min(self.config.groups, self.views[0].n)

    def _noise(self, view: OpGraph, count: int) -> Any:
        devices = gumbel(self.sampling, (count, self._groups, self.devices))
        return Noise(gumbel(self.sampling, (1, view.n, self._groups)), devices)

    def _device_of(self, view: OpGraph, actions: np.ndarray) -> np.ndarray:
        device = np.take_along_axis(actions[:, view.n :], actions[:, : view.n], axis=1)
        return device[:, view.coarse.group].astype(np.int16)
