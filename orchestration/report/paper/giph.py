"""Tables in the shapes of GiPH's figures."""

from __future__ import annotations

from typing import Any

import numpy as np

from envs.problem.problem import Problem
from envs.simulators.bounds import slr_denominator
from envs.simulators.fifo.evaluator import Simulator
from envs.simulators.relocation import relocation_seconds
from orchestration.analysis.table import Table
from orchestration.report.paper.study import Study, mean_and_error, shown_shares

STEPS = (0.25, 0.5, 0.75, 1.0, 1.5, 2.0)
"""Where search curves are read, in steps for each task."""


def final(study: Study) -> Table:
    """Mean of the best placements, against the baseline and against what a random placement is on average."""
    from methods.placing.constraints import random_placements

    baseline = str(study.entry.get("baseline") or study.record.known_baseline or "heft")
    average: dict[str, float] = {}
    for s in study.scores:
        key = s.problem.content_hash
        if key not in average:
            drawn = random_placements(s.problem, 2 * s.problem.n_nodes, np.random.default_rng(0))
            objective = Simulator().evaluate(s.problem, drawn).objective
            average[key] = float(objective.mean()) / (slr_denominator(s.problem) if s.problem.objective == "makespan" else 1.0)
    rows = []
    for method in study.methods:
        scores = study.of(method)
        values = [s.value for s in scores]
        below = 1 - float(np.mean(values)) / float(np.mean([average[s.problem.content_hash] for s in scores]))
        shares = study.compared(method, baseline) if method != baseline else None
        seeds = sorted({s.run.seed for s in scores})
        of_seed = [float(np.mean([s.value for s in scores if s.run.seed == seed])) for seed in seeds]
        mean = f"{np.mean(of_seed):.3f} ({min(of_seed):.3f} to {max(of_seed):.3f})" if len(seeds) > 1 else mean_and_error(values)
        rows.append([method, f"{len(study.tables[method])}", f"{len(seeds)}", mean, shown_shares(shares), f"{100 * below:.1f} %"])
    kind = "SLR" if all(s.problem.objective == "makespan" for s in study.scores) else "objective"
    columns = ["method", "cases", "seeds", kind, f"% better / equal / worse than {baseline}", "below mean random"]
    note = "Best of each search, simulated without noise. Mean ± standard error over cases; of several seeds the lowest and highest."
    return study.table(columns, rows, note)


def by_step(study: Study) -> Table:
    """Mean best SLR so far against steps of the search, in steps a task; curves are as measured, noise included."""
    rows = []
    for method in study.methods:
        columns: list[list[float]] = [[] for _ in STEPS]
        for s in study.of(method):
            unit = slr_denominator(s.problem) if s.problem.objective == "makespan" else 1.0
            at = np.array([p.evaluations for p in s.run.curve])
            best = np.array([p.best for p in s.run.curve])
            for column, step in zip(columns, STEPS, strict=True):
                reached = np.flatnonzero(at <= max(1.0, step * s.problem.n_nodes))
                if reached.size:
                    column.append(float(best[reached[-1]]) / unit)
        rows.append([method, *(f"{np.mean(c):.3f}" if c else "–" for c in columns)])
    return study.table(["method", *(f"{s:g} |V|" for s in STEPS)], rows, "Best so far against placements evaluated, as measured.")


def by_depth(study: Study) -> Table:
    """Mean SLR by the number of tasks on the longest path."""
    depth = {s.problem.content_hash: _depth(s.problem) for s in study.scores}
    bins = int(study.entry.get("bins") or 6)
    edges = np.unique(np.quantile(list(depth.values()), np.linspace(0, 1, bins + 1)).round().astype(int))
    bounds = list(zip(edges[:-1], [*(edges[1:-1] - 1), edges[-1]], strict=True))
    rows = []
    for method in study.methods:
        scores = study.of(method)
        cells = [[s.value for s in scores if low <= depth[s.problem.content_hash] <= high] for low, high in bounds]
        rows.append([method, *(f"{np.mean(c):.3f} ({np.std(c):.3f})" if c else "–" for c in cells)])
    return study.table(["method", *(f"{a}–{b}" for a, b in bounds)], rows, "SLR (standard deviation) by the depth of the graph, in tasks.")


def _depth(problem: Problem) -> int:
    graph = problem.graph
    level = np.ones(graph.n_nodes, dtype=np.int64)
    pointer, ids = graph.in_edges
    for v in graph.topological_order:
        parents = graph.edges[ids[pointer[v] : pointer[v + 1]], 0]
        level[v] = 1 + (level[parents].max() if parents.size else 0)
    return int(level.max())


def by_network(study: Study) -> Table:
    """Mean SLR over graphs for every network, in the order of the sweep's names, and the worst of them against the baseline's."""
    names = sorted({s.problem.network.name for s in study.scores}, key=_natural)
    baseline = str(study.entry.get("baseline") or study.record.known_baseline or "heft")

    def means(method: str) -> dict[str, float]:
        values: dict[str, list[float]] = {}
        for s in study.of(method):
            values.setdefault(s.problem.network.name, []).append(s.value)
        return {n: float(np.mean(v)) for n, v in values.items()}

    reference, rows = means(baseline), []
    for method in study.methods:
        own = means(method)
        ratios = [own[n] / reference[n] for n in own if n in reference]
        worst = f"{100 * (max(ratios) - 1):+.1f} %" if ratios and method != baseline else "–"
        rows.append([method, *(f"{own[n]:.3f}" if n in own else "–" for n in names), worst])
    columns = ["method", *(n.rpartition("/")[2] for n in names), f"worst against {baseline}"]
    return study.table(columns, rows, "SLR averaged over graphs, by network.")


def _natural(name: str) -> tuple[Any, ...]:
    import re

    return tuple(int(part) if part.isdigit() else part for part in re.split(r"(\d+)", name))


def pairwise(study: Study) -> Table:
    """Every method against every other: % of cases better / equal / worse."""
    rows = []
    for method in study.methods:
        theirs = study.paper.get(method) or {}
        rows.append([method, *("" if o == method else shown_shares(study.compared(method, o)) for o in study.methods)])
        if theirs:
            quoted = [" / ".join(f"{x:g}" for x in theirs[o]) if o in theirs else "" for o in study.methods]
            rows.append([f"  paper's {method}", *quoted])
    return study.table(["row against column", *study.methods], rows, "% of cases in which the row's SLR is better / equal / worse.")


def by_training(study: Study) -> Table:
    """Mean SLR against episodes of training, from methods whose labels end in ``/episodes=N``."""
    split = {m: m.rpartition("/episodes=") for m in study.methods}
    counts = sorted({int(tail) for _, mark, tail in split.values() if mark})
    rows = []
    for name in dict.fromkeys(head for head, mark, _ in split.values() if mark):
        cells = [[s.value for s in study.of(f"{name}/episodes={n}")] for n in counts]
        rows.append([name, *(f"{np.mean(c):.3f}" if c else "–" for c in cells)])
    return study.table(["method", *map(str, counts)], rows, "SLR on the evaluation cases after that many episodes of training.")


def distribution(study: Study) -> Table:
    """Quantiles of the SLR over cases."""
    quantiles = (0.1, 0.25, 0.5, 0.75, 0.9)
    rows = []
    for method in study.methods:
        values = [s.value for s in study.of(method)]
        rows.append([method, mean_and_error(values), *(f"{q:.3f}" for q in np.quantile(values, quantiles))])
    return study.table(["method", "mean", *(f"{100 * q:g} %" for q in quantiles)], rows, "Quantiles over cases.")


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
