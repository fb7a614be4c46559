"""Two-way message passing over gpNets (GiPH section 4.2.2, equations 1 and 4), compiled, with its exact gradient.

One direction computes, for every option u with parents ξ(u),

    e_u = relu(W2 · mean_{v in ξ(u)} relu(W1 [e_v ‖ x_vu] + b1) + b2) + x_u,

either once through the tasks in topological order, every option after all its parents (equation 1), or for k rounds in
which all options read the embeddings of the round before, starting from x_u (equation 4). The other direction is the same over the
reversed edges with parameters of its own. Inside a pivot's sum stand all options of each parent task, inside any
other option's only the parents' pivots, so one pass costs O(gpNet edges) and needs no index of them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numba
import numpy as np
import torch
from torch import Tensor, nn

from envs.problem.compiled import FAST
from methods.nets.gpnet import EDGE_FEATURES, GpNets, Layout, States


class MessagePassing(nn.Module):
    """One direction of equation 1 (``rounds=0``) or equation 4 (``rounds=k``).

    Args:
        size: length of the embeddings.
        message: length of the messages.
        edge_features: whether messages see the edges' features.
        rounds: 0 for one pass in topological order, else the number k of rounds.
        reverse: pass messages along the reversed edges.
    """

    def __init__(self, size: int, message: int, *, edge_features: bool = True, rounds: int = 0, reverse: bool = False) -> None:
        super().__init__()
        self.h1 = nn.Linear(size + (EDGE_FEATURES if edge_features else 0), message)
        self.h2 = nn.Linear(message, size)
        self.rounds, self.reverse = rounds, reverse

    def forward(self, x: Tensor, nets: GpNets) -> Tensor:
        """Embeddings [N, size] of the options of ``nets`` from their own features ``x`` [N, size]."""
        result: Tensor = _Pass.apply(x, self.h1.weight, self.h1.bias, self.h2.weight, self.h2.bias, nets, self.rounds, self.reverse)
        return result


class Graphs(NamedTuple):
    """The gpNets that messages pass over; see `GpNets`."""

    layout: Layout
    states: States
    pivot: np.ndarray
    features: np.ndarray
    """Of the edges' slots, in the type of the embeddings, [slots, 4]."""


class Weights(NamedTuple):
    """Of a direction, or their gradients."""

    w1: np.ndarray
    b1: np.ndarray
    w2: np.ndarray
    b2: np.ndarray


class Kept(NamedTuple):
    """What a pass computes and its gradient needs, for each of R rounds (at least one) and N options."""

    e: np.ndarray
    """Embeddings, [R, N, size]."""
    y: np.ndarray
    """W2 · mean + b2, [R, N, size]."""
    source: np.ndarray
    """W1 · e + b1 of the embeddings that messages are made of, [R, N, message]."""
    mean: np.ndarray
    """Mean message, [R, N, message]."""


class _Pass(torch.autograd.Function):
    """The compiled pass as one differentiable operation."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, w1: Tensor, b1: Tensor, w2: Tensor, b2: Tensor, nets: GpNets, rounds: int, reverse: bool) -> Tensor:
        xs, *arrays = (np.ascontiguousarray(t.detach().numpy()) for t in (x, w1, b1, w2, b2))
        of_size, of_message = (max(rounds, 1), len(x), xs.shape[1]), (max(rounds, 1), len(x), len(b1))
        kept = Kept(*(np.empty(shape, dtype=xs.dtype) for shape in (of_size, of_size, of_message, of_message)))
        # relocations rewrite the features in place, so a pass that will be differentiated keeps its own
        features = nets.edge_features.astype(xs.dtype, copy=any(ctx.needs_input_grad))
        graphs = Graphs(nets.layout, nets.states, nets.pivot, features)
        _forward(graphs, rounds, reverse, xs, Weights(*arrays), kept)  # type: ignore[call-arg]
        ctx.saved = (graphs._replace(pivot=nets.pivot.copy()), rounds, reverse, xs, Weights(*arrays), kept)
        return torch.from_numpy(kept.e[-1])

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Tensor | None, ...]:
        (grad,) = grads
        *_, xs, weights, _ = ctx.saved
        gx, found = np.zeros_like(xs), Weights(*map(np.zeros_like, weights))
        _backward(*ctx.saved, np.ascontiguousarray(grad.numpy()), gx, found)  # type: ignore[call-arg]
        return (*[torch.from_numpy(g) for g in (gx, *found)], None, None, None)


@numba.njit(cache=True, nogil=True)
def _direction(layout, reverse):
    """CSR of the task edges that messages to each task come along."""
    if reverse:
        return layout.out_ptr, layout.out_edges
    return layout.in_ptr, layout.in_edges


@numba.njit(cache=True, nogil=True)
def _shifts(layout, states, s):
    """What to add to a layout's number of a task, option and slot to get its place in state s; and the state's tasks."""
    g = states.problem[s]
    first = layout.task_ptr[g]
    to_option = states.option_at[s] - layout.option_ptr[first]
    to_slot = states.slot_at[s] - layout.slot_ptr[layout.edge_ptr[g]]
    return states.task_at[s] - first, to_option, to_slot, first, layout.task_ptr[g + 1] - first


@numba.njit(cache=True, nogil=True)
def _blocks(layout, edge, to_option, to_slot, reverse):
    """The edge's task at the sending end: itself, its first option and its number of options, and the slots of both parts.

    ``to_target`` are the slots of the sender's pivot to every option of the target, ``to_pivot`` of every option of the sender
    to the target's pivot.
    """
    i, j = layout.edges[edge, 0], layout.edges[edge, 1]
    entering = to_slot + layout.slot_ptr[edge]
    leaving = entering + layout.option_ptr[j + 1] - layout.option_ptr[j]
    sender = j if reverse else i
    first, count = to_option + layout.option_ptr[sender], layout.option_ptr[sender + 1] - layout.option_ptr[sender]
    return (sender, first, count, leaving, entering) if reverse else (sender, first, count, entering, leaving)


@numba.njit(cache=True, nogil=True, fastmath=FAST)
def _apply(weight, vector, bias, out):
    """out = weight · vector + bias."""
    for a in range(len(out)):
        total = bias[a]
        for c in range(len(vector)):
            total += weight[a, c] * vector[c]
        out[a] = total


@numba.njit(cache=True, nogil=True, fastmath=FAST)
def _apply_back(weight, vector, grad, grad_weight, grad_bias, grad_vector):
    """Add the gradients of `_apply` for the gradient ``grad`` of its result."""
    for a in range(len(grad)):
        if grad[a] != 0:
            grad_bias[a] += grad[a]
            for c in range(len(vector)):
                grad_weight[a, c] += grad[a] * vector[c]
                grad_vector[c] += grad[a] * weight[a, c]


@numba.njit(cache=True, nogil=True, fastmath=FAST)
def _receive(source, w1x, features, total):
    """Add one message relu(source + W1x · x_vu) to ``total``."""
    zero = source.dtype.type(0)
    for c in range(len(total)):
        z = source[c]
        for f in range(EDGE_FEATURES):
            z += w1x[f, c] * features[f]
        total[c] += max(z, zero)


@numba.njit(cache=True, nogil=True, fastmath=FAST)
def _receive_back(source, w1x, features, grad, grad_source, grad_w1x):
    """Add the gradients of `_receive`."""
    zero = source.dtype.type(0)
    for c in range(len(grad)):
        z = source[c]
        for f in range(EDGE_FEATURES):
            z += w1x[f, c] * features[f]
        passed = grad[c] if z > zero else zero
        grad_source[c] += passed
        for f in range(EDGE_FEATURES):
            grad_w1x[f, c] += passed * features[f]


@numba.njit(cache=True, nogil=True, fastmath=FAST)
def _gather(graphs, task, shifts, reverse, w1x, source, mean):
    """Mean message to every option of one task."""
    layout, pivot, features = graphs.layout, graphs.pivot, graphs.features
    pointer, ids = _direction(layout, reverse)
    to_task, to_option, to_slot = shifts
    base, count = to_option + layout.option_ptr[task], layout.option_ptr[task + 1] - layout.option_ptr[task]
    on, senders = pivot[to_task + task], 0
    mean[base : base + count] = 0
    for k in range(pointer[task], pointer[task + 1]):
        other, other_base, others, to_target, to_pivot = _blocks(layout, ids[k], to_option, to_slot, reverse)
        sender = pivot[to_task + other]
        for q in range(count):
            if base + q != on:
                _receive(source[sender], w1x, features[to_target + q], mean[base + q])
        for q in range(others):
            _receive(source[other_base + q], w1x, features[to_pivot + q], mean[on])
        senders += others
    degree = pointer[task + 1] - pointer[task]
    if degree > 0:
        for u in range(base, base + count):
            factor = source.dtype.type(1.0 / (senders if u == on else degree))
            for c in range(mean.shape[1]):
                mean[u, c] *= factor


@numba.njit(cache=True, nogil=True, fastmath=FAST)
def _scatter(graphs, task, shifts, reverse, w1x, source, grad_mean, grad_source, grad_w1x):
    """The gradient of `_gather`; scales ``grad_mean`` of the task's options in place."""
    layout, pivot, features = graphs.layout, graphs.pivot, graphs.features
    pointer, ids = _direction(layout, reverse)
    to_task, to_option, to_slot = shifts
    base, count = to_option + layout.option_ptr[task], layout.option_ptr[task + 1] - layout.option_ptr[task]
    on, senders, degree = pivot[to_task + task], 0, pointer[task + 1] - pointer[task]
    for k in range(pointer[task], pointer[task + 1]):
        senders += _blocks(layout, ids[k], to_option, to_slot, reverse)[2]
    if degree > 0:
        for u in range(base, base + count):
            factor = source.dtype.type(1.0 / (senders if u == on else degree))
            for c in range(grad_mean.shape[1]):
                grad_mean[u, c] *= factor
    for k in range(pointer[task], pointer[task + 1]):
        other, other_base, others, to_target, to_pivot = _blocks(layout, ids[k], to_option, to_slot, reverse)
        sender = pivot[to_task + other]
        for q in range(count):
            if base + q != on:
                _receive_back(source[sender], w1x, features[to_target + q], grad_mean[base + q], grad_source[sender], grad_w1x)
        for q in range(others):
            u = other_base + q
            _receive_back(source[u], w1x, features[to_pivot + q], grad_mean[on], grad_source[u], grad_w1x)


@numba.njit(cache=True, nogil=True)
def _split(w1, size):
    """The parts of W1 for embeddings and for edge features (transposed; zeros if messages do not see them)."""
    w1x = np.zeros((EDGE_FEATURES, len(w1)), dtype=w1.dtype)
    w1x[: w1.shape[1] - size] = w1[:, size:].T
    return np.ascontiguousarray(w1[:, :size]), w1x


@numba.njit(cache=True, nogil=True)
def _forward(graphs, rounds, reverse, x, weights, kept):
    """Fill ``kept`` from the options' own features ``x`` [N, size]."""
    layout, states = graphs.layout, graphs.states
    w1, b1, w2, b2 = weights
    e, y, source, mean = kept
    size = x.shape[1]
    w1e, w1x = _split(w1, size)
    for s in range(len(states.problem)):
        to_task, to_option, to_slot, first, n_tasks = _shifts(layout, states, s)
        for r in range(max(rounds, 1)):
            if rounds > 0:
                for u in range(states.option_at[s], states.option_at[s + 1]):
                    _apply(w1e, x[u] if r == 0 else e[r - 1, u], b1, source[r, u])
            for position in range(n_tasks):
                task = layout.order[first + (n_tasks - 1 - position if reverse else position)]
                _gather(graphs, task, (to_task, to_option, to_slot), reverse, w1x, source[r], mean[r])
                for u in range(to_option + layout.option_ptr[task], to_option + layout.option_ptr[task + 1]):
                    _apply(w2, mean[r, u], b2, y[r, u])
                    for c in range(size):
                        e[r, u, c] = x[u, c] + (y[r, u, c] if y[r, u, c] > 0 else 0)
                    if rounds == 0:
                        _apply(w1e, e[r, u], b1, source[r, u])


@numba.njit(cache=True, nogil=True)
def _backward(graphs, rounds, reverse, x, weights, kept, grad, gx, gradients):
    """Add to ``gx`` [N, size] and ``gradients`` what `_forward` makes of the gradient ``grad`` [N, size] of its last embeddings."""
    layout, states = graphs.layout, graphs.states
    w1, _, w2, _ = weights
    gw1, gb1, gw2, gb2 = gradients
    e, y, source, mean = kept
    size = x.shape[1]
    w1e, w1x = _split(w1, size)
    gw1e, gw1x = np.zeros_like(w1e), np.zeros_like(w1x)
    grad, grad_mean, grad_source = grad.copy(), np.zeros_like(source[0]), np.zeros_like(source[0])
    for s in range(len(states.problem)):
        to_task, to_option, to_slot, first, n_tasks = _shifts(layout, states, s)
        for r in range(max(rounds, 1) - 1, -1, -1):
            for position in range(n_tasks - 1, -1, -1):
                task = layout.order[first + (n_tasks - 1 - position if reverse else position)]
                for u in range(to_option + layout.option_ptr[task], to_option + layout.option_ptr[task + 1]):
                    if rounds == 0:
                        _apply_back(w1e, e[r, u], grad_source[u], gw1e, gb1, grad[u])
                    for c in range(size):
                        gx[u, c] += grad[u, c]
                        if y[r, u, c] <= 0:
                            grad[u, c] = 0
                    _apply_back(w2, mean[r, u], grad[u], gw2, gb2, grad_mean[u])
                shifts = (to_task, to_option, to_slot)
                _scatter(graphs, task, shifts, reverse, w1x, source[r], grad_mean, grad_source, gw1x)
            if rounds > 0:
                for u in range(states.option_at[s], states.option_at[s + 1]):
                    grad[u] = 0
                    if r > 0:
                        _apply_back(w1e, e[r - 1, u], grad_source[u], gw1e, gb1, grad[u])
                    else:
                        _apply_back(w1e, x[u], grad_source[u], gw1e, gb1, gx[u])
                    grad_source[u] = 0
                    grad_mean[u] = 0
    gw1[:, :size] += gw1e
    gw1[:, size:] += gw1x.T[:, : w1.shape[1] - size]
