"""The work-conserving simulators behind the evaluator's face."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np

from envs.problem.errors import InputError
from envs.problem.graph import frozen
from envs.problem.measurement import SIMULATED, BaseEvaluator, Measurements, Outcome
from envs.problem.problem import Problem
from envs.simulators.fifo.evaluator import as_placements
from envs.simulators.noise import noise_key
from envs.simulators.work_conserving.discipline import Discipline, free_inputs
from envs.simulators.work_conserving.kernel import OK, run_batch
from envs.simulators.work_conserving.reference import OutOfMemory, WorkConservingReference


@dataclass(frozen=True)
class WorkConservingSimulator(BaseEvaluator):
    """Algorithms 1 and 2 of DOPPLER, compiled.

    Transfers are tasks on channels, so they contend; results are freed when they are no longer needed, so a placement runs out
    of memory only if what is alive at once does not fit.

    Raises:
        InputError: if noise is not in [0, 1), or samples or threads is less than 1.
    """

    discipline: Discipline = field(default_factory=Discipline)
    noise: float = 0.0
    """Standard deviation of the logarithm of every duration; factors are log-normal with mean 1."""
    samples: int = 1
    """Runs of which a measurement is the mean, each with noise of its own."""
    inputs_everywhere: bool = True
    """Whether results of nodes without a producer are on every device from the start (Algorithm 1) or are tasks."""
    threads: int = 1
    """Threads that share a batch; the results do not depend on it."""

    def __post_init__(self) -> None:
        if not 0.0 <= self.noise < 1.0:
            raise InputError(f"noise is {self.noise}; it must be in [0, 1)")
        if self.samples < 1 or self.threads < 1:
            raise InputError(f"samples is {self.samples} and threads {self.threads}; both must be at least 1")

    @property
    def protocol(self) -> str:
        """Names the discipline and the noise."""
        text = f"simulator:work-conserving {self.discipline.text} noise={self.noise}"
        return text + (f" samples={self.samples}" if self.samples > 1 else "") + ("" if self.inputs_everywhere else " inputs=tasks")

    @property
    def deterministic(self) -> bool:
        """Without noise the seed does not matter."""
        return self.noise == 0.0

    def evaluate(self, problem: Problem, placements: np.ndarray, seed: int = 0, *, first: int = 0, trace: bool = False) -> Measurements:
        """Mean makespan [s] over the samples of each of ``placements`` int16[B, V]; the trace is that of the last sample.

        Raises:
            InputError: also for the throughput, which takes a pipeline.
        """
        placements = as_placements(problem, _one_step(problem, placements))
        runs = []
        for sample in range(self.samples):
            keep = trace or problem.objective in ("energy", "total-cost")
            runs.append(self._simulate(problem, placements, self._key(seed, sample), first, keep))
        outcome = np.max([o for o, _, _ in runs], axis=0) if self.samples > 1 else runs[0][0]
        seconds = np.stack([s for _, s, _ in runs])
        return _measurements(self, problem, placements, outcome, seconds, runs[-1][2], seed, first, trace)

    def _key(self, seed: int, sample: int) -> np.uint64:
        """Of a sample's noise. The first one's is the seed's own, so one sample is what one run gives; without noise nothing is drawn."""
        if not self.noise:
            return np.uint64(0)
        return noise_key(seed) if sample == 0 else np.random.SeedSequence((seed, sample)).generate_state(1, np.uint64)[0]

    def _simulate(
        self, problem: Problem, placements: np.ndarray, key: np.uint64, first: int, keep: bool
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Outcomes int8[B], makespans float64[B], and times float64[2, B or 1, V + E]."""
        b = len(placements)
        outcome, makespan, valid = np.empty(b, dtype=np.int8), np.empty(b), problem.valid(placements)
        arrays, discipline = _arrays(problem, self.inputs_everywhere), _discipline(problem, self.discipline)
        times = np.empty((2, b if keep else self.threads, problem.n_nodes + problem.graph.n_edges))
        # Invalid rows are never looked at, so the cast cannot send a negative device astray.
        unsigned = placements.view(np.uint16)

        def part(k: int) -> None:
            low, high = b * k // self.threads, b * (k + 1) // self.threads
            rows = slice(low, high) if keep else slice(k, k + 1)
            run_batch(
                unsigned[low:high], valid[low:high], arrays, discipline, self.noise, key, first + low, keep, outcome[low:high],
                makespan[low:high], times[0, rows], times[1, rows],
            )  # fmt: skip

        if self.threads == 1 or b == 1:
            run_batch(unsigned, valid, arrays, discipline, self.noise, key, first, keep, outcome, makespan, times[0], times[1])
        else:
            list(_pool(self.threads).map(part, range(self.threads)))
        return outcome, makespan, times


@dataclass(frozen=True)
class ReferenceWorkConservingSimulator(BaseEvaluator):
    """The same semantics on SimPy, one placement after another: slow, plain, and bit for bit what the compiled one gives."""

    discipline: Discipline = field(default_factory=Discipline)
    noise: float = 0.0
    inputs_everywhere: bool = True

    @property
    def protocol(self) -> str:
        """The compiled simulator's, because the results are the same."""
        return WorkConservingSimulator(self.discipline, self.noise, inputs_everywhere=self.inputs_everywhere).protocol

    @property
    def deterministic(self) -> bool:
        """Without noise the seed does not matter."""
        return self.noise == 0.0

    def evaluate(self, problem: Problem, placements: np.ndarray, seed: int = 0, *, first: int = 0, trace: bool = False) -> Measurements:
        """The same as one sample of `WorkConservingSimulator.evaluate`, bit for bit."""
        placements = as_placements(problem, _one_step(problem, placements))
        b = len(placements)
        outcome = np.where(problem.valid(placements), Outcome.OK, Outcome.INVALID).astype(np.int8)
        makespan, times = np.full(b, np.nan), np.full((2, b, problem.n_nodes + problem.graph.n_edges), np.nan)
        for i in np.flatnonzero(outcome == Outcome.OK):
            one = WorkConservingReference(
                problem, placements[i], self.discipline, self.noise, int(noise_key(seed)), first + int(i), self.inputs_everywhere
            )
            try:
                makespan[i] = one.run()
            except OutOfMemory:
                outcome[i] = Outcome.OUT_OF_MEMORY
            times[0, i], times[1, i] = one.start, one.finish
        return _measurements(self, problem, placements, outcome, makespan[None], times, seed, first, trace)


def _one_step(problem: Problem, placements: np.ndarray) -> np.ndarray:
    if problem.objective == "throughput":
        raise InputError("the work-conserving simulator runs one step by itself and knows no pipeline; take kind: simulator")
    return placements


@lru_cache(maxsize=256)
def _arrays(problem: Problem, everywhere: bool) -> tuple[np.ndarray, ...]:
    """What the kernel reads of a problem, contiguous and in outgoing-edge order; made once per process and content."""
    graph, network = problem.graph, problem.network
    pointer, ids = graph.out_edges
    in_pointer, in_ids = graph.in_edges
    position = np.empty(graph.n_edges, dtype=np.int64)
    position[ids] = np.arange(graph.n_edges)
    return (
        pointer, graph.edges[ids, 1].astype(np.int64), graph.edges[ids, 0].astype(np.int64), frozen(graph.edge_bytes[ids], np.float64),
        in_pointer, position[in_ids], free_inputs(graph) if everywhere else np.zeros(graph.n_nodes, dtype=bool),
        graph.topological_order, graph.levels.astype(np.int64), problem.compute_seconds, network.delay, network.seconds_per_byte,
        graph.output_bytes, graph.parameter_bytes, network.memory, np.isfinite(network.memory).any(),
    )  # fmt: skip


@lru_cache(maxsize=256)
def _discipline(problem: Problem, discipline: Discipline) -> tuple[Any, ...]:
    """What the kernel reads of a discipline; made once per process and problem."""
    links, d = discipline.link_resources(problem.n_devices).astype(np.int64), problem.n_devices
    stations = discipline.compute_resources(d), discipline.rivals(d)
    ranks = np.unique(discipline.priorities(problem), return_inverse=True)[1].astype(np.int64)
    return ranks, stations, links, discipline.channels, discipline.synchronous, float(discipline.send_overhead)


@lru_cache(maxsize=4)
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, thread_name_prefix="simulator")


def _measurements(
    evaluator: WorkConservingSimulator | ReferenceWorkConservingSimulator, problem: Problem, placements: np.ndarray, outcome: np.ndarray,
    seconds: np.ndarray, times: np.ndarray, seed: int, first: int, trace: bool,
) -> Measurements:  # fmt: skip
    ok, n = outcome == OK, problem.n_nodes
    mean = np.where(ok, seconds.mean(axis=0) if len(seconds) > 1 else seconds[0], np.nan)
    objective = np.where(ok, mean, np.inf)
    if problem.objective == "energy" and ok.any():
        busy = np.nan_to_num(times[1, ok, :n] - times[0, ok, :n])
        objective[ok] = problem.energy(placements[ok], mean[ok], busy)
    elif problem.objective == "total-cost" and ok.any():
        busy = np.nan_to_num(times[1, ok, :n] - times[0, ok, :n])
        objective[ok] = problem.total_cost(placements[ok], busy if evaluator.noise else None)
    found = Measurements(
        problem_hash=problem.content_hash, placements=placements, outcome=outcome, seconds=mean, objective=objective, seed=seed,
        protocol=evaluator.protocol, host=SIMULATED, first=first, samples=tuple(seconds.T) if len(seconds) > 1 else None,
    )  # fmt: skip
    if not trace:
        return found
    return replace(
        found, start=np.where(ok[:, None], times[0, :, :n], np.nan), finish=np.where(ok[:, None], times[1, :, :n], np.nan),
        transfers=_transfers(problem, placements, ok, times),
    )  # fmt: skip


def _transfers(problem: Problem, placements: np.ndarray, ok: np.ndarray, times: np.ndarray) -> tuple[np.ndarray, ...]:
    """Producer, sender, receiver, start, finish of each transfer of each placement, B arrays float64[T, 5]."""
    n, edges = problem.n_nodes, problem.graph.edges[problem.graph.out_edges[1]]
    row, took = np.nonzero(np.isfinite(times[1, :, n:]) & ok[:, None])
    (u, v), (start, finish) = edges[took].T, times[:, row, n + took]
    everything = np.column_stack((u, placements[row, u], placements[row, v], start, finish))
    ends = [0, *np.bincount(row, minlength=len(ok)).cumsum().tolist()]
    return tuple(everything[low:high] for low, high in pairwise(ends))
