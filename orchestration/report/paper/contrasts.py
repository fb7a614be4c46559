"""Results set against each other: ablations against their base, and what a policy brings to held-out graphs against a search from
scratch. Which of a sweep's runs a table is about is decided in ``orchestration/report/paper/study.py``."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from envs.problem.errors import InputError
from orchestration.analysis.comparison import Cell
from orchestration.analysis.statistics import holm, paired_test
from orchestration.report.paper.study import BySeed, shares, shown_shares
from orchestration.report.tables import NONE, p_value, shown_cell

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
    stages = list(dict.fromkeys(s.run.stage for s in study.of(base)))
    if not stages:
        raise InputError(f"the base {base!r} of the ablations has no result; let the sweep run on")
    graphs = list(dict.fromkeys(s.info.graph for s in study.of(base)))
    graphs = graphs if len(graphs) <= GRAPHS_UP_TO else []
    rows = []
    for stage in stages:
        reference = _by_problem(study.of(base), stage)
        others = [(m, _by_problem(study.of(m), stage)) for m in study.methods if m != base]
        others = [(m, own) for m, own in others if own]
        p_values = holm([_test(own, reference) for _, own in others])
        where = [stage] if len(stages) > 1 else []
        times = [_time([s for s in study.of(base) if (s.run.stage, s.info.graph) == (stage, g)]) for g in graphs]
        rows.append([base, *where, f"{len(reference)}", "base", *times, "", ""])
        for (method, own), p in zip(others, p_values, strict=True):
            graph_of = {s.run.problem: s.info.graph for s in study.of(method)}
            ratios = {key: _mean(own[key]) / _mean(reference[key]) for key in own if key in reference}
            cells = [_change([r for key, r in ratios.items() if graph_of[key] == g]) for g in graphs]
            usable = sum(0 < r < math.inf for r in ratios.values())
            problems = f"{usable}" if usable == len(reference) else f"{usable}/{len(reference)}"
            rows.append(
                [method, *where, problems, _change(list(ratios.values())), *cells, shown_shares(shares(own, reference)), p_value(p)]
            )
    columns = ["method", *(["stage"] if len(stages) > 1 else []), "problems", "change", *graphs, "% better / equal / worse", "Wilcoxon p"]
    unit = _unit(study.scores)
    notes = [f"change: geometric mean over problems of the objective against that of {base}, means over seeds; negative is better."]
    notes += [f"The row of the base gives its mean over seeds{f' in {unit}' if unit else ''}, those below the change."] if graphs else []
    notes += ["Wilcoxon p: signed-rank test on means a problem, two-sided, Holm-corrected for the rows of a stage."]
    return study.table(columns, rows, *notes, left=2 if len(stages) > 1 else 1)


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
    rows = []
    for method in methods:
        every: dict[str, list[float]] = {name: [] for name in columns}
        for key, info in infos.items():
            found = {
                name: [s for s in study.of(method) if s.run.stage in stages and s.problem.content_hash == key]
                for name, stages in columns.items()
            }
            means = {name: _mean({0: [s.run.objective for s in scores]}) for name, scores in found.items()}
            cells = []
            for name, scores in found.items():
                ratio = math.nan if scratch is None or name == scratch else means[name] / means[scratch]
                every[name].append(ratio)
                cells.append(_time(scores) + (f" ({_change([ratio])})" if _usable(ratio) else ""))
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


def _by_problem(scores: Sequence[Score], stage: str) -> dict[str, dict[int, list[float]]]:
    """Objectives of a stage by problem, as it was measured, and seed."""
    found: dict[str, dict[int, list[float]]] = {}
    for s in scores:
        if s.run.stage == stage:
            found.setdefault(s.run.problem, {}).setdefault(s.run.seed, []).append(s.run.objective)
    return found


def _mean(seeds: BySeed) -> float:
    values = [v for vs in seeds.values() for v in vs]
    return math.fsum(values) / len(values) if values else math.nan


def _test(own: Mapping[str, BySeed], reference: Mapping[str, BySeed]) -> float:
    shared = sorted(own.keys() & reference.keys())
    return paired_test(np.array([_mean(own[k]) for k in shared]), np.array([_mean(reference[k]) for k in shared]))


def _usable(ratio: float) -> bool:
    return math.isfinite(ratio) and ratio > 0


def _change(ratios: Sequence[float]) -> str:
    """The geometric mean of ratios as a change in percent; those that are infinite or unknown are left out."""
    logs = [math.log(r) for r in ratios if _usable(r)]
    return f"{round(100 * math.expm1(math.fsum(logs) / len(logs)), 1) + 0.0:+.1f} %" if logs else NONE


def _unit(scores: Sequence[Score]) -> str | None:
    units = {s.info.scale[1] for s in scores}
    return units.pop() if len(units) == 1 else None


def _time(scores: Sequence[Score]) -> str:
    """Mean ± standard deviation over runs that have a placement, in the unit for people."""
    placed = [s.run.objective for s in scores if math.isfinite(s.run.objective)]
    if not placed:
        return NONE
    deviation = float(np.std(placed, ddof=1)) if len(placed) > 1 else math.nan
    return shown_cell(Cell(math.fsum(placed) / len(placed), deviation, len(scores), len(scores) - len(placed)), scores[0].info)
