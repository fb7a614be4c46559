"""What the work-conserving engine and its simulators share: strategies, channels, inputs. Nothing here runs or simulates.

A *work-conserving* system (DOPPLER, section 2) never lets a device or a link rest while it has something to do. Everything
that is left to choose is here: which of several waiting tasks comes next, and which transfers wait for each other.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from envs.costs.table import TableCosts
from envs.problem.errors import InputError, nearest
from envs.problem.graph import ComputationGraph
from envs.problem.problem import Problem

STRATEGIES = ("fifo", "depth-first", "breadth-first", "longest-path")
SHARING = ("link", "pair", "sender", "receiver", "bus")


@dataclass(frozen=True)
class Discipline:
    """How a work-conserving system chooses (``ChooseTask`` of Algorithm 1) and what transfers contend for.

    Raises:
        InputError: for an unknown strategy or sharing, less than one channel, or a negative overhead.
    """

    strategy: str = "fifo"
    """Which waiting task is next: ``fifo`` the one that waits longest; ``depth-first`` and ``breadth-first`` the one farthest
    from and nearest to the entries; ``longest-path`` the one with the most work to an exit. Ties are first in, first out."""
    channels: int = 1
    """Transfers that one link resource carries at a time."""
    sharing: str = "link"
    """What one link resource is: each directed ``link``, each ``pair`` of devices, all links of a ``sender`` or of a
    ``receiver``, or one ``bus`` for all."""
    synchronous: bool = False
    """Bulk-synchronous instead (Table 1, Appendix G): all operations of a level, a barrier, all their transfers, a barrier."""
    processors: tuple[int | tuple[int, ...], ...] = ()
    """The processor of each device, any numbers, or the several processors that each of its operations takes at once; devices that share
    one take turns, in the order of their waiting tasks: none starts before a better one that waits for a processor of its. Empty: each has
    its own. For simulators: the engine's devices share what they name."""
    send_overhead: float = 0.0
    """Seconds of the sender's processor that every transfer takes (LogP's *o*) besides the link's time, right after the operation whose
    result it sends. For simulators: where processors copy, as the engine's do, a link that costs its own time alone is too cheap."""

    def __post_init__(self) -> None:
        if self.strategy not in STRATEGIES:
            raise InputError(f"unknown strategy {self.strategy!r}{nearest(self.strategy, STRATEGIES)}")
        if self.sharing not in SHARING:
            raise InputError(f"unknown sharing {self.sharing!r}{nearest(self.sharing, SHARING)}")
        if self.channels < 1:
            raise InputError(f"channels is {self.channels}; a link has at least one")
        if not 0.0 <= self.send_overhead < float("inf"):
            raise InputError(f"send_overhead is {self.send_overhead}; give seconds, 0 or more")
        object.__setattr__(self, "processors", tuple(p if isinstance(p, int) else tuple(p) for p in self.processors))
        if any(p == () for p in self.processors):
            raise InputError(f"processors is {list(self.processors)}; every device needs at least one")

    @property
    def text(self) -> str:
        """For protocols, where it is part of a measurement's identity."""
        kind = "bulk-synchronous" if self.synchronous else self.strategy
        names = ["+".join(map(str, p)) for p in self._processor_sets]
        shared = f" processors={','.join(names)}" if names else ""
        sending = f" send={self.send_overhead:g}" if self.send_overhead else ""
        return f"{kind} channels={self.channels}/{self.sharing}{shared}{sending}"

    def compute_resources(self, devices: int) -> np.ndarray:
        """Which device's queue each device is served from: the first one on the same processors, int64[D].

        Raises:
            InputError: if there is not one processor a device.
        """
        if self.processors and len(self.processors) != devices:
            raise InputError(f"processors is {list(self.processors)}, but the network has {devices} devices; give one for each")
        sets = [frozenset(p) for p in self._processor_sets]
        return np.array([sets.index(p) for p in sets] or range(devices), dtype=np.int64)

    @property
    def _processor_sets(self) -> list[tuple[int, ...]]:
        return [(p,) if isinstance(p, int) else p for p in self.processors]

    def rivals(self, devices: int) -> np.ndarray:
        """Which queues may not be served at the same time although they are different ones, bool[D, D]; [0, 0] if there are none."""
        own = self.compute_resources(devices)
        sets = [frozenset(p) for p in self._processor_sets]
        overlap = np.array(
            [[own[i] == i != j == own[j] and bool(a & b) for j, b in enumerate(sets)] for i, a in enumerate(sets)], dtype=bool
        )
        return overlap if overlap.any() else np.zeros((0, 0), dtype=bool)

    def link_resources(self, devices: int) -> np.ndarray:
        """Which resource a transfer from device i to device j occupies, int32[D, D], counted from 0."""
        i, j = np.indices((devices, devices), dtype=np.int32)
        return {
            "link": i * devices + j,
            "pair": np.minimum(i, j) * devices + np.maximum(i, j),
            "sender": i,
            "receiver": j,
            "bus": np.zeros_like(i),
        }[self.sharing]

    def priorities(self, problem: Problem) -> np.ndarray:
        """What waiting tasks are sorted by, smallest first, float64[V]; a transfer has the smallest of those who wait for it."""
        graph = problem.graph
        if self.synchronous or self.strategy == "breadth-first":
            return graph.levels.astype(np.float64)
        if self.strategy == "depth-first":
            return -graph.levels.astype(np.float64)
        if self.strategy == "longest-path":
            return -longest_to_exit(graph, problem.compute_seconds.mean(axis=1))
        return np.zeros(graph.n_nodes)


def longest_to_exit(graph: ComputationGraph, node: np.ndarray, edge: np.ndarray | float = 0.0) -> np.ndarray:
    """Largest sum of ``node`` [V] and ``edge`` [E] costs on any path from each node, itself included, to an exit, float64[V]."""
    rest = np.zeros(graph.n_nodes)
    edge = np.broadcast_to(np.asarray(edge, dtype=np.float64), (graph.n_edges,))
    u, v = graph.edges[:, 0], graph.edges[:, 1]
    # All edges into one level at a time, deepest first: whatever leaves a consumer is final by then.
    order = np.argsort(graph.levels[v], kind="stable")[::-1]
    cuts = np.flatnonzero(np.diff(graph.levels[v[order]])) + 1
    for group in np.split(order, cuts):
        np.maximum.at(rest, u[group], edge[group] + node[v[group]] + rest[v[group]])
    return rest + node


def free_inputs(graph: ComputationGraph) -> np.ndarray:
    """Nodes without a producer, bool[V]: their data is on every device from the start (Algorithm 1)."""
    return np.bincount(graph.edges[:, 1], minlength=graph.n_nodes) == 0


def with_free_inputs(problem: Problem) -> Problem:
    """``problem`` with inputs that cost nothing on any device: what `envs.simulators.bounds` may bound, as they are everywhere anyway."""
    seconds = np.where(free_inputs(problem.graph)[:, None], 0.0, problem.compute_seconds)
    costs = TableCosts(problem.graph.names, problem.network.names, seconds)
    return Problem(problem.graph, problem.network, costs, problem.objective, problem.allowed)
