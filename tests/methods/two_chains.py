"""Two chains that have nothing to do with one another, on two devices: what every learner should solve.

``python -m tests.methods.two_chains`` prints how far each gets at its published settings; `tests/methods/test_two_chains.py` holds it. Both
chains take 80 ms where each has a device of its own (on unlike devices, its fast one). A transfer takes as long as an operation.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from envs.costs.table import TableCosts
from envs.problem.graph import ComputationGraph
from envs.problem.network import DeviceNetwork
from envs.problem.problem import Problem
from envs.simulators.fifo.evaluator import Simulator
from methods.contract.registry import build
from methods.testing.running import go

LENGTH, SECONDS = 8, 0.01
OPTIMUM = LENGTH * SECONDS
SEARCH, WHOLE, STEPPED = 600, 2000, 6400
"""Budgets in evaluations: of searches that the papers run for hundreds of placements, for thousands, and of learners that move one task
after another (200 episodes)."""
LEARNERS: dict[str, tuple[str, dict[str, Any], int]] = {
    "hsdag": ("hsdag", {}, WHOLE),
    "gdp": ("gdp", {"repair": False}, SEARCH),
    "mars": ("mars", {"repair": False}, SEARCH),
    "hdp": ("hdp", {"repair": False, "learning": {"learning_rate": 0.1}}, SEARCH),
    "rnn-placer": ("rnn-placer", {}, SEARCH),
    "doppler": ("doppler", {"episodes": WHOLE}, WHOLE),
    "placeto": ("placeto", {"episodes": 200}, STEPPED),
    "giph": ("giph", {"episodes": 200}, STEPPED),
}
"""Method, what its published settings need here, budget."""


def two_chains(unlike: bool) -> Problem:
    """The problem; on ``unlike`` devices each chain has one that is twice as fast for it as the other."""
    n = 2 * LENGTH
    edges = np.array([(c * LENGTH + k, c * LENGTH + k + 1) for c in range(2) for k in range(LENGTH - 1)], dtype=np.int32)
    names = tuple(f"{chain}{k}" for chain in "ab" for k in range(LENGTH))
    graph = ComputationGraph(
        names, ("a",) * LENGTH + ("b",) * LENGTH, np.full(n, 1e6), np.full(n, 1e3), edges, np.full(len(edges), 1e3), name="two-chains"
    )
    seconds = np.full((n, 2), SECONDS)
    if unlike:
        seconds[:LENGTH, 1] = seconds[LENGTH:, 0] = 2 * SECONDS
    network = DeviceNetwork(("d0", "d1"), 1e8, 1e5, 0.0, name="two")
    return Problem(graph, network, TableCosts(graph.names, network.names, seconds))


def eighths(learner: str, unlike: bool, seed: int, budget: int = 0) -> np.ndarray:
    """Mean of the proposals of a search by eighths of ``budget`` (0: its own), seconds, float64[8]; those that cannot run left out."""
    name, settings, own = LEARNERS[learner]
    method = build(name, settings, [two_chains(unlike)], seed)
    method.pretrain(method.problems)
    found = np.array(go(method, budget or own, ask=20).objective)
    return np.array([part[np.isfinite(part)].mean() for part in np.array_split(found, 8)])


def random_mean(unlike: bool) -> float:
    """Mean of placements drawn evenly, seconds."""
    problem = two_chains(unlike)
    drawn = np.random.default_rng(0).integers(0, 2, (4000, problem.n_nodes)).astype(np.int16)
    return float(Simulator().evaluate(problem, drawn).objective.mean())


def solved(last: float, unlike: bool) -> bool:
    """Whether the last eighth has come at least half of the way from random placements to the optimum."""
    start = random_mean(unlike)
    return start - last >= 0.5 * (start - OPTIMUM)


def main(learners: list[str]) -> None:
    """Print every learner's eighths in ms, three seeds each, and how many solve it."""
    for unlike in (True, False):
        kind = "unlike" if unlike else "alike"
        print(f"\n{kind} devices: optimum {1e3 * OPTIMUM:.0f} ms, random {1e3 * random_mean(unlike):.0f} ms", flush=True)
        for learner in learners or LEARNERS:
            runs = np.stack([eighths(learner, unlike, seed) for seed in range(3)])
            count = sum(solved(run[-1], unlike) for run in runs)
            means = " ".join(f"{1e3 * x:.0f}" for x in runs.mean(axis=0))
            print(f"| {learner} | {LEARNERS[learner][2]} | {means} | {count} of 3 |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
