"""DOPPLER's episodes compiled: select a node, place it, keep the estimated schedule (Algorithm 3, Appendix D.2).

With message passing once per episode, everything that the networks compute from the graph alone is known before the first
step; what is left of a step is the choice by fixed scores and a small network over the devices' features, and that is here.
"""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np

from methods.doppler.features import Instance

FEATURES = 5
LEARNED, BY_RULE = 0, 1
"""Who chooses: the policy, or the rule of critical path (the ablations)."""


class Scores(NamedTuple):
    """What the networks computed: float32 arrays, K hidden units."""

    select: np.ndarray
    """Logit of each node, [V]."""
    node: np.ndarray
    """Each node's part of the hidden layer of the device policy, [V, K]."""
    placed: np.ndarray
    """What each node adds to the hidden layer of the device it is on, [V, K]."""
    device_in: np.ndarray
    """Features to their first layer, [5, K]."""
    device_bias: np.ndarray
    device_out: np.ndarray
    """First layer to the hidden layer, [K, K]."""
    output: np.ndarray
    """Hidden layer to the logit, [K]."""
    slope: float
    """Of LeakyReLU below zero."""


class State(NamedTuple):
    """Where an episode is: what is placed so far, when it runs by the estimate, and what each device was given."""

    waiting: np.ndarray
    """Unplaced producers of each node, int64[V]."""
    device: np.ndarray
    """int64[V]; -1 is not placed."""
    start: np.ndarray
    finish: np.ndarray
    """Estimated schedule, float64[V]."""
    available: np.ndarray
    """When each device has done what it was given, float64[D]."""
    total: np.ndarray
    """Work each device was given, float64[D]."""
    used: np.ndarray
    """Bytes each device was given, float64[D]."""
    hidden: np.ndarray
    """Sum over the nodes on each device of what they add, float32[D, K]."""


class Record(NamedTuple):
    """What learning needs of each step; H = V steps."""

    candidates: np.ndarray
    """bool[H, V]."""
    node: np.ndarray
    device: np.ndarray
    """Chosen, int64[H]."""
    features: np.ndarray
    """X_D for the chosen node, float32[H, D, 5]."""
    open: np.ndarray
    """Devices that the node could go to, bool[H, D]."""
    teacher_node: np.ndarray
    teacher_device: np.ndarray
    teacher_features: np.ndarray
    teacher_open: np.ndarray


def new_state(inst: Instance, hidden: int) -> State:
    """The state before the first decision: nothing is placed."""
    v, d = inst.seconds.shape
    waiting = np.diff(inst.in_pointer).astype(np.int64)
    return State(
        waiting, np.full(v, -1, dtype=np.int64), np.zeros(v), np.zeros(v), np.zeros(d), np.zeros(d), np.zeros(d),
        np.zeros((d, hidden), dtype=np.float32),
    )  # fmt: skip


def new_record(inst: Instance) -> Record:
    """An empty `Record` with room for the decision of every operation."""
    v, d = inst.seconds.shape

    def one() -> tuple[np.ndarray, ...]:
        features = np.zeros((v, d, FEATURES), dtype=np.float32)
        return np.zeros(v, dtype=np.int64), np.zeros(v, dtype=np.int64), features, np.ones((v, d), dtype=bool)

    return Record(np.zeros((v, v), dtype=bool), *one(), *one())


@numba.njit(cache=True, nogil=True)
def _look(v, parents, sizes, seconds, delay, per_byte, free, feasible, leaders, need, memory, state, features, allowed, starts):
    """Device features of node v (D.2) into ``features`` float32[D, 5], devices open to it, and its start on each, float64[D]."""
    devices = seconds.shape[1]
    features[:] = 0.0
    some = False
    for d in range(devices):
        earliest = np.inf
        ready = state.available[d]
        for i in range(parents.size):
            u = parents[i]
            if state.device[u] == d:
                features[d, 1] += seconds[u, d]
                earliest = min(earliest, state.start[u])
                features[d, 3] = max(features[d, 3], state.finish[u])
            if not free[u]:
                home = state.device[u]
                ready = max(ready, state.finish[u] + delay[home, d] + sizes[i] * per_byte[home, d])
        features[d, 0] = state.total[d]
        features[d, 2] = 0.0 if earliest == np.inf else earliest
        features[d, 4] = starts[d] = ready
        allowed[d] = feasible[v, d] and state.used[d] + need[leaders[v]] <= memory[d]
        some = some or allowed[d]
    leader = leaders[v]
    home = -1
    for u in range(leaders.size):  # a co-location group is where its first placed member is
        if leaders[u] == leader and state.device[u] >= 0:
            home = state.device[u]
            break
    if home >= 0:
        for d in range(devices):
            allowed[d] = d == home
    elif not some:  # no room anywhere: the evaluator will say so
        for d in range(devices):
            allowed[d] = feasible[v, d]


@numba.njit(cache=True, nogil=True)
def _earliest(starts, allowed):
    """The allowed device of the earliest start; the lowest index among equals."""
    best = -1
    for d in range(allowed.size):
        if allowed[d] and (best < 0 or starts[d] < starts[best]):
            best = d
    return best


@numba.njit(cache=True, nogil=True)
def _pick(logits, allowed, softmax, uniform):
    """The largest allowed logit, or one drawn from the softmax of the allowed ones."""
    best = -1
    for i in range(allowed.size):
        if allowed[i] and (best < 0 or logits[i] > logits[best]):
            best = i
    if not softmax:
        return best
    total = 0.0
    for i in range(allowed.size):
        if allowed[i]:
            total += np.exp(logits[i] - logits[best])
    left = uniform * total
    for i in range(allowed.size):
        if allowed[i]:
            left -= np.exp(logits[i] - logits[best])
            if left <= 0.0:
                return i
    return best


@numba.njit(cache=True, nogil=True)
def _random(allowed, uniform):
    """One of the allowed, each as likely."""
    left = int(uniform * allowed.sum())
    for i in range(allowed.size):
        if allowed[i]:
            if left <= 0:
                return i
            left -= 1
    return -1


@numba.njit(cache=True, nogil=True)
def _device_logits(v, scores, state, features, logits):
    hidden = scores.node.shape[1]
    first = np.empty(hidden, dtype=np.float32)
    layer = np.empty(hidden, dtype=np.float32)
    for d in range(logits.size):
        for k in range(hidden):
            total = scores.device_bias[k]
            for f in range(FEATURES):
                total += features[d, f] * scores.device_in[f, k]
            first[k] = total if total > 0.0 else total * scores.slope
            layer[k] = scores.node[v, k] + state.hidden[d, k]
        for j in range(hidden):
            x = first[j]
            for k in range(hidden):
                layer[k] += x * scores.device_out[j, k]
        total = np.float32(0.0)
        for k in range(hidden):
            x = layer[k]
            total += scores.output[k] * (x if x > 0.0 else x * scores.slope)
        logits[d] = total


@numba.njit(cache=True, nogil=True)
def _settle(v, d, begin, arrays, scores, state):
    """Node v goes to device d, where it is estimated to start at ``begin``."""
    out_pointer, children, seconds, free, leaders, need = arrays[3], arrays[4], arrays[5], arrays[9], arrays[11], arrays[12]
    alone = True
    for u in range(leaders.size):
        if leaders[u] == leaders[v] and state.device[u] >= 0:
            alone = False
            break
    if alone:
        state.used[d] += need[leaders[v]]
    state.device[v] = d
    state.start[v] = begin if not free[v] else 0.0
    state.finish[v] = state.start[v] + seconds[v, d]
    if not free[v]:
        state.available[d] = state.finish[v]
    state.total[d] += seconds[v, d]
    for k in range(scores.placed.shape[1]):
        state.hidden[d, k] += scores.placed[v, k]
    for i in range(out_pointer[v], out_pointer[v + 1]):
        state.waiting[children[i]] -= 1


@numba.njit(cache=True, nogil=True)
def _play(first, last, arrays, scores, select_by, place_by, epsilon, softmax, teach, guide, uniforms, state, record):
    in_pointer, parents, in_bytes, _, _, seconds, delay, per_byte = arrays[:8]
    to_exit, free, feasible, leaders, need, memory = arrays[8:]
    n, devices = seconds.shape
    logits = np.empty(devices, dtype=np.float32)
    starts = np.empty(devices)
    for h in range(first, last):
        candidates = record.candidates[h]
        rule = -1
        for v in range(n):
            candidates[v] = state.waiting[v] == 0 and state.device[v] < 0
            if candidates[v] and (rule < 0 or to_exit[v] > to_exit[rule]):
                rule = v
        if select_by == BY_RULE:
            v = rule
        elif uniforms[h, 0] < epsilon:
            v = _random(candidates, uniforms[h, 1])
        else:
            v = _pick(scores.select, candidates, softmax, uniforms[h, 1])
        if teach:
            span = slice(in_pointer[rule], in_pointer[rule + 1])
            _look(
                rule, parents[span], in_bytes[span], seconds, delay, per_byte, free, feasible, leaders, need, memory, state,
                record.teacher_features[h], record.teacher_open[h], starts,
            )  # fmt: skip
            record.teacher_node[h] = rule
            record.teacher_device[h] = _earliest(starts, record.teacher_open[h])
        span = slice(in_pointer[v], in_pointer[v + 1])
        features, allowed = record.features[h], record.open[h]
        _look(
            v, parents[span], in_bytes[span], seconds, delay, per_byte, free, feasible, leaders, need, memory, state, features, allowed,
            starts,
        )  # fmt: skip
        if place_by == BY_RULE:
            d = _earliest(starts, allowed)
        elif guide[v] >= 0 and allowed[guide[v]]:
            d = guide[v]
        elif uniforms[h, 2] < epsilon:
            d = _random(allowed, uniforms[h, 3])
        else:
            _device_logits(v, scores, state, features, logits)
            d = _pick(logits, allowed, softmax, uniforms[h, 3])
        record.node[h], record.device[h] = v, d
        _settle(v, d, starts[d], arrays, scores, state)


def play(
    inst: Instance, steps: tuple[int, int], scores: Scores, select_by: int, place_by: int, epsilon: float, softmax: bool, teach: bool,
    uniforms: np.ndarray, state: State, record: Record, guide: np.ndarray | None = None,
) -> None:  # fmt: skip
    """Steps ``steps[0]`` to ``steps[1]`` of an episode, changing ``state`` and filling ``record``.

    Args:
        inst: the problem.
        steps: first and one past the last.
        scores: what the networks computed.
        select_by: LEARNED or BY_RULE (longest path to an exit).
        place_by: LEARNED or BY_RULE (earliest start).
        epsilon: probability of a random choice instead of the policy's.
        softmax: draw from the policy instead of taking its best.
        teach: also record what critical path would do in each state.
        uniforms: numbers in [0, 1), float64[V, 4], one row a step.
        state: where the episode is.
        record: of the episode.
        guide: where nodes are put instead of where the policy wants them, int[V]; -1 leaves a node to the policy.
    """
    guide = np.full(inst.problem.n_nodes, -1, dtype=np.int64) if guide is None else guide.astype(np.int64)
    arrays = (
        inst.in_pointer, inst.parents, inst.in_bytes, inst.out_pointer, inst.children, inst.seconds, inst.delay, inst.per_byte,
        inst.to_exit, inst.free, inst.feasible, inst.leaders, inst.need, inst.memory,
    )  # fmt: skip
    _play(steps[0], steps[1], arrays, scores, select_by, place_by, epsilon, softmax, teach, guide, uniforms, state, record)
