"""DOPPLER's two policy networks over one graph network (section 5.2). No episodes and no learning belong here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from methods.doppler.episode import FEATURES, Record, Scores
from methods.doppler.features import POSITION_FEATURES, Instance

SLOPE = 0.01
NODE_FEATURES = 5
DYNAMIC_FEATURES = 3
"""Placed or not, and estimated start and finish: what a node shows with message passing once a step."""


class Encoded(NamedTuple):
    """What the networks know before the devices' features; S is 1, or one state a step with message passing once a step."""

    select: Tensor
    """Logits of the node policy, [S, V]."""
    node: Tensor
    """Each node's part of the device policy's hidden layer, [S, V, K]."""
    placed: Tensor
    """What each node adds to the hidden layer of the device it is on, [S, V, K]."""


class _Round(nn.Module):
    """One iteration of message passing: linear messages along and against the edges, averaged, and a residual update."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.sender = nn.ModuleList(nn.Linear(hidden, hidden, bias=False) for _ in range(2))
        self.receiver = nn.ModuleList(nn.Linear(hidden, hidden, bias=False) for _ in range(2))
        self.edge = nn.ModuleList(nn.Linear(1, hidden) for _ in range(2))
        self.update = nn.Linear(3 * hidden, hidden)

    def forward(self, h: Tensor, ends: Sequence[Tensor], edge_features: Tensor, share: Sequence[Tensor]) -> Tensor:
        parts = [h]
        for k, (near, far) in enumerate(((0, 1), (1, 0))):
            message = self.sender[k](h)[:, ends[near]] + self.receiver[k](h)[:, ends[far]] + self.edge[k](edge_features)
            message = nn.functional.leaky_relu(message, SLOPE)
            total = torch.zeros_like(h).index_add_(1, ends[far], message)
            parts.append(total * share[k])
        return h + nn.functional.leaky_relu(self.update(torch.cat(parts, dim=-1)), SLOPE)


class DopplerNetwork(nn.Module):
    """GNN, SEL and PLC.

    The hidden layers of both policies are linear in a concatenation, so each part is computed once for all nodes, and a step
    only adds what it needs; sums over paths and devices are divided by constants of the graph.
    """

    def __init__(self, hidden: int, rounds: int, dynamic: bool, positions: bool = False) -> None:
        super().__init__()
        columns = NODE_FEATURES + (DYNAMIC_FEATURES if dynamic else 0) + (POSITION_FEATURES if positions else 0)
        self.embed = nn.Linear(columns, hidden)
        self.rounds = nn.ModuleList(_Round(hidden) for _ in range(rounds))
        self.encode_node = nn.Sequential(nn.Linear(columns, hidden), nn.LeakyReLU(SLOPE), nn.Linear(hidden, hidden))
        self.select = nn.Sequential(nn.Linear(4 * hidden, hidden), nn.LeakyReLU(SLOPE), nn.Linear(hidden, 1, bias=False))
        self.place_node = nn.Linear(2 * hidden, hidden)
        self.place_sum = nn.Linear(hidden, hidden, bias=False)
        self.device_in = nn.Linear(FEATURES, hidden)
        self.device_out = nn.Linear(hidden, hidden, bias=False)
        self.output = nn.Linear(hidden, 1, bias=False)

    def encode(self, inst: Instance, dynamic: Tensor | None = None) -> Encoded:
        """Everything about the nodes; ``dynamic`` [S, V, 3] with message passing once a step."""
        x = inst.features[None]
        if dynamic is not None:
            x = torch.cat((x.expand(len(dynamic), -1, -1), dynamic), dim=-1)
        v = x.shape[1]
        h = nn.functional.leaky_relu(self.embed(x), SLOPE)
        ends = (inst.source, inst.target)
        # Messages along an edge are averaged over a node's in-edges, those against it over its out-edges.
        share = [1.0 / torch.bincount(ends[far], minlength=v).clamp(min=1)[:, None].float() for far in (1, 0)]
        for one in self.rounds:
            h = one(h, ends, inst.edge_features, share)
        z = self.encode_node(x)
        sums = []
        for node, on_path, longest in (inst.b_path, inst.t_path):
            sums.append(torch.zeros_like(h).index_add_(1, node, h[:, on_path]) / longest)
        select = self.select(torch.cat((h, *sums, z), dim=-1))[..., 0]
        return Encoded(select, self.place_node(torch.cat((h, z), dim=-1)), self.place_sum(h) * (inst.problem.n_devices / v))

    @torch.no_grad()
    def scores(self, encoded: Encoded, temperature: float = 1.0) -> Scores:
        """What the compiled episode needs, from an encoding with S = 1; all logits are divided by ``temperature``."""

        def array(x: Tensor) -> np.ndarray:
            return x.detach().contiguous().numpy()

        return Scores(
            select=array(encoded.select[0] / temperature), node=array(encoded.node[0]), placed=array(encoded.placed[0]),
            device_in=array(self.device_in.weight.T), device_bias=array(self.device_in.bias),
            device_out=array(self.device_out.weight.T), output=array(self.output.weight[0] / temperature), slope=SLOPE,
        )  # fmt: skip

    def log_probabilities(
        self, encoded: Encoded, episodes: Sequence[Record], teacher: bool, free: np.ndarray, temperature: float = 1.0
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """log π of the chosen (or the teacher's) nodes and devices and the entropies of both policies, [B, H] each.

        The device of a free input changes nothing, so its log-probability and entropy are zero.
        """
        prefix = "teacher_" if teacher else ""

        def stacked(key: str) -> Tensor:
            return torch.from_numpy(np.stack([getattr(r, key) for r in episodes]))

        candidates, node, device = stacked("candidates"), stacked(prefix + "node"), stacked(prefix + "device")
        b, steps, v = candidates.shape
        logits = encoded.select.view(*((b, steps) if len(encoded.select) > 1 else (1, 1)), v) / temperature
        selected, entropy = _Choice.apply(logits, candidates, node)
        place = self._device_log_softmax(encoded, stacked("node"), stacked("device"), node, stacked(prefix + "features")) / temperature
        place = torch.log_softmax(place.masked_fill(~stacked(prefix + "open"), -torch.inf), dim=-1)
        placed = place.gather(-1, device[..., None])[..., 0]
        counts = (~torch.from_numpy(free))[node].float()
        return selected, placed * counts, entropy, _entropy(place) * counts

    def _device_log_softmax(self, encoded: Encoded, order: Tensor, went: Tensor, node: Tensor, features: Tensor) -> Tensor:
        """Logits of all devices for ``node`` [B, H], after the episode placed ``order`` on ``went`` [B, H] one by one, [B, H, D]."""
        b, steps, d = features.shape[:3]
        v = encoded.node.shape[1]
        rows, columns = torch.arange(b)[:, None], torch.arange(1, steps + 1)[None]
        if len(encoded.placed) == 1:
            # What the nodes on each device add up to before step h: one row a step, summed over the steps.
            sums = encoded.placed.new_zeros(b, steps + 1, d, encoded.placed.shape[-1])
            sums = sums.index_put((rows, columns, went), encoded.placed[0][order])[:, :-1].cumsum(dim=1)
            own = encoded.node[0][node]
        else:  # every step has embeddings of its own, so which nodes are there is summed instead
            mask = torch.zeros(b, steps + 1, d, v)
            mask[rows, columns, went, order] = 1.0
            placed, nodes = encoded.placed.view(b, steps, v, -1), encoded.node.view(b, steps, v, -1)
            sums = mask[:, :-1].cumsum(dim=1) @ placed
            own = nodes[rows, torch.arange(steps)[None], node]
        y = self.device_out(nn.functional.leaky_relu(self.device_in(features), SLOPE))
        layer = own[:, :, None] + sums + y
        return self.output(nn.functional.leaky_relu(layer, SLOPE))[..., 0]


def _entropy(log_p: Tensor) -> Tensor:
    finite = log_p.masked_fill(log_p == -torch.inf, 0.0)
    return -(finite.exp() * finite * (log_p > -torch.inf)).sum(dim=-1)


class _Choice(torch.autograd.Function):
    """log π of the chosen nodes and entropy, [B, H] each, of softmaxes over candidates [B, H, V] by logits [B, H, V] or [1, 1, V].

    Done by hand because with one message passing an episode all steps of an update share their logits: then the gradient is a product of
    matrices, where autograd would pass a dozen times over all steps and nodes. With p the probabilities and m their mean logit, the
    gradient of log π by the logit of v is [v chosen] - p(v), that of the entropy -p(v) (logit(v) - m).
    """

    @staticmethod
    def forward(ctx: Any, logits: Tensor, candidates: Tensor, node: Tensor) -> tuple[Tensor, Tensor]:
        p = torch.where(candidates, logits, -torch.inf)
        total = p.logsumexp(dim=-1, keepdim=True)
        p.sub_(total).exp_()
        mean = (p @ logits[0, 0])[..., None] if logits.shape[:2] == (1, 1) else (p * logits).sum(dim=-1, keepdim=True)
        ctx.save_for_backward(logits, p, mean, node)
        chosen = logits.expand(p.shape).gather(-1, node[..., None])
        return (chosen - total)[..., 0], (total - mean)[..., 0]

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        logits, p, mean, node = ctx.saved_tensors
        of_log, of_entropy = (g[..., None] for g in gradients)
        if logits.shape[:2] != (1, 1):
            return (-p * (of_log + of_entropy * (logits - mean))).scatter_add_(-1, node[..., None], of_log), None, None
        v = logits.shape[-1]
        sums = p.view(-1, v).T @ torch.cat((of_entropy * mean - of_log, of_entropy), dim=-1).view(-1, 2)
        gradient = (sums[:, 0] - sums[:, 1] * logits[0, 0]).index_add(0, node.reshape(-1), of_log.reshape(-1))
        return gradient.view(1, 1, v), None, None
