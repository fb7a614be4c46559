"""The sequence-to-sequence placer: a bidirectional LSTM reads operations, an LSTM with attention decides their devices one by one.

Mirhoseini et al. (2017, 2018) read the whole sequence at once; Mars (section 3.3) goes segment by segment. The attention is the
additive one of Bahdanau et al. (2015): its context is an input of the decoder, next to the device decided before.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from envs.errors import InputError
from methods.common.decisions import Decisions, decide

BLOCK = 32
"""Decoding steps whose activations are kept at a time; the others are computed again in the backward pass."""


class Seq2Seq(nn.Module):
    """Encoder and decoder.

    Args:
        inputs: length of an operation's representation.
        devices: D.
        hidden: size of the decoder, and of the encoder's two directions together.
        attention: size of the space in which the decoder's state and the encoder's are compared; 0 takes ``hidden``.
        segment: s, operations in a segment; 0 takes the whole sequence as one. The encoder begins a segment in the state in which it
            ended the one before, the decoder goes on from its own; attention sees the present segment only.
        tanh_constant: C of logits C·tanh(logits / T); 0 leaves them as they are (times 1 / T).
        temperature: T.
    """

    def __init__(
        self, inputs: int, devices: int, hidden: int = 512, attention: int = 0, segment: int = 0,
        tanh_constant: float = 0.0, temperature: float = 1.0,
    ) -> None:  # fmt: skip
        super().__init__()
        if hidden % 2:
            raise InputError(f"the placer's hidden size is {hidden}; it is split into two directions, so it must be even")
        width = attention or hidden
        self.encoder = nn.LSTM(inputs, hidden // 2, batch_first=True, bidirectional=True)
        self.cell = nn.LSTMCell(2 * hidden, hidden)
        self.devices = nn.Embedding(devices + 1, hidden)  # the last stands for "nothing decided yet"
        self.key = nn.Linear(hidden, width)
        self.query = nn.Linear(hidden, width, bias=False)
        self.energy = nn.Linear(width, 1, bias=False)
        self.output = nn.Linear(2 * hidden, devices)
        self.segment, self.tanh_constant, self.temperature = segment, tanh_constant, temperature

    def encode(self, x: Tensor) -> tuple[list[Tensor], tuple[Tensor, Tensor]]:
        """Encoder outputs [B, s, hidden] of every segment of ``x`` [B, N, inputs], and the decoder's first state, [B, hidden] twice."""
        parts = x.split(self.segment or x.shape[1], dim=1)
        out, state = self.encoder(parts[0])
        h, c = (torch.cat((s[0], s[1]), dim=1) for s in state)
        outputs = [out]
        for part in parts[1:]:
            out, state = self.encoder(part, state)
            outputs.append(out)
        return outputs, (h, c)

    def attend(self, h: Tensor, states: Tensor, keys: Tensor) -> Tensor:
        """The context [B, hidden]: ``states`` [B, s, hidden] weighed by softmax of v·tanh(W h + ``keys``)."""
        energy = self.energy(torch.tanh(self.query(h)[:, None, :] + keys)).squeeze(2)
        return torch.bmm(torch.softmax(energy, dim=1)[:, None, :], states.expand(len(h), -1, -1)).squeeze(1)

    def _steps(
        self, states: Tensor, keys: Tensor, h: Tensor, c: Tensor, before: Tensor, allowed: Tensor, actions: Tensor | None,
        noise: Tensor | None,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
        """Some consecutive decisions: actions, log π, entropies [B, T], and the decoder's state after them."""
        made: list[Decisions] = []
        for t in range(allowed.shape[1]):
            context = self.attend(h, states, keys)
            h, c = self.cell(torch.cat((self.devices(before), context), dim=1), (h, c))
            logits = self.output(torch.cat((h, context), dim=1)) / self.temperature
            if self.tanh_constant:
                logits = self.tanh_constant * torch.tanh(logits)
            at = slice(t, t + 1)
            given = None if actions is None else actions[:, at]
            made.append(decide(logits[:, None, :], allowed[:, at], given, None if noise is None else noise[:, at]))
            before = made[-1].actions[:, 0]
        joined = Decisions(*(torch.cat(parts, dim=1) for parts in zip(*made, strict=True)))
        return (*joined, h, c)

    def forward(self, x: Tensor, allowed: Tensor, actions: Tensor | None = None, noise: Tensor | None = None) -> Decisions:
        """Decide the devices of all positions, or score given ones.

        Args:
            x: representations, [B or 1, N, inputs].
            allowed: devices each position may use, bool[B or 1, N, D].
            actions: decisions to score, int64[B, N].
            noise: as in `decide`, [B, N, D]; without it and ``actions`` the most probable devices of each row of x.
        """
        batch = len(x) if actions is None and noise is None else len(actions) if actions is not None else len(noise)  # type: ignore[arg-type]
        outputs, (h, c) = self.encode(x)
        h, c = h.expand(batch, -1), c.expand(batch, -1)
        before = torch.full((batch,), self.devices.num_embeddings - 1)
        parts: list[Decisions] = []
        at = 0
        for states in outputs:
            keys = self.key(states)
            for begin in range(0, states.shape[1], BLOCK):
                rows = slice(at + begin, at + min(begin + BLOCK, states.shape[1]))
                given = None if actions is None else actions[:, rows]
                drawn = None if noise is None else noise[:, rows]
                arguments = (states, keys, h, c, before, allowed[:, rows], given, drawn)
                if torch.is_grad_enabled() and x.shape[1] > BLOCK:
                    made = checkpoint(self._steps, *arguments, use_reentrant=False, preserve_rng_state=False)
                else:
                    made = self._steps(*arguments)
                parts.append(Decisions(*made[:3]))
                h, c = made[3:]
                before = parts[-1].actions[:, -1]
            at += states.shape[1]
        return Decisions(*(torch.cat(p, dim=1) for p in zip(*parts, strict=True)))
