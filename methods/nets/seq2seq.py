"""The sequence-to-sequence placer: a bidirectional LSTM reads operations, an LSTM with attention decides their devices one by one.

Mirhoseini et al. (2017, 2018) read the whole sequence at once; Mars (section 3.3) goes segment by segment. The attention is the
additive one of Bahdanau et al. (2015): its context is an input of the decoder, next to the device decided before.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from envs.problem.errors import InputError
from methods.nets.attentive_decoder import AttentiveDecoder, DecoderSteps, DecoderTrace, DecoderWeights
from methods.nets.decisions import Decisions, decide
from methods.nets.products import Linear, linear


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
        keep: keep what the decoder's steps left of the latest draw, so that scoring it with the same weights takes none. Worth its memory
            where a policy learns from what it has just drawn.
    """

    def __init__(
        self, inputs: int, devices: int, hidden: int = 512, attention: int = 0, segment: int = 0,
        tanh_constant: float = 0.0, temperature: float = 1.0, keep: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        if hidden % 2:
            raise InputError(f"the placer's hidden size is {hidden}; it is split into two directions, so it must be even")
        width = attention or hidden
        self.encoder = nn.LSTM(inputs, hidden // 2, batch_first=True, bidirectional=True)
        self.cell = nn.LSTMCell(2 * hidden, hidden)
        self.devices = nn.Embedding(devices + 1, hidden)  # the last stands for "nothing decided yet"
        self.key = Linear(hidden, width)
        self.query = nn.Linear(hidden, width, bias=False)
        self.energy = nn.Linear(width, 1, bias=False)
        self.output = Linear(2 * hidden, devices)
        self.segment, self.tanh_constant, self.temperature, self.keep = segment, tanh_constant, temperature, keep
        self._kept: tuple[list[int], Tensor, Tensor, list[DecoderTrace]] | None = None  # versions of the weights, x, decisions, by segment

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

    def _prepared(self) -> tuple[Tensor, Tensor, Tensor]:
        """What each decision before adds to the gates, [D + 1, 4 hidden], the decoder's joint weights (`AttentiveDecoder`), and those of
        the context, [4 hidden, hidden]."""
        own, context = self.cell.weight_ih.split(self.cell.hidden_size, dim=1)
        gates = self.devices.weight @ own.t() + self.cell.bias_ih + self.cell.bias_hh
        return gates, torch.cat((self.cell.weight_hh, self.query.weight)), context.contiguous()

    def _attended(self, states: Tensor, context: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """States, keys and additions, as `AttentiveDecoder` takes them."""
        return states, self.key(states), linear(states, context)

    def _decide(self, h: Tensor, context: Tensor, allowed: Tensor, actions: Tensor | None, noise: Tensor | None) -> Decisions:
        """Decisions from the decoder's states and contexts, [B, T, hidden]."""
        logits = self.output(torch.cat((h, context), dim=2)) / self.temperature
        if self.tanh_constant:
            logits = self.tanh_constant * torch.tanh(logits)
        return decide(logits, allowed, actions, noise)

    def _draw(
        self, attended: tuple[Tensor, Tensor, Tensor], h: Tensor, c: Tensor, before: Tensor, allowed: Tensor, given: Tensor | None,
        noise: Tensor | None, gates: Tensor, weights: DecoderWeights,
    ) -> tuple[Decisions, Tensor, Tensor, DecoderTrace]:  # fmt: skip
        """Decisions on a segment, one after another, the decoder's state after them, and what the steps left if that is kept."""
        states, keys, additions = attended
        steps, length = DecoderSteps(weights, keys, additions, self.energy.weight[0]), allowed.shape[1]
        trace = DecoderTrace([h], [c], [], states.new_empty(length if self.keep else 1, len(h), states.shape[1]))
        made: list[Decisions] = []
        for t in range(length):
            shares = trace.shares[t if self.keep else 0]
            h, c, active = steps.step(gates[before], h, c, shares)
            if self.keep:
                trace.add(h, c, active)
            context = torch.bmm(shares[:, None], states.expand(len(h), -1, -1))
            at = slice(t, t + 1)
            known, drawn = (None if part is None else part[:, at] for part in (given, noise))
            made.append(self._decide(h[:, None], context, allowed[:, at], known, drawn))
            before = made[-1].actions[:, 0]
        return Decisions(*(torch.cat(parts, dim=1) for parts in zip(*made, strict=True))), h, c, trace

    def _score(
        self, attended: tuple[Tensor, Tensor, Tensor], h: Tensor, c: Tensor, before: Tensor, allowed: Tensor, actions: Tensor,
        gates: Tensor, joint: Tensor, weights: DecoderWeights, trace: DecoderTrace | None,
    ) -> tuple[Decisions, Tensor, Tensor]:  # fmt: skip
        """Known decisions on a segment, and the decoder's state after them."""
        given = functional.embedding(torch.cat((before[:, None], actions[:, :-1]), dim=1), gates)
        hs, contexts, c = AttentiveDecoder.apply(given, *attended, h, c, joint, self.energy.weight[0], weights, trace)
        return self._decide(hs, contexts, allowed, actions, None), hs[:, -1], c

    def _traces(self, x: Tensor, actions: Tensor) -> list[DecoderTrace] | None:
        """What the latest draw left, if it made these decisions by the present weights; serves once."""
        kept, self._kept = self._kept, None
        same = kept is not None and kept[0] == self._versions() and torch.equal(kept[1], x) and torch.equal(kept[2], actions)
        return kept[3] if kept is not None and same else None

    def _versions(self) -> list[int]:
        return [p._version for p in self.parameters()]

    def forward(self, x: Tensor, allowed: Tensor, actions: Tensor | None = None, noise: Tensor | None = None) -> Decisions:
        """Decide the devices of all positions, without gradients, or score given ones.

        Args:
            x: representations, [B or 1, N, inputs].
            allowed: devices each position may use, bool[B or 1, N, D].
            actions: decisions to score, int64[B, N]; with noise, those below 0 are drawn.
            noise: as in `decide`, [B, N, D]; without it and ``actions`` the most probable devices of each row of x.
        """
        batch = len(x) if actions is None and noise is None else len(actions) if actions is not None else len(noise)  # type: ignore[arg-type]
        drawing = actions is None or noise is not None
        with torch.set_grad_enabled(torch.is_grad_enabled() and not drawing):
            outputs, (h, c) = self.encode(x)
            h, c = h.expand(batch, -1), c.expand(batch, -1)
            before = torch.full((batch,), self.devices.num_embeddings - 1)
            gates, joint, context = self._prepared()
            weights = DecoderWeights(joint, batch)
            known = None if drawing else self._traces(x, actions)  # type: ignore[arg-type]
            parts: list[Decisions] = []
            traces: list[DecoderTrace] = []
            at = 0
            for k, states in enumerate(outputs):
                rows, attended = slice(at, at + states.shape[1]), self._attended(states, context)
                if drawing:
                    given, drawn = (None if part is None else part[:, rows] for part in (actions, noise))
                    made, h, c, trace = self._draw(attended, h, c, before, allowed[:, rows], given, drawn, gates, weights)
                    traces.append(trace)
                else:
                    scored, taken = actions[:, rows], known[k] if known else None  # type: ignore[index]
                    made, h, c = self._score(attended, h, c, before, allowed[:, rows], scored, gates, joint, weights, taken)
                parts.append(made)
                before = made.actions[:, -1]
                at = rows.stop
        whole = Decisions(*(torch.cat(p, dim=1) for p in zip(*parts, strict=True)))
        if drawing and self.keep:
            self._kept = self._versions(), x.detach(), whole.actions, traces
        return whole
