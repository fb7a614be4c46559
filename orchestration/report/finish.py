"""The end of a sweep: leaderboard, plots and best placements as files in its directory. Nothing is run or tracked here."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from collections.abc import Collection as AnyCollection
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from envs.sources.files import dump_problem, save
from orchestration.analysis import schedule
from orchestration.analysis.comparison import Comparison, compare
from orchestration.analysis.load import COUNTED, SweepRecord, load_sweep_record, remember
from orchestration.analysis.notes import attempt, reason
from orchestration.analysis.quantity import significant
from orchestration.analysis.runs import ProblemInfo, Run
from orchestration.analysis.source import origin
from orchestration.analysis.table import Table, delimited, dress
from orchestration.plots import placed_graph, sweep_page, timeline
from orchestration.plots.comparison import makespan_per_method, performance_profile
from orchestration.plots.curves import proposed, search_curves
from orchestration.plots.searches import draw_searches
from orchestration.report import tables
from orchestration.report.changes import changes
from orchestration.report.paper.section import report_section
from orchestration.report.paper.shapes import study_tables
from orchestration.report.tracked import tracked_summary
from orchestration.rewards.evaluators import build_evaluator, simulates
from orchestration.specs.canonical import FrozenDict
from orchestration.specs.layout import CHANGES, PAGE, RUNS, SEARCHES
from orchestration.specs.sources import recorded_problem
from orchestration.specs.trial import EvaluatorSpec

if TYPE_CHECKING:
    from envs.problem.problem import Problem
    from orchestration.analysis.schedule import Schedule
    from orchestration.tracking.summary import SweepSummary

STUDY = {"study.md": "markdown", "study.csv": "csv", "study.tex": "latex", "study.json": "json"}
"""Files of the tables that the definition asks for, and their formats."""
STEM_LETTERS = 150
"""Of a problem's name in the names of its files."""
PLACEMENTS_UP_TO = 12
"""Problems whose best placement is drawn as a graph; the JSON of the best placement is written for all."""
TIMELINES_UP_TO, TIMELINE_OPERATIONS = 100, 2000
"""Problems whose best placement has a timeline, and how many operations it may have beyond the first `PLACEMENTS_UP_TO`."""


@dataclass(frozen=True)
class Finished:
    """What `finish_sweep` made: the comparison, the files written, and notes on what is missing."""

    record: SweepRecord
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

    def summary(self, description: str = "") -> SweepSummary:
        """What MLflow shows of it, below the sweep's own description."""
        return tracked_summary(self.record, self.comparison, description)


def finish_sweep(sweep_dir: Path, trials: AnyCollection[str] | None = None) -> Finished:
    """Write the report of everything that ended in ``sweep_dir``.

    ``leaderboard.json``, ``.md``, ``.tex`` (with wall times), ``leaderboard.csv`` and ``runs.csv`` (full precision and no
    times, so that equal studies leave equal bytes), ``study.md``, ``.csv``, ``.tex``, ``.json`` with the tables that the
    definition asks for, ``plots/``, ``report.html`` (the page of the sweep), and ``placements/`` with the best placement of each
    problem: JSON to replay, timeline (of a real run, where one was traced) as HTML and Chrome trace, picture of the graph.

    Args:
        trials: content hashes of the trials that count; None as in `orchestration.analysis.load.load_sweep_record`.

    Raises:
        InputError: if no trial has ended there.
    """
    sweep_dir, notes = Path(sweep_dir), list[str]()
    if trials is not None:
        wanted = trials
        attempt(notes, f"the list of the trials that count ({COUNTED})", lambda: remember(sweep_dir, wanted))
    record = load_sweep_record(sweep_dir, trials)
    comparison = compare(record.collection, record.known_baseline)
    notes += record.notes
    section: Mapping[str, Any] = {}
    study: list[Table] = []
    try:
        section = report_section(Path(), record.folder)
        study = study_tables(record, section, notes)
    except Exception as error:
        notes.append(f"the tables that the definition asks for are missing: {reason(error)}")
    files = [*_write_tables(record, comparison, notes), *_write_study(record, study, notes)]
    if (record.folder / SEARCHES).is_file():
        files += attempt(notes, "the pictures of the searches", lambda: draw_searches(record.folder / SEARCHES, record.folder / "plots"))
    files += _write_plots(record, comparison, {str(entry.get("shape")) for entry in section.get("tables") or ()}, notes)
    placements = {
        info.key: _write_best(record, info, number, notes)
        for number, info in enumerate(p for p in comparison.problems if np.isfinite(p.best))
    }
    files += attempt(notes, "the page of the sweep", partial(_write_page, record, comparison, study, files, placements))
    files += [file for made in placements.values() for file in made]
    return Finished(record, comparison, tuple(files), tuple(notes), tuple(study))


def report_changes(sweep_dir: Path, before: str) -> tuple[Path, str]:
    """Write what changed since ``before``, an earlier content of ``runs.csv``; the file, and its text for the terminal."""
    table = changes(before, (sweep_dir / RUNS).read_text(encoding="utf-8"))
    path = sweep_dir / CHANGES
    path.write_text(dress([table], "markdown"), encoding="utf-8")
    return path, dress([table], "table")


def _write_tables(record: SweepRecord, comparison: Comparison, notes: list[str]) -> list[Path]:
    contents: dict[str, Callable[[], str]] = {
        "leaderboard.json": lambda: tables.render(comparison, "json", record.name),
        "leaderboard.md": lambda: tables.render(comparison, "markdown", record.name),
        "leaderboard.tex": lambda: tables.render(comparison, "latex", record.name),
        "leaderboard.csv": lambda: tables.render(comparison, "csv", record.name),
        RUNS: lambda: delimited(tables.runs_frame(comparison)),
    }
    return [path for name, text in contents.items() for path in attempt(notes, name, partial(_written, record.folder / name, text))]


def _write_study(record: SweepRecord, study: list[Table], notes: list[str]) -> list[Path]:
    if not study:  # the definition may have asked for some before
        for name in STUDY:
            attempt(notes, f"the removal of an old {name}", partial(_removed, record.folder / name))
        return []
    return [
        path
        for name, style in STUDY.items()
        for path in attempt(notes, name, partial(_written, record.folder / name, partial(dress, study, style)))
    ]


def _written(path: Path, text: Callable[[], str]) -> list[Path]:
    path.write_text(text(), encoding="utf-8")
    return [path]


def _removed(path: Path) -> list[Path]:
    path.unlink(missing_ok=True)
    return []


def _write_plots(record: SweepRecord, comparison: Comparison, shapes: AnyCollection[str], notes: list[str]) -> list[Path]:
    """The pictures of every sweep, and what goes with the tables of these shapes."""
    if not any(np.isfinite(p.best) for p in comparison.problems):
        return []
    drawings: dict[str, Callable[[Comparison, Path], list[Path]]] = {
        "makespan": makespan_per_method, "profile": performance_profile, "search-curves": search_curves,
        **({"proposed": partial(search_curves, points=proposed)} if "proposed" in shapes else {}),
    }  # fmt: skip
    plots = record.folder / "plots"
    return [path for name, draw in drawings.items() for path in attempt(notes, f"plot {name}", partial(draw, comparison, plots / name))]


def _write_page(
    record: SweepRecord, comparison: Comparison, study: list[Table], files: list[Path], placements: Mapping[str, list[Path]]
) -> list[Path]:
    """The page, with links to all other files of the report."""
    versus = tables.versus(comparison)
    more = [*([versus] if versus else []), *study]
    return [sweep_page.write_page(comparison, record.folder / PAGE, record.name, record.description, more, files, placements)]


def best_run(record: SweepRecord, info: ProblemInfo) -> Run:
    """The best run of a problem; of equal ones the first by method, stage and seed."""
    of_problem = (r for row in record.collection.rows for r in record.collection.on(row, info.key))
    runs = (r for r in of_problem if r.placement is not None)
    return min(runs, key=lambda r: (r.objective, r.method, r.stage, r.seed, r.trial))


def _write_best(record: SweepRecord, info: ProblemInfo, number: int, notes: list[str]) -> list[Path]:
    """Files of the best placement of the problem that is the ``number``-th from 0; each that cannot be made is a note."""
    what = f"the best placement of {info.name}"
    folder, stem = record.folder / "placements", re.sub(r"[^\w.-]+", "-", info.name)[:STEM_LETTERS]
    try:
        run = best_run(record, info)
        folder.mkdir(exist_ok=True)
        problem = recorded_problem(record.specs[info.problem_hash], info.problem_hash)
        placement = np.array(run.placement, dtype=np.int16)
        files = [folder / f"{stem}.json"]
        save(dump_problem(problem, placement[None, :]), files[0])
    except Exception as error:
        notes.append(f"{what} is not written: {reason(error)}")
        return []
    draw = number < PLACEMENTS_UP_TO
    if not draw and not (number < TIMELINES_UP_TO and problem.n_nodes <= TIMELINE_OPERATIONS):
        return files
    scale, unit = info.scale
    title = f"{info.name}: {significant(info.best * scale)} {unit} by {run.method}, seed {run.seed}, {origin([(run.source, run.host)])}"
    if draw:
        files += attempt(notes, f"the picture of {what}", lambda: placed_graph.draw(problem, placement, folder / f"{stem}.graph", title))

    def pages() -> list[Path]:
        plan, where = _plan(record, run, problem, placement)
        bound = info.bound if info.objective_name == "makespan" else None
        page = timeline.write_page(plan, folder / f"{stem}.timeline.html", title, bound, where)
        return [page, *([timeline.write_trace(plan, folder / f"{stem}.trace.json", title)] if draw else [])]

    return files + attempt(notes, f"the timeline of {what}", pages)


def _plan(record: SweepRecord, run: Run, problem: Problem, placement: np.ndarray) -> tuple[Schedule, str]:
    """When a placement's operations ran, and where that comes from: a real run, or a simulation like the one that scored it."""
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
