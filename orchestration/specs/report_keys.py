"""Keys and shapes of the tables that a sweep's report may ask for."""

from __future__ import annotations

KEYS = ("shape", "title", "stages", "methods", "baseline", "base", "columns", "bins", "failed", "paper", "note")
"""Keys of one table."""
SHAPES = (
    "final",
    "by-step",
    "by-depth",
    "by-network",
    "pairwise",
    "by-training",
    "distribution",
    "relocation",
    "speedup",
    "search-time",
    "outputs",
    "ablation",
    "generalization",
    "runtimes",
    "evaluations",
    "hours",
    "proposed",
)
"""Shapes of tables; `orchestration.report.paper.shapes` makes them."""
