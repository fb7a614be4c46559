"""One placement problem: a graph, a network, a cost model, an objective. Nothing that runs or proposes belongs here."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from envs.problem.compiled import loop, part
from envs.problem.cost_model import CostModel, LinearCosts
from envs.problem.errors import InputError, nearest
from envs.problem.graph import ComputationGraph, digest, frozen
from envs.problem.network import DeviceNetwork
from envs.problem.ranges import LEAST, MOST

UNITS = {"makespan": "s", "energy": "J", "throughput": "s", "total-cost": "s"}
"""Every objective and its unit. ``throughput`` is the period of a pipeline, of which the throughput is the inverse."""
OBJECTIVES = tuple(UNITS)


def shown_in(objective: str) -> tuple[float, str]:
    """The factor and the unit in which an objective is shown to people: times in ms."""
    return (1e3, "ms") if UNITS[objective] == "s" else (1.0, UNITS[objective])


@dataclass(frozen=True, eq=False)
class Problem:
    """What a method is asked to place.

    Raises:
        InputError: for an unknown objective, an operation that no device may run, or costs that are negative or NaN.
    """

    graph: ComputationGraph
    network: DeviceNetwork
    costs: CostModel = field(default_factory=LinearCosts)
    objective: str = "makespan"
    """``makespan`` in seconds, ``energy`` in joules, ``throughput`` (the period of a pipeline, see `envs.simulators.period`) in seconds, or
    ``total-cost`` in seconds; always minimised."""
    allowed: np.ndarray | None = None
    """Extra placement constraints, bool[V, D], on top of the required hardware; None allows every device."""

    def __post_init__(self) -> None:
        if self.objective not in OBJECTIVES:
            raise InputError(f"unknown objective {self.objective!r}{nearest(self.objective, OBJECTIVES)}")
        if self.allowed is not None:
            shape = (self.graph.n_nodes, self.network.n_devices)
            if np.shape(self.allowed) != shape:
                raise InputError(f"allowed has shape {np.shape(self.allowed)}; graph and network need {shape}")
            object.__setattr__(self, "allowed", frozen(self.allowed, np.bool_))
        stuck = np.flatnonzero(~self.feasible.any(axis=1))
        if stuck.size:
            node = int(stuck[0])
            need = self.graph.hardware[node]
            why = "shares no device with its co-location group" if self.graph.colocation[node] >= 0 else "is allowed on none"
            why = f"requires hardware {need!r}" if need else why
            raise InputError(
                f"no device of network {self.network.name!r} can run node {self.graph.names[node]!r}, which {why}; add one that does"
            )
        bad = np.argwhere(~((self.compute_seconds >= 0) & (self.compute_seconds <= MOST / LEAST)))
        if len(bad):
            v, d = bad[0]
            raise InputError(
                f"cost model {type(self.costs).__name__} gives node {self.graph.names[v]!r} {self.compute_seconds[v, d]} s "
                f"on device {self.network.names[d]!r}; costs must be numbers from 0 to {MOST / LEAST:g}"
            )

    @property
    def name(self) -> str:
        """``graph@network``, for people; the content hash is the identity."""
        return f"{self.graph.name}@{self.network.name}"

    @property
    def n_nodes(self) -> int:
        """V, the number of operations."""
        return self.graph.n_nodes

    @property
    def n_devices(self) -> int:
        """D, the number of devices."""
        return self.network.n_devices

    @cached_property
    def compute_seconds(self) -> np.ndarray:
        """Expected seconds of every operation on every device, float64[V, D]."""
        return frozen(self.costs.compute_seconds(self.graph, self.network), np.float64)

    @cached_property
    def feasible(self) -> np.ndarray:
        """Which device may run which operation, bool[V, D]; members of a co-location group share what all of them may use."""
        graph, network = self.graph, self.network
        needs = sorted(set(graph.hardware))
        offers = np.array([[not need or need in have for have in network.supports] for need in needs])
        mask = offers[np.searchsorted(needs, graph.hardware)]
        if self.allowed is not None:
            mask = mask & self.allowed
        members = np.flatnonzero(graph.colocation >= 0)
        if members.size:
            leaders = self.leaders[members]
            refused = np.zeros(mask.shape, dtype=bool)
            np.logical_or.at(refused, leaders, ~mask[members])
            mask = mask.copy()
            mask[members] = ~refused[leaders]
        return frozen(mask, np.bool_)

    @cached_property
    def leaders(self) -> np.ndarray:
        """For every node the first node of its co-location group (itself without one), int64[V]."""
        graph = self.graph
        leaders = np.arange(graph.n_nodes)
        members = np.flatnonzero(graph.colocation >= 0)
        if members.size:
            _, first, inverse = np.unique(graph.colocation[members], return_index=True, return_inverse=True)
            leaders[members] = members[first][inverse]
        return frozen(leaders, np.int64)

    def colocate(self, placements: np.ndarray) -> np.ndarray:
        """Placements ``[..., V]`` with every node moved to the device of its group's first node."""
        return np.asarray(placements)[..., self.leaders].astype(np.int16)

    def valid(self, placements: np.ndarray) -> np.ndarray:
        """Which placements of ``[B, V]`` use only feasible devices and keep groups together, bool[B]."""
        p = np.asarray(placements)
        p, out = p if p.dtype == np.int16 else p.astype(np.int64), np.empty(len(p), dtype=bool)
        _all_valid(p, self.feasible, self.leaders, out)
        return out

    @cached_property
    def held_bytes(self) -> np.ndarray:
        """Bytes that each operation holds on its device throughout, float64[V]: parameters, and outputs where nothing is freed."""
        graph = self.graph
        return frozen(graph.parameter_bytes + (0.0 if self.network.live_memory else graph.output_bytes), np.float64)

    def memory_used(self, placements: np.ndarray) -> np.ndarray:
        """Bytes held throughout on each device for valid placements ``[B, V]``, float64[B, D].

        On networks with ``live_memory`` a run needs more at times; how much is found by the simulator (`envs.simulators.live_memory`).
        """
        p = np.asarray(placements)
        need = self.held_bytes
        flat = np.bincount((p + np.arange(len(p))[:, None] * self.n_devices).ravel(), np.tile(need, len(p)), len(p) * self.n_devices)
        return flat.reshape(len(p), self.n_devices)

    def energy(self, placements: np.ndarray, makespan: np.ndarray, busy: np.ndarray) -> np.ndarray:
        """Joules of placements ``[B, V]`` whose operations kept their devices busy for ``busy`` float64[B, V] seconds.

        Active power over the busy times, idle power of every device over the rest of ``makespan`` float64[B], and the links'
        energy per byte moved; float64[B].
        """
        p, net, graph = np.asarray(placements), self.network, self.graph
        active = (busy * (net.power - net.idle_power)[p]).sum(axis=1)
        idle = np.sum(net.idle_power) * makespan
        links = (net.link_energy[p[:, graph.edges[:, 0]], p[:, graph.edges[:, 1]]] * graph.edge_bytes).sum(axis=1)
        return active + idle + links

    def total_cost(self, placements: np.ndarray, busy: np.ndarray | None = None) -> np.ndarray:
        """Seconds of all operations and all edges of placements ``[B, V]``, one after another, float64[B] (GiPH, Appendix B.8).

        ``busy`` float64[B, V] are the operations' own seconds in a run, where they differ from the expected ones.
        """
        p, net, graph = np.asarray(placements), self.network, self.graph
        if busy is None:
            busy = self.compute_seconds[np.arange(self.n_nodes), p]
        sender, receiver = p[:, graph.edges[:, 0]], p[:, graph.edges[:, 1]]
        links = net.delay[sender, receiver] + graph.edge_bytes * net.seconds_per_byte[sender, receiver]
        return busy.sum(axis=1) + links.sum(axis=1)

    @cached_property
    def content_hash(self) -> str:
        """sha256 of graph, network, costs, objective and constraints; names of graph and network do not count."""
        allowed = "all" if self.allowed is None else self.allowed
        return digest(self.graph.content_hash, self.network.content_hash, self.costs.content_hash, self.objective, allowed)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Problem) and self.name == other.name and self.content_hash == other.content_hash

    def __hash__(self) -> int:
        return hash(self.content_hash)

    def __repr__(self) -> str:
        return f"Problem({self.name}, V={self.n_nodes}, E={self.graph.n_edges}, D={self.n_devices}, {self.objective})"


@part
def is_valid(placement, feasible, leaders):
    """`Problem.valid` of one placement [V], for compiled code."""
    for v in range(placement.size):
        d = placement[v]
        if d < 0 or d >= feasible.shape[1] or not feasible[v, d] or d != placement[leaders[v]]:
            return False
    return True


@loop
def _all_valid(placements, feasible, leaders, out):
    for b in range(len(placements)):
        out[b] = is_valid(placements[b], feasible, leaders)
