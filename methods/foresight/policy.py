"""The policy: a small graph network from features to guidance, in plain arrays, so that one vector of parameters is all there is to learn.

Linear maps of the graph's numbers give the weights of the pairs' and ranks' features, and what holds for the whole schedule. A network of
two rounds of messages along the edges, in both directions, raises or lowers the weights for single nodes. All parameters zero is HEFT.
"""

from __future__ import annotations

import numba
import numpy as np

from methods.foresight.features import GRAPH, NODE, PAIR, RANK, Features
from methods.foresight.schedule import Guidance

HIDDEN = 8
"""Numbers that a node's state has."""
WEIGHTS = len(PAIR) + len(RANK)
SHAPES = {
    "weights": (WEIGHTS, len(GRAPH)), "whole": (3, len(GRAPH)), "enter": (HIDDEN, len(NODE) + 1),
    "first": (HIDDEN, 3 * HIDDEN), "second": (HIDDEN, 3 * HIDDEN), "leave": (WEIGHTS, HIDDEN),
}  # fmt: skip
"""Of the parameters, in their order in the vector."""
SIZE = sum(int(np.prod(shape)) for shape in SHAPES.values())


def unpack(theta: np.ndarray) -> dict[str, np.ndarray]:
    """The matrices in a vector of parameters float64[SIZE]."""
    found, at = {}, 0
    for name, shape in SHAPES.items():
        count = int(np.prod(shape))
        found[name] = theta[at : at + count].reshape(shape)
        at += count
    return found


def initial(rng: np.random.Generator) -> np.ndarray:
    """Parameters that give HEFT, with a network whose last layer is zero, float64[SIZE]."""
    parts = [
        np.zeros(shape) if name in ("weights", "whole", "leave") else rng.standard_normal(shape) / np.sqrt(shape[1])
        for name, shape in SHAPES.items()
    ]
    return np.concatenate([p.ravel() for p in parts])


def guide(features: Features, thetas: np.ndarray) -> Guidance:
    """The guidance of each row of ``thetas`` float64[B, SIZE]."""
    b, (v, d, _) = len(thetas), features.pair.shape
    guidance = Guidance(np.empty((b, v, d)), np.empty((b, v)), np.empty(b), np.empty(b), np.empty(b, dtype=np.bool_))
    for i, theta in enumerate(thetas):
        p = unpack(theta)
        whole = p["whole"] @ features.graph
        guidance.patience[i], guidance.gaps[i] = np.maximum(0.0, whole[0]), whole[2] >= 0.0
        guidance.dearer[i] = np.exp(np.clip(whole[1], -2.0, 2.0))
        gain = np.empty((v, WEIGHTS))
        _gains(features, p["enter"], p["first"], p["second"], p["leave"], gain)
        weight = (p["weights"] @ features.graph) * (1.0 + gain)
        _combine(features.pair, features.rank, weight, guidance.bias[i], guidance.priority[i])
    return guidance


@numba.njit(cache=True, nogil=True)
def _combine(pair, rank, weight, bias, priority):
    v, d, n = pair.shape
    for i in range(v):
        for k in range(d):
            total = 0.0
            for j in range(n):
                total += pair[i, k, j] * weight[i, j]
            bias[i, k] = total
        total = rank[i, 0]
        for j in range(rank.shape[1]):
            total += rank[i, j] * weight[i, n + j]
        priority[i] = total


@numba.njit(cache=True, nogil=True)
def _gains(features, enter, first, second, leave, gain):
    """Two rounds of messages, then how much the weights of each node are raised, -1 to 1, into ``gain`` float64[V, WEIGHTS]."""
    v, n = features.node.shape
    h = enter.shape[0]
    state = np.empty((v, h))
    for i in range(v):
        for a in range(h):
            total = enter[a, n]
            for j in range(n):
                total += enter[a, j] * features.node[i, j]
            state[i, a] = np.tanh(total)
    for layer in (first, second):
        before, after = np.zeros((v, h)), np.zeros((v, h))
        parents, children = np.zeros(v), np.zeros(v)
        for e in range(features.producers.size):
            u, w = features.producers[e], features.consumers[e]
            parents[w] += 1.0
            children[u] += 1.0
            for a in range(h):
                before[w, a] += state[u, a]
                after[u, a] += state[w, a]
        following = np.empty((v, h))
        for i in range(v):
            p, c = max(parents[i], 1.0), max(children[i], 1.0)
            for a in range(h):
                total = 0.0
                for j in range(h):
                    total += layer[a, j] * state[i, j] + layer[a, h + j] * before[i, j] / p + layer[a, 2 * h + j] * after[i, j] / c
                following[i, a] = np.tanh(total)
        state = following
    for i in range(v):
        for o in range(leave.shape[0]):
            total = 0.0
            for a in range(h):
                total += leave[o, a] * state[i, a]
            gain[i, o] = np.tanh(total)
