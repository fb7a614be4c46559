"""Dense products by the faster of two libraries: torch's own go to MKL, which keeps to AVX2 on AMD's processors, where oneDNN does not.
What networks are made of them does not belong here."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

ONEDNN = torch.backends.mkldnn.is_available()
FASTER = ONEDNN and "AMD" in str(torch.cpu.get_capabilities().get("cpu_name"))
"""Whether it multiplies faster than MKL, which on Intel's processors has AVX-512 too, and needs no 0.6 ms for every new shape."""
WORTH = 2**20
"""Multiplications below which a call of oneDNN costs more than it saves."""

ROWS = 1024
"""Rows of a long product's transpose at a time."""


def product(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """``x`` [n, k] times the transpose of ``weight`` [m, k], plus ``bias`` [m] if there is one, [n, m]; for where no gradient is kept.

    A weight may be `packed`; then ``x`` must be float32.
    """
    if weight.is_mkldnn or (FASTER and x.dtype == torch.float32 and x.numel() * len(weight) >= WORTH):
        out: Tensor = torch.ops.mkldnn._linear_pointwise(_dense(x), _dense(weight), bias, "none", [], "")
        return out
    return functional.linear(x, weight, bias)


def _dense(x: Tensor) -> Tensor:
    """Without gaps between rows or columns, for which oneDNN has a plain loop only."""
    return x if x.is_mkldnn or x.is_contiguous() or x.t().is_contiguous() else x.contiguous()


def packed(weight: Tensor, rows: int) -> Tensor:
    """``weight`` [m, k] laid out for many products with ``rows`` rows; each would lay it out anew, most of the work of few."""
    weight = weight.detach()
    if not ONEDNN or weight.dtype != torch.float32 or weight.numel() * rows < WORTH // 8:
        return weight
    out: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), rows)
    return out


class _Linear(torch.autograd.Function):
    """`product` and its gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:  # type: ignore[override]
        ctx.save_for_backward(x, weight)
        return product(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        x, weight = ctx.saved_tensors
        of_x, of_weight, of_bias = ctx.needs_input_grad
        return (
            product(grad, weight.t()) if of_x else None,
            _by_rows(grad, x) if of_weight else None,
            grad.sum(dim=0) if of_bias else None,
        )


def _by_rows(a: Tensor, b: Tensor) -> Tensor:
    """The transpose of ``a`` [n, m] times ``b`` [n, k], some rows at a time: oneDNN copies a transpose, which is slow outside the cache."""
    if not FASTER or len(a) <= 2 * ROWS:
        return product(a.t(), b.t())
    out = torch.zeros(a.shape[1], b.shape[1], dtype=a.dtype)
    for at in range(0, len(a), ROWS):
        out += product(a[at : at + ROWS].t(), b[at : at + ROWS].t())
    return out


class _Remembered(torch.autograd.Function):
    """See `remembered`."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:  # type: ignore[override]
        ctx.save_for_backward(x, weight)
        count, length = x.shape[:2]
        now = product(x.reshape(-1, x.shape[2]), weight, bias).view(count, length, -1)
        out = now.new_empty(count, 2 * length, now.shape[2])
        out[:, length:] = now
        out[1:, :length] = now[:-1]
        out[0, :length] = bias
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        x, weight = ctx.saved_tensors
        length = x.shape[1]
        own = grad[:, length:].contiguous()
        rows = own.view(-1, own.shape[2])
        of_x = product(rows, weight.t()).view_as(x) if ctx.needs_input_grad[0] else None
        own[:-1] += grad[1:, :length]
        return of_x, _by_rows(rows, x.reshape(-1, x.shape[2])), rows.sum(dim=0) + grad[0, :length].sum(dim=0)


def remembered(x: Tensor, layer: nn.Linear) -> Tensor:
    """``layer`` of each segment of ``x`` [S, L, H] behind that of the segment before, [S, 2 L, M]; no gradient reaches what is before.

    It is worked out once for both. Before the first segment there are zeros.
    """
    out: Tensor = _Remembered.apply(x, layer.weight, layer.bias)
    return out


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """`torch.nn.functional.linear`: ``x`` [..., k], ``weight`` [m, k] and ``bias`` [m] give [..., m], with their gradients."""
    rows = x.reshape(-1, x.shape[-1])
    out: Tensor = _Linear.apply(rows, weight, bias) if torch.is_grad_enabled() else product(rows, weight, bias)
    return out.view(*x.shape[:-1], len(weight))


class Linear(nn.Linear):
    """`torch.nn.Linear` by `linear`."""

    def forward(self, input: Tensor) -> Tensor:
        return linear(input, self.weight, self.bias)
