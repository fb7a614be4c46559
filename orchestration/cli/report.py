"""``placewright report``: the leaderboard, tests and results per problem of a sweep that has run."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from orchestration.cli.run import add_home


def add_parser(subparsers: Any) -> None:
    """Declare ``placewright report`` and its options."""
    parser = subparsers.add_parser("report", help="compare the methods of a sweep that has run")
    parser.add_argument("sweep", metavar="SWEEP", help="its YAML file, its name or its folder")
    parser.add_argument("--format", choices=("table", "json", "csv", "latex", "markdown"), default="table", help="table (default), json, …")
    parser.add_argument("--baseline", metavar="METHOD", help="what the others are tested against; by default the leader")
    parser.add_argument("--study", action="store_true", help="only the tables that the definition's 'report' section asks for")
    parser.add_argument("--runs", action="store_true", help="one line of CSV a run instead of a summary")
    parser.add_argument("--no-times", action="store_true", help="leave out wall times: equal studies then print equal bytes")
    parser.add_argument("--write", action="store_true", help="also write tables, plots and best placements into the sweep's folder")
    add_home(parser)


def run(args: argparse.Namespace) -> None:
    """Print the tables of a sweep that ran, in the format that is asked for."""
    from envs.problem.errors import InputError
    from orchestration.analysis.comparison import compare
    from orchestration.analysis.load import load_sweep_record, sweep_folder
    from orchestration.analysis.table import delimited, dress
    from orchestration.report import tables
    from orchestration.report.finish import finish_sweep
    from orchestration.report.paper.section import report_section
    from orchestration.report.paper.shapes import study_tables
    from orchestration.tracking.stale import close_stale

    folder = sweep_folder(args.sweep, args.output)
    close_stale(folder.parent)
    record = load_sweep_record(folder)
    comparison = compare(record.collection, args.baseline or record.known_baseline)
    look: dict[str, Any] = {"width": _width(), "colour": sys.stdout.isatty()}
    notes = list(record.notes)
    study = [] if args.runs else study_tables(record, report_section(Path(args.sweep), folder), notes)
    if args.study:
        if study:
            print(dress(study, args.format, **look), end="")
        elif notes == list(record.notes):
            raise InputError(f"{args.sweep} asks for no tables in its 'report' section; give its YAML file, or leave out --study")
    elif args.runs:
        print(delimited(tables.runs_frame(comparison)), end="")
    else:
        print(tables.render(comparison, args.format, record.name, study=study, times=not args.no_times, **look), end="")
    if args.write:
        finished = finish_sweep(folder)
        notes = list(finished.notes)
        print(f"{len(finished.files)} files written to {folder}", file=sys.stderr)
    for note in notes:
        print(f"placewright: {note}", file=sys.stderr)


def _width() -> int | None:
    """Columns of the terminal; None (as wide as needed) where the output goes elsewhere."""
    import shutil

    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None
