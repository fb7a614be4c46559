"""The SimPy reference (GiPH Appendix B.5): the plain statement of the semantics that the compiled kernel must reproduce."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator

import numpy as np
import simpy

from envs.problem.problem import Problem
from envs.simulators.noise import noise_factor, row_key


class FifoReference:
    """One run of one placement on SimPy.

    Devices execute runnable tasks first in, first out, one at a time, without pre-emption; transfers overlap with computation
    and do not contend. A task becomes runnable on its device when all its inputs have arrived; entry tasks are runnable at 0.
    When a task ends, its device first starts the task waiting longest, then the outputs leave in the order of the edges.
    Events at equal times happen in the order in which they were scheduled; a process that begins does so before any other event
    of that time (both are SimPy's own rules).
    """

    def __init__(self, problem: Problem, placement: np.ndarray, sigma: float = 0.0, key: int = 0, row: int = 0) -> None:
        self.problem, self.sigma = problem, sigma
        self.device = [int(d) for d in placement]
        self.stream = np.uint64(row_key(np.uint64(key), row))  # compiled code hands back a plain int
        self.env = simpy.Environment()
        self.queues: list[deque[int]] = [deque() for _ in range(problem.n_devices)]
        self.busy = [False] * problem.n_devices
        self.missing = np.bincount(problem.graph.edges[:, 1], minlength=problem.n_nodes)
        self.start = np.full(problem.n_nodes, np.nan)
        self.finish = np.full(problem.n_nodes, np.nan)
        self.held: dict[tuple[int, int], list[float]] = {}
        """What is held of a task's output on a device, by both: since when, until when, how many bytes."""

    def run(self) -> float:
        """Simulate to the end; fills ``start`` and ``finish`` float64[V] and returns the makespan in seconds."""
        for task in np.flatnonzero(self.missing == 0):
            self._runnable(int(task))
        self.env.run()
        return float(self.env.now)

    def _noisy(self, seconds: float, counter: int) -> float:
        return seconds * noise_factor(self.stream, counter, self.sigma) if self.sigma > 0 else seconds

    def _runnable(self, task: int) -> None:
        device = self.device[task]
        if self.busy[device]:
            self.queues[device].append(task)
        else:
            self._begin(task)

    def _begin(self, task: int) -> None:
        self.busy[self.device[task]] = True
        self.env.process(self._execute(task))

    def _execute(self, task: int) -> Generator[simpy.Event]:
        """A task occupies its device, hands it on, and sends its outputs, each as a process of its own."""
        device, graph, network = self.device[task], self.problem.graph, self.problem.network
        self.start[task] = self.env.now
        self.held[task, device] = [self.env.now, np.inf, float(graph.output_bytes[task])]
        yield self.env.timeout(self._noisy(float(self.problem.compute_seconds[task, device]), task))
        self.finish[task] = self.env.now
        self.busy[device] = False
        if self.queues[device]:
            self._begin(self.queues[device].popleft())
        for parent in graph.edges[graph.edges[:, 1] == task, 0].tolist():
            self._read(parent, device)
        pointer, ids = graph.out_edges
        for position in range(pointer[task], pointer[task + 1]):
            edge = ids[position]
            child = int(graph.edges[edge, 1])
            other = self.device[child]
            seconds = float(network.delay[device, other] + graph.edge_bytes[edge] * network.seconds_per_byte[device, other])
            if other != device:
                copy = self.held.setdefault((task, other), [self.env.now, np.inf, 0.0])
                copy[2] = max(copy[2], float(graph.edge_bytes[edge]))
            self.env.process(self._transfer(task, child, self._noisy(seconds, self.problem.n_nodes + position)))

    def _transfer(self, task: int, child: int, seconds: float) -> Generator[simpy.Event]:
        yield self.env.timeout(seconds)
        if self.device[task] != self.device[child]:
            self._read(task, self.device[task])
        self.missing[child] -= 1
        if self.missing[child] == 0:
            self._runnable(child)

    def _read(self, task: int, device: int) -> None:
        """A reader or a transfer is done with what ``device`` holds of a task's output; the last one frees it."""
        self.held[task, device][1] = self.env.now

    def peak_bytes(self) -> np.ndarray:
        """After `run`, the most bytes that each device held at any time, float64[D]; see `envs.simulators.live_memory`."""
        peak = np.bincount(self.device, np.ceil(self.problem.graph.parameter_bytes), self.problem.n_devices)
        for device in range(self.problem.n_devices):
            rows = np.array([span for (_, d), span in self.held.items() if d == device]).reshape(-1, 3)
            begin, end, size = rows.T
            held = [np.ceil(size[(begin <= t) & (t < end)]).sum() for t in np.unique(begin)]
            peak[device] += max(held, default=0.0)
        return peak
