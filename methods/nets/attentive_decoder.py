"""An attentive LSTM decoder over decisions that are all known, with its gradient worked out by hand. What is decided does not belong here.

Left to autograd, every step adds to the gradients of all weights, which costs several times the step itself. Here a step back only passes
on what the step before needs; gradients of weights are one product each over all steps. tanh's are computed again, not kept.

A step's products have a few rows, so they take as long as reading the weights, which are laid out for that once. Attention compares every
state with every query through a tanh; that, and the gates, are compiled, each in one pass.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any, NamedTuple

import numba
import numpy as np
import torch
from numba import types
from numba.extending import overload
from torch import Tensor

from envs.problem.compiled import FAST
from methods.nets.products import packed, product


class DecoderWeights:
    """What every step of a decoder is multiplied by, laid out for that once: see `methods.nets.products.packed`.

    Args:
        joint: weights of the hidden state, [4 H + W, H]: those of the gates, then those of the query.
        rows: samples that are decided side by side.
    """

    def __init__(self, joint: Tensor, rows: int) -> None:
        self.size, self.joint, self.rows = joint.shape[1], joint.detach(), rows

    @cached_property
    def forward(self) -> Tensor:
        """Of steps in the order of decisions."""
        return packed(self.joint, self.rows)

    @cached_property
    def backward(self) -> Tensor:
        """The transpose, likewise."""
        return packed(self.joint.t(), self.rows)


class DecoderSteps:
    """The decoder's steps, without gradients.

    Args:
        weights: of all steps.
        keys, additions, v: see `AttentiveDecoder`.
    """

    def __init__(self, weights: DecoderWeights, keys: Tensor, additions: Tensor, v: Tensor) -> None:
        self.weights, self.powers, self.v = weights, _power(keys.detach().contiguous().numpy()), v.detach().numpy()
        self.additions = packed(additions[0].t(), weights.rows) if len(additions) == 1 else additions.detach()

    def step(self, gates: Tensor, h: Tensor, c: Tensor, shares: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """From the state before to the next, with ``gates`` [B, 4 H]; sets ``shares`` [B, s].

        Returns:
            h, c [B, H], and what going back needs of the step: the gates after their activations, and the query, [B, 4 H + W].
        """
        active = product(h, self.weights.forward)
        _attend(self.powers, active.numpy(), self.v, shares.numpy())
        mixed = product(shares, self.additions) if self.additions.ndim == 2 else torch.bmm(shares[:, None], self.additions).squeeze(1)
        h, end = torch.empty_like(c, memory_format=torch.contiguous_format), torch.empty_like(c, memory_format=torch.contiguous_format)
        _activate(active.numpy(), gates.numpy(), mixed.numpy(), c.numpy(), end.numpy(), h.numpy())
        return h, end, active


class DecoderTrace(NamedTuple):
    """What going back needs of T steps, and their states."""

    hidden: list[Tensor]
    """[B, H] before the first step and after each."""
    cells: list[Tensor]
    """Likewise."""
    active: list[Tensor]
    """See `DecoderSteps.step`."""
    shares: Tensor
    """[T, B, s]."""

    def add(self, h: Tensor, c: Tensor, active: Tensor) -> None:
        """What a step returned."""
        self.hidden.append(h)
        self.cells.append(c)
        self.active.append(active)


class AttentiveDecoder(torch.autograd.Function):
    """Hidden states and contexts of T steps: attention by the state before, then an LSTM step (Bahdanau et al. 2015).

    ``apply(gates, states, keys, additions, h, c, joint, v, weights, trace)`` gives h [B, T, H], contexts [B, T, H], and c [B, H] of the
    last step, where

    - ``gates`` [B, T, 4 H] is what decisions and biases add to the gates, in `torch.nn.LSTMCell`'s order;
    - ``states`` and ``keys`` [1 or B, s, H and W] are what is attended to, ``additions`` [1 or B, s, 4 H] what each state adds to the gates
      where all attention is on it: a context is a mean of states, so its part of the gates is the same mean of these, of which there
      are fewer than weights;
    - ``h``, ``c`` [B, H] is the state before;
    - ``joint`` [4 H + W, H] are the weights of the hidden state, those of the gates before those of the query, ``weights`` the same as
      `DecoderWeights`; ``v`` is [W];
    - ``trace`` is what these very steps left when they were taken before; None takes them.
    """

    @staticmethod
    def forward(
        ctx: Any, gates: Tensor, states: Tensor, keys: Tensor, additions: Tensor, h: Tensor, c: Tensor, joint: Tensor, v: Tensor,
        weights: DecoderWeights, trace: DecoderTrace | None = None,
    ) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
        hidden, cells, active, shares = trace or _taken(DecoderSteps(weights, keys, additions, v), gates, h, c, states.shape[1])
        ctx.save_for_backward(states, keys, additions, v)
        ctx.weights, ctx.kept = weights, (torch.stack(hidden[:-1]), cells, active, shares)
        return torch.stack(hidden[1:], dim=1), _mixed(shares.transpose(0, 1), states), cells[-1].clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        states, keys, additions, v = ctx.saved_tensors
        weights, (before, cells, active, shares) = ctx.weights, ctx.kept
        of_hidden, of_contexts, dc = gradients[0].transpose(0, 1).contiguous(), gradients[1], gradients[2].clone()
        steps, batch, size = before.shape
        by_contexts = _compared(of_contexts, states).transpose(0, 1).contiguous()
        through = packed(additions[0], batch) if len(additions) == 1 else additions
        djoint = before.new_empty(steps, batch, len(weights.joint))
        dgates = djoint[:, :, : 4 * size]
        dkeys, dv = torch.zeros_like(keys), torch.zeros_like(v)
        powers, weighed = _power(keys.detach().contiguous().numpy()), v.detach().numpy()
        dh = torch.zeros_like(before[0])
        for t in range(steps - 1, -1, -1):
            rows = active[t].numpy()
            _activate_back(rows, cells[t].numpy(), cells[t + 1].numpy(), dh.numpy(), of_hidden[t].numpy(), dc.numpy(), djoint[t].numpy())
            dgate = dgates[t].contiguous()
            dshares = product(dgate, through) if through.ndim == 2 else torch.bmm(through, dgate[:, :, None]).squeeze(2)
            dshares += by_contexts[t]
            _attend_back(powers, rows, weighed, shares[t].numpy(), dshares.numpy(), dv.numpy(), dkeys.numpy(), djoint[t].numpy())
            dh = product(djoint[t], weights.backward)
        of_joint = product(djoint.flatten(0, 1).t(), before.flatten(0, 1).t())
        by_sample = shares.transpose(0, 1)
        dstates, dadditions = _spread(by_sample, of_contexts, states), _spread(by_sample, dgates.transpose(0, 1), additions)
        return dgates.transpose(0, 1), dstates, dkeys * v, dadditions, dh, dc, of_joint, dv, None, None


def _taken(run: DecoderSteps, gates: Tensor, h: Tensor, c: Tensor, attended: int) -> DecoderTrace:
    """Steps with known ``gates`` [B, T, 4 H] over as many states as are ``attended``."""
    trace = DecoderTrace([h], [c], [], h.new_empty(gates.shape[1], len(h), attended))
    for t, shares in enumerate(trace.shares):
        trace.add(*run.step(gates[:, t], trace.hidden[-1], trace.cells[-1], shares))
    return trace


def _mixed(shares: Tensor, given: Tensor) -> Tensor:
    """``given`` [1 or B, s, H] weighed by ``shares`` [B, T, s]: [B, T, H]."""
    return shares @ given


def _compared(grad: Tensor, given: Tensor) -> Tensor:
    """The gradient of `_mixed` by shares: products of ``grad`` [B, T, H] with each of ``given``."""
    return grad @ given.transpose(1, 2)


def _spread(shares: Tensor, grad: Tensor, given: Tensor) -> Tensor:
    """The gradient of `_mixed` by ``given``, from ``shares`` [B, T, s] and ``grad`` [B, T, H]."""
    if len(given) == len(grad) > 1:
        return torch.bmm(shares.transpose(1, 2), grad)
    return product(shares.flatten(0, 1).t(), grad.flatten(0, 1).t())[None]


def _tanh(x):  # type: ignore[no-untyped-def]
    return math.tanh(x)


@overload(_tanh, inline="always")
def _tanh_of(x):  # type: ignore[no-untyped-def]
    """In float32 a quotient of polynomials (as Eigen has it, right to some units in the last place), which vector instructions can do."""
    if x is not types.float32:
        return lambda x: math.tanh(x)  # noqa: PLW0108 (numba wants a function of Python)

    def quotient(x):  # type: ignore[no-untyped-def]
        x = min(max(x, np.float32(-7.9)), np.float32(7.9))
        z = x * x
        p = np.float32(-2.76076847742355e-16) * z + np.float32(2.00018790482477e-13)
        p = p * z + np.float32(-8.60467152213735e-11)
        p = p * z + np.float32(5.12229709037114e-08)
        p = p * z + np.float32(1.48572235717979e-05)
        p = p * z + np.float32(6.37261928875436e-04)
        p = p * z + np.float32(4.89352455891786e-03)
        q = np.float32(1.19825839466702e-06) * z + np.float32(1.18534705686654e-04)
        q = q * z + np.float32(2.26843463243900e-03)
        return x * p / (q * z + np.float32(4.89352518554385e-03))

    return quotient


@numba.njit(cache=True, nogil=True, fastmath=FAST, error_model="numpy")
def _power(x):  # type: ignore[no-untyped-def]
    """exp(2 x), of which tanh(x + y) = 1 - 2 / (exp(2 x) exp(2 y) + 1): an exponential a key and a query, not one for both. Beyond 20,
    where a tanh is 1, x counts as 20, so that products stay finite."""
    out, flat, most = np.empty_like(x), x.reshape(-1), x.dtype.type(20)
    power = out.reshape(-1)
    for k in range(len(flat)):
        power[k] = math.exp(min(max(flat[k], -most), most) * x.dtype.type(2))
    return out


@numba.njit(cache=True, nogil=True, fastmath=FAST, error_model="numpy")  # no branch for a divisor of 0
def _attend(powers, active, v, shares):  # type: ignore[no-untyped-def]
    """The softmax over states of v · tanh(key + query): ``powers`` [1 or B, s, W] of the keys, queries the last W of ``active``
    [B, 4 H + W], ``shares`` [B, s]. What all states have in common, the sum of v, does not count."""
    at, one, two = active.shape[1] - len(v), v.dtype.type(1), v.dtype.type(2)
    for b in range(len(active)):
        mine, asked, out = powers[b if len(powers) > 1 else 0], _power(active[b, at:]), shares[b]
        for s in range(len(mine)):
            key, total = mine[s], v.dtype.type(0)
            for w in range(len(v)):
                total += v[w] / (key[w] * asked[w] + one)
            out[s] = -two * total
        most, total = out.max(), v.dtype.type(0)
        for s in range(len(out)):
            out[s] = math.exp(out[s] - most)
            total += out[s]
        for s in range(len(out)):
            out[s] /= total


@numba.njit(cache=True, nogil=True, fastmath=FAST, error_model="numpy")
def _attend_back(powers, active, v, shares, dshares, dv, dkeys, djoint):  # type: ignore[no-untyped-def]
    """The gradients of `_attend`: adds to ``dv`` [W] and, but for the factor v, to ``dkeys``; the query's replace the last W of
    ``djoint`` [B, 4 H + W]."""
    at, one, two = active.shape[1] - len(v), v.dtype.type(1), v.dtype.type(2)
    for b in range(len(active)):
        which = b if len(powers) > 1 else 0
        asked, by_query, mean = _power(active[b, at:]), djoint[b, at:], v.dtype.type(0)
        for s in range(powers.shape[1]):
            mean += shares[b, s] * dshares[b, s]
        by_query[:] = 0
        for s in range(powers.shape[1]):
            key, by_key, grad = powers[which, s], dkeys[which, s], shares[b, s] * (dshares[b, s] - mean)
            for w in range(len(v)):
                t = one - two / (key[w] * asked[w] + one)
                passed = grad - t * t * grad
                dv[w] += t * grad
                by_query[w] += passed
                by_key[w] += passed
        for w in range(len(v)):
            by_query[w] *= v[w]


@numba.njit(cache=True, nogil=True, fastmath=FAST, error_model="numpy")
def _activate(active, gates, mixed, before, cell, hidden):  # type: ignore[no-untyped-def]
    """An LSTM's step: ``active`` [B, 4 H + …] plus ``gates`` and ``mixed`` [B, 4 H] are its gates, which replace ``active``; from the cells
    ``before`` [B, H] to ``cell`` and ``hidden``. A sigmoid is half a tanh of the half."""
    size, half = cell.shape[1], cell.dtype.type(0.5)
    for b in range(len(active)):
        mine, more, most = active[b], gates[b], mixed[b]
        for k in range(4 * size):
            mine[k] += more[k] + most[k]
        for k in range(2 * size):
            mine[k] = half + half * _tanh(half * mine[k])
        for k in range(2 * size, 3 * size):
            mine[k] = _tanh(mine[k])
        for k in range(3 * size, 4 * size):
            mine[k] = half + half * _tanh(half * mine[k])
        for k in range(size):
            cell[b, k] = mine[size + k] * before[b, k] + mine[k] * mine[2 * size + k]
        for k in range(size):
            hidden[b, k] = mine[3 * size + k] * _tanh(cell[b, k])


@numba.njit(cache=True, nogil=True, fastmath=FAST, error_model="numpy")
def _activate_back(active, before, cell, dh, more, dc, djoint):  # type: ignore[no-untyped-def]
    """The gradients of `_activate` by the gates, the first 4 H of ``djoint``, and by the cells before, which replaces ``dc``; the hidden
    state's is ``dh`` plus ``more``."""
    size, one = cell.shape[1], cell.dtype.type(1)
    for b in range(len(active)):
        mine, out = active[b], djoint[b]
        for k in range(size):
            i, f, g, o = mine[k], mine[size + k], mine[2 * size + k], mine[3 * size + k]
            end, by_hidden = _tanh(cell[b, k]), dh[b, k] + more[b, k]
            by_cell = dc[b, k] + by_hidden * o * (one - end * end)
            out[k] = by_cell * g * i * (one - i)
            out[size + k] = by_cell * before[b, k] * f * (one - f)
            out[2 * size + k] = by_cell * i * (one - g * g)
            out[3 * size + k] = by_hidden * end * o * (one - o)
            dc[b, k] = by_cell * f
