"""Parameter superposition of a wide layer's activations (GDP, equation 4), compiled: one pass over memory instead of one an operation."""

from __future__ import annotations

from typing import Any

import numba
import torch
from torch import Tensor


class Gated(torch.autograd.Function):
    """``apply(x, c)``: max(x, 0) ⊙ c, [..., m H], with c [..., H] repeated m times."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, c: Tensor) -> Tensor:  # type: ignore[override]
        given, gate = x.detach().contiguous(), c.detach().contiguous()
        out = torch.empty_like(given)
        _forward(_rows(given, gate), _rows(gate, gate), _rows(out, gate))
        ctx.save_for_backward(given, gate)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        given, gate = ctx.saved_tensors
        of_x, of_c = torch.empty_like(given), torch.empty_like(gate)
        _backward(*(_rows(part, gate) for part in (given, gate, grad.contiguous(), of_x, of_c)))
        return of_x, of_c


def _rows(x: Tensor, gate: Tensor) -> Any:
    """As an array [n, m, H]."""
    return x.view(gate.numel() // gate.shape[-1], -1, gate.shape[-1]).numpy()


@numba.njit(cache=True, nogil=True)
def _forward(x, c, out):  # type: ignore[no-untyped-def]
    """Sets ``out``."""
    zero = x.dtype.type(0)
    for v in range(len(x)):
        gate = c[v, 0]
        for t in range(x.shape[1]):
            given, mine = x[v, t], out[v, t]
            for k in range(len(gate)):
                mine[k] = gate[k] * (given[k] if given[k] > zero else zero)


@numba.njit(cache=True, nogil=True)
def _backward(x, c, grad, of_x, of_c):  # type: ignore[no-untyped-def]
    """Sets the last two."""
    zero = x.dtype.type(0)
    for v in range(len(x)):
        gate, by_c = c[v, 0], of_c[v, 0]
        by_c[:] = 0
        for t in range(x.shape[1]):
            given, through, by_x = x[v, t], grad[v, t], of_x[v, t]
            for k in range(len(gate)):
                by_x[k] = through[k] * gate[k] if given[k] > zero else zero
            for k in range(len(gate)):
                by_c[k] += through[k] * (given[k] if given[k] > zero else zero)
