"""``python -m tests.serial_machine``: at which prices of a cut, and of how unlike two devices, HSDAG's Table 2 can hold on a machine that
runs its devices in turn, as OpenVINO's HETERO does. No learning: on two devices the least total time is a minimum cut.

Operations keep the roofline's seconds on the CPU. On the GPU each takes the roofline's ratio of the two to the power ``spread`` (0: all
alike, 1: the roofline, 2: twice as unlike), times one factor, so that CPU-only and GPU-only take the paper's times at every spread.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from envs.costs.table import TableCosts
from envs.problem.problem import Problem
from envs.simulators.bounds import cost_bound
from orchestration.definition.sweep import load_sweep
from orchestration.specs.sources import build_problem

ROOT = Path(__file__).parents[1]
PAPER = {"inception-v3": 17.9, "resnet-50": 52.1, "bert-base": 58.2}
PRICES = (0.0, 1e-6, 2e-6, 5e-6, 1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 4e-4)
"""Seconds that a cut costs before its bytes."""
SPREADS = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0)


def varied(problem: Problem, price: float, spread: float) -> Problem:
    """``problem`` with cuts at ``price`` and devices that are unlike to the power ``spread``, its objective the total cost."""
    cpu, gpu = problem.compute_seconds.T
    ratio = np.divide(gpu, cpu, out=np.ones_like(cpu), where=cpu > 0) ** spread
    other = cpu * ratio * (gpu.sum() / (cpu * ratio).sum())
    network = replace(problem.network, delay=np.full((2, 2), price))
    costs = TableCosts(problem.graph.names, network.names, np.stack((cpu, other), axis=1))
    return Problem(problem.graph, network, costs, "total-cost", problem.allowed)


def main() -> None:
    """Print a table a model: the best speed-up over CPU-only in per cent, by price and spread."""
    problems = {s.graph_label: build_problem(s) for t in load_sweep(ROOT / "sweeps/hsdag/table2.yaml").expand() for s in t.problems}
    for name, problem in problems.items():
        gains = {}
        print(f"\n{name}: the paper has {PAPER[name]} %; * reaches it\n")
        print("| a cut costs, µs | " + " | ".join(f"spread {s:g}" for s in SPREADS) + " |\n|--:|" + "--:|" * len(SPREADS))
        for price in PRICES:
            for spread in SPREADS:
                one = varied(problem, price, spread)
                gains[price, spread] = 100 * (1 - cost_bound(one) / one.compute_seconds[:, 0].sum())
            cells = [f"{gains[price, s]:.1f}{'*' if gains[price, s] >= PAPER[name] - 0.05 else ''}" for s in SPREADS]
            print(f"| {price * 1e6:g} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
