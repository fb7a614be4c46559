"""The simulators behind the evaluator's face: outcomes, objective, noise streams, threads."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from envs.problem.errors import InputError
from envs.problem.measurement import SIMULATED, BaseEvaluator, Measurements, Outcome
from envs.problem.problem import Problem
from envs.simulators.fifo.kernel import OK, OUT_OF_MEMORY, check, kernel_arrays, run_batch
from envs.simulators.fifo.reference import FifoReference
from envs.simulators.noise import noise_key
from envs.simulators.period import periods


@dataclass(frozen=True)
class Simulator(BaseEvaluator):
    """The FIFO simulator of GiPH Appendix B.5, compiled.

    Raises:
        InputError: if noise is not in [0, 1) or threads is less than 1.
    """

    noise: float = 0.0
    """σ: times are drawn uniformly from [t (1 − σ), t (1 + σ)] (GiPH Appendix B.5)."""
    threads: int = 1
    """Threads that share a batch; the results do not depend on it."""

    def __post_init__(self) -> None:
        if not 0.0 <= self.noise < 1.0:
            raise InputError(f"noise is {self.noise}; it must be in [0, 1)")
        if self.threads < 1:
            raise InputError(f"threads is {self.threads}; at least one is needed")

    @property
    def protocol(self) -> str:
        """Names the semantics and the noise."""
        return f"simulator:fifo noise={self.noise}"

    @property
    def deterministic(self) -> bool:
        """Without noise the seed does not matter."""
        return self.noise == 0.0

    def evaluate(self, problem: Problem, placements: np.ndarray, seed: int = 0, *, first: int = 0, trace: bool = False) -> Measurements:
        """Makespan [s] and objective of each of ``placements`` int16[B, V]; the trace is float64[B, V], NaN in rows that do not run."""
        placements = as_placements(problem, placements)
        b, v = placements.shape
        keep = trace or problem.objective in ("energy", "total-cost")
        outcome, makespan = np.empty(b, dtype=np.int8), np.empty(b)
        arrays, key = kernel_arrays(problem), noise_key(seed) if self.noise else np.uint64(0)
        times = np.empty((2, b, v) if keep else (2, self.threads, v))

        def part(k: int) -> None:
            low, high = b * k // self.threads, b * (k + 1) // self.threads
            rows = slice(low, high) if keep else slice(k, k + 1)
            run_batch(
                placements[low:high],
                arrays,
                self.noise,
                key,
                first + low,
                keep,
                outcome[low:high],
                makespan[low:high],
                times[0, rows],
                times[1, rows],
            )

        if self.threads == 1 or b == 1:
            run_batch(placements, arrays, self.noise, key, first, keep, outcome, makespan, times[0], times[1])
        else:
            list(_pool(self.threads).map(part, range(self.threads)))
        start, finish = (times[0], times[1]) if keep else (None, None)
        return _measurements(self, problem, placements, outcome, makespan, start, finish, seed, first, trace)


@dataclass(frozen=True)
class ReferenceSimulator(BaseEvaluator):
    """The same semantics on SimPy, one placement after another: slow, plain, and bit for bit what `Simulator` gives."""

    noise: float = 0.0

    @property
    def protocol(self) -> str:
        """The compiled simulator's, because the results are the same."""
        return Simulator(self.noise).protocol

    @property
    def deterministic(self) -> bool:
        """Without noise the seed does not matter."""
        return self.noise == 0.0

    def evaluate(self, problem: Problem, placements: np.ndarray, seed: int = 0, *, first: int = 0, trace: bool = False) -> Measurements:
        """The same as `Simulator.evaluate`, bit for bit, whatever the noise."""
        placements = as_placements(problem, placements)
        arrays, used = kernel_arrays(problem), np.empty(problem.n_devices)
        outcome = np.array([check(p, arrays, used) for p in placements], dtype=np.int8)
        makespan, times = np.full(len(placements), np.nan), np.full((2, *placements.shape), np.nan)
        for b in np.flatnonzero(outcome == OK):
            one = FifoReference(problem, placements[b], self.noise, int(noise_key(seed)), first + int(b))
            seconds = one.run()
            if problem.network.live_memory and (one.peak_bytes() > problem.network.memory).any():
                outcome[b] = OUT_OF_MEMORY
                continue
            makespan[b] = seconds
            times[0, b], times[1, b] = one.start, one.finish
        return _measurements(self, problem, placements, outcome, makespan, times[0], times[1], seed, first, trace)


def as_placements(problem: Problem, placements: np.ndarray) -> np.ndarray:
    """``placements`` as contiguous int16[B, V]; InputError if its shape or values do not fit. Device -1 and such are left for outcomes."""
    array = np.asarray(placements)
    if array.ndim != 2 or array.shape[1] != problem.n_nodes:
        raise InputError(f"placements have shape {array.shape}; problem {problem.name} needs (batch, {problem.n_nodes})")
    if array.dtype == np.int16:
        return np.ascontiguousarray(array)
    if not np.issubdtype(array.dtype, np.integer) or (array.size and np.abs(array).max() > np.iinfo(np.int16).max):
        raise InputError(f"placements must be int16 device indices, not {array.dtype} up to {array.max() if array.size else 'nothing'}")
    return np.ascontiguousarray(array, dtype=np.int16)


@lru_cache(maxsize=4)
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, thread_name_prefix="simulator")


def _measurements(
    evaluator: Simulator | ReferenceSimulator, problem: Problem, placements: np.ndarray, outcome: np.ndarray, makespan: np.ndarray,
    start: np.ndarray | None, finish: np.ndarray | None, seed: int, first: int, trace: bool,
) -> Measurements:  # fmt: skip
    ok = outcome == Outcome.OK
    if problem.objective == "energy" and start is not None and finish is not None:
        objective = np.full(len(placements), np.inf)
        objective[ok] = problem.energy(placements[ok], makespan[ok], (finish - start)[ok])
    elif problem.objective == "total-cost" and start is not None and finish is not None:
        objective = np.full(len(placements), np.inf)
        # Without noise the operations' own times are the table's; differences of a run's times would only add rounding.
        objective[ok] = problem.total_cost(placements[ok], (finish - start)[ok] if evaluator.noise else None)
    elif problem.objective == "throughput":
        objective = periods(problem, placements, ok, evaluator.noise, int(noise_key(seed)) if evaluator.noise else 0, first)
    else:
        objective = np.where(ok, makespan, np.inf)
    return Measurements(
        problem_hash=problem.content_hash,
        placements=placements,
        outcome=outcome,
        seconds=makespan,
        objective=objective,
        seed=seed,
        protocol=evaluator.protocol,
        host=SIMULATED,
        first=first,
        start=start if trace else None,
        finish=finish if trace else None,
    )
