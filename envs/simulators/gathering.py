"""Lower bounds that know that a device runs one operation at a time: either inputs are gathered on one device, or transfers are paid.

For an operation v on device d, an ancestor u that runs elsewhere cannot help v to start before A(u): u's earliest finish elsewhere, and
from there the longest way to v on which, somewhere, a transfer onto d is paid. If v starts at T, all u with A(u) > T run on d, one after
another, each not before it can start there, and that must be done by T. The least T for which it can be is a bound of v's start on d, and
sharpens those of its descendants. This is the argument of lower bounds for scheduling with communication delays (Papadimitriou and
Yannakakis, SIAM Journal on Computing 19(2), 1990) with times and links of any device. The same on the reversed graph bounds what must
follow an operation; and all operations with a long head and a long tail must share the devices in the time between. Nothing that scores
a placement belongs here.
"""

from __future__ import annotations

import numba
import numpy as np

from envs.problem.problem import Problem


def heads_and_tails(problem: Problem) -> tuple[np.ndarray, np.ndarray]:
    """The least start of every operation on every device, and the least time from its finish to the end, seconds float64[V, D] each;
    infinite where it may not run."""
    seconds = np.where(problem.feasible, problem.compute_seconds, np.inf)
    network, order = problem.network, problem.graph.topological_order
    producers, consumers = problem.graph.edges[:, 0].astype(np.int64), problem.graph.edges[:, 1].astype(np.int64)
    forward, backward = (_csr(*ends, problem.graph.edge_bytes, len(seconds)) for ends in ((consumers, producers), (producers, consumers)))
    head = _starts(order, *forward, problem.leaders, network.delay, network.seconds_per_byte, seconds)
    links = (np.ascontiguousarray(network.delay.T), np.ascontiguousarray(network.seconds_per_byte.T))
    return head, _starts(order[::-1].copy(), *backward, problem.leaders, *links, seconds)


def gathering_bound(problem: Problem, *weights: np.ndarray) -> float:
    """Seconds that no placement's makespan can fall below.

    Args:
        problem: whose makespan is bounded.
        weights: of devices, float64[D] each, not negative: what work on each of them counts where operations share the time between their
            heads and tails. Any weights give a bound; equal ones are tried besides.
    """
    head, tail = heads_and_tails(problem)
    seconds = np.where(problem.feasible, problem.compute_seconds, np.inf)
    through = float((head + seconds + tail).min(axis=1).max())
    for weight in (*weights, np.ones(problem.n_devices)):
        work = np.where(problem.feasible, problem.compute_seconds * weight, np.inf).min(axis=1) / weight.sum()
        through = max(through, float(_between(head.min(axis=1), tail.min(axis=1), work)))
    return through * (1 - 4 * problem.n_nodes * np.finfo(np.float64).eps)


@numba.njit(cache=True)
def _between(head, tail, work):  # type: ignore[no-untyped-def]
    """The largest, over pairs of a head and a tail, of both and the work of all operations that have no less of either."""
    by_tail, best = np.argsort(-tail), 0.0
    for i in range(head.size):
        done = 0.0
        for v in by_tail:
            if head[v] >= head[i]:
                done += work[v]
                best = max(best, head[i] + done + tail[v])
    return best


def _csr(owner: np.ndarray, other: np.ndarray, sizes: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Where the edges of each owner begin, their other ends, and their bytes."""
    by = np.argsort(owner, kind="stable")
    return np.concatenate(([0], np.cumsum(np.bincount(owner, minlength=n)))), other[by], sizes[by]


@numba.njit(cache=True)
def _starts(order, pointer, parents, sizes, leaders, delay, per_byte, seconds):  # type: ignore[no-untyped-def]
    """Least start of every operation on every device, float64[V, D]; infinite where it may not run."""
    n, d = seconds.shape
    start, position = np.full((n, d), np.inf), np.empty(n, dtype=np.int64)
    for i in range(n):
        position[order[i]] = i
    least = np.empty(n)
    for v in range(n):
        least[v] = seconds[v].min()
    off, on = np.full(n, -np.inf), np.full(n, -np.inf)  # from an ancestor's finish, elsewhere or on the device, to the start of v
    for v in order:
        for k in range(d):
            if seconds[v, k] < np.inf:
                start[v, k] = _start(
                    v, k, order, position, pointer, parents, sizes, leaders, delay, per_byte, seconds, start, least, off, on
                )
    return start


@numba.njit(cache=True)
def _arrival(u, k, size, delay, per_byte, seconds, start):  # type: ignore[no-untyped-def]
    """When the output of u is on device k at the earliest, if u runs on another."""
    best = np.inf
    for j in range(delay.shape[0]):
        if j != k:
            best = min(best, start[u, j] + seconds[u, j] + delay[j, k] + size * per_byte[j, k])
    return best


@numba.njit(cache=True)
def _cheapest(delay, per_byte, size, k, other, inward):  # type: ignore[no-untyped-def]
    """The least transfer of ``size`` bytes onto device k from where an operation of times ``other`` may run, or from k to there."""
    best = np.inf
    for j in range(delay.shape[0]):
        if j != k and other[j] < np.inf:
            best = min(best, delay[j, k] + size * per_byte[j, k] if inward else delay[k, j] + size * per_byte[k, j])
    return best


@numba.njit(cache=True)
def _start(v, k, order, position, pointer, parents, sizes, leaders, delay, per_byte, seconds, start, least, off, on):  # type: ignore[no-untyped-def]
    n, d = seconds.shape
    off[:], on[:] = -np.inf, -np.inf
    direct = np.full(n, -np.inf)  # of the parents of v: their arrival from elsewhere by the links that they would really use
    count, away, held, long = 0, np.empty(n), np.empty(n), np.empty(n)
    for i in range(position[v], -1, -1):
        c = order[i]
        if c != v:
            if off[c] == -np.inf:
                continue
            elsewhere = np.inf
            for j in range(d):
                if j != k:
                    elsewhere = min(elsewhere, start[c, j] + seconds[c, j])
            away[count], held[count], long[count] = max(elsewhere + off[c], direct[c]), start[c, k], seconds[c, k]
            count += 1
        for e in range(pointer[c], pointer[c + 1]):
            u = parents[e]
            apart = leaders[u] != leaders[c]
            stays_on = 0.0 if c == v else seconds[c, k] + on[c]
            stays_off = np.inf if c == v else least[c] + off[c]
            comes = _cheapest(delay, per_byte, sizes[e], k, seconds[u], True) + stays_on if apart else np.inf
            goes = _cheapest(delay, per_byte, sizes[e], k, seconds[c], False) + stays_off if apart else np.inf
            if c == v:
                direct[u] = _arrival(u, k, sizes[e], delay, per_byte, seconds, start) if apart else np.inf
            off[u] = max(off[u], min(comes, stays_off))
            on[u] = max(on[u], min(stays_on, goes))
    return _least_time(away[:count], held[:count], long[:count])


@numba.njit(cache=True)
def _least_time(away, held, long):  # type: ignore[no-untyped-def]
    """The least T by which all with away > T can be done one after another, each ``long`` and not before ``held``."""
    count = away.size
    if count == 0:
        return 0.0
    falling, rising = np.argsort(-away), np.argsort(held)
    place = np.empty(count, dtype=np.int64)
    for i in range(count):
        place[falling[i]] = i
    low, high = 0, count  # the first number of gathered ones that take longer than the next one's transfer
    while low < high:
        middle = (low + high) >> 1
        if _done(middle, place, rising, held, long) >= (away[falling[middle]] if middle < count else 0.0):
            high = middle
        else:
            low = middle + 1
    best = max(_done(low, place, rising, held, long), away[falling[low]] if low < count else 0.0)
    if low > 0:
        best = min(best, max(_done(low - 1, place, rising, held, long), away[falling[low - 1]]))
    return best


@numba.njit(cache=True)
def _done(gathered, place, rising, held, long):  # type: ignore[no-untyped-def]
    done = 0.0
    for i in rising:
        if place[i] < gathered:
            done = max(done, held[i]) + long[i]
    return done
