"""Tables of run times as GDP and Mars print them, and of how soon they were found."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from orchestration.analysis.quantity import NONE, Quantity, TableCell, decimals, quantity
from orchestration.analysis.statistics import LEVEL, stratified_bootstrap
from orchestration.report.paper.study import finite_mean, quoted

if TYPE_CHECKING:
    from collections.abc import Callable

    import pandas as pd

    from orchestration.analysis.runs import Run
    from orchestration.analysis.table import Table
    from orchestration.report.paper.study import Study

STEPS = 15
"""Of a placement that is measured while Mars learns (section 4.1)."""
NEAR = 1.01
"""A search has arrived when its best so far is within this factor of its goal."""


def runtimes(study: Study) -> Table:
    """GDP's Table 1 and Mars's Table 2: seconds of the best placement, mean over seeds, and the paper's; ratios to ``baseline``."""
    graphs, printed, base = study.graphs, study.printed, _base(study)
    found = {(m, g): [r.objective for r in study.runs_of(m, g)] for m in study.methods for g in graphs}
    means = {m: [finite_mean(found[m, g]) for g in graphs] for m in study.methods}
    columns = ["graph"]
    last: list[TableCell] = [f"less than {base}, geometric mean"]
    rows: list[list[TableCell]] = [[graph] for graph in graphs]
    for method in study.methods:
        columns.append(method)
        for row, graph, mean in zip(rows, graphs, means[method], strict=True):
            values = found[method, graph]
            row.append(quantity(_seconds, "s", value=mean, n=sum(map(math.isfinite, values)), of=len(values)))
        last.append(_gain(means[method], means[base]))
        if method in printed:
            columns.append("paper")
            for row, graph in zip(rows, graphs, strict=True):
                row.append(quoted(printed[method].get(graph)))
            last.append(_gain(*([_number(printed.get(m, {}).get(g)) for g in graphs] for m in (method, base))))
    note = f"Seconds of a step, {study.origin}; mean over seeds of the best placement found. Last row: 100 (1 - time / time of {base})."
    return study.table(columns, [*rows, last], note)


def evaluations(study: Study) -> Table:
    """Mars's Figures 7 and 8: placements until a search has come within 1 % of its goal, mean over seeds, and the share it saves.

    The goal of a graph and seed is the worst of the final placements of all methods of the table, so that every search reaches it.
    """
    return _arrivals(study, _arrival, 0, "Placements")


def hours(study: Study) -> Table:
    """Mars's Figure 8 in hours of a machine that runs 15 steps of every placement, as `evaluations`.

    A placement that cannot run, or is given up as too slow, takes the entry's ``failed`` seconds (20). The method's own time and
    setting up a placement are left out. A search's placements are known as means over blocks of proposals, which is where it arrives.
    """
    failed = float(study.entry.get("failed", 20.0))

    def spent(run: Run, goal: float) -> float:
        arrival, begin, seconds = _arrival(run, goal), 0, 0.0
        for block in run.proposed:
            if begin < arrival:
                seconds += STEPS * block.mean * block.valid + failed * (block.evaluations - begin - block.valid)
            begin = block.evaluations
        return seconds / 3600.0

    return _arrivals(study, spent, 3, f"Hours of {STEPS} steps a placement, {failed:g} s where it fails,")


def _arrivals(study: Study, cost: Callable[[Run, float], float], digits: int, what: str) -> Table:
    base, graphs = _base(study), study.graphs
    searches = {(s.run.method, s.problem.graph.name, s.run.seed): s.run for s in study.scores}
    found = pd.DataFrame([(*key, run) for key, run in searches.items()], columns=["method", "graph", "seed", "run"])
    found["goal"] = found["run"].map(lambda run: run.objective).groupby([found["graph"], found["seed"]]).transform("max")
    needed = found[np.isfinite(found["goal"])].assign(needed=lambda rows: [cost(r.run, NEAR * r.goal) for r in rows.itertuples()])
    pairs = needed.merge(needed[needed["method"] == base], on=["graph", "seed"], suffixes=("", "_base"))
    means = needed.groupby(["method", "graph"])["needed"].mean()
    rows = [
        [
            method,
            *(quantity(decimals(digits), value=means.get((method, graph))) for graph in graphs),
            NONE if method == base else _saved(pairs[pairs["method"] == method]),
        ]
        for method in study.methods
    ]
    columns = ["method", *graphs, f"fewer than {base}, % ({100 * LEVEL:.0f} % interval)"]
    return study.table(columns, rows, f"{what} until within 1 % of the worst final placement of the methods shown, by seed.")


def _saved(pairs: pd.DataFrame) -> Quantity:
    """1 - mean evaluations / mean of the baseline's, a graph at a time, then the mean over graphs, with a bootstrap over seeds.

    Means come before the ratio: the mean of ratios of two searches that do not differ is well above 1.
    """
    if pairs.empty:
        return quantity(_interval, "%", value=math.nan, low=math.nan, high=math.nan)
    own, theirs, graphs = pairs["needed"].to_numpy(), pairs["needed_base"].to_numpy(), pairs["graph"].to_numpy()

    def share(drawn: np.ndarray) -> np.ndarray:
        rows = drawn.astype(np.int64)
        each = [1 - own[rows[:, graphs == g]].mean(axis=1) / theirs[rows[:, graphs == g]].mean(axis=1) for g in np.unique(graphs)]
        return 100 * np.mean(each, axis=0)

    rows = np.arange(len(pairs), dtype=np.float64)
    low, high = stratified_bootstrap(rows, graphs, share)
    return quantity(_interval, "%", value=float(share(rows[None, :])[0]), low=float(low), high=float(high))


def _interval(value: float, low: float, high: float) -> str:
    if math.isnan(value):
        return NONE
    return f"{value:.1f}" + ("" if math.isnan(low) else f" ({low:.1f} to {high:.1f})")


def _arrival(run: Run, goal: float) -> float:
    return float(next((p.own or p.evaluations for p in run.curve if p.best <= goal), run.evaluations))


def _base(study: Study) -> str:
    """What the others are compared with: the entry's baseline, or the first method where that has not run."""
    base = str(study.entry.get("baseline"))
    return base if base in study.methods else study.methods[0]


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else math.nan


def _seconds(value: float, n: int, of: int) -> str:
    if not of:
        return NONE
    return "OOM" if not n else f"{value:.3f}" + (f" ({of - n} of {of} failed)" if n < of else "")


def _gain(own: list[float], reference: list[float]) -> Quantity:
    """How much less, in per cent of the reference, as a geometric mean over graphs where both are known."""
    ratios = [a / b for a, b in zip(own, reference, strict=True) if math.isfinite(a) and math.isfinite(b)]
    value = 100 * (1 - math.exp(math.fsum(map(math.log, ratios)) / len(ratios))) if ratios else math.nan
    return quantity(lambda value, n: f"{value:.1f} % of {n}" if n else NONE, "%", value=value, n=len(ratios))
