"""Tables with a row for each graph and a column for each method: run times as GDP and Mars print them, and how soon they were found."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from orchestration.analysis.statistics import stratified_bootstrap

if TYPE_CHECKING:
    from orchestration.analysis.runs import Run
    from orchestration.analysis.table import Table
    from orchestration.report.paper.study import Study

NEAR = 1.01
"""A search has arrived when its best so far is within this factor of its goal."""


def runtimes(study: Study) -> Table:
    """GDP's Table 1 and Mars's Table 2: seconds of the best placement, mean over seeds, and the paper's; ratios to ``baseline``."""
    graphs, printed = _graphs(study), _printed(study)
    columns, means = ["graph"], {m: [_mean(_runs(study, m, g)) for g in graphs] for m in study.methods}
    for method in study.methods:
        columns += [method, *(["paper"] if method in printed else [])]
    rows = []
    for i, graph in enumerate(graphs):
        row = [graph]
        for method in study.methods:
            found = _runs(study, method, graph)
            failed = sum(not math.isfinite(r.objective) for r in found)
            row.append(_seconds(means[method][i], failed, len(found)))
            row += [str(printed[method].get(graph, "–"))] if method in printed else []
        rows.append(row)
    base = _base(study)
    last = [f"less than {base}, geometric mean"]
    for method in study.methods:
        last.append(_gain(means[method], means[base]))
        if method in printed:
            theirs, reference = ([_number(printed.get(m, {}).get(g)) for g in graphs] for m in (method, base))
            last.append(_gain(theirs, reference))
    note = f"Seconds of a step, simulated; mean over seeds of the best placement found. Last row: 100 (1 - time / time of {base})."
    return study.table(columns, [*rows, last], note)


def evaluations(study: Study) -> Table:
    """Mars's Figures 7 and 8: placements until a search has come within 1 % of its goal, mean over seeds, and the share it saves.

    The goal of a graph and seed is the worst of the final placements of all methods of the table, so that every search reaches it.
    """
    graphs, base = _graphs(study), _base(study)
    needed: dict[tuple[str, str, int], float] = {}
    for graph in graphs:
        rows = {(m, r.seed): r for m in study.methods for r in _runs(study, m, graph)}
        for seed in {s for _, s in rows}:
            goal = max(r.objective for (_, s), r in rows.items() if s == seed)
            for (method, s), run in rows.items():
                if s == seed and math.isfinite(goal):
                    needed[graph, method, s] = _arrival(run, NEAR * goal)
    rows_out = []
    for method in study.methods:
        row = [method]
        for graph in graphs:
            row.append(_figure(_mean_of([n for (g, m, _), n in needed.items() if (g, m) == (graph, method)]), 0))
        pairs = [(g, n, needed[g, base, s]) for (g, m, s), n in needed.items() if m == method and (g, base, s) in needed]
        row.append("–" if method == base else _saved(pairs))
        rows_out.append(row)
    columns = ["method", *graphs, f"fewer than {base}, % (95 % interval)"]
    return study.table(columns, rows_out, "Placements until within 1 % of the worst final placement of the methods shown, by seed.")


def _saved(pairs: list[tuple[str, float, float]]) -> str:
    """1 - mean evaluations / mean of the baseline's, a graph at a time, then the mean over graphs, with a bootstrap over seeds.

    Means come before the ratio: the mean of ratios of two searches that do not differ is well above 1.
    """
    if not pairs:
        return "–"
    graphs, own, theirs = np.array([g for g, _, _ in pairs]), np.array([n for _, n, _ in pairs]), np.array([n for _, _, n in pairs])

    def share(drawn: np.ndarray) -> np.ndarray:
        rows = drawn.astype(np.int64)
        each = [1 - own[rows[:, graphs == g]].mean(axis=1) / theirs[rows[:, graphs == g]].mean(axis=1) for g in np.unique(graphs)]
        return np.mean(each, axis=0)

    rows = np.arange(len(pairs), dtype=np.float64)
    low, high = stratified_bootstrap(rows, graphs, share)
    return f"{100 * float(share(rows[None, :])[0]):.1f} ({100 * float(low):.1f} to {100 * float(high):.1f})"


def _arrival(run: Run, goal: float) -> float:
    return float(next((p.own or p.evaluations for p in run.curve if p.best <= goal), run.evaluations))


def _base(study: Study) -> str:
    """What the others are compared with: the entry's baseline, or the first method where that has not run."""
    base = str(study.entry.get("baseline"))
    return base if base in study.methods else study.methods[0]


def _graphs(study: Study) -> list[str]:
    return list(dict.fromkeys(s.problem.graph.name for s in study.scores))


def _printed(study: Study) -> dict[str, Mapping[str, object]]:
    return {m: row for m, row in study.paper.items() if isinstance(row, Mapping)}


def _runs(study: Study, method: str, graph: str) -> list[Run]:
    return [s.run for s in study.of(method) if s.problem.graph.name == graph]


def _mean(runs: list[Run]) -> float:
    return _mean_of([r.objective for r in runs if math.isfinite(r.objective)])


def _mean_of(values: list[float]) -> float:
    return math.fsum(values) / len(values) if values else math.nan


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else math.nan


def _seconds(mean: float, failed: int, count: int) -> str:
    if not count:
        return "–"
    if failed == count:
        return "OOM"
    return f"{mean:.3f}" + (f" ({failed} of {count} failed)" if failed else "")


def _gain(own: list[float], reference: list[float]) -> str:
    """How much less, in per cent of the reference, as a geometric mean over graphs where both are known."""
    ratios = [a / b for a, b in zip(own, reference, strict=True) if math.isfinite(a) and math.isfinite(b)]
    if not ratios:
        return "–"
    return f"{100 * (1 - math.exp(math.fsum(map(math.log, ratios)) / len(ratios))):.1f} % of {len(ratios)}"


def _figure(value: float, digits: int) -> str:
    return f"{value:.{digits}f}" if math.isfinite(value) else "–"
