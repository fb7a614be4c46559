"""Feasible placements: random ones, and repair of those that break a constraint. No scoring and no search belong here.

A *unit* is what moves as a whole: a co-location group, or a node that is in none. It is named by its first node.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numba
import numpy as np

from envs.problem.problem import Problem
from methods.placing.list_scheduling import tasks_of


def units(problem: Problem) -> np.ndarray:
    """First node of every unit, ascending, int64[U]."""
    return np.flatnonzero(problem.leaders == np.arange(problem.n_nodes))


def unit_of(problem: Problem) -> np.ndarray:
    """Index into `units` of every node, int64[V]."""
    return np.searchsorted(units(problem), problem.leaders)


def unit_seconds(problem: Problem) -> np.ndarray:
    """Compute seconds of every unit on every device, float64[U, D]."""
    total = np.zeros((len(units(problem)), problem.n_devices))
    np.add.at(total, unit_of(problem), problem.compute_seconds)
    return total


def fastest_feasible(problem: Problem) -> np.ndarray:
    """The device that runs each node's unit fastest among those it may use, int16[V]; the lowest index among equals."""
    fastest = np.where(problem.feasible[units(problem)], unit_seconds(problem), np.inf).argmin(axis=1)
    return fastest[unit_of(problem)].astype(np.int16)


def random_placements(problem: Problem, n: int, rng: np.random.Generator) -> np.ndarray:
    """``n`` placements int16[n, V], every unit uniform over its feasible devices, then made to fit the memory."""
    heads = units(problem)
    allowed = problem.feasible[heads]
    choice = np.argsort(~allowed, axis=1, kind="stable")
    pick = rng.integers(0, allowed.sum(axis=1), size=(n, len(heads)))
    placements = choice[np.arange(len(heads)), pick][:, unit_of(problem)].astype(np.int16)
    return fit_memory(problem, placements)


def first_placement(problem: Problem, seed: np.random.SeedSequence, k: int = 0) -> np.ndarray:
    """The random placement int16[V] that the k-th search of a problem starts from: one and the same for all methods that are compared
    under one seed (GiPH section 5), whatever else they draw and whatever problems are searched beside it.

    Args:
        seed: the method's; of a trial, the first word of its entropy is the trial's seed.
    """
    entropy = seed.entropy
    word = entropy if isinstance(entropy, int) else entropy[0] if entropy else 0
    digest = (int(problem.content_hash[i : i + 8], 16) for i in range(0, 32, 8))
    return random_placements(problem, 1, np.random.default_rng(np.random.SeedSequence([word, *digest, k])))[0]


def make_feasible(problem: Problem, placements: np.ndarray) -> np.ndarray:
    """Placements int16[B, V] with groups together, forbidden devices replaced by the fastest feasible one, and memory fitted."""
    together = problem.colocate(placements)
    allowed = problem.feasible[np.arange(problem.n_nodes), together]
    return fit_memory(problem, np.where(allowed, together, fastest_feasible(problem)))


def fits(problem: Problem, placements: np.ndarray) -> np.ndarray:
    """Which placements int16[B, V] overflow no device's memory, bool[B]."""
    if np.isinf(problem.network.memory).all():
        return np.ones(len(placements), dtype=bool)
    return np.all(problem.memory_used(placements) <= problem.network.memory, axis=1)


class Fitting(NamedTuple):
    """What kernels need to know of a problem's memory."""

    unit: np.ndarray
    """Unit of every node, int64[V]."""
    held: np.ndarray
    """Bytes that every node holds, float64[V]."""
    need: np.ndarray
    """Bytes that every unit holds, float64[U]."""
    seconds: np.ndarray
    """Of every unit on every device, float64[U, D]."""
    feasible: np.ndarray
    """bool[U, D]."""
    memory: np.ndarray
    """Bytes that every device has, float64[D]."""
    limited: bool
    """Whether everything together is too much for some device."""


@lru_cache(maxsize=16)
def fitting(problem: Problem) -> Fitting:
    """Made once a problem."""
    heads, memory = units(problem), problem.network.memory
    need, held = tasks_of(problem).group_need[heads], problem.held_bytes
    limited = bool(memory.min() < held.sum() * (1 + 1e-9))  # sums differ by their order
    return Fitting(unit_of(problem), held, need, unit_seconds(problem), problem.feasible[heads], memory, limited)


def fit_memory(problem: Problem, placements: np.ndarray) -> np.ndarray:
    """Placements int16[B, V] with units moved off overflowing devices, least slowdown per byte freed first.

    Where that fails, all units are packed anew, largest first: on their old device if it has room, or, where that fails too, on
    the device that they fill most. What still does not fit (this is bin packing, so a fit may be missed) is returned unchanged:
    the evaluator will say that it is out of memory.
    """
    good = fits(problem, placements)
    if good.all():
        return placements
    heads, unit = units(problem), unit_of(problem)
    fixed = placements.copy()
    for row in np.flatnonzero(~good):
        device = placements[row, heads].astype(np.int16)
        _repair(device, fitting(problem))
        fixed[row] = device[unit]
    return fixed


@numba.njit(cache=True, nogil=True)
def fit_units(device, fitting):
    """`fit_memory` of one placement, given as the devices of its units int16[U], in place."""
    if fitting.limited:
        used = np.zeros(fitting.memory.size)
        for v in range(fitting.unit.size):  # added up node by node, as `Problem.memory_used` does, so that the sums are the same
            used[device[fitting.unit[v]]] += fitting.held[v]
        if (used > fitting.memory).any():
            _repair(device, fitting)


@numba.njit(cache=True, nogil=True)
def _repair(device, fitting):
    """Makes the devices of units int16[U] fit, or leaves them as they are."""
    old = device.copy()
    need, seconds, feasible, memory = fitting.need, fitting.seconds, fitting.feasible, fitting.memory
    if _move_off(device, need, seconds, feasible, memory):
        return
    for at_home in (True, False):
        device[:] = old
        if _pack(device, need, seconds, feasible, memory, at_home):
            return
    device[:] = old


@numba.njit(cache=True, nogil=True)
def _move_off(device, need, seconds, feasible, memory):
    n, d = seconds.shape
    score, target = np.empty(n), np.empty(n, dtype=np.int64)
    moved = True
    while moved:
        used = np.zeros(d)
        for u in range(n):
            used[device[u]] += need[u]
        over = np.argmax(used - memory)
        if used[over] <= memory[over]:
            return True
        excess = used[over] - memory[over]
        for u in range(n):
            score[u] = np.inf
            if device[u] == over and need[u] > 0.0:
                for k in range(d):
                    if feasible[u, k] and used[k] + need[u] <= memory[k]:
                        cost = (seconds[u, k] - seconds[u, over]) / min(need[u], excess)
                        if cost < score[u]:
                            score[u], target[u] = cost, k
        moved = False
        for u in np.argsort(score, kind="mergesort"):
            if score[u] == np.inf or used[over] <= memory[over]:
                break
            k = target[u]
            if used[k] + need[u] <= memory[k]:
                device[u] = k
                used[k] += need[u]
                used[over] -= need[u]
                moved = True
    return False


@numba.njit(cache=True, nogil=True)
def _pack(device, need, seconds, feasible, memory, at_home):
    room = memory.copy()
    for u in np.argsort(-need, kind="mergesort"):
        best = -1
        if at_home and need[u] <= room[device[u]]:
            best = device[u]
        else:
            for k in range(memory.size):
                if feasible[u, k] and need[u] <= room[k]:
                    better = best < 0 or (seconds[u, k] < seconds[u, best] if at_home else room[k] < room[best])
                    if better:
                        best = k
        if best < 0:
            return False
        device[u] = best
        room[best] -= need[u]
    return True
