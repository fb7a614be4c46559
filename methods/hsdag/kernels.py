"""What HSDAG's network does between its dense products, compiled with its gradients: one pass over memory instead of one an operation.
What they make together, `methods.hsdag.policy` says."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import torch
from torch import Tensor

from methods.placing.graph_parsing import Adjacency

EPSILON = 1e-5
"""Of the layer normalisation, as torch has it."""
FAST = {"contract", "reassoc", "nsz"}


class Propagation(torch.autograd.Function):
    """``apply(x, y, gain, shift, matrix, active)``: layer normalisation of x + σ(Â y), [n, H]; σ, a ReLU, again if ``active``."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor, gain: Tensor, shift: Tensor, matrix: Adjacency, active: bool) -> Tensor:  # type: ignore[override]
        out, normal, scale = torch.empty_like(y), torch.empty_like(y), y.new_empty(len(y))
        on = np.empty(y.shape, np.bool_)
        g, s = gain.detach(), shift.detach()
        _propagate(
            matrix.pointer, matrix.column, matrix.weight, x.detach().contiguous().numpy(), y.detach().numpy(), g.numpy(), s.numpy(), active,
            on, normal.numpy(), scale.numpy(), out.numpy(),
        )  # fmt: skip
        ctx.kept = matrix, active, on, normal, scale, g, s
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        matrix, active, on, normal, scale, gain, shift = ctx.kept
        of_x, of_y = torch.empty_like(normal), torch.empty_like(normal)
        of_gain, of_shift = torch.zeros_like(gain), torch.zeros_like(shift)
        _propagate_back(
            matrix.pointer, matrix.column, matrix.weight, grad.contiguous().numpy(), gain.numpy(), shift.numpy(), active,
            on, normal.numpy(), scale.numpy(), of_x.numpy(), of_y.numpy(), of_gain.numpy(), of_shift.numpy(),
        )  # fmt: skip
        return of_x, of_y, of_gain, of_shift, None, None


@numba.njit(cache=True, nogil=True, fastmath=FAST, error_model="numpy")
def _propagate(pointer, column, weight, x, y, gain, shift, active, on, normal, scale, out):  # type: ignore[no-untyped-def]
    """Sets the last four: where σ is on, normalised sums, by what they were scaled, and the result."""
    n, size = y.shape
    row, zero, one = np.empty(size, y.dtype), y.dtype.type(0), y.dtype.type(1)
    for v in range(n):
        row[:] = 0
        for e in range(pointer[v], pointer[v + 1]):
            other, w = y[column[e]], weight[e]
            for k in range(size):
                row[k] += w * other[k]
        mine, is_on, given, result = normal[v], on[v], x[v], out[v]
        total = zero
        for k in range(size):
            is_on[k] = row[k] > zero
        for k in range(size):
            row[k] = given[k] + (row[k] if row[k] > zero else zero)
        for k in range(size):
            total += row[k]
        mean, spread = total / y.dtype.type(size), zero
        for k in range(size):
            spread += (row[k] - mean) * (row[k] - mean)
        factor = one / np.sqrt(spread / y.dtype.type(size) + y.dtype.type(EPSILON))
        scale[v] = factor
        for k in range(size):
            mine[k] = (row[k] - mean) * factor
        for k in range(size):
            result[k] = mine[k] * gain[k] + shift[k]
        if active:
            for k in range(size):
                result[k] = result[k] if result[k] > zero else zero


@numba.njit(cache=True, nogil=True, fastmath=FAST, error_model="numpy")
def _propagate_back(pointer, column, weight, grad, gain, shift, active, on, normal, scale, of_x, of_y, of_gain, of_shift):  # type: ignore[no-untyped-def]
    """Sets the gradients by x and y, adds to those by gain and shift."""
    n, size = grad.shape
    row, through, zero = np.empty(size, grad.dtype), np.empty((n, size), grad.dtype), grad.dtype.type(0)
    for v in range(n):
        mine, back, is_on, passed, given = normal[v], of_x[v], on[v], through[v], grad[v]
        mean, along = zero, zero
        if active:
            for k in range(size):
                row[k] = given[k] if mine[k] * gain[k] + shift[k] > zero else zero
        else:
            row[:] = given
        for k in range(size):
            of_gain[k] += row[k] * mine[k]
        for k in range(size):
            of_shift[k] += row[k]
        for k in range(size):
            row[k] *= gain[k]
        for k in range(size):
            mean += row[k]
            along += row[k] * mine[k]
        mean /= grad.dtype.type(size)
        along /= grad.dtype.type(size)
        for k in range(size):
            back[k] = scale[v] * (row[k] - mean - mine[k] * along)
        for k in range(size):
            passed[k] = back[k] if is_on[k] else zero
    for v in range(n):  # the matrix is symmetric
        mine = of_y[v]
        mine[:] = 0
        for e in range(pointer[v], pointer[v + 1]):
            other, w = through[column[e]], weight[e]
            for k in range(size):
                mine[k] += w * other[k]


class EndsProduct(torch.autograd.Function):
    """``apply(z, edges)``: the embeddings of both ends of every edge multiplied, [E, H]."""

    @staticmethod
    def forward(ctx: Any, z: Tensor, edges: np.ndarray) -> Tensor:  # type: ignore[override]
        given = z.detach()
        out = given.new_empty(len(edges), given.shape[1])
        _multiply(given.numpy(), edges, out.numpy())
        ctx.kept = given, edges
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:  # type: ignore[override]
        given, edges = ctx.kept
        found = torch.zeros_like(given)
        _multiply_back(given.numpy(), edges, grad.contiguous().numpy(), found.numpy())
        return found, None


@numba.njit(cache=True, nogil=True, fastmath=FAST)
def _multiply(z, edges, out):  # type: ignore[no-untyped-def]
    """Sets ``out``."""
    for e in range(len(edges)):
        a, b, mine = z[edges[e, 0]], z[edges[e, 1]], out[e]
        for k in range(len(mine)):
            mine[k] = a[k] * b[k]


@numba.njit(cache=True, nogil=True, fastmath=FAST)
def _multiply_back(z, edges, grad, found):  # type: ignore[no-untyped-def]
    """Adds to ``found``."""
    for e in range(len(edges)):
        a, b, by_a, by_b, given = z[edges[e, 0]], z[edges[e, 1]], found[edges[e, 0]], found[edges[e, 1]], grad[e]
        for k in range(len(given)):
            by_a[k] += given[k] * b[k]
        for k in range(len(given)):
            by_b[k] += given[k] * a[k]


class Pooling(torch.autograd.Function):
    """``apply(z, scores, labels, edges, groups)``: of every group the mean embedding times the mean score of the edges inside, or times 1
    if there are none, [groups, H]."""

    @staticmethod
    def forward(ctx: Any, z: Tensor, scores: Tensor, labels: np.ndarray, edges: np.ndarray, groups: int) -> Tensor:  # type: ignore[override]
        given = z.detach()
        mean, weight = given.new_zeros(groups, given.shape[1]), given.new_empty(groups)
        size, inside = np.zeros(groups, given.numpy().dtype), np.zeros(groups, given.numpy().dtype)
        _pool(given.numpy(), scores.detach().numpy(), labels, edges, mean.numpy(), weight.numpy(), size, inside)
        ctx.kept = labels, edges, mean, weight, size, inside
        return mean * weight[:, None]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        labels, edges, mean, weight, size, inside = ctx.kept
        by_weight = (grad * mean).sum(dim=1)
        shares = grad * (weight / torch.from_numpy(size))[:, None]
        of_z, of_scores = grad.new_empty(len(labels), grad.shape[1]), grad.new_zeros(len(edges))
        _pool_back(shares.numpy(), by_weight.numpy(), labels, edges, inside, of_z.numpy(), of_scores.numpy())
        return of_z, of_scores, None, None, None


@numba.njit(cache=True, nogil=True, fastmath=FAST, error_model="numpy")
def _pool(z, scores, labels, edges, mean, weight, size, inside):  # type: ignore[no-untyped-def]
    """Sets the last four: means, mean scores, nodes and inner edges of each group."""
    for v in range(len(z)):
        mine, given = mean[labels[v]], z[v]
        size[labels[v]] += z.dtype.type(1)
        for k in range(len(mine)):
            mine[k] += given[k]
    for g in range(len(mean)):
        mine, count = mean[g], size[g]
        weight[g] = 0
        for k in range(len(mine)):
            mine[k] /= count
    for e in range(len(edges)):
        g = labels[edges[e, 0]]
        if g == labels[edges[e, 1]]:
            inside[g] += z.dtype.type(1)
            weight[g] += scores[e]
    for g in range(len(mean)):
        weight[g] = weight[g] / inside[g] if inside[g] > 0 else z.dtype.type(1)


@numba.njit(cache=True, nogil=True, fastmath=FAST, error_model="numpy")
def _pool_back(shares, by_weight, labels, edges, inside, of_z, of_scores):  # type: ignore[no-untyped-def]
    """Sets ``of_z``, and ``of_scores`` where it is not 0."""
    for v in range(len(labels)):
        of_z[v] = shares[labels[v]]
    for e in range(len(edges)):
        g = labels[edges[e, 0]]
        if g == labels[edges[e, 1]]:
            of_scores[e] = by_weight[g] / inside[g]
