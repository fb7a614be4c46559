"""Simulating the placements of a problem's own file. Searching for placements does not belong here."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from envs.problem.errors import InputError
from envs.problem.measurement import Outcome
from envs.simulators.fifo.evaluator import Simulator
from envs.sources.importing import load_placements, load_problem
from orchestration.analysis.schedule import why_not


def simulate_file(path: Path, noise: float = 0.0, seed: int = 0, placements: Path | None = None) -> dict[str, Any]:
    """Every placement of a problem's JSON file, simulated; JSON values, times in seconds (and joules), null where it cannot run.

    Args:
        path: a problem with ``placements``, or of another format.
        noise: σ of the simulator's noise (GiPH Appendix B.5), in [0, 1).
        seed: with the position of a placement, what its noise derives from.
        placements: another file to take the placements from; a split as dnn-partitioning writes them is one, too.

    Raises:
        InputError: naming what is wrong with a file, or saying that there is no placement to simulate.
    """

    problem = load_problem(path)
    rows = load_placements(placements or path, problem)
    if not len(rows):
        raise InputError(f"{placements or path} has an empty list of placements; give at least one, each a device for every node")
    if seed < 0:
        raise InputError(f"seed {seed} is negative; give 0 or more")
    result = Simulator(noise=noise).evaluate(problem, rows, seed, trace=True)
    results = []
    for b, row in enumerate(rows):
        ok = bool(result.ok[b])
        entry: dict[str, Any] = {
            "outcome": Outcome(int(result.outcome[b])).name,
            "makespan": float(result.seconds[b]) if ok else None,
            "start": _by_node(problem.graph.names, result.start[b]) if ok and result.start is not None else None,
            "finish": _by_node(problem.graph.names, result.finish[b]) if ok and result.finish is not None else None,
        }
        if problem.objective != "makespan":
            entry[{"throughput": "period", "total-cost": "total_cost"}.get(problem.objective, "energy")] = (
                float(result.objective[b]) if ok else None
            )
        if not ok:
            entry["why"] = why_not(problem, row)
        results.append(entry)
    return {
        "problem": problem.name, "problem_hash": problem.content_hash, "objective": problem.objective, "protocol": result.protocol,
        "seed": seed, "placements": results,
    }  # fmt: skip


def _by_node(names: Sequence[str], values: np.ndarray) -> dict[str, float]:
    return dict(zip(names, values.tolist(), strict=True))
