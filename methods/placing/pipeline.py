"""Contiguous splits of a graph into the stages of a pipeline, by dynamic programming over its ideals. No proposing belongs here.

Tarnawski et al., "Efficient Algorithms for Device Placement of DNN Graph Operators" (NeurIPS 2020), section 5.1: a contiguous split is a
chain of ideals (sets of operations that hold with an operation all that it reads), each device taking the difference of two, so the best
split of an ideal over some devices follows from the best splits of its subideals over one device less. What is placed as a whole is a
*piece*: co-location groups, with all that lies on a cycle through them. In a training step backward operations go with the forward
ones of their group, and groups of backward operations alone are ordered like a mirror image. As in the authors' program, a piece
that takes no time and has one neighbour goes with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from heapq import heapify, heappop, heappush

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from envs.problem.problem import Problem
from envs.simulators.period import busy_shares
from methods.placing.constraints import unit_of, units
from methods.placing.split_kernel import Pieces, best_splits
from methods.placing.twin_devices import alike

NOTHING = 1e-9
"""A piece whose time is at most this part of all time takes none."""
MOST_STATES = 512
"""Sets of devices that the recursion tells apart; beyond, devices are taken in one order, those that are fastest first."""
MOST_IDEALS = 60_000
"""Beyond, stages are cut from topological orders of the pieces instead (as many ideals as pieces)."""
MOST_ORDERS = 60
"""Varied orders that are tried then, besides the two that follow branches and levels."""
MOST_STEPS = 1e8
"""At most so many steps of the recursion are spent on them, some seconds; fewer orders are tried then."""


@dataclass(frozen=True, eq=False)
class Split:
    """A contiguous split of a graph over devices, and the period that it has."""

    device: np.ndarray | None
    """int16[V]; None if no split that was looked at fits the devices' memory."""
    period: float
    """The largest load, seconds; infinite without a device."""
    exact: bool
    """Whether no contiguous split has a shorter period."""


@dataclass(frozen=True, eq=False)
class PieceGraph:
    """The problem contracted to its pieces, numbered in a topological order."""

    of_node: np.ndarray
    """int64[V]."""
    edges: np.ndarray
    """What precedes what, int64[F, 2], by what comes after."""

    @property
    def count(self) -> int:
        """How many pieces the split has, one a device that is used."""
        return int(self.of_node.max()) + 1


def best_split(problem: Problem, most_ideals: int = MOST_IDEALS) -> Split:
    """The contiguous split of the shortest period.

    It is exact if the graph has at most ``most_ideals`` ideals, the network at most `MOST_STATES` kinds of sets of devices,
    every device the same links to all others, and every output one size.
    """
    graph = piece_graph(problem)
    first = _linear(problem, graph)
    ideals = _ideals(graph, most_ideals)
    if ideals is None:
        return first
    found = _solve(problem, graph, ideals, first.period)
    return found if found.device is not None else Split(first.device, first.period, found.exact)


def linear_split(problem: Problem) -> Split:
    """The best split of some topological orders of the pieces: quick, and exact on chains only."""
    return _linear(problem, piece_graph(problem))


def _linear(problem: Problem, graph: PieceGraph) -> Split:
    """The best split of two orders, and of variations of the better one, of which the better ones are varied on."""
    level = np.zeros(graph.count, dtype=np.int64)
    for u, v in graph.edges.tolist():  # sorted by their readers, which come after what they read
        level[v] = max(level[v], level[u] + 1)
    orders = [np.arange(graph.count), np.argsort(level, kind="stable")]
    found = [_solve(problem, graph, _chain(order), np.inf) for order in orders]
    which = int(np.argmin([split.period for split in found]))
    best, place = found[which], np.argsort(orders[which]).astype(np.float64)
    rng, n = np.random.default_rng(0), graph.count
    steps = len(_device_sets(_kinds(problem))[1][1]) * n * n / 2
    for _ in range(min(MOST_ORDERS, int(MOST_STEPS / steps))):
        some = rng.random(n) < (2.0 / n) ** rng.random()
        varied = place + some * rng.standard_normal(n) * n ** rng.random()
        split = _solve(problem, graph, _chain(_topological(graph, varied)), best.period)
        if split.device is not None and split.period <= best.period:
            best, place = split, varied
    return Split(best.device, best.period, False)


def _topological(graph: PieceGraph, priority: np.ndarray) -> np.ndarray:
    """The pieces in a topological order, of those that are ready always the one of the least ``priority`` float64[P] next."""
    missing = np.bincount(graph.edges[:, 1], minlength=graph.count)
    readers: list[list[int]] = [[] for _ in range(graph.count)]
    for u, v in graph.edges.tolist():
        readers[u].append(v)
    ready = [(priority[p], p) for p in np.flatnonzero(missing == 0).tolist()]
    heapify(ready)
    order = []
    while ready:
        p = heappop(ready)[1]
        order.append(p)
        for v in readers[p]:
            missing[v] -= 1
            if missing[v] == 0:
                heappush(ready, (priority[v], v))
    return np.array(order)


# --- pieces ----------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=16)
def piece_graph(problem: Problem) -> PieceGraph:
    """What is placed as a whole, and in which order it must come along a pipeline."""
    graph, unit = problem.graph, unit_of(problem)
    n = len(units(problem))
    real, mirrored = _unit_links(problem, unit, n)
    every = np.concatenate((real, mirrored))
    _, component = connected_components(coo_array((np.ones(len(every)), every.T), shape=(n, n)), directed=True, connection="strong")
    real, mirrored = (_distinct(component[links]) for links in (real, mirrored))
    merged = _merge_idle(problem, component[unit].astype(np.int64), real, mirrored)
    return _ordered(merged[component[unit]], _distinct(merged[np.concatenate((real, mirrored))]), graph.topological_order)


def _unit_links(problem: Problem, unit: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Edges between units by forward operations, and mirrored ones by backward operations of units that have no others."""
    graph = problem.graph
    ends, back = unit[graph.edges], graph.backward[graph.edges]
    alone = np.ones(n, dtype=bool)
    alone[unit[~graph.backward]] = False
    mirror = back.all(axis=1) & alone[ends].any(axis=1)
    return _distinct(ends[~back.any(axis=1)]), _distinct(ends[mirror][:, ::-1])


def _distinct(pairs: np.ndarray) -> np.ndarray:
    """Each pair of different ends once, int64[F, 2]."""
    pairs = np.asarray(pairs, dtype=np.int64).reshape(-1, 2)
    return np.unique(pairs[pairs[:, 0] != pairs[:, 1]], axis=0)


def _merge_idle(problem: Problem, piece: np.ndarray, real: np.ndarray, mirrored: np.ndarray) -> np.ndarray:
    """For every piece the one it goes with: its only neighbour, if it takes no time and no backward operation reads or feeds it."""
    graph, n = problem.graph, int(piece.max()) + 1
    slowest = problem.compute_seconds.max(axis=1)
    idle = np.bincount(piece, weights=slowest, minlength=n) <= NOTHING * slowest.sum()
    crossing = graph.backward[graph.edges].sum(axis=1) == 1
    idle[piece[graph.edges[crossing]][~graph.backward[graph.edges[crossing]]]] = False
    refused = np.zeros((n, problem.n_devices), dtype=bool)
    np.logical_or.at(refused, piece, ~problem.feasible)
    around: list[list[int]] = [[] for _ in range(n)]
    for u, v in np.concatenate((real, mirrored)).tolist():
        around[u].append(v)
        around[v].append(u)
    goes = np.arange(n)
    waiting = [p for p in range(n) if idle[p] and len(around[p]) == 1]
    while waiting:
        p = waiting.pop()
        if len(around[p]) != 1 or (refused[p] & ~refused[around[p][0]]).any():
            continue
        other = around[p].pop()
        around[other].remove(p)
        goes[p] = other
        if idle[other] and len(around[other]) == 1:
            waiting.append(other)
    while (goes[goes] != goes).any():
        goes = goes[goes]
    return goes


def _ordered(piece: np.ndarray, edges: np.ndarray, topological: np.ndarray) -> PieceGraph:
    """Pieces numbered in a topological order that follows one branch as far as it goes, so that few outputs are open at any place."""
    position = np.empty(len(piece), dtype=np.int64)
    position[topological] = np.arange(len(piece))
    names, of_node = np.unique(piece, return_inverse=True)
    n = len(names)
    first = np.full(n, len(piece))
    np.minimum.at(first, of_node, position)
    edges = np.searchsorted(names, edges)
    missing = np.bincount(edges[:, 1], minlength=n)
    readers: list[list[int]] = [[] for _ in range(n)]
    for u, v in edges.tolist():
        readers[u].append(v)
    stack = sorted(np.flatnonzero(missing == 0).tolist(), key=lambda p: -first[p])
    number = np.full(n, -1, dtype=np.int64)
    for i in range(n):
        p = stack.pop()
        number[p] = i
        for v in sorted(readers[p], key=lambda q: -first[q]):
            missing[v] -= 1
            if missing[v] == 0:
                stack.append(v)
    edges = number[edges]
    return PieceGraph(number[of_node], edges[np.lexsort((edges[:, 0], edges[:, 1]))])


# --- ideals ----------------------------------------------------------------------------------------------------------

Ideals = tuple[np.ndarray, np.ndarray, np.ndarray]
"""CSR of every ideal's largest subideals, smaller ideals first: pointer int64[N+1], the subideals, the piece that each lacks."""


def _chain(order: np.ndarray) -> Ideals:
    """The ideals of one order of all pieces: its beginnings."""
    n = len(order)
    return np.concatenate(([0], np.arange(n + 1))), np.arange(n), order


def _ideals(graph: PieceGraph, most: int) -> Ideals | None:
    """All ideals, by size; None if there are more than ``most``."""
    n = graph.count
    reads = np.zeros((n, n), dtype=np.int16)
    reads[graph.edges[:, 1], graph.edges[:, 0]] = 1
    # A random word a piece; the words of an ideal added up stand for it, modulo 2^64.
    word = np.random.default_rng(0).integers(0, 2**64, n, dtype=np.uint64)
    inside, missing, key = np.zeros((1, n), dtype=bool), reads.sum(axis=1)[None, :], np.zeros(1, dtype=np.uint64)
    begin, total = 0, 1
    child_parts, parent_parts, piece_parts = [], [], []
    for _ in range(n):
        row, piece = np.nonzero((missing == 0) & ~inside)
        keys, first, child = np.unique(key[row] + word[piece], return_index=True, return_inverse=True)
        if total + len(keys) > most:
            return None
        child_parts.append(total + child)
        parent_parts.append(begin + row)
        piece_parts.append(piece)
        inside, missing = inside[row[first]], missing[row[first]] - reads[:, piece[first]].T
        inside[np.arange(len(first)), piece[first]] = True
        key, begin, total = keys, total, total + len(keys)
    child, parent, piece = (np.concatenate(parts) for parts in (child_parts, parent_parts, piece_parts))
    order = np.argsort(child, kind="stable")
    pointer = np.concatenate(([0], np.cumsum(np.bincount(child, minlength=total))))
    return pointer, parent[order], piece[order]


# --- the recursion ---------------------------------------------------------------------------------------------------


def _solve(problem: Problem, graph: PieceGraph, ideals: Ideals, limit: float) -> Split:
    devices = _kinds(problem)
    taken, steps, all_sets = _device_sets(devices)
    pieces, even = _pieces(problem, graph, np.array([members[0] for members in devices]))
    most = limit * (1 + 1e-12) if np.isfinite(limit) else np.inf
    value, chosen, before = best_splits(*ideals, pieces, *steps, most)
    device = np.full(graph.count, -1, dtype=np.int16)
    state, ideal = len(taken) - 1, len(ideals[0]) - 2
    if not np.isfinite(value[state, ideal]):
        return Split(None, np.inf, all_sets and even)
    period, left = float(value[state, ideal]), [list(members) for members in devices]
    members_of = _Members(ideals)
    stages: list[tuple[int, np.ndarray]] = []
    while ideal > 0:
        step, smaller = int(chosen[state, ideal]), int(before[state, ideal])
        if smaller != ideal:
            stages.append((int(steps[2][step]), members_of.between(ideal, smaller)))
        state, ideal = int(steps[1][step]), smaller
    for which, members in reversed(stages):
        device[members] = left[which].pop(0)
    return Split(device[graph.of_node], period, all_sets and even)


class _Members:
    """Which pieces an ideal holds, found along any chain of subideals."""

    def __init__(self, ideals: Ideals) -> None:
        self.pointer, self.smaller, self.piece = ideals

    def of(self, ideal: int) -> set[int]:
        """All pieces of one ideal."""
        found = set()
        while ideal > 0:
            at = self.pointer[ideal]
            found.add(int(self.piece[at]))
            ideal = int(self.smaller[at])
        return found

    def between(self, ideal: int, smaller: int) -> np.ndarray:
        """The pieces of one that the other lacks."""
        return np.array(sorted(self.of(ideal) - self.of(smaller)), dtype=np.int64)


def _kinds(problem: Problem) -> list[list[int]]:
    """The devices of each kind, those first that run everything fastest."""
    same, host = alike(problem), problem.network.host
    names, kind = np.unique(np.stack((same, host), axis=1), axis=0, return_inverse=True)
    devices = [np.flatnonzero(kind.ravel() == t).tolist() for t in range(len(names))]
    speed = problem.compute_seconds.sum(axis=0)
    devices.sort(key=lambda members: (speed[members[0]], members[0]))
    return devices


def _device_sets(devices: list[list[int]]) -> tuple[list[tuple[int, ...]], tuple[np.ndarray, np.ndarray, np.ndarray], bool]:
    """Sets of devices by how many of each kind, smaller first; CSR of (set without one device, its kind); whether all are there."""
    counts = [len(members) for members in devices]
    whole = int(np.prod([c + 1 for c in counts])) <= MOST_STATES
    if whole:
        taken = sorted(np.ndindex(*(c + 1 for c in counts)), key=lambda s: (sum(s), s))
    else:
        taken = [tuple(0 for _ in counts)]
        for t, count in enumerate(counts):
            taken += [(*counts[:t], k + 1, *(0 for _ in counts[t + 1 :])) for k in range(count)]
    number = {state: i for i, state in enumerate(taken)}
    pointer, previous, kinds = [0], [], []
    for state in taken:
        for t, used in enumerate(state):
            less = (*state[:t], used - 1, *state[t + 1 :])
            if used and less in number:
                previous.append(number[less])
                kinds.append(t)
        pointer.append(len(previous))
    return taken, (np.array(pointer), np.array(previous, dtype=np.int64), np.array(kinds, dtype=np.int64)), whole


def _pieces(problem: Problem, graph: PieceGraph, devices: np.ndarray) -> tuple[Pieces, bool]:
    """What the kernel needs to know of pieces on one device of each kind, and whether it is the whole truth about transfers."""
    n, t = graph.count, len(devices)
    seconds, need, refused = np.zeros((n, t)), np.zeros(n), np.zeros((n, t), dtype=bool)
    np.add.at(seconds, graph.of_node, problem.compute_seconds[:, devices])
    np.add.at(need, graph.of_node, problem.held_bytes)
    np.logical_or.at(refused, graph.of_node, ~problem.feasible[:, devices])
    owner, readers, size, equal = _outputs(problem, graph)
    (send_delay, send_byte), (take_delay, take_byte), even = _link_costs(problem, devices)
    pairs = [(owner[u], u) for u in range(len(owner))]
    read = sorted((v, u) for u, group in enumerate(readers) for v in group)
    return Pieces(
        seconds, need, ~refused, problem.network.memory[devices], *_grouped(pairs, n), *_grouped(read, n),
        np.array([len(group) for group in readers], dtype=np.int64),
        size[:, :1] * send_delay + size[:, 1:] * send_byte, size[:, :1] * take_delay + size[:, 1:] * take_byte,
    ), even and equal  # fmt: skip


def _grouped(pairs: list[tuple[int, int]], n: int) -> tuple[np.ndarray, np.ndarray]:
    values = np.array(sorted(pairs), dtype=np.int64).reshape(-1, 2)
    return np.concatenate(([0], np.cumsum(np.bincount(values[:, 0], minlength=n)))), np.ascontiguousarray(values[:, 1])


def _outputs(problem: Problem, graph: PieceGraph) -> tuple[list[int], list[tuple[int, ...]], np.ndarray, bool]:
    """Outputs that other pieces read, those of one piece with the same readers as one: owner, readers, (number, bytes) float64[U, 2].

    The last value tells whether all edges out of each node carry the same bytes.
    """
    ends = graph.of_node[problem.graph.edges]
    read: dict[int, set[int]] = {}
    most: dict[int, float] = {}
    equal = True
    for e in np.flatnonzero(ends[:, 0] != ends[:, 1]).tolist():
        node, size = int(problem.graph.edges[e, 0]), float(problem.graph.edge_bytes[e])
        read.setdefault(node, set()).add(int(ends[e, 1]))
        equal &= most.setdefault(node, size) == size
        most[node] = max(most[node], size)
    together: dict[tuple[int, tuple[int, ...]], list[float]] = {}
    for node, group in read.items():
        entry = together.setdefault((int(graph.of_node[node]), tuple(sorted(group))), [0.0, 0.0])
        entry[0] += 1.0
        entry[1] += most[node]
    owners = [owner for owner, _ in together]
    return owners, [group for _, group in together], np.array(list(together.values())).reshape(-1, 2), equal


def _link_costs(problem: Problem, devices: np.ndarray) -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray], bool]:
    """Busy seconds of one device of each kind for sending, and for receiving: (a transfer, a byte) float64[T]; means over its links.

    The last value tells whether all links of each device are the same.
    """
    network, d = problem.network, problem.n_devices
    if d == 1:
        none = np.zeros(1)
        return (none, none), (none, none), True
    away = ~np.eye(d, dtype=bool)
    found, even = [], True
    for share, axis in zip(busy_shares(network), (1, 0), strict=True):
        values = []
        for matrix in (network.delay, network.seconds_per_byte):
            busy = (share * matrix) if axis == 1 else (share * matrix).T
            rows = busy[away].reshape(d, d - 1)[devices]
            even &= bool((np.ptp(rows, axis=1) <= 1e-12 * rows.max(axis=1)).all())
            values.append(rows.mean(axis=1))
        found.append((values[0], values[1]))
    return found[0], found[1], even
