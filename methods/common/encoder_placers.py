"""Encoder-placers: a graph network embeds operations, a placer turns embeddings into devices (GDP Figure 1, Mars Figure 2b).

Both parts are exchangeable. How they are trained does not belong here.
"""

from __future__ import annotations

from typing import Generic, TypeVar

import numpy as np
from torch import Tensor, nn

from envs.problem import Problem
from methods.common.decisions import Decisions, decide
from methods.common.op_features import OpGraph, op_graph
from methods.common.sampled_placements import SampledMethod, gumbel
from methods.common.seq2seq import Seq2Seq

Encoder = TypeVar("Encoder", bound=nn.Module)


class EncoderPlacer(nn.Module, Generic[Encoder]):
    """Devices of all units of an `OpGraph`.

    Args:
        encoder: from an `OpGraph` to embeddings [N, H].
        placer: a `Seq2Seq`, or a module from embeddings to logits [N, D] of independent decisions.
        train_encoder: whether the encoder learns with the placer or stays as it is.
    """

    def __init__(self, encoder: Encoder, placer: nn.Module, train_encoder: bool = True) -> None:
        super().__init__()
        self.encoder, self.placer = encoder, placer
        encoder.requires_grad_(train_encoder)

    def forward(self, view: OpGraph, actions: Tensor | None, noise: Tensor | None) -> Decisions:
        embedding = self.encoder(view)
        allowed = view.allowed[None]
        if isinstance(self.placer, Seq2Seq):
            made: Decisions = self.placer(embedding[None], allowed, actions, noise)
            return made
        return decide(self.placer(embedding)[None], allowed, actions, noise)


class EncoderPlacerMethod(SampledMethod[OpGraph]):
    """What GDP and Mars share. ``config.features`` says what is known of an operation."""

    many_problems = True

    def _view(self, problem: Problem) -> OpGraph:
        return op_graph(problem, self.config.features, self.devices)

    def _noise(self, view: OpGraph, count: int) -> Tensor:
        return gumbel(self.sampling, (count, view.n, self.devices))

    def _device_of(self, view: OpGraph, actions: np.ndarray) -> np.ndarray:
        return actions[:, view.coarse.group].astype(np.int16)


def perceptron(size: int, hidden: int, devices: int) -> nn.Sequential:
    """The simplest placer: two layers on each embedding alone (Mars section 3.3)."""
    return nn.Sequential(nn.Linear(size, hidden), nn.ReLU(), nn.Linear(hidden, devices))
