"""One run of a placement, simulated or measured, taken apart for drawing: transfers, utilisation, critical path. No drawing here."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from envs.problem.errors import InputError
from envs.problem.measurement import Evaluator, Outcome
from envs.problem.problem import Problem
from envs.simulators.fifo.evaluator import Simulator


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
    transfers: np.ndarray | None = None
    """Producer, sender, receiver, start and finish of each, float64[T, 5], where transfers are tasks of their own. One may serve
    several consumers, and what has none is on every device from the start."""

    @cached_property
    def carrier(self) -> np.ndarray:
        """Which transfer brings each edge's data, int64[E]; -1 for none, and for all edges if transfers are not tasks."""
        u, v = self.problem.graph.edges.T
        if self.transfers is None or not len(self.transfers):
            return np.full(len(u), -1, dtype=np.int64)
        d = self.problem.n_devices
        have = (self.transfers[:, 0] * d + self.transfers[:, 2]).astype(np.int64)
        order, wanted = np.argsort(have), u * d + self.placement[v]
        found = order[np.searchsorted(have[order], wanted).clip(max=len(have) - 1)]
        return np.where((have[found] == wanted) & (self.placement[u] != self.placement[v]), found, -1)

    @cached_property
    def transfer_bytes(self) -> np.ndarray:
        """Bytes of each transfer, float64[T]."""
        size = np.zeros(0 if self.transfers is None else len(self.transfers))
        brought = self.carrier >= 0
        np.maximum.at(size, self.carrier[brought], self.problem.graph.edge_bytes[brought])
        return size

    @cached_property
    def lanes(self) -> list[tuple[int, int, np.ndarray]]:
        """Sender, receiver and transfers (ids by start) of every link used; a link that carries several at a time has several lanes."""
        made: list[tuple[int, int, list[int]]] = []
        transfers = np.empty((0, 5)) if self.transfers is None else self.transfers
        for t in np.lexsort((transfers[:, 3], transfers[:, 2], transfers[:, 1])).tolist():
            sender, receiver, start = int(transfers[t, 1]), int(transfers[t, 2]), transfers[t, 3]
            free = (ids for a, b, ids in made if (a, b) == (sender, receiver) and transfers[ids[-1], 4] <= start + 1e-12)
            ids = next(free, None)
            if ids is None:
                made.append((sender, receiver, ids := []))
            ids.append(t)
        return [(a, b, np.array(ids, dtype=np.int64)) for a, b, ids in made]

    @property
    def makespan(self) -> float:
        """Seconds from 0 to the last finish."""
        return float(self.finish.max())

    @cached_property
    def moved(self) -> np.ndarray:
        """Ids of the edges whose data crosses devices, int64[T], ordered by departure."""
        u, v = self.problem.graph.edges.T
        crosses = self.placement[u] != self.placement[v] if self.transfers is None else self.carrier >= 0
        ids = np.flatnonzero(crosses)
        return ids[np.lexsort((ids, self.finish[u[ids]]))]

    @cached_property
    def arrival(self) -> np.ndarray:
        """When each edge's data reaches its consumer's device, seconds, float64[E]: its transfer's finish, or, where transfers
        are no tasks, the expected delay + bytes / bandwidth later than it left."""
        graph, network = self.problem.graph, self.problem.network
        u, v = graph.edges.T
        if self.transfers is not None:
            return np.where(self.carrier >= 0, np.append(self.transfers[:, 4], 0.0)[self.carrier], self.finish[u])
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
        if self.transfers is not None:
            sender, receiver = self.transfers[:, 1:3].astype(np.int64).T
            return np.bincount(receiver, self.transfer_bytes, d), np.bincount(sender, self.transfer_bytes, d)
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
        back from the last finish. Shortening anything off this chain leaves the makespan as it is, unless transfers queue.
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


def simulate(problem: Problem, placement: np.ndarray, evaluator: Evaluator | None = None, seed: int = 0, first: int = 0) -> Schedule:
    """The schedule of ``placement`` int16[V] by a simulator, by default the plain one without noise; InputError saying why if it
    cannot run."""
    placement = np.asarray(placement, dtype=np.int16)
    result = (evaluator or Simulator()).evaluate(problem, placement[None, :], seed, first=first, trace=True)
    if not result.ok[0]:
        raise InputError(f"the placement of {problem.name} cannot run ({why_not(problem, placement)}); there is no timeline to draw")
    if result.start is None or result.finish is None:
        raise TypeError("the simulator returned no trace though one was asked for")
    return from_times(problem, placement, result.start[0], result.finish[0], None if result.transfers is None else result.transfers[0])


def from_times(problem: Problem, placement: np.ndarray, start: np.ndarray, finish: np.ndarray, transfers: np.ndarray | None) -> Schedule:
    """A schedule from times that may be NaN: inputs, which take no time and are there from the start."""
    start, finish = (np.nan_to_num(np.asarray(t, dtype=np.float64)) for t in (start, finish))
    return Schedule(problem, np.asarray(placement, dtype=np.int16), start, finish, transfers)


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
