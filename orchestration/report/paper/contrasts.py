"""Results set against each other: ablations against their base, and what a policy brings to held-out graphs against a search from
scratch. Which of a sweep's runs a table is about is decided in ``orchestration/report/paper/study.py``."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from envs.problem.errors import InputError
from orchestration.analysis.comparison import Cell
from orchestration.analysis.quantity import NONE, Quantity, TableCell, over_seeds, p_value, quantity
from orchestration.analysis.statistics import holm, least_p, paired_test
from orchestration.report.paper.study import compared, finite_mean
from orchestration.report.tables import least_p_notes, of_cell

if TYPE_CHECKING:
    from orchestration.analysis.table import Table
    from orchestration.report.paper.study import Score, Study

GRAPHS_UP_TO = 8
"""Graphs for which the table of ablations has a column each."""
ORDER = ("zero-shot", "finetune", "search")
"""Kinds of stages as their columns stand: from no search at all to a whole one."""


def with_defaults(definition: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The tables that a definition asks for, and those that come by themselves: of its ablations, of its held-out graphs.

    An entry of such a shape replaces those that would come by themselves, and takes from the definition what it leaves out.
    """
    section = definition.get("report")
    asked = (section.get("tables") if isinstance(section, Mapping) else None) or []
    entries = [dict(e) for e in (asked if isinstance(asked, list) else [asked]) if isinstance(e, Mapping)]
    for shape, offered in (("ablation", _ablations(definition)), ("generalization", _held_out(definition))):
        mine = [e for e in entries if e.get("shape") == shape]
        if not mine:
            entries += offered
        for entry in mine:
            own = next((o for o in offered if entry.get("base") in (None, o.get("base"))), {})
            skipped = {"methods", "title"} if "methods" in entry else {"stages", "title"} if "columns" in entry else {"title"}
            for key in own.keys() - skipped:
                entry.setdefault(key, own[key])
    return entries


def _ablations(definition: Mapping[str, Any]) -> list[dict[str, Any]]:
    given = definition.get("ablations") or []
    studies = [s for s in (given if isinstance(given, list) else [given]) if isinstance(s, Mapping) and s.get("base")]
    return [
        {
            "shape": "ablation",
            "title": f"Ablations of {s['base']}",
            "base": s["base"],
            "methods": [s["base"], *(k for k in s if k != "base")],
        }
        for s in studies
    ]


def _held_out(definition: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A table of the stages behind those that hold graphs out, and of those that start from nothing."""
    given = definition.get("stages")
    stages = {n: s for n, s in given.items() if isinstance(s, Mapping)} if isinstance(given, Mapping) else {}
    behind = {n for n, s in stages.items() if s.get("hold_out")}
    if not behind:
        return []
    for _ in stages:  # as often as the longest chain can be
        behind |= {n for n, s in stages.items() if s.get("from") in behind}
    return [
        {
            "shape": "generalization", "title": "Held-out graphs",
            "stages": [n for n, s in stages.items() if not s.get("hold_out") and (n in behind or not s.get("from"))],
        }
    ]  # fmt: skip


def ablation(study: Study) -> Table:
    """Every change against its base, stage by stage: the objective as measured, paired by problem."""
    base = str(study.entry.get("base") or study.methods[0])
    graphs = list(dict.fromkeys(s.info.graph for s in study.of(base)))
    if not graphs:
        raise InputError(f"the base {base!r} of the ablations has no result; let the sweep run on")
    graphs = graphs if len(graphs) <= GRAPHS_UP_TO else []
    graph_of = {s.run.problem: s.info.graph for s in study.scores}
    stages = study.runs[study.runs["method"] == base].groupby("stage", sort=False)
    rows: list[list[TableCell]] = []
    least: list[tuple[int, float]] = []
    for stage, of_base in stages:
        where: list[TableCell] = [str(stage)] if len(stages) > 1 else []
        reference = of_base.groupby("measured")["objective"].mean()
        times = [_time([s for s in study.of(base) if (s.run.stage, s.info.graph) == (stage, g)]) for g in graphs]
        rows.append([base, *where, quantity(_of_all, value=len(reference), of=len(reference)), "base", *times, "", ""])
        at_stage = study.runs[study.runs["stage"] == stage]
        others = [(m, own) for m in study.methods if m != base and len(own := at_stage[at_stage["method"] == m])]
        means = [own.groupby("measured")["objective"].mean().reindex(reference.index).dropna() for _, own in others]
        p_values = holm([paired_test(mean.to_numpy(), reference[mean.index].to_numpy()) for mean in means])
        compared_rows = sum(not math.isnan(p) for p in p_values)
        least += [(len(mean), least_p(len(mean), compared_rows)) for mean, p in zip(means, p_values, strict=True) if not math.isnan(p)]
        for (method, own), mean, p in zip(others, means, p_values.tolist(), strict=True):
            ratios = mean / reference[mean.index]
            usable = quantity(_of_all, value=sum(map(_usable, ratios)), of=len(reference))
            cells = [_change(ratio for key, ratio in ratios.items() if graph_of[str(key)] == g) for g in graphs]
            better = compared(own, of_base, "measured", "objective")
            rows.append([method, *where, usable, _change(ratios), *cells, better, quantity(p_value, value=p)])
    staged = ["stage"] if len(stages) > 1 else []
    columns = ["method", *staged, "problems", "change", *graphs, "% better / equal / worse", "Wilcoxon p"]
    unit = _unit(study.scores)
    notes = [f"change: geometric mean over problems of the objective against that of {base}, means over seeds; negative is better."]
    notes += [f"The row of the base gives its mean over seeds{f' in {unit}' if unit else ''}, those below the change."] if graphs else []
    notes += ["Wilcoxon p: signed-rank test on means a problem, two-sided, Holm-corrected for the rows of a stage."]
    notes += least_p_notes(least)
    return study.table(columns, rows, *notes, left=2 if staged else 1)


def _of_all(value: int, of: int) -> str:
    return f"{value}" if value == of else f"{value}/{of}"


def generalization(study: Study) -> Table:
    """Every held-out graph under zero-shot placement, fine-tuning and a search from scratch (GDP's Figure 2, Mars's Table 3)."""
    kinds = study.record.kinds
    columns = _columns(study)
    shown = {stage for stages in columns.values() for stage in stages}
    transferred = [s for s in study.scores if s.run.stage in shown and kinds.get(s.run.stage) in ("zero-shot", "finetune")]
    if not transferred:
        raise InputError(
            "no run of these stages starts from another stage's checkpoint, so there is nothing to generalize; let the sweep run on"
        )
    methods = [m for m in study.methods if any(s.run.method == m for s in transferred)]
    infos = {s.problem.content_hash: s.info for s in transferred}
    networks = len({i.network for i in infos.values()}) > 1
    scratch = next((name for name, stages in columns.items() if all(kinds.get(s) == "search" for s in stages)), None)
    unit = _unit(transferred)
    rows: list[list[TableCell]] = []
    for method in methods:
        every: dict[str, list[float]] = {name: [] for name in columns}
        for key, info in infos.items():
            of_problem = [s for s in study.of(method) if s.problem.content_hash == key]
            found = {name: [s for s in of_problem if s.run.stage in stages] for name, stages in columns.items()}
            means = {name: float(np.mean([s.run.objective for s in scores] or [math.nan])) for name, scores in found.items()}
            cells = []
            for name, scores in found.items():
                ratio = math.nan if scratch is None or name == scratch else means[name] / means[scratch]
                every[name].append(ratio)
                cells.append(_with_change(_time(scores), ratio))
            label = f"{info.graph}@{info.network}" if networks else info.graph
            rows.append([label if unit else f"{label}, {info.scale[1]}", method, *cells])
        if scratch is not None and len(infos) > 1:
            rows.append(["geometric mean", method, *("" if name == scratch else _change(every[name]) for name in columns)])
    notes = [f"Mean ± standard deviation over seeds of the best placement found{f', {unit}' if unit else ''}."]
    notes += [f"In brackets: the change against {scratch}; negative is better."] if scratch is not None else []
    if len(methods) == 1:
        rows = [[row[0], *row[2:]] for row in rows]
        notes.append(f"Method: {methods[0]}.")
    return study.table(["graph", *(["method"] if len(methods) > 1 else []), *columns], rows, *notes, left=2 if len(methods) > 1 else 1)


def _with_change(time: Quantity, ratio: float) -> Quantity:
    """A time with its change against another in brackets, if that is known."""
    if not _usable(ratio):
        return time

    def show(change: float, **numbers: Any) -> str:
        return f"{time.show(**numbers)} ({_signed(change)})"

    return quantity(show, time.unit, **time.numbers, change=100 * (ratio - 1))


def _columns(study: Study) -> dict[str, list[str]]:
    """Stages of every column, by its head: as the entry says, or a column a stage."""
    given, kinds = study.entry.get("columns"), study.record.kinds
    if given:
        return {str(name): [stages] if isinstance(stages, str) else list(stages) for name, stages in given.items()}
    learned = {s.run.method for s in study.scores if kinds.get(s.run.stage) != "search"}
    stages = dict.fromkeys(study.entry.get("stages") or ()) or dict.fromkeys(s.run.stage for s in study.scores)
    ran = {s.run.stage for s in study.scores if s.run.method in learned}
    ordered = sorted((s for s in stages if s in ran), key=lambda s: ORDER.index(kinds[s]))
    return {f"{s} (from scratch)" if kinds[s] == "search" else s: [s] for s in ordered}


def _usable(ratio: float) -> bool:
    return math.isfinite(ratio) and ratio > 0


def _change(ratios: Iterable[float]) -> Quantity:
    """The geometric mean of ratios as a change in percent; those that are infinite or unknown are left out."""
    logs = [math.log(r) for r in ratios if _usable(r)]
    return quantity(_signed, "%", value=100 * math.expm1(math.fsum(logs) / len(logs)) if logs else math.nan)


def _signed(value: float) -> str:
    return NONE if math.isnan(value) else f"{round(value, 1) + 0.0:+.1f} %"


def _unit(scores: Sequence[Score]) -> str | None:
    units = {s.info.scale[1] for s in scores}
    return units.pop() if len(units) == 1 else None


def _time(scores: Sequence[Score]) -> Quantity:
    """Mean and standard deviation over runs that have a placement, in the unit for people."""
    placed = [s.run.objective for s in scores if math.isfinite(s.run.objective)]
    if not placed:
        return quantity(over_seeds, value=math.nan, deviation=math.nan, n=0, of=len(scores))
    deviation = float(np.std(placed, ddof=1)) if len(placed) > 1 else math.nan
    return of_cell(Cell(finite_mean(placed), deviation, len(scores), len(scores) - len(placed)), scores[0].info)
