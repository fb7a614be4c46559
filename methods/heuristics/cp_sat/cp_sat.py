"""CP-SAT: constraint programming with a lower bound, exact on small problems (OR-Tools; Perron, Didier and Gay 2023).

The model (`methods.heuristics.cp_sat.model`) is a relaxation of the FIFO simulator: a proven bound on the model is a bound on every
measurement. A loop closes the gap: what the model claims is better than the best measured placement is proposed and measured,
and then forbidden in the model; when nothing better is left, the best placement is optimal to a relative 1e-6. Problems of up to
``fifo_nodes`` operations use the FIFO-exact model, which needs few such rounds.

It starts from the one-go heuristics, so large problems, on which the solver only finds a bound in its time, still end with a
good placement. The solver runs one thread in deterministic time, so the same spec gives the same result on any machine.
`report` gives ``lower_bound`` (of the objective) and ``proved_optimal``; both hold for exact evaluators only, which is checked
against each measured trace. A noisy or real host gets neither.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from ortools.sat.python import cp_model

from envs.problem.errors import InputError
from envs.problem.measurement import Measurements, Outcome
from envs.problem.ranges import CountOrNone, Positive
from envs.simulators.bounds import lower_bound
from methods.contract.method import Method, Proposal
from methods.heuristics.cp_sat.load_model import LoadModel
from methods.heuristics.cp_sat.model import PlacementModel
from methods.placing.starts import good_starts

TOLERANCE = 1e-6
"""Relative gap below which a placement counts as optimal."""


@dataclass(frozen=True)
class CpSatConfig:
    """How long to solve, and up to which size queues are modelled."""

    deterministic_time: Positive = 2.0
    """Solver effort over the whole trial, in CP-SAT's deterministic units; one was 3 to 6 seconds of one core where measured."""
    slice: Positive = 0.5
    """Effort of one solve before its best placements are measured; doubles whenever a solve ends with nothing new."""
    fifo_nodes: CountOrNone = 32
    """Up to this many operations the model knows the FIFO order of devices."""

    def __post_init__(self) -> None:
        if not (self.deterministic_time > 0 and self.slice > 0):
            raise InputError(f"deterministic_time {self.deterministic_time} and slice {self.slice} must be positive")


class CpSat(Method):
    """Ends when optimality is proven or its time is spent."""

    Config = CpSatConfig
    wants_trace = True
    toy_config = {"deterministic_time": 0.6, "slice": 0.3}  # noqa: RUF012 (read only)

    @classmethod
    def effort(cls, config: Any) -> float:
        return float(config.deterministic_time / CpSatConfig().deterministic_time)

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._random_seed = int(self.seed.generate_state(1)[0] >> 1)
        self._queue = good_starts(self.problem, self._random_seed)
        self._measured = np.zeros((0, self.problem.n_nodes), dtype=np.int16)
        self._best: np.ndarray | None = None  # placement and start of the best measurement, float64[2, V]
        self._best_value = np.inf
        self._bound = lower_bound(self.problem)
        self._spent, self._slice, self._solves = 0.0, self.config.slice, 1
        self._exact, self._proved = True, False

    def propose(self, n: int) -> list[Proposal]:
        while not len(self._queue) and not self._proved and self._spent < self.config.deterministic_time:
            self._solve()
        rows, self._queue = self._queue[:n], self._queue[n:]
        return [Proposal(0, rows)] if len(rows) else []

    def _solve(self) -> None:
        """One slice: raises the bound, fills the queue with placements that may beat the best, best last found first."""
        below = self._best_value * (1 - TOLERANCE)
        model = LoadModel if self.problem.objective == "throughput" else PlacementModel
        build = model(self.problem, below, self.problem.n_nodes <= self.config.fifo_nodes)
        build.exclude(self._measured)
        build.bound_from_below(self._bound)
        if self._best is not None:
            build.hint(self._best[0].astype(np.int16), self._best[1])
        solver, found = cp_model.CpSolver(), _Solutions(build)
        solver.parameters.num_workers = 1
        solver.parameters.linearization_level = self._solves % 2  # with linear relaxations bounds are better, without them placements
        solver.parameters.random_seed = self._random_seed
        # With this step of the presolve OR-Tools 9.15 calls some models infeasible that have a solution (test_no_false_proof).
        solver.parameters.presolve_inclusion_work_limit = 0
        solver.parameters.max_deterministic_time = min(self._slice, self.config.deterministic_time - self._spent)
        status = solver.solve(build.model, found)
        self._solves += 1
        # model building and presolve count little in deterministic time, so a solve costs at least a small part of a slice
        self._spent += max(solver.response_proto.deterministic_time, 0.02 * self._slice)
        if status == cp_model.INFEASIBLE:
            self._proved = True
            self._bound = max(self._bound, below)
            return
        if status == cp_model.MODEL_INVALID:
            raise RuntimeError(f"CP-SAT refuses its model of {self.problem.name}: {build.model.validate()}")
        # forbidden placements are measured ones, none of which is below the best
        self._bound = max(self._bound, min(solver.best_objective_bound / build.unit_value, self._best_value))
        self._proved = self._bound >= below
        self._queue = np.array(found.placements[::-1], dtype=np.int16).reshape(-1, self.problem.n_nodes)
        if not found.placements:
            self._slice *= 2

    def update(self, results: Sequence[Measurements]) -> None:
        result = results[0]
        self._measured = np.concatenate((self._measured, result.placements))
        self._exact = self._exact and self._is_exact(result)
        row = int(np.argmin(result.objective))
        if result.objective[row] < self._best_value:
            self._best_value = float(result.objective[row])
            start = np.zeros(self.problem.n_nodes) if result.start is None else result.start[row]
            self._best = np.stack((result.placements[row].astype(np.float64), start))
        self._proved = self._proved or self._bound >= self._best_value * (1 - TOLERANCE)

    def _is_exact(self, result: Measurements) -> bool:
        """Whether the evaluator ran every task for the seconds of the cost model and scores at least the last finish."""
        if result.start is None or result.finish is None:
            return False
        ok = result.ok
        expected = self.problem.compute_seconds[np.arange(self.problem.n_nodes), result.placements[ok]]
        start, finish = result.start[ok], result.finish[ok]
        times = np.allclose(finish - start, expected, rtol=1e-9, atol=1e-12 * float(finish.max(initial=0.0)))
        scores = self.problem.objective != "makespan" or bool(np.all(result.objective[ok] >= finish.max(axis=1, initial=0.0) * (1 - 1e-9)))
        return times and scores and bool(np.isin(result.outcome, (Outcome.OK, Outcome.OUT_OF_MEMORY)).all())

    def report(self) -> dict[str, float]:
        """``lower_bound`` in the objective's unit (none from an inexact evaluator) and ``proved_optimal`` as 0 or 1."""
        if not self._exact:
            return {"proved_optimal": 0.0}
        return {"lower_bound": float(self._bound), "proved_optimal": float(self._proved)}

    def state(self) -> dict[str, Any]:
        return {
            **super().state(),
            "queue": self._queue,
            "measured": self._measured,
            "best": self._best,
            "numbers": np.array([self._best_value, self._bound, self._spent, self._slice]),
            "solves": self._solves,
            "exact": self._exact,
            "proved": self._proved,
        }

    def restore(self, state: dict[str, Any]) -> None:
        super().restore(state)
        self._queue, self._measured, self._best = (state[key] for key in ("queue", "measured", "best"))
        self._best_value, self._bound, self._spent, self._slice = (float(x) for x in state["numbers"])
        self._solves, self._exact, self._proved = int(state["solves"]), bool(state["exact"]), bool(state["proved"])


class _Solutions(cp_model.CpSolverSolutionCallback):
    """Keeps the placements the solver finds, in order, each once."""

    def __init__(self, build: PlacementModel) -> None:
        super().__init__()
        self._build = build
        self.placements: list[np.ndarray] = []

    def on_solution_callback(self) -> None:
        units = np.array([next(k for k, x in on.items() if self.boolean_value(x)) for on in self._build.on], dtype=np.int16)
        placement = units[self._build.unit]
        self.placements = [p for p in self.placements if not np.array_equal(p, placement)] + [placement]
