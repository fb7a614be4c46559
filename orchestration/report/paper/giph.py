"""Tables in the shapes of GiPH's figures."""

from __future__ import annotations

import math
import re
from functools import partial
from typing import Any

import numpy as np

from envs.problem.problem import Problem
from envs.simulators.bounds import shortest_path_seconds, slr_denominator
from envs.simulators.fifo.evaluator import Simulator
from envs.simulators.relocation import relocation_seconds
from methods.placing.constraints import random_placements
from orchestration.analysis.quantity import NONE, Quantity, TableCell, decimals, quantity
from orchestration.analysis.table import Table
from orchestration.report.paper.study import Study, mean_and_error

STEPS = (0.25, 0.5, 0.75, 1.0, 1.5, 2.0)
"""Where search curves are read, in steps for each task."""
QUANTILES = (0.1, 0.25, 0.5, 0.75, 0.9)


def final(study: Study) -> Table:
    """Mean of the best placements, against the baseline and against what a random placement is on average."""
    baseline = study.baseline()
    problems = {s.problem.content_hash: s.problem for s in study.scores}
    random = study.runs["problem"].map({key: _mean_random(problem) for key, problem in problems.items()})
    rows: list[list[TableCell]] = []
    for method in study.methods:
        own = study.runs[study.runs["method"] == method]
        seeds = own.groupby("seed")["value"].mean()
        if len(seeds) > 1:
            mean = quantity(_range, value=float(seeds.mean()), least=float(seeds.min()), most=float(seeds.max()), n=len(seeds))
        else:
            mean = mean_and_error(own["value"])
        below = 100 * (1 - float(own["value"].mean()) / float(random[own.index].mean()))
        better = NONE if method == baseline else study.compared(method, baseline)
        cases, count = quantity(decimals(0), value=own["problem"].nunique()), quantity(decimals(0), value=len(seeds))
        rows.append([method, cases, count, mean, better, quantity(lambda value: f"{value:.1f} %", "%", value=below)])
    kind = "SLR" if all(s.problem.objective == "makespan" for s in study.scores) else "objective"
    columns = ["method", "cases", "seeds", kind, f"% better / equal / worse than {baseline}", "below mean random"]
    note = "Best of each search, simulated without noise. Mean ± standard error over cases; of several seeds the lowest and highest."
    return study.table(columns, rows, note)


def _range(value: float, least: float, most: float, **_: int) -> str:
    return f"{value:.3f} ({least:.3f} to {most:.3f})"


def _mean_random(problem: Problem) -> float:
    """Mean over twice as many random placements as there are operations, as an SLR or in joules."""
    drawn = random_placements(problem, 2 * problem.n_nodes, np.random.default_rng(0))
    return float(Simulator().evaluate(problem, drawn).objective.mean()) / _unit(problem)


def _unit(problem: Problem) -> float:
    """What objectives are divided by."""
    return slr_denominator(problem) if problem.objective == "makespan" else 1.0


def by_step(study: Study) -> Table:
    """Mean best SLR so far against steps of the search, in steps a task; curves are as measured, noise included."""
    rows: list[list[TableCell]] = []
    for method in study.methods:
        found: list[list[float]] = [[] for _ in STEPS]
        for s in study.of(method):
            at = np.array([p.evaluations for p in s.run.curve])
            for values, step in zip(found, STEPS, strict=True):
                if reached := int(np.searchsorted(at, max(1.0, step * s.problem.n_nodes), side="right")):
                    values.append(s.run.curve[reached - 1].best / _unit(s.problem))
        rows.append([method, *map(_mean, found)])
    return study.table(["method", *(f"{s:g} |V|" for s in STEPS)], rows, "Best so far against placements evaluated, as measured.")


def _mean(values: list[float]) -> Quantity:
    return quantity(_mean_text, value=float(np.mean(values)) if values else math.nan, n=len(values))


def _mean_text(value: float, **_: float) -> str:
    return NONE if math.isnan(value) else f"{value:.3f}"


def by_depth(study: Study) -> Table:
    """Mean SLR by the number of tasks on the longest path, and the same over the shortest path, as the authors' plots have it."""
    depths = {s.problem.content_hash: int(s.problem.graph.levels.max()) + 1 for s in study.scores}
    edges = np.unique(np.quantile(list(depths.values()), np.linspace(0, 1, int(study.entry.get("bins") or 6) + 1)).round().astype(int))
    lowest = edges[:-1] if len(edges) > 1 else edges
    bounds = list(zip(lowest.tolist(), [*(edges[1:-1] - 1).tolist(), int(edges[-1])], strict=True))
    which = np.searchsorted(edges[1:-1], study.runs["problem"].map(depths), side="right")
    longer = {s.problem.content_hash: slr_denominator(s.problem) / shortest_path_seconds(s.problem) for s in study.scores}
    rows: list[list[TableCell]] = []
    for factor, over in ((None, ""), (study.runs["problem"].map(longer), ", shortest path")):
        cells = study.pivot(which, lambda value, deviation, n: f"{value:.3f} ({deviation:.3f})", factor=factor)
        cells = cells.reindex(columns=range(len(bounds)), fill_value=NONE)
        rows += [[f"{method}{over}", *row] for method, row in zip(cells.index, cells.to_numpy(), strict=True)]
    note = "SLR (standard deviation) by the depth of the graph, in tasks. Shortest path: the time over the least sum of any path's tasks."
    return study.table(["method", *(f"{a}–{b}" for a, b in bounds)], rows, note)


def by_network(study: Study) -> Table:
    """Mean SLR over graphs for every network, in the order of the sweep's names, and the worst of them against the baseline's."""
    baseline = study.baseline()
    cells = study.pivot("network", _mean_text)
    cells = cells[sorted(cells.columns, key=_natural)]
    means = study.runs.groupby(["method", "network"])["value"].mean().unstack()
    rows: list[list[TableCell]] = []
    for method in study.methods:
        ratio = float((means.loc[method] / means.loc[baseline]).max()) if baseline in means.index and method != baseline else math.nan
        worst = quantity(lambda value: f"{value:+.1f} %" if math.isfinite(value) else NONE, "%", value=100 * (ratio - 1))
        rows.append([method, *cells.loc[method], worst])
    columns = ["method", *(n.rpartition("/")[2] for n in cells.columns), f"worst against {baseline}"]
    return study.table(columns, rows, "SLR averaged over graphs, by network.")


def _natural(name: str) -> tuple[Any, ...]:
    return tuple(int(part) if part.isdigit() else part for part in re.split(r"(\d+)", name))


def pairwise(study: Study) -> Table:
    """Every method against every other: % of cases better / equal / worse."""
    rows: list[list[TableCell]] = []
    for method in study.methods:
        theirs = study.paper.get(method) or {}
        rows.append([method, *("" if o == method else study.compared(method, o) for o in study.methods)])
        if theirs:
            rows.append([f"  paper's {method}", *(_printed_shares(theirs[o]) if o in theirs else "" for o in study.methods)])
    return study.table(["row against column", *study.methods], rows, "% of cases in which the row's SLR is better / equal / worse.")


def _printed_shares(printed: list[float]) -> TableCell:
    """A paper's three percentages."""
    if len(printed) != 3:
        return " / ".join(f"{x:g}" for x in printed)
    shown = partial(lambda text, **_: text, " / ".join(f"{x:g}" for x in printed))
    return Quantity(shown, {key: x / 100 for key, x in zip(("better", "equal", "worse"), printed, strict=True)})


def by_training(study: Study) -> Table:
    """Mean SLR against episodes of training, from methods whose labels end in ``/episodes=N``."""
    split = {m: m.rpartition("/episodes=") for m in study.methods}
    counts = sorted({int(tail) for _, mark, tail in split.values() if mark})
    names = dict.fromkeys(head for head, mark, _ in split.values() if mark)
    rows = [[name, *(_mean([s.value for s in study.of(f"{name}/episodes={n}")]) for n in counts)] for name in names]
    return study.table(["method", *map(str, counts)], rows, "SLR on the evaluation cases after that many episodes of training.")


def distribution(study: Study) -> Table:
    """Quantiles of the SLR over cases."""
    rows = []
    for method in study.methods:
        values = [s.value for s in study.of(method)]
        cells = (quantity(_mean_text, value=q, n=len(values)) for q in np.quantile(values, QUANTILES).tolist())
        rows.append([method, mean_and_error(values), *cells])
    return study.table(["method", "mean", *(f"{100 * q:g} %" for q in QUANTILES)], rows, "Quantiles over cases.")


def relocation(study: Study) -> Table:
    """What the placements found cost to move to, and what they reach, by stage (a frequency of the pipeline each)."""
    rows = []
    for stage in dict.fromkeys(s.run.stage for s in study.scores):
        for method in study.methods:
            scores = [s for s in study.of(method) if s.run.stage == stage and s.run.placement is not None]
            if scores:
                cost = [float(relocation_seconds(s.problem, np.array([s.run.placement]))[0]) for s in scores]
                rows.append([stage, method, mean_and_error(cost), mean_and_error([s.value for s in scores])])
    return study.table(["stage", "method", "relocation, s", "SLR"], rows, "Cost of moving from the placement in force, and what it brings.")
