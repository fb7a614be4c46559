"""LSTMs taken apart so that layers can work on different steps at a time, and their parts computed fast."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

_PARTS = 3
"""Parts of a sequence that a layer of an LSTM computes by one operation each; half of one is first, the other half last.

The next layer waits for the first part, so that one is short; each part reads the weights again, which small batches feel.
"""


class Lstm:
    """The rule that takes an LSTM apart into layers and parts of the sequence, so that a layer can begin when the one before has begun.

    Each part stays one operation, as fast as torch has it. torch's own ``rule``, which multiplies all of a layer's inputs at once and goes
    on step by step, is for the rest: projections, both directions, dropout.
    """

    def __init__(self, rule: Callable[..., Any]) -> None:
        self.rule, self.inside = rule, False

    def __call__(
        self, x: Tensor, states: list[Tensor], weights: list[Tensor], biases: bool, layers: int, dropout: float, train: bool,
        bidirectional: bool, batch_first: bool,
    ) -> Any:  # fmt: skip
        if self.inside:
            return NotImplemented  # a part: it stays as it is
        each = 4 if biases else 2
        if bidirectional or len(weights) != each * layers or (train and dropout):
            return self.rule(x, states, weights, biases, layers, dropout, train, bidirectional, batch_first)
        parts = list((x.transpose(0, 1) if batch_first else x).tensor_split(_ends(x.shape[1 if batch_first else 0])))
        last: list[tuple[Tensor, Tensor]] = []
        self.inside = True
        try:
            for layer in range(layers):
                own = weights[each * layer : each * (layer + 1)]
                h, c = states[0][layer : layer + 1], states[1][layer : layer + 1]
                for k, part in enumerate(parts):
                    parts[k], h, c = torch.ops.aten.lstm.input(part, [h, c], own, biases, 1, 0.0, False, False, False)
                last.append((h, c))
        finally:
            self.inside = False
        whole = torch.cat(parts)
        return whole.transpose(0, 1) if batch_first else whole, torch.cat([h for h, _ in last]), torch.cat([c for _, c in last])


def _ends(steps: int) -> tuple[int, ...]:
    """Where the parts of a sequence end, but for the last."""
    ends = {round(steps * (2 * k + 1) / (2 * _PARTS)) for k in range(_PARTS)}
    return tuple(sorted(e for e in ends if 0 < e < steps))


_packed = WeakIdKeyDictionary()
"""Of each matrix of input weights in use: the layer's weights in oneDNN's own layout."""


def layer(
    x: Tensor, states: list[Tensor], weights: list[Tensor], biases: bool, layers: int, dropout: float, train: bool, bidirectional: bool,
    batch_first: bool,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """``aten.lstm`` on the CPU, the same bits, but a layer's weights are brought into oneDNN's layout once instead of in every call.

    Bringing them there takes as long as some steps, so a sequence in parts would pay for it in each. The copy lives as long as the
    weights do.
    """
    if len(weights) != 4 or bidirectional or batch_first or x.dtype != torch.float32 or not torch.backends.mkldnn.is_available():
        return torch.ops.aten.lstm.input(x, states, weights, biases, layers, dropout, train, bidirectional, batch_first)  # type: ignore[no-any-return]
    hidden = weights[1].shape[1]
    packed = _packed.get(weights[0])
    if packed is None:
        sizes = [x.shape[0], x.shape[1], x.shape[2]]
        packed = torch.ops.mkldnn._reorder_mkldnn_rnn_layer_weight(weights[0], weights[1], hidden, False, True, False, sizes)
        _packed[weights[0]] = packed
    h, c = states[0][0], states[1][0]
    y, h, c, _ = torch.ops.aten.mkldnn_rnn_layer(
        x, packed[0], packed[1], weights[2], weights[3], h, c, False, [], 2, hidden, 1, True, False, False, False
    )
    return y, h.unsqueeze(0), c.unsqueeze(0)
