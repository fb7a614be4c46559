"""Neighbourhoods of a placement: which units move together, and where to. No acceptance and no scoring belong here.

Single moves are too local on graphs of real models: on a chain, moving one operation adds two transfers. So most moves take a
connected group, a path or a stretch of the topological order along.
"""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np

from envs.problem.problem import Problem
from methods.placing.constraints import unit_of, units
from methods.placing.list_scheduling import planned_chain

OPERATORS = ("single", "swap", "cluster", "component", "path", "stretch", "stretch-all")
"""Kinds of moves; see `propose_move`."""


class UnitGraph(NamedTuple):
    """The problem contracted to its units, as arrays for the kernels."""

    pointer: np.ndarray
    """CSR of neighbours in either direction, int64[U+1]."""
    neighbours: np.ndarray
    """int64[...]; first by bytes shared, most first."""
    feasible: np.ndarray
    """bool[U, D]."""
    order: np.ndarray
    """Units by the topological position of their first node, int64[U]."""
    place: np.ndarray
    """Position of every unit in ``order``, int64[U]."""


def unit_graph(problem: Problem) -> UnitGraph:
    """The graph of units of ``problem`` that moves work on: co-location groups as one, neighbours, feasible devices."""
    unit, heads = unit_of(problem), units(problem)
    n = len(heads)
    ends, weight = unit[problem.graph.edges], problem.graph.edge_bytes
    crossing = ends[:, 0] != ends[:, 1]
    source = np.concatenate((ends[crossing, 0], ends[crossing, 1])).astype(np.int64)
    target = np.concatenate((ends[crossing, 1], ends[crossing, 0])).astype(np.int64)
    keys, inverse = np.unique(source * n + target, return_inverse=True)
    shared = np.bincount(inverse, weights=np.tile(weight[crossing], 2), minlength=len(keys))
    by_weight = np.lexsort((keys % n, -shared, keys // n))
    pointer = np.concatenate(([0], np.cumsum(np.bincount(keys // n, minlength=n))))
    position = np.empty(problem.n_nodes, dtype=np.int64)
    position[problem.graph.topological_order] = np.arange(problem.n_nodes)
    order = np.argsort(position[heads], kind="stable")
    return UnitGraph(pointer, keys[by_weight] % n, problem.feasible[heads], order, np.argsort(order, kind="stable"))


def propose_move(graph: UnitGraph, device: np.ndarray, operator: int, seed: int, size: int, draws: np.ndarray) -> np.ndarray:
    """A changed copy of ``device`` int16[U] (unchanged if the move is not possible).

    The target is, half the time, the device of a neighbour, otherwise any other feasible device of the seed unit; units that
    may not run there stay. By operator: ``single`` moves the seed; ``swap`` exchanges it with a unit of another device;
    ``cluster`` takes up to ``size`` units of the same device connected to it, ``component`` all of them; ``path`` follows up
    to ``size`` units before or after it along most bytes; ``stretch`` takes the units of the same device among ``size``
    consecutive ones of the topological order, ``stretch-all`` those of all devices.

    Args:
        graph: of the problem.
        device: device of every unit.
        operator: index into `OPERATORS`.
        seed: the unit to start from.
        size: how many units to take along.
        draws: uniform random numbers in [0, 1), float64[4].
    """
    return _move(graph, device, operator, seed, size, draws)


class Neighbours:
    """Placements of a problem that are one move away from another, where no trace says what its critical path is: half of the moves begin
    on the path as `methods.placing.list_scheduling.planned` estimates it.

    Args:
        problem: whose nodes are placed.
        matters: nodes whose device is of any influence, bool[V]; at least one of them is moved, if one is found in a few tries.
    """

    TRIES = 20

    def __init__(self, problem: Problem, matters: np.ndarray) -> None:
        self._problem, self._matters = problem, matters
        self._graph, self._unit, self._heads = unit_graph(problem), unit_of(problem), units(problem)
        self._of, self._chain = b"", np.zeros(0, dtype=np.int64)

    def draw(self, placement: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """A neighbour of ``placement`` int[V], int64[V]."""
        if placement.tobytes() != self._of:
            self._of = placement.tobytes()
            self._chain = np.unique(self._unit[planned_chain(self._problem, placement)])
        for _ in range(self.TRIES):
            operator = int(rng.integers(len(OPERATORS)))
            moved = draw_move(self._graph, placement[self._heads].astype(np.int16), operator, rng, self._chain, 0.5)[self._unit]
            if (moved != placement)[self._matters].any():
                break
        return moved.astype(np.int64)


@numba.njit(cache=True, nogil=True)
def draw_move(graph, device, operator, rng, chain, critical):
    """`propose_move` from a random unit, with probability ``critical`` one of ``chain``, taking along 2 to U/2 units (log-uniform).

    For kernels and for Python: a generator gives the same numbers in compiled code as in NumPy's.
    """
    on_chain = len(chain) > 0 and rng.random() < critical
    seed = chain[rng.integers(0, len(chain))] if on_chain else rng.integers(0, len(device))
    size = int(np.exp(rng.uniform(np.log(2.0), np.log(max(2.0, len(device) / 2) + 1))))
    draws = np.empty(4)
    for k in range(4):
        draws[k] = rng.random()
    return _move(graph, device, operator, seed, size, draws)


@numba.njit(cache=True, nogil=True)
def _target(graph, device, seed, draws):
    """A feasible device of ``seed`` other than its own, or -1."""
    first, last = graph.pointer[seed], graph.pointer[seed + 1]
    if draws[0] < 0.5 and last > first:
        span = last - first
        offset = int(draws[1] * span)
        for i in range(span):
            k = device[graph.neighbours[first + (offset + i) % span]]
            if k != device[seed] and graph.feasible[seed, k]:
                return k
    d = graph.feasible.shape[1]
    offset = int(draws[1] * d)
    for i in range(d):
        k = (offset + i) % d
        if k != device[seed] and graph.feasible[seed, k]:
            return k
    return -1


@numba.njit(cache=True, nogil=True)
def _cluster(graph, device, seed, size):
    """Up to ``size`` units of the seed's device connected to it, breadth first, most bytes first."""
    taken = np.zeros(device.size, dtype=np.bool_)
    queue = np.empty(min(size, device.size), dtype=np.int64)
    queue[0], count, head = seed, 1, 0
    taken[seed] = True
    while head < count:
        u = queue[head]
        head += 1
        for e in range(graph.pointer[u], graph.pointer[u + 1]):
            v = graph.neighbours[e]
            if count < queue.size and not taken[v] and device[v] == device[seed]:
                taken[v] = True
                queue[count] = v
                count += 1
    return queue[:count]


@numba.njit(cache=True, nogil=True)
def _path(graph, seed, size, forward):
    """Up to ``size`` units, each the neighbour of the last that shares most bytes with it in one direction of the order."""
    path = [seed]
    u = seed
    while len(path) < size:
        following = -1
        for e in range(graph.pointer[u], graph.pointer[u + 1]):
            v = graph.neighbours[e]
            if (graph.place[v] > graph.place[u]) == forward:
                following = v
                break
        if following < 0:
            break
        u = following
        path.append(u)
    return np.array(path)


@numba.njit(cache=True, nogil=True)
def _move(graph, device, operator, seed, size, draws):
    changed = device.copy()
    n = device.size
    if operator == 1:
        offset = int(draws[2] * n)
        for i in range(n):
            v = (offset + i) % n
            if device[v] != device[seed] and graph.feasible[seed, device[v]] and graph.feasible[v, device[seed]]:
                changed[seed], changed[v] = device[v], device[seed]
                break
        return changed
    target = _target(graph, device, seed, draws)
    if target < 0:
        return changed
    if operator == 0:
        changed[seed] = target
    elif operator in (5, 6):
        low = max(0, graph.place[seed] - int(draws[2] * size))
        for i in range(low, min(n, low + size)):
            u = graph.order[i]
            if (operator == 6 or device[u] == device[seed]) and graph.feasible[u, target]:
                changed[u] = target
    else:
        reach = size if operator == 2 else n
        group = _path(graph, seed, size, draws[2] < 0.5) if operator == 4 else _cluster(graph, device, seed, reach)
        for u in group:
            if graph.feasible[u, target]:
                changed[u] = target
    return changed
