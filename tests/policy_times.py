"""``python -m tests.policy_times``: GiPH's Table 7 and Figure 17, CPU time of a policy for one placement, in training and in search.

The variants of sweeps/giph/fig14-multiple.yaml on graphs and networks made as its are, one episode at a time as in the authors' code, so
that nothing is shared between problems. As in the paper a time is that of making the gpNet with its features and running the policy; in
training its share of the update at the episode's end too. The simulator's time is left out. No Ray, no ledger: what is printed is all that
it makes.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import torch

from envs.graphs.synthetic import TaskGraphParameters, generate_graph
from envs.networks.synthetic import NetworkParameters, generate_network
from envs.problem.problem import Problem
from envs.simulators.fifo.evaluator import Simulator
from methods.contract.registry import build

SEEDS = range(3)
PROBLEMS = 30
"""Of 10 and 15 rows of tasks, as in the sweep."""
SIZES = (10, 20, 40, 80)
"""Of Figure 17: settings of the generator, which makes about twice as many tasks."""
PUBLISHED = {
    "GiPH": (0.565, 0.340),
    "GiPH-3": (0.145, 0.114),
    "GiPH-5": (0.178, 0.132),
    "GiPH-NE": (0.360, 0.240),
    "GiPH-NE-Pol": (0.027, 0.027),
    "GraphSAGE-NE": (0.157, 0.138),
    "Placeto": (0.255, 0.162),
}
"""Table 7, seconds: training, running."""
METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "GiPH": ("giph", {}),
    "GiPH-3": ("giph", {"variant": "giph-k", "rounds": 3}),
    "GiPH-5": ("giph", {"variant": "giph-k", "rounds": 5}),
    "GiPH-NE": ("giph", {"variant": "giph-ne"}),
    "GiPH-NE-Pol": ("giph", {"variant": "giph-ne-pol"}),
    "GraphSAGE-NE": ("giph", {"variant": "graphsage-ne"}),
    "Placeto": ("placeto", {}),
}


def problem(tasks: int, seed: int) -> Problem:
    """A graph and a network of 20 devices, by the sweep's parameters."""
    graph = TaskGraphParameters(tasks=tasks, shape=0.2, connection_probability=0.2, hardware_types=5, sizing="layers")
    network = NetworkParameters(devices=20, hardware_types=5, support_probability=0.2)
    return Problem(generate_graph(graph, seed), generate_network(network, seed))


def per_placement(label: str, found: list[Problem], learn: bool, seed: int) -> np.ndarray:
    """CPU seconds of a placement on each problem, simulating left out, float64[problems]."""
    name, settings = METHODS[label]
    method = build(name, {**settings, "batch": 1, "episodes": len(found), "learn": learn}, found, seed)
    simulator, spent, count = Simulator(), np.zeros(len(found)), np.zeros(len(found))
    begin = time.process_time()
    while proposals := method.propose(1):
        spent_here = time.process_time() - begin
        measured = [simulator.evaluate(found[p.problem], p.placements, trace=True) for p in proposals]
        begin = time.process_time()
        method.update(measured)
        at = proposals[0].problem
        spent[at] += spent_here + time.process_time() - begin
        count[at] += 1
        begin = time.process_time()
    return spent[count > 0] / count[count > 0]


def row(label: str, found: list[Problem], learn: bool) -> np.ndarray:
    """`per_placement` of all seeds, one after another."""
    return np.concatenate([per_placement(label, found, learn, seed) for seed in SEEDS])


def main() -> None:
    """Print both tables in milliseconds."""
    torch.set_num_threads(1)
    found = [problem((10, 15)[seed % 2], seed) for seed in range(PROBLEMS)]
    per_placement("Placeto", found[:1], True, 0), per_placement("GiPH", found[:1], True, 0)  # compiled code is loaded
    print(f"{PROBLEMS} problems, seeds {list(SEEDS)}, ms a placement, mean and deviation over problems and seeds\n")
    print("| | training | running | published (training, running) |\n|---|--:|--:|--:|")
    for label, (theirs, others) in PUBLISHED.items():
        training, running = (1e3 * row(label, found, learn) for learn in (True, False))
        ours = f"{training.mean():.2f} ± {training.std():.2f} | {running.mean():.2f} ± {running.std():.2f}"
        print(f"| {label} | {ours} | {1e3 * theirs:.0f}, {1e3 * others:.0f} |", flush=True)
    sizes = [[problem(tasks, seed) for seed in range(5)] for tasks in SIZES]
    counts = [round(float(np.mean([p.n_nodes for p in same]))) for same in sizes]
    print("\n| running, tasks | " + " | ".join(map(str, counts)) + " |\n|---|" + "--:|" * len(sizes))
    for label in PUBLISHED:
        print(f"| {label} | " + " | ".join(f"{1e3 * row(label, same, False).mean():.2f}" for same in sizes) + " |", flush=True)


if __name__ == "__main__":
    main()
