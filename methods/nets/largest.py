"""The largest message of every node's neighbours, element by element, compiled. The graph is `methods.nets.graph_encoders`'s matter."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import torch
from torch import Tensor


class Largest(torch.autograd.Function):
    """``apply(messages, pointer, neighbours)``: [N, H] from messages [N, H], 0 without neighbours.

    Node v's are ``neighbours[pointer[v]:pointer[v + 1]]``. The gradient goes to the largest in equal parts, as torch's ``amax`` has it.
    """

    @staticmethod
    def forward(ctx: Any, messages: Tensor, pointer: np.ndarray, neighbours: np.ndarray) -> Tensor:  # type: ignore[override]
        given = messages.detach().contiguous()
        out = torch.empty_like(given)
        _forward(given.numpy(), pointer, neighbours, out.numpy())
        ctx.save_for_backward(given, out)
        ctx.graph = pointer, neighbours
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:  # type: ignore[override]
        given, out = ctx.saved_tensors
        pointer, neighbours = ctx.graph
        found = torch.zeros_like(given)
        _backward(given.numpy(), pointer, neighbours, out.numpy(), grad.contiguous().numpy(), found.numpy())
        return found, None, None


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _forward(messages, pointer, neighbours, out):  # type: ignore[no-untyped-def]
    """Sets ``out``."""
    for v in range(len(out)):
        begin, end, mine = pointer[v], pointer[v + 1], out[v]
        if begin == end:
            mine[:] = 0
            continue
        mine[:] = messages[neighbours[begin]]
        for e in range(begin + 1, end):
            other = messages[neighbours[e]]
            for k in range(len(mine)):
                mine[k] = mine[k] if mine[k] > other[k] else other[k]


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _backward(messages, pointer, neighbours, out, grad, found):  # type: ignore[no-untyped-def]
    """Adds to ``found``, the gradient of the messages."""
    zero, one = messages.dtype.type(0), messages.dtype.type(1)
    part = np.empty(messages.shape[1], messages.dtype)
    for v in range(len(out)):
        begin, end, most = pointer[v], pointer[v + 1], out[v]
        part[:] = 0
        for e in range(begin, end):
            given = messages[neighbours[e]]
            for k in range(len(part)):
                part[k] += one if given[k] == most[k] else zero
        for k in range(len(part)):
            part[k] = grad[v, k] / part[k]
        for e in range(begin, end):
            given, mine = messages[neighbours[e]], found[neighbours[e]]
            for k in range(len(part)):
                mine[k] += part[k] if given[k] == most[k] else zero
