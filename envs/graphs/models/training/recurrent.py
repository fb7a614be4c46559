"""Recurrent networks unrolled over time: a language model, GNMT, and a plain sequence-to-sequence model. No capturing here.

``layers()`` of a model lists the modules of each of its layers, the unit in which people spread such models over devices. Losses are
mean cross entropies. There is no dropout.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from envs.graphs.models.training.rows import with_ends


class Recurrence(nn.Module):
    """One LSTM layer, unrolled: T inputs float32[N, size] to T outputs and the last state.

    Args:
        inputs: size of an input.
        hidden: units.
        residual: add the input to the output.
        backwards: read the sequence from its end.
    """

    def __init__(self, inputs: int, hidden: int, residual: bool = False, backwards: bool = False) -> None:
        super().__init__()
        self.cell = nn.LSTMCell(inputs, hidden)
        self.residual, self.backwards = residual, backwards

    def forward(self, steps: list[Tensor], state: tuple[Tensor, Tensor] | None = None) -> tuple[list[Tensor], tuple[Tensor, Tensor]]:
        if state is None:
            zero = steps[0].new_zeros(len(steps[0]), self.cell.hidden_size)
            state = (zero, zero)
        made = []
        for x in reversed(steps) if self.backwards else steps:
            state = self.cell(x, state)
            made.append(x + state[0] if self.residual else state[0])
        return (made[::-1] if self.backwards else made), state


class Projection(nn.Module):
    """Mean cross entropy of T outputs float32[N, hidden] against words int64[N, T]."""

    def __init__(self, hidden: int, vocabulary: int) -> None:
        super().__init__()
        self.linear = nn.Linear(hidden, vocabulary, bias=False)

    def forward(self, steps: list[Tensor], words: Tensor) -> Tensor:
        logits = self.linear(torch.stack(steps, dim=1))
        return functional.cross_entropy(logits.flatten(0, 1), words.flatten())


class Rnnlm(nn.Module):
    """The language model of Jozefowicz et al. (2016) with plain LSTM layers: words and next words int64[N, T] to a loss."""

    def __init__(self, depth: int, hidden: int, vocabulary: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, hidden)
        self.recurrent = nn.ModuleList(Recurrence(hidden, hidden) for _ in range(depth))
        self.projection = Projection(hidden, vocabulary)

    def layers(self) -> list[list[nn.Module]]:
        return with_ends([[layer] for layer in self.recurrent], self.embedding, self.projection)

    def forward(self, words: Tensor, targets: Tensor) -> Tensor:
        steps = list(self.embedding(words).unbind(1))
        for layer in self.recurrent:
            steps = layer(steps)[0]
        loss: Tensor = self.projection(steps, targets)
        return loss


class Attention(nn.Module):
    """Additive attention (Bahdanau et al. 2015): a query [N, hidden] over memory and keys [N, S, hidden] to a context [N, hidden]."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.query = nn.Linear(hidden, hidden, bias=False)
        self.energy = nn.Linear(hidden, 1, bias=False)

    def forward(self, query: Tensor, memory: Tensor, keys: Tensor) -> Tensor:
        weights = torch.softmax(self.energy(torch.tanh(self.query(query)[:, None, :] + keys)), dim=1)
        return (weights * memory).sum(dim=1)


class Gnmt(nn.Module):
    """GNMT (Wu et al. 2016) as in Google's public implementation: source, target and next target words int64[N, T] to a loss.

    The first of ``depth`` encoder layers reads both ways, layers from the third on add their input. The first of ``depth`` decoder layers
    queries the attention with its output of the step before; all layers read the context.
    """

    def __init__(self, depth: int, hidden: int, vocabulary: int) -> None:
        super().__init__()
        self.source, self.target = nn.Embedding(vocabulary, hidden), nn.Embedding(vocabulary, hidden)
        self.ahead, self.back = Recurrence(hidden, hidden), Recurrence(hidden, hidden, backwards=True)
        sizes = [2 * hidden] + [hidden] * depth
        self.encoder = nn.ModuleList(Recurrence(sizes[i], hidden, residual=i > 0) for i in range(depth - 1))
        self.keys = nn.Linear(hidden if depth > 1 else 2 * hidden, hidden, bias=False)
        self.attention = Attention(hidden)
        self.decoder = nn.ModuleList(nn.LSTMCell(2 * hidden, hidden) for _ in range(depth))
        self.projection = Projection(hidden, vocabulary)

    def layers(self) -> list[list[nn.Module]]:
        rows: list[list[nn.Module]] = [[self.ahead, self.back], *([layer] for layer in self.encoder)]
        for row, cell in zip(rows, self.decoder, strict=True):
            row.append(cell)
        rows[0] += [self.target, self.keys, self.attention]
        return with_ends(rows, self.source, self.projection)

    def forward(self, words: Tensor, given: Tensor, targets: Tensor) -> Tensor:
        steps = list(self.source(words).unbind(1))
        steps = [torch.cat(both, dim=1) for both in zip(self.ahead(steps)[0], self.back(steps)[0], strict=True)]
        for layer in self.encoder:
            steps = layer(steps)[0]
        memory = torch.stack(steps, dim=1)
        keys = self.keys(memory)
        made = []
        zero = keys.new_zeros(len(keys), keys.shape[2])
        states = [(zero, zero)] * len(self.decoder)
        for word in self.target(given).unbind(1):
            context = self.attention(states[0][0], memory, keys)
            x = word
            for i, cell in enumerate(self.decoder):
                states[i] = cell(torch.cat((x, context), dim=1), states[i])
                x = states[i][0] + x if i > 1 else states[i][0]
            made.append(x)
        loss: Tensor = self.projection(made, targets)
        return loss


class SequenceToSequence(nn.Module):
    """Encoder and decoder of LSTM layers without attention (Sutskever et al. 2014); inputs and loss as of `Gnmt`."""

    def __init__(self, depth: int, hidden: int, vocabulary: int) -> None:
        super().__init__()
        self.source, self.target = nn.Embedding(vocabulary, hidden), nn.Embedding(vocabulary, hidden)
        self.encoder = nn.ModuleList(Recurrence(hidden, hidden) for _ in range(depth))
        self.decoder = nn.ModuleList(Recurrence(hidden, hidden) for _ in range(depth))
        self.projection = Projection(hidden, vocabulary)

    def layers(self) -> list[list[nn.Module]]:
        rows: list[list[nn.Module]] = [list(pair) for pair in zip(self.encoder, self.decoder, strict=True)]
        rows[0].append(self.target)
        return with_ends(rows, self.source, self.projection)

    def forward(self, words: Tensor, given: Tensor, targets: Tensor) -> Tensor:
        steps, states = list(self.source(words).unbind(1)), []
        for layer in self.encoder:
            steps, state = layer(steps)
            states.append(state)
        steps = list(self.target(given).unbind(1))
        for layer, state in zip(self.decoder, states, strict=True):
            steps = layer(steps, state)[0]
        loss: Tensor = self.projection(steps, targets)
        return loss
