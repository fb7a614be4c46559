"""HEFT on a large graph."""

from __future__ import annotations

from methods.placing.list_scheduling import heft
from tests.bench.figure import Figure, at_most, side_by_side
from tests.bench.simulator import problem


def measure() -> list[Figure]:
    """The plan of one problem, compiled code already loaded."""
    large, small = problem(10_000, devices=8), problem(40, devices=8)
    heft(small)
    return [
        at_most(
            "HEFT, 10,000 tasks × 8 devices", side_by_side(lambda: heft(large), rounds=3)[0], "s", 2.0, f"{large.graph.n_edges:,} edges"
        )
    ]
