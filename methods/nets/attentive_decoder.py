"""An attentive LSTM decoder over decisions that are all known, with its gradient worked out by hand. What is decided does not belong here.

Left to autograd, every step adds to the gradients of all weights, which costs several times the step itself. Here a step back only passes
on what the step before needs; gradients of weights are one product each over all steps. tanh's are computed again, not kept.

Attention compares every state with every query through a tanh, which is most of what a step costs; so it is compiled, in one pass.
"""

from __future__ import annotations

import math
from typing import Any

import numba
import numpy as np
import torch
from numba import types
from numba.extending import overload
from torch import Tensor


class AttentiveDecoder(torch.autograd.Function):
    """Hidden states and contexts of T steps: attention by the state before, then an LSTM step (Bahdanau et al. 2015).

    ``apply(gates, states, keys, additions, h, c, weights, w_query, v)`` gives h [B, T, H], contexts [B, T, H], and c [B, H] of the last
    step, where

    - ``gates`` [B, T, 4 H] is what decisions and biases add to the gates, in `torch.nn.LSTMCell`'s order;
    - ``states`` and ``keys`` [1 or B, s, H and W] are what is attended to, ``additions`` [1 or B, s, 4 H] what each state adds to the gates
      where all attention is on it: a context is a mean of states, so its part of the gates is the same mean of these, of which there
      are fewer than weights;
    - ``h``, ``c`` [B, H] is the state before;
    - ``weights`` [4 H, H] are those of the hidden state; ``w_query`` is [W, H] and ``v`` [W].
    """

    @staticmethod
    def forward(
        ctx: Any, gates: Tensor, states: Tensor, keys: Tensor, additions: Tensor, h: Tensor, c: Tensor, weights: Tensor,
        w_query: Tensor, v: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
        batch, steps, size = len(h), gates.shape[1], h.shape[1]
        hidden, cells = h.new_empty(steps + 1, batch, size), h.new_empty(steps + 1, batch, size)
        shares, energy = h.new_empty(steps, batch, states.shape[1]), h.new_empty(batch, states.shape[1])
        active = h.new_empty(steps, batch, 4 * size)
        hidden[0], cells[0] = h, c
        for t in range(steps):
            _compare(keys.detach().numpy(), (hidden[t] @ w_query.t()).detach().numpy(), v.detach().numpy(), energy.numpy())
            shares[t] = torch.softmax(energy, dim=1)
            raw = torch.addmm(gates[:, t], hidden[t], weights.t()) + _mixed(shares[t], additions)
            i, f, g, o = raw.chunk(4, dim=1)
            torch.cat((i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()), dim=1, out=active[t])
            i, f, g, o = active[t].chunk(4, dim=1)
            torch.addcmul(f * cells[t], i, g, out=cells[t + 1])
            torch.mul(o, cells[t + 1].tanh(), out=hidden[t + 1])
        ctx.save_for_backward(states, keys, additions, weights, w_query, v, hidden, cells, shares, active)
        return hidden[1:].transpose(0, 1), _mixed(shares.transpose(0, 1), states), cells[-1].clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, ...]:
        states, keys, additions, weights, w_query, v, hidden, cells, shares, active = ctx.saved_tensors
        of_hidden, of_contexts, dc = gradients[0].transpose(0, 1), gradients[1], gradients[2]
        steps, batch = shares.shape[:2]
        by_contexts = _compared(of_contexts, states).transpose(0, 1)
        dgates, dqueries = torch.empty_like(active), active.new_empty(steps, batch, len(v))
        dkeys, dv = torch.zeros_like(keys), torch.zeros_like(v)
        dh = torch.zeros_like(hidden[0])
        for t in range(steps - 1, -1, -1):
            dh = dh + of_hidden[t]
            i, f, g, o = active[t].chunk(4, dim=1)
            end = cells[t + 1].tanh()
            dc = torch.addcmul(dc, dh * o, 1 - end * end)
            parts = (dc * g * i * (1 - i), dc * cells[t] * f * (1 - f), dc * i * (1 - g * g), dh * end * o * (1 - o))
            torch.cat(parts, dim=1, out=dgates[t])
            dc = dc * f
            dshares = by_contexts[t] + _compared(dgates[t], additions)
            denergy = shares[t] * (dshares - (shares[t] * dshares).sum(dim=1, keepdim=True))
            query = (hidden[t] @ w_query.t()).detach().numpy()
            _compare_back(keys.detach().numpy(), query, denergy.numpy(), dv.numpy(), dkeys.numpy(), dqueries[t].numpy())
            dqueries[t] *= v
            dh = dgates[t] @ weights + dqueries[t] @ w_query
        before = hidden[:-1].flatten(0, 1)
        dweights, dquery_weights = dgates.flatten(0, 1).t() @ before, dqueries.flatten(0, 1).t() @ before
        by_sample = shares.transpose(0, 1)
        dstates, dadditions = _spread(by_sample, of_contexts, states), _spread(by_sample, dgates.transpose(0, 1), additions)
        return dgates.transpose(0, 1), dstates, dkeys * v, dadditions, dh, dc, dweights, dquery_weights, dv


def _mixed(shares: Tensor, given: Tensor) -> Tensor:
    """``given`` [1 or B, s, H] weighed by ``shares`` [B, s] or [B, T, s]: [B, H] or [B, T, H]."""
    if len(given) == 1:
        return shares @ given[0]
    return torch.bmm(shares, given) if shares.ndim == 3 else torch.bmm(shares[:, None, :], given).squeeze(1)


def _compared(grad: Tensor, given: Tensor) -> Tensor:
    """The gradient of `_mixed` by shares: products of ``grad`` [B, H] or [B, T, H] with each of ``given``."""
    if len(given) == 1:
        return grad @ given[0].t()
    return grad @ given.transpose(1, 2) if grad.ndim == 3 else torch.bmm(given, grad[:, :, None]).squeeze(2)


def _spread(shares: Tensor, grad: Tensor, given: Tensor) -> Tensor:
    """The gradient of `_mixed` by ``given``, from ``shares`` [B, T, s] and ``grad`` [B, T, H]."""
    if len(given) == len(grad) > 1:
        return torch.bmm(shares.transpose(1, 2), grad)
    return (shares.flatten(0, 1).t() @ grad.flatten(0, 1))[None]


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


@numba.njit(cache=True, nogil=True, fastmath={"contract", "reassoc", "nsz"}, error_model="numpy")  # no branch for a divisor of 0
def _compare(keys, query, v, energy):  # type: ignore[no-untyped-def]
    """v · tanh(key + query) of every state and sample: ``keys`` [1 or B, s, W], ``query`` [B, W], ``energy`` [B, s]."""
    for b in range(len(query)):
        mine, asked = keys[b if len(keys) > 1 else 0], query[b]
        for s in range(len(mine)):
            key, total = mine[s], v.dtype.type(0)
            for w in range(len(v)):
                total += v[w] * _tanh(key[w] + asked[w])
            energy[b, s] = total


@numba.njit(cache=True, nogil=True, fastmath={"contract", "reassoc", "nsz"}, error_model="numpy")  # no branch for a divisor of 0
def _compare_back(keys, query, denergy, dv, dkeys, dquery):  # type: ignore[no-untyped-def]
    """The gradients of `_compare`: adds to ``dv`` and ``dkeys``, and replaces ``dquery``; the latter two but for the factor v."""
    dquery[:] = 0
    for b in range(len(query)):
        which = b if len(keys) > 1 else 0
        asked, by_query = query[b], dquery[b]
        for s in range(keys.shape[1]):
            key, by_key, grad = keys[which, s], dkeys[which, s], denergy[b, s]
            for w in range(len(dv)):
                t = _tanh(key[w] + asked[w])
                passed = grad - t * t * grad
                dv[w] += t * grad
                by_query[w] += passed
                by_key[w] += passed
