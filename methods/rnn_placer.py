"""The RNN placer: a sequence-to-sequence network that decides device by device (Mirhoseini et al. 2017; GiPH section 5).

Operations are read in topological order by a bidirectional LSTM; an LSTM with content-based attention decides their devices one by
one. There are no groups and nothing transfers: a new policy is trained on every problem by REINFORCE, four placements an update, until
the objective is no longer improved. ``features`` says what is known of an operation: ``giph`` are those of GiPH's Appendix B.7
(hardware it requires, compute requirement, bytes of its outgoing edges, adjacency), ``types`` those of Mirhoseini et al., which HSDAG
compares with (operation type, output shape, adjacency).

Differences from the paper:

- The papers leave open sizes: 512 units are those of HDP (Mirhoseini et al. 2018), from which the logits' temperature and tanh constant
  are too; the reward is -√r and the baseline a moving average of rewards, as there. Adam's rate is 0.001, where GiPH trains all of
  its policies with 0.01; "until the latency is no longer improved" means 50 updates without a better placement.
- Compute requirements and bytes are divided by their largest value in the graph, output shapes are on a log scale; adjacency counts both
  directions.
- Devices are drawn only among those an operation may use, a co-location group is one position of the sequence (its features
  are those of its last operation, its compute requirement the sum), and what overflows memory is repaired (``repair``).
- Mirhoseini et al. co-locate operations by rules before placing them, above all an operation with the only one that reads its output;
  here groups are those of the problem, and with ``coarsen`` chains too, in which an operation must also be all that is read.
- A placement that cannot run counts as 100 s (``learning.invalid_seconds``), which swamps the baseline where runs take milliseconds.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from envs.problem.problem import Problem
from envs.problem.ranges import Count, CountOrNone, NotNegative, Positive, ShareBelowOne, Width, WidthOrNone
from methods.contract.method import Method
from methods.learning.ppo import PolicyGradientConfig
from methods.learning.whole_placements import SampledMethod, gumbel
from methods.nets.decisions import Decisions
from methods.nets.node_features import mean_types, one_hot
from methods.nets.op_features import padded
from methods.nets.seq2seq import Seq2Seq
from methods.placing.coarsening import Chains, CoarseGraph, coarsen


@dataclass(frozen=True)
class RnnLearningConfig(PolicyGradientConfig):
    """REINFORCE on four placements at a time (GiPH section 5)."""

    algorithm: Literal["ppo", "reinforce"] = "reinforce"
    samples: Count = 4
    window: Count = 4
    decay: ShareBelowOne = 0.9
    entropy: NotNegative = 0.0
    learning_rate: NotNegative = 1e-3
    patience: CountOrNone = 50


@dataclass(frozen=True)
class RnnPlacerConfig:
    """Settings of the RNN placer."""

    features: Literal["giph", "types"] = "giph"
    """What is known of an operation: as in GiPH's Appendix B.7 (required hardware, compute requirement, bytes of outgoing edges), or as in
    Mirhoseini et al. (type and output shape); its neighbours either way."""
    coarsen: Chains = "none"
    """Chains to merge first (`methods.placing.coarsening.coarsen`): fewer positions."""
    hidden: Width = 512
    """Units of the decoder, and of the encoder's two directions together."""
    attention: WidthOrNone = 0
    """Units of the attention; 0 takes ``hidden``."""
    tanh_constant: NotNegative = 5.0
    """C of logits C·tanh(logits / T)."""
    temperature: Positive = 10.0
    """T of logits C·tanh(logits / T)."""
    repair: bool = True
    """Move what overflows a device's memory before a placement is proposed."""
    learning: RnnLearningConfig = field(default_factory=RnnLearningConfig)


@dataclass(frozen=True, eq=False)
class SequenceView:
    """A problem as one sequence of units in topological order."""

    coarse: CoarseGraph
    features: Tensor
    """float32[1, N, F]."""
    allowed: Tensor
    """bool[1, N, D]."""


def giph_features(problem: Problem, coarse: CoarseGraph) -> np.ndarray:
    """Embedding of every operation after GiPH's Appendix B.7, float32[N, types of hardware + 1 + largest out-degree + N]."""
    graph, n = problem.graph, coarse.n_nodes
    hardware = np.unique(np.asarray(graph.hardware), return_inverse=True)[1]
    compute = np.bincount(coarse.group, weights=graph.flops, minlength=n)
    ends = coarse.group[graph.edges]
    crossing = ends[:, 0] != ends[:, 1]
    inverse = np.unique(ends[crossing, 0] * n + ends[crossing, 1], return_inverse=True)[1]  # in the order of coarse.edges
    carried = np.bincount(inverse, weights=graph.edge_bytes[crossing], minlength=len(coarse.edges))
    degree = np.bincount(coarse.edges[:, 0], minlength=n)
    slot = np.arange(len(coarse.edges)) - np.repeat(np.cumsum(degree) - degree, degree)
    outgoing = np.zeros((n, int(degree.max(initial=0))))
    outgoing[coarse.edges[:, 0], slot] = carried / (carried.max(initial=0) or 1.0)
    parts = (one_hot(hardware)[coarse.last], compute[:, None] / (compute.max() or 1.0), outgoing, adjacency(coarse))
    return np.concatenate(parts, axis=1).astype(np.float32)


def type_features(problem: Problem, coarse: CoarseGraph) -> np.ndarray:
    """Operation types, output shape and adjacency of every operation (Mirhoseini et al. 2017), float32[N, F]."""
    shapes = np.log1p(padded(problem.graph.output_shapes))[coarse.last] / 10
    return np.concatenate((mean_types(problem.graph.op_types, coarse), shapes, adjacency(coarse)), axis=1).astype(np.float32)


def adjacency(coarse: CoarseGraph) -> np.ndarray:
    """1 where two units share an edge, float64[N, N]."""
    matrix = np.zeros((coarse.n_nodes, coarse.n_nodes))
    matrix[coarse.edges[:, 0], coarse.edges[:, 1]] = matrix[coarse.edges[:, 1], coarse.edges[:, 0]] = 1.0
    return matrix


class RnnNetwork(nn.Module):
    """The placer on the features as they are."""

    def __init__(self, features: int, devices: int, config: RnnPlacerConfig) -> None:
        super().__init__()
        self.placer = Seq2Seq(
            features, devices, config.hidden, config.attention, tanh_constant=config.tanh_constant, temperature=config.temperature,
            keep=config.learning.algorithm == "reinforce",
        )  # fmt: skip

    def forward(self, view: SequenceView, actions: Tensor | None, noise: Tensor | None) -> Decisions:
        made: Decisions = self.placer(view.features, view.allowed, actions, noise)
        return made


class RnnPlacer(SampledMethod[SequenceView]):
    """Device by device through the whole graph, trained anew on every problem."""

    Config = RnnPlacerConfig
    config: RnnPlacerConfig
    toy_config = {"hidden": 16, "learning.learning_rate": 0.01}  # noqa: RUF012 (read only)

    def _view(self, problem: Problem) -> SequenceView:
        coarse = coarsen(problem, self.config.coarsen)
        features = (giph_features if self.config.features == "giph" else type_features)(problem, coarse)
        allowed = torch.from_numpy(coarse.allowed(problem.feasible))
        return SequenceView(coarse, torch.from_numpy(features)[None], allowed[None])

    def _build(self) -> nn.Module:
        return RnnNetwork(self.views[0].features.shape[2], self.devices, self.config)

    def _noise(self, view: SequenceView, count: int) -> Tensor:
        return gumbel(self.sampling, (count, *view.allowed.shape[1:]))

    def _device_of(self, view: SequenceView, actions: np.ndarray) -> np.ndarray:
        return actions[:, view.coarse.group].astype(np.int16)

    def place(self, problem: Problem) -> np.ndarray:
        """The most probable placement; the policy knows only the problem that it was trained on."""
        if problem.content_hash != self.problem.content_hash:
            return Method.place(self, problem)
        return super().place(problem)
