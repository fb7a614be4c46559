"""Tables in a paper's shape, beside the paper's numbers: what a sweep's ``report: {tables: […]}`` asks for. No formatting of text here.

Each entry names a ``shape`` and may narrow it to ``stages`` and ``methods``; ``paper`` gives the paper's numbers by row, ``note`` a
sentence. Ratios are schedule length ratios (GiPH section 5) of the best placement found, simulated without noise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from envs.problem.errors import InputError, nearest
from envs.problem.problem import Problem
from envs.simulators.bounds import slr_denominator
from envs.simulators.fifo.evaluator import Simulator
from envs.simulators.relocation import relocation_seconds
from orchestration.analysis.load import SweepRecord
from orchestration.analysis.runs import ProblemInfo, Run
from orchestration.analysis.table import Table
from orchestration.report.paper.contrasts import ablation, generalization, shares, shown_shares
from orchestration.report.paper.runtimes import evaluations, runtimes
from orchestration.specs.results import ProposedBlock

KEYS = ("shape", "title", "stages", "methods", "baseline", "base", "columns", "bins", "paper", "note")
STEPS = (0.25, 0.5, 0.75, 1.0, 1.5, 2.0)
"""Where search curves are read, in steps for each task."""


@dataclass(frozen=True)
class Score:
    """One run on one problem."""

    run: Run
    problem: Problem
    info: ProblemInfo
    value: float
    """SLR of the best placement without noise; the objective (joules) where it is not a makespan; +inf without a placement."""


class Scored:
    """Runs with their problem and value, each loaded and simulated once for all tables."""

    def __init__(self, record: SweepRecord) -> None:
        self._record = record
        self._infos = {p.key: p for p in record.collection.problems}
        self._loaded: dict[str, Problem] = {}
        self._known: dict[tuple[str, Any], float] = {}

    def of(self, runs: Sequence[Run]) -> list[Score]:
        """The runs, scored."""
        return [self._score(run) for run in runs]

    def _score(self, run: Run) -> Score:
        info = self._infos[run.problem]
        if info.problem_hash not in self._loaded:
            self._loaded[info.problem_hash] = self._record.specs[info.problem_hash].load()
        problem = self._loaded[info.problem_hash]
        key = (info.problem_hash, run.placement)
        if key not in self._known:
            self._known[key] = _value(problem, run)
        return Score(run, problem, info, self._known[key])


class Study:
    """The runs that one table is about.

    Args:
        record: the sweep.
        entry: the table asked for.
        scored: shared by the tables of one report.

    Raises:
        InputError: for unknown keys, shapes, stages or methods.
    """

    def __init__(self, record: SweepRecord, entry: Mapping[str, Any], scored: Scored | None = None) -> None:
        unknown = next((key for key in entry if key not in KEYS), None)
        if unknown is not None:
            raise InputError(f"unknown key {unknown!r} of a table in 'report'{nearest(unknown, KEYS)}")
        if entry.get("shape") not in SHAPES:
            raise InputError(f"unknown shape {entry.get('shape')!r} of a table in 'report'{nearest(str(entry.get('shape')), SHAPES)}")
        self.record, self.entry = record, entry
        self.paper: Mapping[str, Any] = entry.get("paper") or {}
        stages, methods = entry.get("stages"), entry.get("methods")
        runs = [r for r in record.collection.runs if (not stages or r.stage in stages) and (not methods or r.method in methods)]
        self.scores = (scored or Scored(record)).of(runs)
        self.methods = list(methods or dict.fromkeys(s.run.method for s in self.scores))
        self.methods = [m for m in self.methods if any(s.run.method == m for s in self.scores)]

    @cached_property
    def tables(self) -> dict[str, dict[str, dict[int, list[float]]]]:
        """Scores by method, problem (content hash) and seed."""
        found: dict[str, dict[str, dict[int, list[float]]]] = {}
        for s in self.scores:
            found.setdefault(s.run.method, {}).setdefault(s.problem.content_hash, {}).setdefault(s.run.seed, []).append(s.value)
        return found

    def of(self, method: str) -> list[Score]:
        """Its runs."""
        return [s for s in self.scores if s.run.method == method]

    def compared(self, method: str, other: str) -> tuple[float, float, float] | None:
        """Shares of runs of ``method`` that are better than, equal to and worse than ``other`` on the same problem (and seed)."""
        return shares(self.tables.get(method, {}), self.tables.get(other, {}))

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[str]], *notes: str, left: int = 1) -> Table:
        """With the entry's title and note, and a column of the paper's where it gives numbers by row."""
        simple = self.paper and not any(isinstance(v, Mapping) for v in self.paper.values())
        if simple:
            columns = [*columns, "paper"]
            rows = [[*row, str(self.paper.get(row[0], "–"))] for row in rows]
        given = self.entry.get("note")
        title = str(self.entry.get("title") or self.entry["shape"])
        return Table(title, tuple(columns), tuple(tuple(r) for r in rows), (*notes, *([str(given)] if given else [])), left)


def _value(problem: Problem, run: Run) -> float:
    if run.placement is None:
        return math.inf
    m = Simulator().evaluate(problem, np.array([run.placement], dtype=np.int16))
    return float(m.objective[0]) / (slr_denominator(problem) if problem.objective == "makespan" else 1.0)


def _mean(values: Sequence[float]) -> str:
    array = np.array(values, dtype=np.float64)
    if not array.size:
        return "–"
    error = f" ± {array.std(ddof=1) / math.sqrt(array.size):.3f}" if array.size > 1 else ""
    return f"{array.mean():.3f}{error}"


def _final(study: Study) -> Table:
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
        mean = f"{np.mean(of_seed):.3f} ({min(of_seed):.3f} to {max(of_seed):.3f})" if len(seeds) > 1 else _mean(values)
        rows.append([method, f"{len(study.tables[method])}", f"{len(seeds)}", mean, shown_shares(shares), f"{100 * below:.1f} %"])
    kind = "SLR" if all(s.problem.objective == "makespan" for s in study.scores) else "objective"
    columns = ["method", "cases", "seeds", kind, f"% better / equal / worse than {baseline}", "below mean random"]
    note = "Best of each search, simulated without noise. Mean ± standard error over cases; of several seeds the lowest and highest."
    return study.table(columns, rows, note)


def _by_step(study: Study) -> Table:
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


def _by_depth(study: Study) -> Table:
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


def _by_network(study: Study) -> Table:
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


def _pairwise(study: Study) -> Table:
    """Every method against every other: % of cases better / equal / worse."""
    rows = []
    for method in study.methods:
        theirs = study.paper.get(method) or {}
        rows.append([method, *("" if o == method else shown_shares(study.compared(method, o)) for o in study.methods)])
        if theirs:
            quoted = [" / ".join(f"{x:g}" for x in theirs[o]) if o in theirs else "" for o in study.methods]
            rows.append([f"  paper's {method}", *quoted])
    return study.table(["row against column", *study.methods], rows, "% of cases in which the row's SLR is better / equal / worse.")


def _training(study: Study) -> Table:
    """Mean SLR against episodes of training, from methods whose labels end in ``/episodes=N``."""
    split = {m: m.rpartition("/episodes=") for m in study.methods}
    counts = sorted({int(tail) for _, mark, tail in split.values() if mark})
    rows = []
    for name in dict.fromkeys(head for head, mark, _ in split.values() if mark):
        cells = [[s.value for s in study.of(f"{name}/episodes={n}")] for n in counts]
        rows.append([name, *(f"{np.mean(c):.3f}" if c else "–" for c in cells)])
    return study.table(["method", *map(str, counts)], rows, "SLR on the evaluation cases after that many episodes of training.")


def _distribution(study: Study) -> Table:
    """Quantiles of the SLR over cases."""
    quantiles = (0.1, 0.25, 0.5, 0.75, 0.9)
    rows = []
    for method in study.methods:
        values = [s.value for s in study.of(method)]
        rows.append([method, _mean(values), *(f"{q:.3f}" for q in np.quantile(values, quantiles))])
    return study.table(["method", "mean", *(f"{100 * q:g} %" for q in quantiles)], rows, "Quantiles over cases.")


def _relocation(study: Study) -> Table:
    """What the placements found cost to move to, and what they reach, by stage (a frequency of the pipeline each)."""
    rows = []
    for stage in dict.fromkeys(s.run.stage for s in study.scores):
        for method in study.methods:
            scores = [s for s in study.of(method) if s.run.stage == stage and s.run.placement is not None]
            if scores:
                cost = [float(relocation_seconds(s.problem, np.array([s.run.placement]))[0]) for s in scores]
                rows.append([stage, method, _mean(cost), _mean([s.value for s in scores])])
    return study.table(["stage", "method", "relocation, s", "SLR"], rows, "Cost of moving from the placement in force, and what it brings.")


def _speedup(study: Study) -> Table:
    """HSDAG's Table 2 and 3: the best placement's time, mean over seeds, and how much less that is than the baseline's."""
    base = str(study.entry.get("baseline") or study.methods[0])

    def time(method: str, graph: str) -> float:
        return _average([s.run.objective for s in study.of(method) if s.problem.graph.name == graph])

    def cells(method: str, graph: str) -> list[str]:
        own, reference = time(method, graph), time(base, graph)
        return [_figure(1e3 * own, 3), _figure(100.0 * (1.0 - own / reference) if math.isfinite(reference) else math.nan, 1)]

    note = f"%: speed-up, 100 (1 - time / time of {base}); mean over seeds of the best placement found."
    return _by_graph(study, ("ms", "%"), cells, note)


def _search_time(study: Study) -> Table:
    """HSDAG's Table 5: seconds of search, mean over seeds, and those of the method itself."""

    def cells(method: str, graph: str) -> list[str]:
        runs = [s.run for s in study.of(method) if s.problem.graph.name == graph]
        spent = max((r.evaluations for r in runs), default=0)
        wall, own = (_average(values) for values in ([r.wall_seconds for r in runs], [r.learner_seconds for r in runs]))
        return [_figure(wall, 1), _figure(own, 1), str(spent or "–")]

    note = "s: wall time of a trial; own s: of that in the method itself, the rest is measuring. What ran beside a trial slows it down."
    return _by_graph(study, ("s", "own s", "evals"), cells, note)


def _proposed(study: Study) -> Table:
    """Mars's Figure 7: what was proposed in each quarter of the search, mean over seeds and over the placements that could run."""

    def cells(method: str, graph: str) -> list[str]:
        runs = [s.run for s in study.of(method) if s.problem.graph.name == graph]
        blocks = [block for run in runs for block in _quarters(run)]
        means = [[b.mean for q, b in blocks if q == k and b.valid] for k in range(4)]
        weights = [[b.valid for q, b in blocks if q == k and b.valid] for k in range(4)]
        runnable, asked = sum(b.valid for _, b in blocks), sum(run.evaluations for run in runs)
        shown = [f"{np.average(m, weights=w):.3f}" if m else "–" for m, w in zip(means, weights, strict=True)]
        return [*shown, _figure(100.0 * (1.0 - runnable / asked) if asked else math.nan, 1)]

    note = "Objective of the placements proposed in the four quarters of the search, mean of those that could run; %: that could not."
    return _by_graph(study, ("1/4", "2/4", "3/4", "4/4", "%"), cells, note)


def _quarters(run: Run) -> list[tuple[int, ProposedBlock]]:
    """The blocks of a run with the quarter, 0 to 3, in which the middle of each lies."""
    begins = [0, *(b.evaluations for b in run.proposed)]
    return [(min(3, 2 * (begin + b.evaluations) // max(run.evaluations, 1)), b) for begin, b in zip(begins, run.proposed, strict=False)]


def _outputs(study: Study) -> Table:
    """HSDAG's Table 4: what the best placements compute, method against method, run once more on this machine."""
    from orchestration.report.paper.outputs import COLUMNS, outputs_rows

    return study.table(
        COLUMNS, outputs_rows(study), "Outputs of the best placements on the same inputs; the last column is relative to the second one."
    )


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


def _average(values: Sequence[float]) -> float:
    finite = [v for v in values if math.isfinite(v)]
    return math.fsum(finite) / len(finite) if finite else math.nan


def _figure(value: float, digits: int) -> str:
    return f"{value:.{digits}f}" if math.isfinite(value) else "–"


SHAPES: Mapping[str, Callable[[Study], Table]] = {
    "final": _final, "by-step": _by_step, "by-depth": _by_depth, "by-network": _by_network, "pairwise": _pairwise,
    "by-training": _training, "distribution": _distribution, "relocation": _relocation, "speedup": _speedup,
    "search-time": _search_time, "outputs": _outputs, "ablation": ablation, "generalization": generalization, "runtimes": runtimes,
    "evaluations": evaluations, "proposed": _proposed,
}  # fmt: skip


def study_tables(record: SweepRecord, section: Mapping[str, Any], notes: list[str] | None = None) -> list[Table]:
    """The tables that a sweep's ``report`` section asks for; none without ``tables``.

    Args:
        section: as `orchestration.analysis.load.report_section` gives it, with the tables that come by themselves.
        notes: takes a sentence for each table that cannot be made; without it the first of them is raised.

    Raises:
        InputError: if a table cannot be made and ``notes`` is None.
    """
    scored, made = Scored(record), []
    for entry in section.get("tables") or ():
        try:
            study = Study(record, entry, scored)
            if not study.scores:
                raise InputError("none of its runs has ended")
            made.append(SHAPES[study.entry["shape"]](study))
        except Exception as error:  # whatever is wrong with one table, a host that does not answer say, the others stand
            if notes is None:
                raise
            text = str(error) if isinstance(error, InputError) else f"{type(error).__name__}: {error}"
            notes.append(f"no table {entry.get('title') or entry.get('shape')!r}: {text}")
    return made
