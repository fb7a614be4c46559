"""Tables with a row for each method and columns for each graph."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from orchestration.analysis.quantity import TableCell, decimals, quantity
from orchestration.analysis.runs import Run
from orchestration.analysis.table import Table
from orchestration.report.paper.study import Study, finite_mean, quoted
from orchestration.specs.results import ProposedBlock


def speedup(study: Study) -> Table:
    """HSDAG's Table 2 and 3: the best placement's time, mean over seeds, and how much less that is than the baseline's."""
    base = str(study.entry.get("baseline") or study.methods[0])

    def time(method: str, graph: str) -> float:
        return finite_mean([run.objective for run in study.runs_of(method, graph)])

    def cells(method: str, graph: str) -> list[TableCell]:
        own, reference = time(method, graph), time(base, graph)
        less = 100.0 * (1.0 - own / reference) if math.isfinite(reference) else math.nan
        return [quantity(decimals(3), "ms", value=1e3 * own), quantity(decimals(1), "%", value=less)]

    note = f"%: speed-up, 100 (1 - time / time of {base}); mean over seeds of the best placement found."
    return _by_graph(study, ("ms", "%"), cells, note)


def search_time(study: Study) -> Table:
    """HSDAG's Table 5: seconds of search, mean over seeds, and those of the method itself."""

    def cells(method: str, graph: str) -> list[TableCell]:
        runs = study.runs_of(method, graph)
        times = [finite_mean(values) for values in ([r.wall_seconds for r in runs], [r.learner_seconds for r in runs])]
        spent = max((r.evaluations for r in runs), default=0) or None
        return [*(quantity(decimals(1), "s", value=t) for t in times), quantity(decimals(0), value=spent)]

    note = "s: wall time of a trial; own s: of that in the method itself, the rest is measuring. What ran beside a trial slows it down."
    return _by_graph(study, ("s", "own s", "evals"), cells, note)


def proposed(study: Study) -> Table:
    """Mars's Figure 7: what was proposed in each quarter of the search, mean over seeds and over the placements that could run."""

    def cells(method: str, graph: str) -> list[TableCell]:
        runs = study.runs_of(method, graph)
        blocks = [block for run in runs for block in _quarters(run)]
        shown: list[TableCell] = []
        for quarter in range(4):
            found = [(b.mean, b.valid) for q, b in blocks if q == quarter and b.valid]
            weight = sum(n for _, n in found)
            shown.append(quantity(decimals(3), value=math.fsum(mean * n for mean, n in found) / weight if found else None, n=weight))
        runnable, asked = sum(b.valid for _, b in blocks), sum(run.evaluations for run in runs)
        return [*shown, quantity(decimals(1), "%", value=100.0 * (1.0 - runnable / asked) if asked else math.nan, of=asked)]

    note = "Objective of the placements proposed in the four quarters of the search, mean of those that could run; %: that could not."
    return _by_graph(study, ("1/4", "2/4", "3/4", "4/4", "%"), cells, note)


def _quarters(run: Run) -> list[tuple[int, ProposedBlock]]:
    """The blocks of a run with the quarter, 0 to 3, in which the middle of each lies."""
    begins = [0, *(b.evaluations for b in run.proposed)]
    return [(min(3, 2 * (begin + b.evaluations) // max(run.evaluations, 1)), b) for begin, b in zip(begins, run.proposed, strict=False)]


def _by_graph(study: Study, units: Sequence[str], cells: Callable[[str, str], list[TableCell]], note: str) -> Table:
    """A row a method, for each graph the ``cells`` in their ``units`` and, where the entry gives it, the paper's figure."""
    printed, graphs = study.printed, study.graphs
    heads = [*units, *(["paper"] if printed else [])]
    rows = []
    for method in study.methods:
        row: list[TableCell] = [method]
        for graph in graphs:
            row += cells(method, graph)
            row += [quoted(printed.get(method, {}).get(graph))] if printed else []
        rows.append(row)
    return study.table(["method", *(f"{graph} {head}" for graph in graphs for head in heads)], rows, note)
