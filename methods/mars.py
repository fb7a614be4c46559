"""Mars: accelerated device placement optimization with contrastive learning (Lan et al., ICPP 2021).

Three layers of a GCN embed the operations (equation 1). `pretrain` trains them by Deep Graph Infomax, which needs no reward
(equations 2 to 6), and keeps the weights of the lowest loss. A sequence-to-sequence placer then decides the devices segment by segment,
and PPO trains both, with reward -√r against its exponential moving average (equation 7).

``placer`` chooses those of Table 1 and section 3.3: ``segments``, ``seq2seq`` (the whole sequence at once), ``transformer-xl``, ``mlp``;
``train_encoder: false`` leaves the encoder as it was pre-trained, as in Table 1. ``encoder: graphsage`` takes GDP's.

Differences from the paper:

- Operation types are hashed codes, so that policies carry over to other networks; input shape is that of the first input. Edges
  count in both directions.
- Equation 6 prints log D for corrupted nodes too; as in Deep Graph Infomax it is log(1 - D). Adam's rate in pre-training is that of
  Deep Graph Infomax, 0.001. With several problems their mean loss is minimised.
- Each update learns from the latest twenty placements, ten of which the present policy made ("ten placements from each policy", "every
  20 placements"). The importance ratio is that of each operation's device (``learning.ratio``).
- The LSTMs' 512 units are the encoder's two directions together, as in HDP. The decoder goes on from its own state in a new segment.
- The cut-off of bad placements is ``learning.slow_seconds`` (20 for BERT), off by default; what takes longer counts as that much.
- Devices are drawn only among those an operation may use; a co-location group is one position, with the mean of its members' types.
  ``repair`` moves what overflows memory, which otherwise counts as the 100 s of an invalid placement.
- An input's shape is that of the whole tensor it is a view of. Inception has no auxiliary head and BERT no head: their losses are the
  means of their outputs.
- ``transformer-xl`` is GDP's placer with superposition, as wide as the embeddings.
- Off by default, as in GDP: ``standardize``, ``learning.normalize`` and ``search``; `sweeps/mars/parts/best.yaml` turns them on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import torch
from torch import nn

from envs.problem.errors import InputError
from envs.problem.problem import Problem
from envs.problem.ranges import Count, CountOrNone, DevicesOrNone, NotNegative, Width, WidthOrNone
from methods.learning.elites import SearchConfig
from methods.learning.encoder_placers import EncoderPlacer, EncoderPlacerMethod, perceptron
from methods.learning.ppo import PolicyGradientConfig
from methods.learning.reinforce import seeded_network
from methods.nets.graph_encoders import Gcn, GraphSage, Infomax, infomax_loss
from methods.nets.op_features import OpFeatureConfig
from methods.nets.seq2seq import Seq2Seq
from methods.nets.transformer_xl import TransformerXL


@dataclass(frozen=True)
class MarsFeatureConfig(OpFeatureConfig):
    """Type, input shape and output shape (section 3.1)."""

    input_shapes: bool = True
    adjacent: WidthOrNone = 0
    scale: Literal["log", "largest"] = "largest"


@dataclass(frozen=True)
class MarsConfig:
    """Settings of Mars; defaults are those of section 4.2."""

    features: MarsFeatureConfig = field(default_factory=MarsFeatureConfig)
    encoder: Literal["gcn", "graphsage"] = "gcn"
    """The graph network: Mars's GCN (equation 1), the only one that `pretrain` trains, or GDP's GraphSAGE."""
    size: Width = 256
    """Units of the graph network."""
    layers: Count = 3
    """Layers of the graph network."""
    placer: Literal["segments", "seq2seq", "transformer-xl", "mlp"] = "segments"
    """What turns embeddings into devices (section 3.3, Table 1): a sequence-to-sequence network segment by segment, or over the whole
    sequence at once; GDP's Transformer-XL; or a perceptron, each operation by itself."""
    hidden: Width = 512
    """Units of the placer (of ``transformer-xl``, ``size`` instead)."""
    attention: WidthOrNone = 0
    """Units of the attention; 0 takes ``hidden``."""
    segment: Count = 128
    """Operations in a segment."""
    train_encoder: bool = True
    """Whether the encoder learns with the placer."""
    standardize: bool = False
    """Give each number of the embeddings mean 0 and deviation 1 over a graph's operations."""
    pretraining: CountOrNone = 1000
    """Iterations of Deep Graph Infomax."""
    pretraining_rate: NotNegative = 1e-3
    """Of Adam, in pre-training."""
    devices: DevicesOrNone = 0
    """Devices that the policy can choose among; 0 takes the largest network of the problems."""
    repair: bool = False
    """Move what overflows a device's memory before a placement is proposed (not in the paper)."""
    learning: PolicyGradientConfig = field(default_factory=PolicyGradientConfig)
    search: SearchConfig = field(default_factory=SearchConfig)


class Mars(EncoderPlacerMethod):
    """A graph network pre-trained by contrast, and a segment-level sequence-to-sequence placer."""

    Config = MarsConfig
    config: MarsConfig
    toy_config = {  # noqa: RUF012 (read only)
        "size": 16, "hidden": 16, "segment": 8, "pretraining": 20,
        "learning": {"learning_rate": 0.01, "samples": 8, "window": 8, "epochs": 1, "minibatches": 2},
    }  # fmt: skip

    def _build(self) -> nn.Module:
        c = self.config
        encoder = (Gcn if c.encoder == "gcn" else GraphSage)(c.features, c.size, c.layers)
        return EncoderPlacer(encoder, self._placer(), c.train_encoder, c.standardize)

    def _placer(self) -> nn.Module:
        c = self.config
        if c.placer == "mlp":
            return perceptron(c.size, c.hidden, self.devices)
        if c.placer == "transformer-xl":
            return TransformerXL(c.size, self.devices, segment=c.segment)
        return Seq2Seq(c.size, self.devices, c.hidden, c.attention, c.segment if c.placer == "segments" else 0)

    def pretrain(self, problems: Sequence[Problem]) -> dict[str, float]:
        """Deep Graph Infomax on the graphs of ``problems``: the encoder with the lowest loss is kept (sections 3.2, 4.2).

        Raises:
            InputError: for an encoder that it is not defined for.
        """
        encoder = self.network.encoder
        if not isinstance(encoder, Gcn):
            raise InputError(f"Mars pre-trains a GCN, but setting 'encoder' is {self.config.encoder!r}; use 'gcn', or do not pre-train")
        streams = [self.stream(k) for k in (2, 3)]
        discriminator: Infomax = seeded_network(lambda: Infomax(self.config.size), streams[0])
        rng = np.random.default_rng(streams[1])
        views = [self._view(p) for p in problems]
        encoder.requires_grad_(True)
        optimizer = torch.optim.Adam([*encoder.parameters(), *discriminator.parameters()], lr=self.config.pretraining_rate)
        first, best, kept = np.nan, np.inf, encoder.state_dict()
        for step in range(self.config.pretraining):
            orders = [torch.from_numpy(rng.permutation(v.n)) for v in views]
            losses = [infomax_loss(encoder, discriminator, *each) for each in zip(views, orders, strict=True)]
            loss = torch.stack(losses).mean()
            if (value := float(loss.detach())) < best:
                best, kept = value, {key: w.clone() for key, w in encoder.state_dict().items()}
            first = value if step == 0 else first
            optimizer.zero_grad(set_to_none=True)
            torch.autograd.backward(loss)
            optimizer.step()
        encoder.load_state_dict(kept)
        encoder.requires_grad_(self.config.train_encoder)
        for parameter in encoder.parameters():
            parameter.grad = None
        return {"infomax_first_loss": first, "infomax_best_loss": best} if self.config.pretraining else {}
