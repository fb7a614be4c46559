"""HSDAG's network: encode, score, pool, place (section 2.4, 2.5). What is sampled, kept and learned is the method's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from methods.hsdag.kernels import EndsProduct, Pooling, Propagation
from methods.nets.products import Linear
from methods.placing.graph_parsing import Adjacency, adjacency


@dataclass(frozen=True, eq=False)
class Level:
    """One graph that is encoded and parsed: at first the coarse graph (or several side by side), then what was pooled."""

    edges: np.ndarray
    """Undirected pairs, int64[E, 2]."""
    labels: np.ndarray
    """Group of every node, int64[n]."""
    groups: int


class HsdagNetwork(nn.Module):
    """The parameters θ: input MLP, GCN, edge scores, placer.

    Args:
        features: d, length of a node's features.
        devices: D.
        hidden: d', length of embeddings.
        input_layers: layers of the MLP in front of the GCN.
        gcn_layers: GCN layers.
        score_layers: layers of the MLP φ of the edge scores.
        final_activation: whether embeddings go through an activation.
    """

    def __init__(
        self, features: int, devices: int, hidden: int, input_layers: int, gcn_layers: int, score_layers: int, final_activation: bool
    ) -> None:
        super().__init__()
        self.input = mlp(features, [hidden] * input_layers, norm=True)
        self.gcn = nn.ModuleList(Linear(hidden, hidden) for _ in range(gcn_layers))
        self.norms = nn.ModuleList(nn.LayerNorm(hidden) for _ in range(gcn_layers))
        self.phi = mlp(hidden, [hidden] * (score_layers - 1) + [1])
        self.placer = mlp(hidden, [hidden, devices])
        self.final_activation = final_activation

    def embed(self, x: Tensor, matrix: Adjacency) -> Tensor:
        """Z of equation 6, [n, hidden]: layers of σ(Â X W) with residuals and layer normalisation."""
        for k, (layer, norm) in enumerate(zip(self.gcn, self.norms, strict=True)):
            active = self.final_activation and k + 1 == len(self.gcn)
            x = Propagation.apply(x, layer(x), norm.weight, norm.bias, matrix, active)
        return x

    def score(self, z: Tensor, edges: np.ndarray) -> Tensor:
        """Edge scores S of equation 7, [E]; ``edges`` int64[E, 2]."""
        return torch.sigmoid(self.phi(EndsProduct.apply(z, edges)).squeeze(-1))

    @staticmethod
    def pool(z: Tensor, scores: Tensor, level: Level) -> Tensor:
        """Embeddings of the groups, [groups, hidden]: the mean of the members' times the mean score of the edges inside."""
        pooled: Tensor = Pooling.apply(z, scores, level.labels, level.edges, level.groups)
        return pooled

    def forward(self, x: Tensor, levels: Sequence[tuple[Level, Adjacency, np.ndarray]]) -> Tensor:
        """Logits of the devices of every final group, [C, D].

        Args:
            x: inputs of the GCN, [n, hidden].
            levels: graphs, of whose edges those inside a group are enough, with their `adjacency`, and which groups are final,
                bool[groups]; the others are the next level's nodes. Final groups come out in order of levels.
        """
        final = []
        for level, matrix, done in levels:
            z = self.embed(x, matrix)
            pooled = self.pool(z, self.score(z, level.edges), level)
            if done.any():
                final.append(pooled[torch.from_numpy(done)])
                pooled = pooled[torch.from_numpy(~done)]
            x = pooled
        return self.placer(torch.cat(final))


def mlp(size: int, widths: Sequence[int], norm: bool = False) -> nn.Sequential:
    """Linear layers with ReLU between them, and layer normalisation of the first one's result if asked for."""
    layers: list[nn.Module] = []
    for i, width in enumerate(widths):
        layers.append(Linear(size, width))
        if i == 0 and norm:
            layers.append(nn.LayerNorm(width))
        if i + 1 < len(widths):
            layers.append(nn.ReLU())
        size = width
    return nn.Sequential(*layers)


def masked_log_softmax(logits: Tensor, allowed: np.ndarray) -> Tensor:
    """log π of every device for every group, [C, D]; -inf where not ``allowed`` bool[C, D]."""
    if allowed.all():
        return torch.log_softmax(logits, dim=1)
    return torch.log_softmax(logits.masked_fill(~torch.from_numpy(allowed), -torch.inf), dim=1)


@dataclass(eq=False)
class Step:
    """What one step of an episode saw and did."""

    memory: Tensor
    """Embeddings of the groups that each node was in before, added up (state renewal), [N, hidden]."""
    levels: list[Level]
    allowed: np.ndarray
    """Devices that each final group may use, bool[C, D]."""
    choice: np.ndarray
    """Device of each final group, int64[C]."""

    @property
    def final_group(self) -> np.ndarray:
        """Final group of every node, int64[N]."""
        group = self.levels[0].labels
        for level in self.levels[1:]:
            group = level.labels[group]
        return group


@dataclass(frozen=True, eq=False)
class Together:
    """Steps put side by side as one graph, so that one pass serves them all."""

    memory: Tensor
    """[sum of N, hidden]."""
    levels: list[tuple[Level, Adjacency, np.ndarray]]
    """See `HsdagNetwork.forward`."""
    step: np.ndarray
    """Which step each final group belongs to, int64[C]."""
    allowed: np.ndarray
    choice: np.ndarray


def side_by_side(steps: Sequence[Step]) -> Together:
    """The steps as one graph; their final groups are ordered by the level they end at, then by step."""
    levels, owners, allowed, choice = [], [], [], []
    for depth in range(max(len(s.levels) for s in steps)):
        active = [k for k, s in enumerate(steps) if len(s.levels) > depth]
        parts = [steps[k].levels[depth] for k in active]
        nodes = np.concatenate(([0], np.cumsum([len(p.labels) for p in parts])))
        groups = np.concatenate(([0], np.cumsum([p.groups for p in parts])))
        edges = np.concatenate([p.edges + at for p, at in zip(parts, nodes[:-1], strict=True)])
        labels = np.concatenate([p.labels + at for p, at in zip(parts, groups[:-1], strict=True)])
        ends = [len(steps[k].levels) == depth + 1 for k in active]
        done = np.repeat(ends, [p.groups for p in parts])
        inside = labels[edges[:, 0]] == labels[edges[:, 1]]  # scores of others count in parsing only
        levels.append((Level(edges[inside], labels, int(groups[-1])), adjacency(len(labels), edges), done))
        for k, end in zip(active, ends, strict=True):
            if end:
                owners.append(np.full(len(steps[k].choice), k))
                allowed.append(steps[k].allowed)
                choice.append(steps[k].choice)
    memory = torch.cat([s.memory for s in steps])
    return Together(memory, levels, np.concatenate(owners), np.concatenate(allowed), np.concatenate(choice))


def log_policy(network: HsdagNetwork, features: Tensor, steps: Together, count: int) -> Tensor:
    """log π of every device for every final group of ``count`` steps, [C, D]; ``features`` are X, [N, d]."""
    inputs = network.input(features)
    x = (inputs + steps.memory.view(count, *inputs.shape)).flatten(0, 1)
    return masked_log_softmax(network(x, steps.levels), steps.allowed)


def of_choice(log_p: Tensor, steps: Together, choice: np.ndarray, count: int) -> Tensor:
    """log p of a device ``choice`` int64[C] for all groups of each of ``count`` steps, [count]."""
    chosen = log_p.gather(1, torch.from_numpy(choice)[:, None]).squeeze(1)
    return torch.zeros(count).index_add(0, torch.from_numpy(steps.step), chosen)


def log_probabilities(network: HsdagNetwork, features: Tensor, steps: Together, count: int) -> tuple[Tensor, Tensor]:
    """log p(P | G'; θ) and entropy of each of ``count`` steps, [count]; ``features`` are X, [N, d]."""
    log_p = log_policy(network, features, steps, count)
    return of_choice(log_p, steps, steps.choice, count), entropies(log_p, steps, count)


def entropies(log_p: Tensor, steps: Together, count: int) -> Tensor:
    """Entropy of the policy in each of ``count`` steps, [count]."""
    finite = log_p.masked_fill(~torch.from_numpy(steps.allowed), 0.0)
    entropy = -(finite.exp() * finite * torch.from_numpy(steps.allowed)).sum(dim=1)
    return torch.zeros(count).index_add(0, torch.from_numpy(steps.step), entropy)


def majority(steps: Sequence[Step], devices: np.ndarray, n_devices: int) -> np.ndarray:
    """The device of most of each final group's nodes if every node has the one in ``devices`` int64[N], int64[C].

    Groups come in `side_by_side`'s order; devices that a group may not use do not count.
    """
    found = []
    for step in sorted(steps, key=lambda s: len(s.levels)):
        count = np.bincount(step.final_group * n_devices + devices, minlength=step.allowed.size).reshape(step.allowed.shape)
        found.append(np.argmax(np.where(step.allowed, count, -1), axis=1))
    return np.concatenate(found)
