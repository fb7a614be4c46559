"""The Transformer-XL placer of GDP (sections 3.2 and 3.3): attention with segment recurrence, conditioned by parameter superposition.

Operations are read in segments. Each layer attends to the present segment and to the cached input that the layer had in the segment
before, through which no gradient flows; as the cache of a layer depends on the layer below alone, all segments go through a layer at
once. There is no positional embedding. With superposition, every dense layer g becomes g(c(x0) ⊙ x) (equation 4), where c is one
more transformer layer on the graph embedding x0.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from envs.problem.errors import InputError
from methods.nets.gated import Gated
from methods.nets.products import Linear, remembered


def condition(x: Tensor, c: Tensor | None) -> Tensor:
    """c ⊙ x of equation 4."""
    return x if c is None else x * c


class TransformerLayer(nn.Module):
    """Attention and feed-forward, each with a residual and layer normalisation.

    Args:
        size: H, width of the representations.
        heads: of the attention.
        widening: width of the feed-forward layer over H.
        attention: False leaves the attention out (the ablation of Figure 3a).
    """

    def __init__(self, size: int, heads: int, widening: int, attention: bool) -> None:
        super().__init__()
        self.heads, self.attention = heads, attention
        if attention:
            self.query, self.key, self.value, self.merge = (Linear(size, size) for _ in range(4))
            self.norm_attention = nn.LayerNorm(size)
        self.widen, self.narrow = Linear(size, widening * size), Linear(widening * size, size)
        self.norm = nn.LayerNorm(size)

    def _split(self, x: Tensor) -> Tensor:
        return x.unflatten(2, (self.heads, -1)).transpose(1, 2)

    def attend(self, x: Tensor, c: Tensor | None, mask: Tensor) -> Tensor:
        """Attention of segments ``x`` [S, L, H] over the segment before and themselves, [S, L, H].

        Args:
            x: input of the layer; what the segment before is seen by is the same input, without gradient.
            c: conditioning, or None.
            mask: which of the 2 L positions there are, bool[S, 1, 1, 2 L].
        """
        now = condition(x, c)
        q, k, v = (self._split(part) for part in (self.query(now), remembered(now, self.key), remembered(now, self.value)))
        mixed = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask).transpose(1, 2).flatten(2)
        return self.merge(condition(mixed, c))

    def forward(self, x: Tensor, c: Tensor | None, mask: Tensor) -> Tensor:
        if self.attention:
            x = self.norm_attention(x + self.attend(x, c, mask))
        wide = self.widen(condition(x, c))
        return self.norm(x + self.narrow(torch.relu(wide) if c is None else Gated.apply(wide, c)))


class TransformerXL(nn.Module):
    """Logits of every operation's devices from the graph embedding.

    Args:
        size: H, length of the embeddings.
        devices: D.
        layers: transformer layers, the conditioning one aside.
        heads: of the attention.
        segment: L, operations in a segment.
        widening: width of the feed-forward layers over H.
        attention: whether there is attention at all.
        superposition: whether dense layers are conditioned on the graph embedding.
    """

    def __init__(
        self, size: int, devices: int, layers: int = 2, heads: int = 4, segment: int = 128, widening: int = 2,
        attention: bool = True, superposition: bool = True,
    ) -> None:  # fmt: skip
        super().__init__()
        if size % heads:
            raise InputError(f"{heads} attention heads cannot share embeddings of {size}; choose a divisor")
        if segment < 1:
            raise InputError(f"the length of a segment is {segment}; it must be at least 1")
        self.segment = segment
        self.layers = nn.ModuleList(TransformerLayer(size, heads, widening, attention) for _ in range(layers))
        self.conditioning = TransformerLayer(size, heads, widening, attention) if superposition else None
        self.head = Linear(size, devices)

    def segments(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """``x`` [N, H] in segments [S, L, H] padded by zeros, and which positions of the cache and the segment there are."""
        n, length = len(x), min(self.segment, len(x))
        count = -(-n // length)
        real = (torch.arange(count * length) < n).view(count, length)
        before = torch.cat((torch.zeros_like(real[:1]), real[:-1]))
        mask = torch.cat((before, real), dim=1)[:, None, None, :]
        return functional.pad(x, (0, 0, 0, count * length - n)).view(count, length, -1), mask

    def forward(self, embedding: Tensor) -> Tensor:
        """Logits [N, D] of operations in topological order from their embedding [N, H]."""
        x, mask = self.segments(embedding)
        c = None if self.conditioning is None else self.conditioning(x, None, mask)
        for layer in self.layers:
            x = layer(x, c, mask)
        logits: Tensor = self.head(condition(x, c))
        return logits.flatten(0, 1)[: len(embedding)]
