"""Tables with a column for each graph."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from orchestration.analysis.runs import Run
from orchestration.analysis.table import Table
from orchestration.report.paper.study import Study, finite_mean, rounded
from orchestration.specs.results import ProposedBlock


def speedup(study: Study) -> Table:
    """HSDAG's Table 2 and 3: the best placement's time, mean over seeds, and how much less that is than the baseline's."""
    base = str(study.entry.get("baseline") or study.methods[0])

    def time(method: str, graph: str) -> float:
        return finite_mean([s.run.objective for s in study.of(method) if s.problem.graph.name == graph])

    def cells(method: str, graph: str) -> list[str]:
        own, reference = time(method, graph), time(base, graph)
        return [rounded(1e3 * own, 3), rounded(100.0 * (1.0 - own / reference) if math.isfinite(reference) else math.nan, 1)]

    note = f"%: speed-up, 100 (1 - time / time of {base}); mean over seeds of the best placement found."
    return _by_graph(study, ("ms", "%"), cells, note)


def search_time(study: Study) -> Table:
    """HSDAG's Table 5: seconds of search, mean over seeds, and those of the method itself."""

    def cells(method: str, graph: str) -> list[str]:
        runs = [s.run for s in study.of(method) if s.problem.graph.name == graph]
        spent = max((r.evaluations for r in runs), default=0)
        wall, own = (finite_mean(values) for values in ([r.wall_seconds for r in runs], [r.learner_seconds for r in runs]))
        return [rounded(wall, 1), rounded(own, 1), str(spent or "–")]

    note = "s: wall time of a trial; own s: of that in the method itself, the rest is measuring. What ran beside a trial slows it down."
    return _by_graph(study, ("s", "own s", "evals"), cells, note)


def proposed(study: Study) -> Table:
    """Mars's Figure 7: what was proposed in each quarter of the search, mean over seeds and over the placements that could run."""

    def cells(method: str, graph: str) -> list[str]:
        runs = [s.run for s in study.of(method) if s.problem.graph.name == graph]
        blocks = [block for run in runs for block in _quarters(run)]
        means = [[b.mean for q, b in blocks if q == k and b.valid] for k in range(4)]
        weights = [[b.valid for q, b in blocks if q == k and b.valid] for k in range(4)]
        runnable, asked = sum(b.valid for _, b in blocks), sum(run.evaluations for run in runs)
        shown = [f"{np.average(m, weights=w):.3f}" if m else "–" for m, w in zip(means, weights, strict=True)]
        return [*shown, rounded(100.0 * (1.0 - runnable / asked) if asked else math.nan, 1)]

    note = "Objective of the placements proposed in the four quarters of the search, mean of those that could run; %: that could not."
    return _by_graph(study, ("1/4", "2/4", "3/4", "4/4", "%"), cells, note)


def _quarters(run: Run) -> list[tuple[int, ProposedBlock]]:
    """The blocks of a run with the quarter, 0 to 3, in which the middle of each lies."""
    begins = [0, *(b.evaluations for b in run.proposed)]
    return [(min(3, 2 * (begin + b.evaluations) // max(run.evaluations, 1)), b) for begin, b in zip(begins, run.proposed, strict=False)]


def _by_graph(study: Study, units: Sequence[str], cells: Callable[[str, str], list[str]], note: str) -> Table:
    """A row a method, for each graph the ``cells`` in their ``units`` and, where the entry gives it, the paper's figure."""
    graphs = list(dict.fromkeys(s.problem.graph.name for s in study.scores))
    printed = {m: row for m, row in study.paper.items() if isinstance(row, Mapping)}
    heads = [*units, *(["paper"] if printed else [])]
    rows = []
    for method in study.methods:
        row = [method]
        for graph in graphs:
            row += cells(method, graph)
            row += [str(printed.get(method, {}).get(graph, "–"))] if printed else []
        rows.append(row)
    return study.table(["method", *(f"{graph} {head}" for graph in graphs for head in heads)], rows, note)
