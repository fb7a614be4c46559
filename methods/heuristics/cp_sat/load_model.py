"""The largest load of any device (objective ``throughput``) as a CP-SAT model with the face of `PlacementModel`, without times.

All seconds are multiplied by one scale and rounded down, and an output is sent over its producer's least link, so what the model
bounds from below bounds every placement. Where all links of a device are alike it is exact but for the rounding.
"""

from __future__ import annotations

import numpy as np
from ortools.sat.python import cp_model

from envs.simulators.period import busy_shares
from methods.heuristics.cp_sat.model import RESOLUTION, PlacementModel


class LoadModel(PlacementModel):
    """A CP-SAT model of a problem for placements whose period is below ``below`` (seconds; may be infinite)."""

    def _build(self) -> None:
        problem = self.problem
        most = self.below if np.isfinite(self.below) else self._longest()
        self.unit_value = RESOLUTION / most if most > 0 else 1.0
        self._add_devices()
        self.objective = self.model.new_int_var(0, int(most * self.unit_value) + 1, "period")
        loads: list[list[tuple[int, cp_model.IntVar]]] = [[] for _ in range(problem.n_devices)]
        seconds = np.zeros((len(self.heads), problem.n_devices))
        np.add.at(seconds, self.unit, problem.compute_seconds)
        for unit, on in enumerate(self.on):
            for k, x in on.items():
                loads[k].append((int(seconds[unit, k] * self.unit_value), x))
        self._add_transfers(loads)
        for load in loads:
            self.model.add(sum(steps * x for steps, x in load) <= self.objective)
        self.model.minimize(self.objective)

    def _longest(self) -> float:
        """Seconds that no period exceeds."""
        problem, network = self.problem, self.problem.network
        compute = np.where(problem.feasible, problem.compute_seconds, 0.0).max(axis=1).sum()
        transfers = network.delay.max() * problem.graph.n_edges + network.seconds_per_byte.max() * problem.graph.edge_bytes.sum()
        return float(compute + 2 * transfers)

    def _add_transfers(self, loads: list[list[tuple[int, cp_model.IntVar]]]) -> None:
        graph, unit, d = self.problem.graph, self.unit, self.problem.n_devices
        pointer, outgoing = graph.out_edges
        away = np.where(np.eye(d, dtype=bool), np.inf, 0.0)
        network, (sending, receiving) = self.problem.network, busy_shares(self.problem.network)
        for v in range(graph.n_nodes):
            edges = outgoing[pointer[v] : pointer[v + 1]]
            edges = edges[unit[graph.edges[edges, 1]] != unit[v]]
            if not len(edges) or d == 1:
                continue
            time = network.delay + graph.edge_bytes[edges].min() * network.seconds_per_byte
            own, readers = self.on[unit[v]], {int(u) for u in unit[graph.edges[edges, 1]]}
            for k in range(d):
                out, into = float((time * sending + away)[k].min()), float((time * receiving + away)[:, k].min())
                self._add_transfer_of(f"{v}_{k}", k, own, readers, (out, into), loads[k])

    def _add_transfer_of(
        self, name: str, k: int, own: dict[int, cp_model.IntVar], readers: set[int], busy: tuple[float, float],
        load: list[tuple[int, cp_model.IntVar]],
    ) -> None:  # fmt: skip
        """What device k spends on one output: sending it if it is made there and read elsewhere, receiving it if the other way round."""
        sent, received = (int(seconds * self.unit_value) for seconds in busy)
        there = [self.on[u].get(k) for u in readers]
        if sent > 0 and k in own:
            z = self.model.new_bool_var(f"out{name}")
            for x in there:
                self.model.add_bool_or(z, ~own[k], *([x] if x is not None else []))
            load.append((sent, z))
        if received > 0 and any(x is not None for x in there):
            z = self.model.new_bool_var(f"in{name}")
            for x in there:
                if x is not None:
                    self.model.add_bool_or(z, ~x, *([own[k]] if k in own else []))
            load.append((received, z))

    def hint(self, placement: np.ndarray, start: np.ndarray) -> None:
        """Suggests a placement int16[V]; times do not matter."""
        self._hint_devices(placement)
