"""One simulated placement, taken apart for drawing: transfers, utilisation, critical path. No drawing belongs here."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from envs.errors import InputError
from envs.measurement import Outcome
from envs.problem import Problem


@dataclass(frozen=True, eq=False)
class Schedule:
    """When every operation of one placement ran, and what that implies."""

    problem: Problem
    placement: np.ndarray
    """int16[V]."""
    start: np.ndarray
    """Seconds, float64[V]."""
    finish: np.ndarray
    """Seconds, float64[V]."""

    @property
    def makespan(self) -> float:
        """Seconds from 0 to the last finish."""
        return float(self.finish.max())

    @cached_property
    def moved(self) -> np.ndarray:
        """Ids of the edges whose data crosses devices, int64[T], ordered by departure."""
        u, v = self.problem.graph.edges.T
        ids = np.flatnonzero(self.placement[u] != self.placement[v])
        return ids[np.lexsort((ids, self.finish[u[ids]]))]

    @cached_property
    def arrival(self) -> np.ndarray:
        """When each edge's data reaches its consumer's device (expected delay + bytes / bandwidth), seconds, float64[E]."""
        graph, network = self.problem.graph, self.problem.network
        u, v = graph.edges.T
        sender, receiver = self.placement[u], self.placement[v]
        return self.finish[u] + network.delay[sender, receiver] + graph.edge_bytes * network.seconds_per_byte[sender, receiver]

    @cached_property
    def busy(self) -> np.ndarray:
        """Seconds each device computed, float64[D]."""
        return np.bincount(self.placement, self.finish - self.start, self.problem.n_devices)

    @cached_property
    def operations(self) -> np.ndarray:
        """Number of operations on each device, int64[D]."""
        return np.bincount(self.placement, minlength=self.problem.n_devices)

    @property
    def utilisation(self) -> np.ndarray:
        """Fraction of the makespan each device computed, float64[D]; zeros if the makespan is 0."""
        return self.busy / self.makespan if self.makespan > 0 else np.zeros(self.problem.n_devices)

    @cached_property
    def traffic(self) -> tuple[np.ndarray, np.ndarray]:
        """Bytes each device received from and sent to other devices, float64[D] each."""
        graph, d = self.problem.graph, self.problem.n_devices
        u, v = graph.edges[self.moved].T
        size = graph.edge_bytes[self.moved]
        return np.bincount(self.placement[v], size, d), np.bincount(self.placement[u], size, d)

    @cached_property
    def _before(self) -> np.ndarray:
        """The operation that ran just before each one on its device, int64[V]; -1 for a device's first."""
        # Levels break the ties of operations that take no time, so that the order agrees with the edges and no chain closes.
        order = np.lexsort((np.arange(len(self.start)), self.problem.graph.levels, self.finish, self.start, self.placement))
        before = np.full(len(order), -1, dtype=np.int64)
        same = self.placement[order[1:]] == self.placement[order[:-1]]
        before[order[1:][same]] = order[:-1][same]
        return before

    @cached_property
    def critical_path(self) -> np.ndarray:
        """The chain of operations, first to last, in which each waited for the one before it: int64[K].

        What an operation waited for is the later of its last input's arrival and its device becoming free; the chain walks
        back from the last finish. Shortening anything off this chain leaves the makespan as it is.
        """
        u, v = self.problem.graph.edges.T
        waited = self._before.copy()
        ready = np.where(waited >= 0, self.finish[waited], -np.inf)
        latest = np.full(len(self.start), -np.inf)
        np.maximum.at(latest, v, self.arrival)
        last = np.flatnonzero(self.arrival == latest[v])
        by_input = latest >= ready
        pick = last[by_input[v[last]]]
        waited[v[pick]] = u[pick]
        path = [int(np.lexsort((self.start, self.finish))[-1])]
        while waited[path[-1]] >= 0 and len(path) < len(self.start):
            path.append(int(waited[path[-1]]))
        return np.array(path[::-1], dtype=np.int64)


def simulate(problem: Problem, placement: np.ndarray) -> Schedule:
    """The noise-free schedule of ``placement`` int16[V]; InputError saying why if it cannot run."""
    from envs.simulators.evaluator import Simulator

    placement = np.asarray(placement, dtype=np.int16)
    result = Simulator().evaluate(problem, placement[None, :], trace=True)
    if not result.ok[0]:
        raise InputError(f"the placement of {problem.name} cannot run ({why_not(problem, placement)}); there is no timeline to draw")
    if result.start is None or result.finish is None:
        raise TypeError("the simulator returned no trace though one was asked for")
    return Schedule(problem, placement, result.start[0], result.finish[0])


def why_not(problem: Problem, placement: np.ndarray) -> str:
    """Why a placement int16[V] cannot run, naming the first operation or device at fault; ``"OK"`` if it can."""
    graph, network = problem.graph, problem.network
    outside = np.flatnonzero((placement < 0) | (placement >= problem.n_devices))
    if outside.size:
        return f"{Outcome.INVALID.name}: {graph.names[outside[0]]!r} is on device {placement[outside[0]]} of {problem.n_devices}"
    refused = np.flatnonzero(~problem.feasible[np.arange(problem.n_nodes), placement])
    if refused.size:
        return f"{Outcome.INVALID.name}: {graph.names[refused[0]]!r} may not run on {network.names[placement[refused[0]]]!r}"
    apart = np.flatnonzero(placement != placement[problem.leaders])
    if apart.size:
        leader = graph.names[problem.leaders[apart[0]]]
        return f"{Outcome.INVALID.name}: {graph.names[apart[0]]!r} is apart from {leader!r} of its co-location group"
    used = problem.memory_used(placement[None, :])[0]
    full = np.flatnonzero(used > network.memory)
    if full.size:
        name, limit = network.names[full[0]], network.memory[full[0]]
        return f"{Outcome.OUT_OF_MEMORY.name}: {name!r} needs {used[full[0]] / 1e6:,.1f} MB and has {limit / 1e6:,.1f} MB"
    return Outcome.OK.name
