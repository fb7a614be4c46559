"""Transformers: the encoder-decoder of Vaswani et al. (2017) and Transformer-XL of Dai et al. (2019). No capturing here.

``layers()`` as in `envs.graphs.models.training.recurrent`. There is no dropout.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from envs.graphs.models.training.rows import with_ends


class Transformer(nn.Module):
    """Source, target and next target words int64[N, T] to a mean cross entropy; ``depth`` encoder and ``depth`` decoder layers."""

    def __init__(self, depth: int, hidden: int, vocabulary: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, hidden)
        heads = max(1, hidden // 64)
        self.encoder = nn.ModuleList(nn.TransformerEncoderLayer(hidden, heads, 4 * hidden, 0.0, batch_first=True) for _ in range(depth))
        self.decoder = nn.ModuleList(nn.TransformerDecoderLayer(hidden, heads, 4 * hidden, 0.0, batch_first=True) for _ in range(depth))
        self.output = nn.Linear(hidden, vocabulary)

    def layers(self) -> list[list[nn.Module]]:
        return with_ends([[layer] for layer in (*self.encoder, *self.decoder)], self.embedding, self.output)

    def forward(self, words: Tensor, given: Tensor, targets: Tensor) -> Tensor:
        x, y = self.embedding(words), self.embedding(given)
        for layer in self.encoder:
            x = layer(x)
        future = torch.ones(y.shape[1], y.shape[1], dtype=torch.bool).triu(1)
        for layer in self.decoder:
            y = layer(y, x, tgt_mask=future)
        return functional.cross_entropy(self.output(y).flatten(0, 1), targets.flatten())


class RelativeAttention(nn.Module):
    """Attention of a segment [N, T, hidden] over a memory [N, M, hidden] and itself, with relative positions (Dai et al., section 3.3)."""

    def __init__(self, hidden: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.both, self.position = nn.Linear(hidden, hidden), nn.Linear(hidden, 2 * hidden), nn.Linear(hidden, hidden)
        self.content_bias, self.position_bias = (nn.Parameter(torch.zeros(heads, 1, hidden // heads)) for _ in range(2))
        self.merge = nn.Linear(hidden, hidden)

    def _split(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.heads, -1)).transpose(-3, -2)

    def forward(self, x: Tensor, memory: Tensor, positions: Tensor, future: Tensor) -> Tensor:
        q = self._split(self.query(x))
        key, value = (self._split(part) for part in self.both(torch.cat((memory, x), dim=1)).chunk(2, dim=-1))
        where = self._split(self.position(positions))
        content = (q + self.content_bias) @ key.transpose(-1, -2)
        shifted = functional.pad((q + self.position_bias) @ where.transpose(-1, -2), (1, 0))
        n, h, t, wide = shifted.shape
        relative = shifted.reshape(n, h, wide, t)[:, :, 1:].reshape(n, h, t, wide - 1)
        scores = ((content + relative) * q.shape[-1] ** -0.5).masked_fill(future, float("-inf"))
        merged: Tensor = self.merge((torch.softmax(scores, dim=-1) @ value).transpose(1, 2).flatten(2))
        return merged


class XlLayer(nn.Module):
    """Relative attention and a feed-forward network, each with a residual and layer normalisation."""

    def __init__(self, hidden: int, heads: int) -> None:
        super().__init__()
        self.attention = RelativeAttention(hidden, heads)
        self.wide, self.narrow = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)
        self.first, self.second = nn.LayerNorm(hidden), nn.LayerNorm(hidden)

    def forward(self, x: Tensor, memory: Tensor, positions: Tensor, future: Tensor) -> Tensor:
        x = self.first(x + self.attention(x, memory, positions, future))
        out: Tensor = self.second(x + self.narrow(torch.relu(self.wide(x))))
        return out


class TransformerXl(nn.Module):
    """A language model with segment recurrence: words and next words int64[N, S T] in S segments of T to a mean cross entropy.

    Every layer sees what it read in the segment before, without gradient. One step trains on S segments one after another, the first
    of which has a memory of zeros.
    """

    def __init__(self, depth: int, hidden: int, vocabulary: int, segments: int) -> None:
        super().__init__()
        self.segments = segments
        self.embedding = nn.Embedding(vocabulary, hidden)
        self.blocks = nn.ModuleList(XlLayer(hidden, max(1, hidden // 64)) for _ in range(depth))
        self.output = nn.Linear(hidden, vocabulary)

    def layers(self) -> list[list[nn.Module]]:
        return with_ends([[layer] for layer in self.blocks], self.embedding, self.output)

    def forward(self, words: Tensor, targets: Tensor) -> Tensor:
        length = words.shape[1] // self.segments
        hidden = self.embedding.embedding_dim
        distance = torch.arange(2 * length - 1, -1, -1.0)[:, None] * torch.exp(torch.arange(0, hidden, 2) * (-9.21 / hidden))
        positions = torch.cat((distance.sin(), distance.cos()), dim=1)
        future = torch.ones(length, 2 * length, dtype=torch.bool).triu(length + 1)
        memory = [self.embedding.weight.new_zeros(len(words), length, hidden) for _ in self.blocks]
        losses = []
        for segment, target in zip(words.split(length, dim=1), targets.split(length, dim=1), strict=True):
            x = self.embedding(segment)
            for i, layer in enumerate(self.blocks):
                before, memory[i] = memory[i], x.detach()
                x = layer(x, before, positions, future)
            losses.append(functional.cross_entropy(self.output(x).flatten(0, 1), target.flatten()))
        return torch.stack(losses).mean()
