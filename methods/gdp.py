"""GDP: generalized device placement for dataflow graphs (Zhou et al. 2019).

GraphSAGE with max pooling embeds the operations (equations 2, 3); a Transformer-XL placer with segment recurrence and without positional
embedding turns the embeddings into devices, all at once; with parameter superposition its dense layers are conditioned on the
embedding (equation 4), so that one policy serves graphs of different kinds. PPO trains both on one problem (GDP-one) or many (GDP-batch),
with reward -√r, -10 for placements that cannot run, and the mean of a problem's earlier rewards as baseline. A trained policy starts
a search on another problem, or places it without one (`place`).

The ablations are settings: ``attention: false`` and ``superposition: false`` (Figure 3), and ``train_embedding: false``, which keeps
the graph embedding of the policy that the trial starts from (Figure 4).

Differences from the paper:

- The paper gives no sizes and no settings of PPO. Here embeddings have 128 units, three iterations of GraphSAGE with ReLU between, two
  transformer layers of four heads over segments of 128, normalised after each part; PPO takes ten placements a policy and four
  epochs over them, Adam with rate 1e-3, ε = 0.2, an entropy bonus of 0.001, and gradients of norm 1 at most.
- An operation is known by type (as hashed codes, so that policies carry over), output shape on a log scale, and the positions of up to
  six inputs and outputs; ``features.costs`` adds FLOPs and bytes, ``features.place`` layer and level, ``features.sines``
  position.
- Neighbours are those in both directions. Attention within a segment goes both ways, since all operations are known beforehand.
- Feed-forward layers are twice as wide as embeddings; the conditioning is repeated there. c is one transformer layer shared by all.
- The importance ratio is that of each operation's device (``learning.ratio``).
- The average reward is kept for each graph. Devices are drawn only among those an operation may use; a co-location group is one position,
  with the mean of its members' types. ``repair`` moves what overflows memory, which otherwise has the reward of -10.
- Off by default: ``standardize``, ``learning.normalize`` and ``search`` (`methods.learning.elites`). Without them a policy gives nearly all
  operations the same probabilities and learns little in a thousand placements; `sweeps/gdp/parts/best.yaml` turns them on.
- Off by default, too: ``spread``, ``speed``, ``agree`` and ``learning.average``, which help on graphs that were not searched; without them
  neighbours are parted wherever their probabilities are nearly even. `sweeps/gdp/parts/transfer.yaml` turns them on.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from torch import nn

from envs.problem.ranges import Count, CountOrNone, DevicesOrNone, NotNegative, Width
from methods.learning.elites import SearchConfig
from methods.learning.encoder_placers import EncoderPlacer, EncoderPlacerMethod
from methods.learning.ppo import PolicyGradientConfig
from methods.nets.graph_encoders import GraphSage
from methods.nets.op_features import OpFeatureConfig, OpGraph
from methods.nets.transformer_xl import TransformerXL


@dataclass(frozen=True)
class GdpLearningConfig(PolicyGradientConfig):
    """PPO against the average reward (section 4.1)."""

    window: Count = 10
    epochs: Count = 4
    minibatches: Count = 1
    baseline: Literal["none", "average", "ema"] = "average"
    learning_rate: NotNegative = 1e-3


@dataclass(frozen=True)
class GdpConfig:
    """Settings of GDP: network, ablations, what is known of operations, how it learns and searches."""

    features: OpFeatureConfig = field(default_factory=OpFeatureConfig)
    size: Width = 128
    """Length of the embeddings and width of the placer."""
    rounds: Count = 3
    """Iterations of GraphSAGE."""
    layers: Count = 2
    """Layers of the placer, the conditioning one aside."""
    heads: Count = 4
    """Heads of the placer's attention; they share an embedding of ``size``, so a divisor of that."""
    segment: Count = 128
    """Operations in a segment."""
    attention: bool = True
    """Whether the placer attends."""
    superposition: bool = True
    """Whether dense layers are conditioned on the graph embedding."""
    train_embedding: bool = True
    """Whether the graph embedding learns; False keeps that of the loaded policy."""
    standardize: bool = False
    """Give each number of the embeddings mean 0 and deviation 1 over a graph's operations."""
    spread: CountOrNone = 0
    """Rounds in which neighbours' logits are mixed, so that they tend to one device: `methods.learning.encoder_placers.spread_logits`."""
    speed: NotNegative = 0.0
    """Tell the policy which devices are fast: every logit gets this times the device's log speed on the graph."""
    agree: NotNegative = 0.0
    """What neighbours on one device count when a graph is placed without search; see `EncoderPlacer.agreed`."""
    devices: DevicesOrNone = 0
    """Devices that the policy can choose among; 0 takes the largest network of the problems."""
    repair: bool = False
    """Move what overflows a device's memory before a placement is proposed (not in the paper)."""
    learning: GdpLearningConfig = field(default_factory=GdpLearningConfig)
    search: SearchConfig = field(default_factory=SearchConfig)


class Gdp(EncoderPlacerMethod):
    """Graph embedding and Transformer-XL placer, for any number of graphs."""

    Config = GdpConfig
    config: GdpConfig
    toy_config = {"size": 16, "segment": 8, "learning.learning_rate": 0.01}  # noqa: RUF012 (read only)

    def _build(self) -> nn.Module:
        c = self.config
        placer = TransformerXL(c.size, self.devices, c.layers, c.heads, c.segment, attention=c.attention, superposition=c.superposition)
        return EncoderPlacer(GraphSage(c.features, c.size, c.rounds), placer, c.train_embedding, c.standardize, c.spread, c.speed)

    def _most_probable(self, view: OpGraph) -> np.ndarray:
        if not self.config.agree:
            return super()._most_probable(view)
        decisions: np.ndarray = self.network.agreed(view, self.config.agree).numpy()
        return decisions
