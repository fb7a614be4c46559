"""Trial records made by hand, for tests of reports and plots."""

from __future__ import annotations

from typing import Any

from orchestration.specs.results import CurvePoint, ProblemResult, ProposedBlock, TrialResult


def problem(graph: str, objective: float | None, **changes: Any) -> ProblemResult:
    values: dict[str, Any] = {
        "name": f"{graph}@net", "graph": graph, "network": "net", "problem_hash": graph * 4,
        "objective": objective, "seconds": objective,
        "outcome": "OK" if objective is not None else "OUT_OF_MEMORY", "placement": None if objective is None else (0, 1),
        "evaluations": 100, "protocol": "simulator:fifo noise=0.0",
        "curve": () if objective is None else (CurvePoint(1, 2 * objective, 0.1), CurvePoint(60, objective, 1.0)),
        "proposed": () if objective is None else (ProposedBlock(50, 3 * objective, 49), ProposedBlock(100, 1.5 * objective, 49)),
    }  # fmt: skip
    return ProblemResult(**{**values, **changes})


def trial(method: str, seed: int, *problems: ProblemResult, **changes: Any) -> TrialResult:
    values: dict[str, Any] = {
        "trial": f"{method}-{seed}-{'-'.join(p.graph for p in problems)}-{changes.get('stage', 'main')}",
        "status": "finished", "problems": problems,
        "sweep": "s", "stage": "main", "method": method, "method_name": method, "kind": "search", "seed": seed, "evaluations": 100,
        "outcomes": {"OK": 98, "INVALID": 2}, "wall_seconds": 4.0,
    }  # fmt: skip
    return TrialResult(**{**values, **changes})


def small_study(methods: int = 3) -> list[TrialResult]:
    """``m0`` is best everywhere, each next method 20 % worse; three graphs, three seeds that differ by 1 %."""
    return [
        trial(f"m{m}", seed, problem(graph, base * 1.2**m * (1 + 0.01 * seed)))
        for m in range(methods)
        for graph, base in (("ga", 0.001), ("gb", 0.5), ("gc", 0.02))
        for seed in range(3)
    ]
