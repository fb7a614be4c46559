"""What Placeto computes of a graph, compiled: features, message passing, pools, and their exact gradient; and the policy on top of them.

One direction of message passing computes, for every task u with parents ξ(u),

    e_u' = relu(W2 · mean_{v in ξ(u)} relu(W1 e_v + b1) + b2) + x_u,

k times from e = x, the node transform of the features (GiPH's equation 4 on the task graph, without features of edges); the other is the
same over the reversed edges. Arrays are [channels, tasks x states], so that a handful of states costs little more than one. A gradient
does the forward pass again: that is cheaper than to keep it for all steps of an episode.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numba
import numpy as np
import torch
from torch import Tensor, nn

from envs.problem.compiled import fast_loop, loop, part
from envs.problem.problem import Problem
from methods.placing.constraints import units

FEATURES = 5
RELATIONS = 4
"""Itself, ancestor, descendant, parallel."""
BLOCK = 8
"""States that go through the graph together."""


class Traversal(NamedTuple):
    """What Placeto sees of one problem: the order of visits, fixed features, and how tasks relate."""

    order: np.ndarray
    """Tasks visited (the first of each co-location group), int64[U]."""
    turn: np.ndarray
    """When each task's group is visited, int64[V]."""
    fixed: np.ndarray
    """Mean compute time and mean output bytes, scaled to [-1, 1], float32[2, V]."""
    allowed: np.ndarray
    """Devices that each task may use, of those that the policy can choose among, bool[V, devices]."""
    relation: np.ndarray
    """How every task (column) relates to every task (row): itself 0, ancestor 1, descendant 2, parallel 3; int8[V, V]."""
    in_pointer: np.ndarray
    parents: np.ndarray
    """CSR of each task's parents, int64[V + 1] and int64[E]."""
    out_pointer: np.ndarray
    children: np.ndarray
    """CSR of each task's children, int64[V + 1] and int64[E]."""


def traversal(problem: Problem, devices: int) -> Traversal:
    """Of ``problem`` for a policy of at least as many ``devices``."""
    graph, heads = problem.graph, units(problem)
    order = graph.topological_order[np.isin(graph.topological_order, heads)]
    turn = np.empty(problem.n_nodes, dtype=np.int64)
    turn[order] = np.arange(len(order))
    compute = (problem.compute_seconds * problem.feasible).sum(axis=1) / problem.feasible.sum(axis=1)
    count = np.maximum(np.bincount(graph.edges[:, 0], minlength=problem.n_nodes), 1)
    output = np.bincount(graph.edges[:, 0], weights=graph.edge_bytes, minlength=problem.n_nodes) / count
    allowed = np.zeros((problem.n_nodes, devices), dtype=bool)
    allowed[:, : problem.n_devices] = problem.feasible
    (in_pointer, into), (out_pointer, out) = graph.in_edges, graph.out_edges
    ends = graph.edges.astype(np.int64)
    return Traversal(
        order.astype(np.int64), turn[problem.leaders], np.stack([_scaled(compute), _scaled(output)]).astype(np.float32), allowed,
        _relations(problem), in_pointer, ends[into, 0], out_pointer, ends[out, 1],
    )  # fmt: skip


def _scaled(values: np.ndarray) -> np.ndarray:
    width = np.ptp(values)
    return (values - values.min()) * (2 / width) - 1 if width > 0 else np.zeros_like(values)


def _relations(problem: Problem) -> np.ndarray:
    n, graph = problem.n_nodes, problem.graph
    pointer, ids = graph.in_edges
    above = np.zeros((n, n), dtype=bool)
    for v in graph.topological_order:
        parents = graph.edges[ids[pointer[v] : pointer[v + 1]], 0]
        above[v] = above[parents].any(axis=0)
        above[v, parents] = True
    relation = np.full((n, n), 3, dtype=np.int8)
    relation[above], relation[above.T] = 1, 2
    np.fill_diagonal(relation, 0)
    return relation


class Visits(NamedTuple):
    """Some states of one problem."""

    tasks: Traversal
    placement: np.ndarray
    """int[S, V]."""
    turn: np.ndarray
    """Which visit is next, int[S]."""


class Arrays(NamedTuple):
    """A network's parameters, float32: `PlacetoNetwork.layers`, and the policy's two layers."""

    weights: np.ndarray
    biases: np.ndarray
    w1: np.ndarray
    b1: np.ndarray
    w2: np.ndarray
    b2: np.ndarray


class Direction(nn.Module):
    """The weights of one direction's messages."""

    def __init__(self) -> None:
        super().__init__()
        self.h1, self.h2 = nn.Linear(FEATURES, FEATURES), nn.Linear(FEATURES, FEATURES)


class PlacetoNetwork(nn.Module):
    """Embedding and policy (Tables 4 and 5: 5 features, embeddings of 5 in each direction, summary of 40)."""

    def __init__(self, rounds: int, hidden: int, devices: int) -> None:
        super().__init__()
        n = FEATURES
        self.rounds = rounds
        self.transform = nn.ModuleList(nn.Sequential(nn.Linear(n, n), nn.ReLU(), nn.Linear(n, n)) for _ in range(2))
        self.passes = nn.ModuleList(Direction() for _ in range(2))
        self.policy = nn.Sequential(nn.Linear(2 * n * RELATIONS, hidden), nn.ReLU(), nn.Linear(hidden, devices))

    def layers(self) -> tuple[Tensor, Tensor]:
        """The embedding's weights [2, 4, 5, 5] and biases [2, 4, 5]: of each direction the transform's two layers, W1 and W2."""
        shape, weights, biases = (2, 4, FEATURES), list[Tensor](), list[Tensor]()
        for transform, direction in zip(self.transform, self.passes, strict=True):
            for layers in (transform, direction):
                weights += [layer.weight for layer in layers.children() if isinstance(layer, nn.Linear)]
                biases += [layer.bias for layer in layers.children() if isinstance(layer, nn.Linear)]
        return torch.cat(weights).view(*shape, FEATURES), torch.cat(biases).view(shape)

    def arrays(self) -> Arrays:
        """The parameters as they are now, for `log_probabilities`."""
        with torch.no_grad():
            every = (*self.layers(), *(self.policy[k].get_parameter(name) for k in (0, 2) for name in ("weight", "bias")))
            return Arrays(*(x.detach().clone().numpy() for x in every))

    def forward(self, parts: Sequence[Visits]) -> Tensor:
        """Log-probabilities of the devices [S, devices] for the visited task of each state, part by part."""
        weights, biases = self.layers()
        summary = torch.cat([_Summary.apply(weights, biases, part, self.rounds) for part in parts])
        allowed = np.concatenate([p.tasks.allowed[p.tasks.order[p.turn]] for p in parts])
        return torch.log_softmax(self.policy(summary).masked_fill(torch.from_numpy(~allowed), -torch.inf), dim=1)


class _Summary(torch.autograd.Function):
    """The visited task's embedding beside the means over its ancestors, its descendants and all that runs in parallel, [S, 40]."""

    @staticmethod
    def forward(ctx: Any, weights: Tensor, biases: Tensor, part: Visits, rounds: int) -> Tensor:
        placement = np.ascontiguousarray(part.placement, dtype=np.int16)
        turn = np.ascontiguousarray(part.turn, dtype=np.int64)
        ctx.given = part.tasks, weights.detach().numpy(), biases.detach().numpy(), placement, turn, rounds
        return torch.from_numpy(summaries(*ctx.given))

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Tensor | None, ...]:
        weights, biases = _gradients(*ctx.given, np.ascontiguousarray(grads[0].numpy()))  # type: ignore[call-arg]
        return torch.from_numpy(weights), torch.from_numpy(biases), None, None


@numba.njit(cache=True, nogil=True)
def features(tasks, placement, turn):
    """The five features of Appendix B.7 for placements [S, V] in which visit ``turn`` [S] is next, float32[5, V x S]."""
    out = np.empty((FEATURES, placement.size), dtype=np.float32)
    _features(tasks.fixed, tasks.turn, max(tasks.allowed.shape[1] - 1, 1), placement, turn, out)
    return out


@loop
def _features(fixed, turns, last, placement, turn, out):
    states, n = placement.shape
    for v in range(n):
        for s in range(states):
            i = v * states + s
            out[0, i], out[1, i] = fixed[0, v], fixed[1, v]
            out[2, i] = 2 * placement[s, v] / last - 1
            out[3, i] = turns[v] == turn[s]
            out[4, i] = turns[v] < turn[s]


@fast_loop
def _apply(weight, bias, x, out):
    """out = weight · x + bias, [a, n]."""
    for a in range(len(out)):
        out[a] = bias[a]
        for c in range(len(x)):
            factor, given, into = weight[a, c], x[c], out[a]
            for i in range(len(given)):
                into[i] += factor * given[i]


@fast_loop
def _apply_back(weight, x, grad, grad_weight, grad_bias, grad_x):
    """Adds the gradients of `_apply` by its parameters, and replaces the one by ``x``."""
    for c in range(len(x)):
        grad_x[c] = 0
    for a in range(len(grad)):
        given = grad[a]
        total = given.dtype.type(0)
        for i in range(len(given)):
            total += given[i]
        grad_bias[a] += total
        for c in range(len(x)):
            total, factor, by, into = given.dtype.type(0), weight[a, c], x[c], grad_x[c]
            for i in range(len(given)):
                total += given[i] * by[i]
                into[i] += factor * given[i]
            grad_weight[a, c] += total


@part
def _gather_one(pointer, senders, u, states, given, factor, into):
    """`_gather` of one task and channel."""
    to = np.uint64(u * states)
    for s in range(states):
        into[to + np.uint64(s)] = 0
    for k in range(pointer[u], pointer[u + 1]):
        of = np.uint64(senders[k] * states)
        for s in range(states):
            into[to + np.uint64(s)] += given[of + np.uint64(s)]
    for s in range(states):
        into[to + np.uint64(s)] *= factor


@fast_loop
def _gather(pointer, senders, states, x, factor, out):
    """out_u = factor_u · sum of x over the senders to u, in every channel and state."""
    for c in range(len(x)):
        given, into = x[c], out[c]
        for u in range(len(factor)):
            if states == 1:
                total = given.dtype.type(0)
                for k in range(pointer[u], pointer[u + 1]):
                    total += given[senders[k]]
                into[u] = total * factor[u]
                continue
            if states == BLOCK:  # a number that the compiler knows: one addition for all states
                _gather_one(pointer, senders, u, BLOCK, given, factor[u], into)
            else:
                _gather_one(pointer, senders, u, states, given, factor[u], into)


@numba.njit(cache=True, nogil=True)
def _inverse_degrees(pointer):
    """1 / the number of senders to each task, 1 where there are none (a mean of nothing is 0)."""
    factor = np.ones(len(pointer) - 1, dtype=np.float32)
    for u in range(len(factor)):
        if pointer[u + 1] > pointer[u]:
            factor[u] = 1.0 / (pointer[u + 1] - pointer[u])
    return factor


@numba.njit(cache=True, nogil=True)
def _edges(tasks, backwards):
    """CSR of those who send to each task, and of those whom it sends to."""
    if backwards:
        return (tasks.out_pointer, tasks.children), (tasks.in_pointer, tasks.parents)
    return (tasks.in_pointer, tasks.parents), (tasks.out_pointer, tasks.children)


@fast_loop
def _relu(x):
    for c in range(len(x)):
        row = x[c]
        for i in range(len(row)):
            row[i] = max(row[i], row.dtype.type(0))


@fast_loop
def _mask(grad, x):
    """The gradient of `_relu` whose result is ``x`` (or was made of it)."""
    for c in range(len(x)):
        given, row = grad[c], x[c]
        for i in range(len(row)):
            given[i] = given[i] if row[i] > 0 else row.dtype.type(0)


@loop
def _scale(x, factor, states):
    """x_u *= factor_u, in every channel and state."""
    for c in range(len(x)):
        for u in range(len(factor)):
            for s in range(states):
                x[c, u * states + s] *= factor[u]


@numba.njit(cache=True, nogil=True)
def _embed(tasks, backwards, weights, biases, x, rounds, states):
    """One direction: hidden layer of the transform [5, n], embeddings [rounds + 1, 5, n], what is sent, its mean, and what is made of
    that, [rounds, 5, n] each."""
    (pointer, senders), _ = _edges(tasks, backwards)
    factor, n = _inverse_degrees(pointer), x.shape[1]
    hidden, e = np.empty((FEATURES, n), dtype=np.float32), np.empty((rounds + 1, FEATURES, n), dtype=np.float32)
    space = np.empty((3, rounds, FEATURES, n), dtype=np.float32)
    sent, mean, made = space[0], space[1], space[2]
    _apply(weights[0], biases[0], x, hidden)
    _relu(hidden)
    _apply(weights[1], biases[1], hidden, e[0])
    for r in range(rounds):
        _apply(weights[2], biases[2], e[r], sent[r])
        _relu(sent[r])
        _gather(pointer, senders, states, sent[r], factor, mean[r])
        _apply(weights[3], biases[3], mean[r], made[r])
        _relu(made[r])
        e[r + 1] = e[0] + made[r]
    return hidden, e, sent, mean, made


@numba.njit(cache=True, nogil=True)
def _embed_back(tasks, backwards, weights, x, rounds, states, kept, grad, grad_weights, grad_biases):
    """Adds to the gradients of one direction's parameters what comes of that of its embeddings, ``grad`` [5, n], which it overwrites."""
    hidden, e, sent, mean, made = kept
    (pointer, _), (back, receivers) = _edges(tasks, backwards)
    factor, ones = _inverse_degrees(pointer), np.ones(len(pointer) - 1, dtype=np.float32)
    by_x, by_mean, by_sent = np.zeros_like(grad), np.empty_like(grad), np.empty_like(grad)
    for r in range(rounds - 1, -1, -1):
        by_x += grad
        _mask(grad, made[r])
        _apply_back(weights[3], mean[r], grad, grad_weights[3], grad_biases[3], by_mean)
        _scale(by_mean, factor, states)
        _gather(back, receivers, states, by_mean, ones, by_sent)
        _mask(by_sent, sent[r])
        _apply_back(weights[2], e[r], by_sent, grad_weights[2], grad_biases[2], grad)
    by_x += grad
    _apply_back(weights[1], hidden, by_x, grad_weights[1], grad_biases[1], by_mean)
    _mask(by_mean, hidden)
    _apply_back(weights[0], x, by_mean, grad_weights[0], grad_biases[0], by_sent)


@loop
def _shares(relation, share):
    """1 / the number of tasks in each ``relation`` [V] to a task; 1 where there are none."""
    share[:] = 0
    for v in range(len(relation)):
        share[relation[v]] += 1
    for k in range(len(share)):
        share[k] = 1.0 / max(share[k], 1.0)


@loop
def _pool(e, relation, s, states, share, total, out):
    """Means of state s's embeddings ``e`` [5, V x S] over the tasks in each relation to one, into ``out`` [4, 5]."""
    for c in range(len(e)):
        total[:] = 0
        for v in range(len(relation)):
            total[relation[v]] += e[c, v * states + s]
        for k in range(len(total)):
            out[k, c] = total[k] * share[k]


@loop
def _pool_back(grad, relation, s, states, share, by_e):
    """The gradient of `_pool` by state s's embeddings, of ``grad`` [4, 5]."""
    for c in range(len(by_e)):
        for v in range(len(relation)):
            by_e[c, v * states + s] = grad[relation[v], c] * share[relation[v]]


@numba.njit(cache=True, nogil=True)
def summaries(tasks, weights, biases, placement, turn, rounds):
    """Of placements int16[S, V] at visits int64[S], float32[S, 40]; see `PlacetoNetwork.layers` for the parameters."""
    out, share, total = np.zeros((len(turn), RELATIONS, 2, FEATURES), dtype=np.float32), np.empty(RELATIONS), np.empty(RELATIONS)
    for first in range(0, len(turn), BLOCK):
        block = slice(first, min(first + BLOCK, len(turn)))
        states = block.stop - first
        x = features(tasks, placement[block], turn[block])
        for d in range(2):
            e = _embed(tasks, d == 1, weights[d], biases[d], x, rounds, states)[1][rounds]
            for s in range(states):
                relation = tasks.relation[tasks.order[turn[first + s]]]
                _shares(relation, share)
                _pool(e, relation, s, states, share, total, out[first + s, :, d])
    return out.reshape(len(turn), -1)


@numba.njit(cache=True, nogil=True)
def log_probabilities(tasks, arrays, placement, turn, rounds):
    """What `PlacetoNetwork` says of a placement int16[V] before visit ``turn``, where no gradient is wanted: float64[devices]."""
    summary = summaries(tasks, arrays.weights, arrays.biases, placement.reshape(1, -1), np.array([turn]), rounds)[0]
    hidden, values = arrays.b1.copy(), arrays.b2.astype(np.float64)
    for a in range(len(hidden)):
        for c in range(len(summary)):
            hidden[a] += arrays.w1[a, c] * summary[c]
    for a in range(len(values)):
        for c in range(len(hidden)):
            values[a] += arrays.w2[a, c] * max(hidden[c], np.float32(0))
        if not tasks.allowed[tasks.order[turn], a]:
            values[a] = -np.inf
    values -= values.max()
    return values - np.log(np.exp(values).sum())


@numba.njit(cache=True, nogil=True)
def _gradients(tasks, weights, biases, placement, turn, rounds, grad):
    """Of the parameters, for the gradient float32[S, 40] of `summaries`."""
    grad_weights, grad_biases, share = np.zeros(weights.shape), np.zeros(biases.shape), np.empty(RELATIONS)
    grad = grad.reshape(len(turn), RELATIONS, 2, FEATURES)
    for first in range(0, len(turn), BLOCK):
        block = slice(first, min(first + BLOCK, len(turn)))
        states = block.stop - first
        x = features(tasks, placement[block], turn[block])
        for d in range(2):
            kept = _embed(tasks, d == 1, weights[d], biases[d], x, rounds, states)
            by_e = np.empty_like(x)
            for s in range(states):
                relation = tasks.relation[tasks.order[turn[first + s]]]
                _shares(relation, share)
                _pool_back(grad[first + s, :, d], relation, s, states, share, by_e)
            _embed_back(tasks, d == 1, weights[d], x, rounds, states, kept, by_e, grad_weights[d], grad_biases[d])
    return grad_weights.astype(np.float32), grad_biases.astype(np.float32)
