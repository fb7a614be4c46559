"""The SimPy reference of the work-conserving simulator: Algorithms 1 and 2 of DOPPLER stated plainly."""

from __future__ import annotations

from functools import partial

import numpy as np
import simpy

from envs.problem.problem import Problem
from envs.simulators.noise import row_key
from envs.simulators.work_conserving.discipline import Discipline, free_inputs
from envs.simulators.work_conserving.kernel import duration_factor


class OutOfMemory(Exception):
    """A result did not fit on its device."""


class WorkConservingReference:
    """One run of one placement on SimPy.

    Results of nodes without a producer are on every device from the start. A result moves to another device once, however many
    operations want it there. Whenever something ends, its resource and then those it gave work to start what they can; which
    of several waiting tasks is next is the discipline's choice. Memory is taken when an operation or a transfer starts and
    given back when the last one that reads it there ends. Events at equal times happen in the order they were scheduled in.
    """

    def __init__(
        self, problem: Problem, placement: np.ndarray, discipline: Discipline, sigma: float = 0.0, key: int = 0, row: int = 0,
        everywhere: bool = True,
    ) -> None:  # fmt: skip
        graph = problem.graph
        self.problem, self.graph, self.discipline, self.sigma = problem, graph, discipline, sigma
        self.device = [int(d) for d in placement]
        self.stream = np.uint64(row_key(np.uint64(key), row))
        self.env = simpy.Environment()
        self.free = free_inputs(graph) if everywhere else np.zeros(graph.n_nodes, dtype=bool)
        self.priority = discipline.priorities(problem)
        self.links = discipline.link_resources(problem.n_devices)
        self.processor = discipline.compute_resources(problem.n_devices).tolist()
        self.rivals = [np.flatnonzero(row).tolist() for row in discipline.rivals(problem.n_devices)]
        self.queues: dict[int, list[tuple[float, int, int]]] = {}
        self.slots: dict[int, int] = {d: 1 for d in range(problem.n_devices)}
        self.sequence = 0
        self.start = np.full(graph.n_nodes + graph.n_edges, np.nan)
        self.finish = np.full(graph.n_nodes + graph.n_edges, np.nan)
        self._plan()

    def _plan(self) -> None:
        graph = self.graph
        pointer, self.ids = graph.out_edges
        self.out = [range(pointer[v], pointer[v + 1]) for v in range(graph.n_nodes)]
        self.target = graph.edges[self.ids, 1]
        self.source = graph.edges[self.ids, 0]
        self.missing = [0] * graph.n_nodes
        self.readers: dict[tuple[int, int], int] = {}  # (node, device): who still has to read it there
        self.first: dict[tuple[int, int], int] = {}  # (node, device): position of the first edge of that transfer
        self.held = np.zeros(self.problem.n_devices)
        for v in range(graph.n_nodes):
            self.held[self.device[v]] += graph.parameter_bytes[v]
            there: list[int] = []
            for e in self.out[v]:
                d = self.device[self.target[e]]
                there.append(d)
                if not self.free[v]:
                    self.missing[self.target[e]] += 1
                    if d != self.device[v]:
                        self.first.setdefault((v, d), e)
            if self.free[v]:
                for d in dict.fromkeys(there):
                    self.held[d] += graph.output_bytes[v]
                continue
            for d in there:
                self.readers[v, d] = self.readers.get((v, d), 0) + 1
            others = len(set(there) - {self.device[v]})
            self.readers[v, self.device[v]] = self.readers.get((v, self.device[v]), 0) + others + (not there)
        self.phases = [0] * (2 * int(graph.levels.max()) + 2)
        for v in np.flatnonzero(~self.free).tolist():
            self.phases[2 * graph.levels[v]] += 1
        for v, _ in self.first:
            self.phases[2 * graph.levels[v] + 1] += 1
        self.phase = 0

    def run(self) -> float:
        """Simulate to the end; fills ``start`` and ``finish`` float64[V + E] and returns the makespan in seconds.

        Raises:
            OutOfMemory: when a device cannot hold what it must.
        """
        if (self.held > self.problem.network.memory).any():
            raise OutOfMemory
        self._barrier()
        for v in self.graph.topological_order:
            if not self.free[v] and self.missing[v] == 0:
                self._ready(self.processor[self.device[v]], self.priority[v], int(v))
        for resource in sorted(self.queues):
            self._dispatch(resource)
        self.env.run()
        return float(self.env.now)

    def _ready(self, resource: int, priority: float, task: int) -> None:
        self.queues.setdefault(resource, []).append((priority, self.sequence, task))
        self.sequence += 1

    def _link(self, v: int, device: int) -> int:
        return self.problem.n_devices + int(self.links[self.device[v], device])

    def _dispatch(self, resource: int) -> None:
        queue = self.queues.get(resource, [])
        while queue and self.slots.setdefault(resource, self.discipline.channels) > 0:
            chosen = min(queue)
            if self._must_wait(resource, chosen) or (self.discipline.synchronous and self._phase_of(chosen[2]) != self.phase):
                return
            queue.remove(chosen)
            self.slots[resource] -= 1
            self._begin(chosen[2], resource)

    def _must_wait(self, resource: int, chosen: tuple[float, int, int]) -> bool:
        """Whether a device that shares some processors is busy, or has a task that comes before ``chosen``."""
        rivals = self.rivals[resource] if resource < len(self.rivals) else []
        return any(self.slots[r] == 0 or min(self.queues.get(r) or [chosen]) < chosen for r in rivals)

    def _phase_of(self, task: int) -> int:
        n = self.graph.n_nodes
        return 2 * int(self.graph.levels[task]) if task < n else 2 * int(self.graph.levels[self.source[task - n]]) + 1

    def _begin(self, task: int, resource: int) -> None:
        n, network = self.graph.n_nodes, self.problem.network
        if task < n:
            v, device = task, self.device[task]
            receivers = {self.device[self.target[e]] for e in self.out[v]} - {device}
            mean = float(self.problem.compute_seconds[task, device] + len(receivers) * self.discipline.send_overhead)
        else:
            v, device = int(self.source[task - n]), self.device[self.target[task - n]]
            same = [e for e in self.out[v] if self.device[self.target[e]] == device]
            size = float(self.graph.edge_bytes[self.ids[same]].max())
            mean = float(network.delay[self.device[v], device] + size * network.seconds_per_byte[self.device[v], device])
        self.held[device] += self.graph.output_bytes[v]
        if self.held[device] > network.memory[device]:
            raise OutOfMemory
        self.start[task] = self.env.now
        done = self.env.timeout(mean * duration_factor(self.stream, task, self.sigma))
        done.callbacks.append(partial(self._end, task, v, device, resource))

    def _end(self, task: int, v: int, device: int, resource: int, _: simpy.Event) -> None:
        n = self.graph.n_nodes
        self.finish[task] = self.env.now
        self.slots[resource] += 1
        if task < n:
            for u in self.graph.edges[self.graph.edges[:, 1] == v, 0]:
                if not self.free[u]:
                    self._read(int(u), device)
        else:
            self._read(v, self.device[v])
        for e in self.out[v]:
            c = int(self.target[e])
            if self.device[c] == device:
                self.missing[c] -= 1
                if self.missing[c] == 0:
                    self._ready(self.processor[device], self.priority[c], c)
        own = list(range(self.problem.n_devices)) if self.rivals else [resource]
        concerned = own if task < n else [resource, self.processor[device]]
        if task < n:
            for d in dict.fromkeys(self.device[self.target[e]] for e in self.out[v]):
                if d != device:
                    ranks = [self.priority[self.target[e]] for e in self.out[v] if self.device[self.target[e]] == d]
                    self._ready(self._link(v, d), self.priority[v] if self.discipline.synchronous else min(ranks), n + self.first[v, d])
                    concerned.append(self._link(v, d))
        if self.discipline.synchronous:
            self.phases[self._phase_of(task)] -= 1
            if self.phases[self.phase] == 0:
                self._barrier()
                concerned = sorted(self.queues)
        for r in concerned:
            self._dispatch(r)

    def _barrier(self) -> None:
        while self.phase < len(self.phases) - 1 and self.phases[self.phase] == 0:
            self.phase += 1

    def _read(self, v: int, device: int) -> None:
        """One reader less of a result on a device; after the last one its memory is free."""
        self.readers[v, device] -= 1
        if self.readers[v, device] == 0:
            self.held[device] -= self.graph.output_bytes[v]
