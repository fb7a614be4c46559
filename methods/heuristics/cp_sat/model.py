"""The placement problem as a CP-SAT model whose bound holds for the FIFO simulator. No proposing and no measuring belong here.

Rounding: all times are multiplied by one scale and rounded *down*. If t is a real schedule, floor(t · scale) satisfies every
constraint below, because floor(a + b) >= floor(a) + floor(b); so what the model proves impossible is impossible, and its
objective bound divided by the scale is a lower bound in seconds (or joules).

Two strengths: the plain model lets a device serve its tasks in any order and idle at will, which any execution satisfies. The
FIFO model adds that a device serves tasks in the order they became ready and never idles while one waits (GiPH Appendix B.5),
with a slack of one or two units for the rounding; it is exact up to ties but has V² order variables.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field

import numpy as np
from ortools.sat.python import cp_model

from envs.problem.problem import Problem
from methods.placing.constraints import unit_of, units
from methods.placing.list_scheduling import tasks_of

RESOLUTION = float(2**30)
"""Time steps in the horizon; rounding loses less than V + E of them."""
PAIR_LIMIT = 40_000
"""Above this many (edge, device, device) triples a transfer is bounded by the fastest link that leaves its producer's device."""


@dataclass
class PlacementModel:
    """A CP-SAT model of ``problem`` for placements whose objective is below ``below`` (seconds or joules; may be infinite)."""

    problem: Problem
    below: float
    fifo: bool
    model: cp_model.CpModel = field(default_factory=cp_model.CpModel)

    def __post_init__(self) -> None:
        self.unit, self.heads = unit_of(self.problem), units(self.problem)
        self._build()
        if np.isfinite(self.below):
            self.model.add(self.objective <= int(np.floor(self.below * self.unit_value)))

    def _build(self) -> None:
        """All variables and constraints, the objective, and its ``unit_value``: steps a second (or joule)."""
        problem = self.problem
        self.is_sum = problem.objective in ("energy", "total-cost")
        self.horizon_seconds = self.below if np.isfinite(self.below) and not self.is_sum else longest_execution(problem)
        self.scale = RESOLUTION / self.horizon_seconds if self.horizon_seconds > 0 else 1.0
        self.horizon = int(np.floor(self.horizon_seconds * self.scale)) + 1
        self.length = np.floor(problem.compute_seconds * self.scale).astype(np.int64)
        self._add_devices()
        self._add_times()
        for e in range(problem.graph.n_edges):
            self._add_transfer(e)
        if self.fifo:
            self._add_fifo()
        self._add_objective()

    def _add_devices(self) -> None:
        model, problem = self.model, self.problem
        self.on: list[dict[int, cp_model.IntVar]] = []  # of every unit: device -> literal
        for head in self.heads:
            devices = np.flatnonzero(problem.feasible[head])
            self.on.append({int(k): model.new_bool_var(f"x{head}_{k}") for k in devices})
            model.add_exactly_one(self.on[-1].values())
        memory = problem.network.memory
        need = tasks_of(problem).group_need[self.heads]
        if need.sum() > 0:
            scale = 2.0**40 / need.sum()
            for k in np.flatnonzero(memory < need.sum()).tolist():
                load = [(int(n * scale), on[k]) for n, on in zip(need, self.on, strict=True) if k in on]
                model.add(sum(n * x for n, x in load) <= int(memory[k] * scale))

    def _add_times(self) -> None:
        model, problem = self.model, self.problem
        self.start = [model.new_int_var(0, self.horizon, f"s{v}") for v in range(problem.n_nodes)]
        self.makespan = model.new_int_var(0, self.horizon, "makespan")
        self.end = []
        intervals: dict[int, list[cp_model.IntervalVar]] = {k: [] for k in range(problem.n_devices)}
        for v, start in enumerate(self.start):
            on = self.on[self.unit[v]]
            self.end.append(start + sum(int(self.length[v, k]) * x for k, x in on.items()))
            model.add(self.end[v] <= self.makespan)
            for k, x in on.items():
                if self.length[v, k] > self.horizon:
                    model.add(x == 0)
                else:
                    intervals[k].append(model.new_optional_fixed_size_interval_var(start, int(self.length[v, k]), x, f"i{v}_{k}"))
        for k, mine in intervals.items():
            model.add_no_overlap(mine)
            load = [(int(self.length[v, k]), self.on[self.unit[v]][k]) for v in range(problem.n_nodes) if k in self.on[self.unit[v]]]
            model.add(sum(n * x for n, x in load) <= self.makespan)  # implied, but it gives a bound at once

    def transfer_steps(self, edge: int) -> np.ndarray:
        """Rounded-down time steps of an edge over every link, int64[D, D]."""
        network = self.problem.network
        seconds = network.delay + self.problem.graph.edge_bytes[edge] * network.seconds_per_byte
        return np.minimum(np.floor(seconds * self.scale), self.horizon + 1).astype(np.int64)

    def _add_transfer(self, e: int) -> None:
        u, v = (int(x) for x in self.problem.graph.edges[e])
        self.model.add(self.start[v] >= self.end[u])
        if self.unit[u] == self.unit[v]:
            return
        steps, source, target = self.transfer_steps(e), self.on[self.unit[u]], self.on[self.unit[v]]
        if len(source) * len(target) * self.problem.graph.n_edges <= PAIR_LIMIT:
            for (k, x), (other, y) in itertools.product(source.items(), target.items()):
                if steps[k, other] > 0:
                    self.model.add(self.start[v] >= self.end[u] + int(steps[k, other])).only_enforce_if(x, y)
            return
        for k, x in source.items():
            away = [int(steps[k, other]) for other in target if other != k]
            if away and min(away) > 0:
                left = [x, ~target[k]] if k in target else [x]
                self.model.add(self.start[v] >= self.end[u] + min(away)).only_enforce_if(*left)

    def _add_fifo(self) -> None:
        """Service in the order of readiness, and no idling while a task waits."""
        model, n = self.model, self.problem.n_nodes
        ready = [model.new_int_var(0, self.horizon, f"r{v}") for v in range(n)]
        pointer, incoming = self.problem.graph.in_edges
        for v in range(n):
            model.add(self.start[v] >= ready[v])
            last = []
            for e in incoming[pointer[v] : pointer[v + 1]]:
                arrival = self.end[self.problem.graph.edges[e, 0]] + self._transfer_variable(int(e))
                last.append(model.new_bool_var(f"last{e}"))
                model.add(ready[v] >= arrival)
                model.add(ready[v] <= arrival + 2).only_enforce_if(last[-1])
            if last:
                model.add_bool_or(last)
            else:
                model.add(ready[v] == 0)
        before = self._orders(ready)
        for v in range(n):
            begins = [model.new_bool_var(f"at_once{v}")]
            model.add(self.start[v] <= ready[v]).only_enforce_if(begins[0])
            for (i, j), literal in before.items():
                if j == v:
                    begins.append(model.new_bool_var(f"after{i}_{v}"))
                    model.add_implication(begins[-1], literal)
                    model.add(self.start[v] <= self.end[i] + 1).only_enforce_if(begins[-1])
            model.add_bool_or(begins)

    def _transfer_variable(self, e: int) -> cp_model.IntVar | int:
        u, v = self.unit[self.problem.graph.edges[e]]
        if u == v:
            return 0
        steps = self.transfer_steps(e)
        variable = self.model.new_int_var(0, self.horizon, f"c{e}")
        for (k, x), (other, y) in itertools.product(self.on[u].items(), self.on[v].items()):
            if steps[k, other] > self.horizon:
                self.model.add_bool_or(~x, ~y)
            else:
                self.model.add(variable == int(steps[k, other])).only_enforce_if(x, y)
        return variable

    def _orders(self, ready: list[cp_model.IntVar]) -> dict[tuple[int, int], cp_model.IntVar]:
        """Of tasks that neither is an ancestor of the other: literals "on one device, i served before j"."""
        related, before = ancestors(self.problem), {}
        for i, j in itertools.permutations(range(self.problem.n_nodes), 2):
            mine, yours = self.on[self.unit[i]], self.on[self.unit[j]]
            if related[i, j] or related[j, i] or not mine.keys() & yours.keys():
                continue
            literal = before[i, j] = self.model.new_bool_var(f"o{i}_{j}")
            self.model.add(ready[i] <= ready[j]).only_enforce_if(literal)
            self.model.add(self.end[i] <= self.start[j]).only_enforce_if(literal)
            for k, x in mine.items():
                self.model.add_bool_or(~literal, ~x, *([yours[k]] if k in yours else []))
            if (j, i) in before:
                for k in mine.keys() & yours.keys():
                    self.model.add_bool_or(literal, before[j, i], ~mine[k], ~yours[k])
        return before

    def _add_objective(self) -> None:
        problem, network = self.problem, self.problem.network
        if not self.is_sum:
            self.unit_value = self.scale
            self.objective = self.makespan
        elif problem.objective == "energy":
            active = problem.compute_seconds * (network.power - network.idle_power)
            self._add_sum(active, float(network.idle_power.sum()), np.zeros_like(network.delay), network.link_energy)
        else:
            self._add_sum(problem.compute_seconds, 0.0, network.delay, network.seconds_per_byte)
        self.model.minimize(self.objective)

    def _add_sum(self, active: np.ndarray, idle: float, start: np.ndarray, per_byte: np.ndarray) -> None:
        """Joules (`Problem.energy`) or the total cost (`Problem.total_cost`), every coefficient rounded down.

        Operations count ``active`` [V, D], a second of the makespan ``idle``, a transfer ``start`` and ``per_byte`` [D, D].
        """
        problem, model = self.problem, self.model
        links = start + per_byte * problem.graph.edge_bytes.max(initial=0.0)
        most = np.abs(active).max(axis=1).sum() + idle * self.horizon_seconds + links.max() * problem.graph.n_edges
        self.unit_value = RESOLUTION * 1024 / most if most > 0 else 1.0
        coefficients = np.floor(active * self.unit_value).astype(np.int64)
        terms = [int(coefficients[v, k]) * x for v in range(problem.n_nodes) for k, x in self.on[self.unit[v]].items()]
        terms.append(int(np.floor(idle * self.unit_value / self.scale)) * self.makespan)
        for e, (u, v) in enumerate(self.unit[problem.graph.edges]):
            for (k, x), (other, y) in itertools.product(self.on[u].items(), self.on[v].items()):
                link = int(np.floor((start[k, other] + per_byte[k, other] * problem.graph.edge_bytes[e]) * self.unit_value))
                if link > 0 and u != v:
                    both = model.new_bool_var(f"z{e}_{k}_{other}")
                    model.add_bool_or(both, ~x, ~y)
                    terms.append(link * both)
        low = int(np.floor(np.minimum(active, 0).min(axis=1).sum() * self.unit_value)) - problem.n_nodes
        self.objective = model.new_int_var(low, 2**60, "sum")
        model.add(self.objective == sum(terms))

    def exclude(self, placements: np.ndarray) -> None:
        """Forbids the placements int16[M, V], so that the next solution is another one."""
        for placement in placements:
            used = [on.get(int(k)) for on, k in zip(self.on, placement[self.heads], strict=True)]
            if all(x is not None for x in used):
                self.model.add_bool_or([~x for x in used if x is not None])

    def bound_from_below(self, value: float) -> None:
        """Adds a lower bound (seconds or joules) known from before."""
        self.model.add(self.objective >= int(np.floor(value * self.unit_value)))

    def hint(self, placement: np.ndarray, start: np.ndarray) -> None:
        """Suggests a placement int16[V] and its starts, seconds float64[V]."""
        self._hint_devices(placement)
        for variable, seconds in zip(self.start, start, strict=True):
            self.model.add_hint(variable, min(self.horizon, int(seconds * self.scale)))

    def _hint_devices(self, placement: np.ndarray) -> None:
        for on, k in zip(self.on, placement[self.heads], strict=True):
            for device, x in on.items():
                self.model.add_hint(x, device == k)


def longest_execution(problem: Problem) -> float:
    """Seconds that no execution exceeds: all tasks on their slowest device and all transfers on the slowest link, one by one."""
    network = problem.network
    compute = np.where(problem.feasible, problem.compute_seconds, 0.0).max(axis=1).sum()
    return float(compute + network.delay.max() * problem.graph.n_edges + network.seconds_per_byte.max() * problem.graph.edge_bytes.sum())


def ancestors(problem: Problem) -> np.ndarray:
    """Whether a path leads from i to j, bool[V, V]."""
    reach = np.zeros((problem.n_nodes, problem.n_nodes), dtype=bool)
    pointer, incoming = problem.graph.in_edges
    for v in problem.graph.topological_order:
        parents = problem.graph.edges[incoming[pointer[v] : pointer[v + 1]], 0]
        reach[:, v] = reach[:, parents].any(axis=1)
        reach[parents, v] = True
    return reach
