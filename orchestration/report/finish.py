"""The end of a sweep: leaderboard, plots and best placements as files in its directory. Nothing is run or tracked here."""

from __future__ import annotations

import re
from collections.abc import Collection as AnyCollection
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from envs.problem.errors import InputError
from orchestration.analysis.comparison import Comparison, compare
from orchestration.analysis.load import SweepRecord, load_sweep_record, remember
from orchestration.analysis.quantity import significant
from orchestration.analysis.runs import ProblemInfo, Run
from orchestration.analysis.table import Table, delimited, dress
from orchestration.report import tables
from orchestration.report.paper.section import report_section
from orchestration.rewards.evaluators import build_evaluator, simulates
from orchestration.specs.canonical import FrozenDict
from orchestration.specs.sources import recorded_problem
from orchestration.specs.trial import EvaluatorSpec

if TYPE_CHECKING:
    from envs.problem.problem import Problem
    from orchestration.analysis.schedule import Schedule

STUDY = {"study.md": "markdown", "study.csv": "csv", "study.tex": "latex", "study.json": "json"}
"""Files of the tables that the definition asks for, and their formats."""
PLACEMENTS_UP_TO = 12
"""Problems whose best placement is drawn; the JSON of the best placement is written for all."""


@dataclass(frozen=True)
class Finished:
    """What `finish_sweep` made."""

    comparison: Comparison
    files: tuple[Path, ...]
    """Everything written, all under the sweep's directory."""
    notes: tuple[str, ...] = ()
    """What could not be drawn or counted, a sentence each."""
    study: tuple[Table, ...] = ()
    """The tables that the definition asks for."""

    def text(self, width: int | None = None, colour: bool = False) -> str:
        """The tables for the terminal."""
        return tables.render(self.comparison, "table", study=self.study, width=width, colour=colour)


def finish_sweep(sweep_dir: Path, trials: AnyCollection[str] | None = None) -> Finished:
    """Write the report of everything that ended in ``sweep_dir``.

    ``leaderboard.json``, ``.md``, ``.tex`` (with wall times), ``leaderboard.csv`` and ``runs.csv`` (full precision and no
    times, so that equal studies leave equal bytes), ``study.md``, ``.csv``, ``.tex``, ``.json`` with the tables that the
    definition asks for, ``plots/``, and ``placements/`` with the best placement of each
    problem: JSON to replay, timeline (of a real run, where one was traced) as HTML and Chrome trace, picture of the graph.

    Args:
        trials: content hashes of the trials that count; None as in `orchestration.analysis.load.load_sweep_record`.

    Raises:
        InputError: if no trial has ended there.
    """
    sweep_dir = Path(sweep_dir)
    if trials is not None:
        remember(sweep_dir, trials)
    record = load_sweep_record(sweep_dir, trials)
    comparison = compare(record.collection, record.known_baseline)
    notes = list(record.notes)
    section = report_section(Path(), record.folder)
    study, shapes = _study(record, section, notes), {str(entry.get("shape")) for entry in section.get("tables") or ()}
    files = [*_write_tables(record, comparison), *_write_study(record, study), *_write_plots(record, comparison, shapes)]
    for number, info in enumerate(p for p in comparison.problems if np.isfinite(p.best)):
        written, note = _write_best(record, info, draw=number < PLACEMENTS_UP_TO)
        files += written
        notes += note
    return Finished(comparison, tuple(files), tuple(notes), tuple(study))


def _study(record: SweepRecord, section: Mapping[str, Any], notes: list[str]) -> list[Table]:
    """The tables of the definition; ``notes`` takes why one is missing."""
    from orchestration.report.paper.shapes import study_tables

    return study_tables(record, section, notes)


def _write_study(record: SweepRecord, study: list[Table]) -> list[Path]:
    for name, style in STUDY.items():
        if study:
            (record.folder / name).write_text(dress(study, style), encoding="utf-8")
        else:  # the definition may have asked for some before
            (record.folder / name).unlink(missing_ok=True)
    return [record.folder / name for name in STUDY] if study else []


def _write_tables(record: SweepRecord, comparison: Comparison) -> list[Path]:
    contents = {
        "leaderboard.json": tables.render(comparison, "json", record.name),
        "leaderboard.md": tables.render(comparison, "markdown", record.name),
        "leaderboard.tex": tables.render(comparison, "latex", record.name),
        "leaderboard.csv": tables.render(comparison, "csv", record.name),
        "runs.csv": delimited(tables.runs_frame(comparison)),
    }
    for name, text in contents.items():
        (record.folder / name).write_text(text, encoding="utf-8")
    return [record.folder / name for name in contents]


def _write_plots(record: SweepRecord, comparison: Comparison, shapes: AnyCollection[str]) -> list[Path]:
    """The pictures of every sweep, and what goes with the tables of these shapes."""
    from orchestration.plots.comparison import makespan_per_method, performance_profile
    from orchestration.plots.curves import proposed, search_curves

    if not any(np.isfinite(p.best) for p in comparison.problems):
        return []
    plots = record.folder / "plots"
    return [
        *makespan_per_method(comparison, plots / "makespan"),
        *performance_profile(comparison, plots / "profile"),
        *search_curves(comparison, plots / "search-curves"),
        *(search_curves(comparison, plots / "proposed", proposed) if "proposed" in shapes else []),
    ]


def best_run(record: SweepRecord, info: ProblemInfo) -> Run:
    """The best run of a problem; of equal ones the first by method, stage and seed."""
    runs = (r for r in record.collection.runs if r.problem == info.key and r.placement is not None)
    return min(runs, key=lambda r: (r.objective, r.method, r.stage, r.seed, r.trial))


def _write_best(record: SweepRecord, info: ProblemInfo, draw: bool) -> tuple[list[Path], list[str]]:
    """Files of a problem's best placement, and what went wrong with them."""
    from envs.sources.files import dump_problem, save
    from orchestration.plots import placed_graph, timeline

    run = best_run(record, info)
    folder, stem = record.folder / "placements", re.sub(r"[^\w.-]+", "-", info.name)
    folder.mkdir(exist_ok=True)
    try:
        problem = recorded_problem(record.specs[info.problem_hash], info.problem_hash)
        placement = np.array(run.placement, dtype=np.int16)
        files = [folder / f"{stem}.json"]
        save(dump_problem(problem, placement[None, :]), files[0])
        if draw:
            scale, unit = info.scale
            title = f"{info.name}: {significant(info.best * scale)} {unit} by {run.method}, seed {run.seed}"
            files += placed_graph.draw(problem, placement, folder / f"{stem}.graph", title)
            plan, origin = _plan(record, run, problem, placement)
            bound = info.bound if info.objective_name == "makespan" else None
            files.append(timeline.write_page(plan, folder / f"{stem}.timeline.html", title, bound, origin))
            files.append(timeline.write_trace(plan, folder / f"{stem}.trace.json", title))
    except InputError as error:
        return [], [f"the best placement of {info.name} is not drawn: {error}"]
    return files, []


def _plan(record: SweepRecord, run: Run, problem: Problem, placement: np.ndarray) -> tuple[Schedule, str]:
    """When a placement's operations ran, and where that comes from: a real run, or a simulation like the one that scored it."""
    from orchestration.analysis import schedule

    trial, result = record.ended[run.trial]
    found = next(p for p in result.problems if p.problem_hash == problem.content_hash)
    if found.trace is not None:
        t = found.trace
        start, finish = (np.array(x, dtype=np.float64) for x in (t.start, t.finish))
        plan = schedule.from_times(problem, placement, start, finish, np.array(t.transfers, dtype=np.float64).reshape(-1, 5))
        return plan, f"measured: a real run on {found.host}, of a measurement of {1e3 * t.seconds:,.4g} ms after the search"
    # Without ``fail``, which loses measurements at random to try recovery.
    options = {key: value for key, value in trial.evaluator.options.items() if key != "fail"}
    spec = EvaluatorSpec(trial.evaluator.kind, FrozenDict(options))
    evaluator = build_evaluator(spec) if simulates(spec.kind) else None
    if evaluator is None or not evaluator.traces:
        return schedule.simulate(problem, placement), "simulated: what measured this placement does not tell when its operations ran"
    return schedule.simulate(problem, placement, evaluator, found.seed, found.first), f"simulated by {found.protocol}"
