"""``placewright open``: the page of a sweep in the browser. It is a file; no server runs."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any


def add_parser(subparsers: Any) -> None:
    """Declare ``placewright open`` and its options."""
    parser = subparsers.add_parser("open", help="open the page of a sweep that has run, with its leaderboard, curves and timelines")
    parser.add_argument("sweep", metavar="SWEEP", help="its name, its folder or its YAML file")
    parser.add_argument("--output", type=Path, default=Path(".placewright"), metavar="FOLDER", help="where sweeps are kept (.placewright)")


def run(args: argparse.Namespace) -> None:
    """Print where the page is and open it; it is made first if the last report was written before there was one."""
    import sys
    import webbrowser

    from envs.problem.errors import InputError
    from orchestration.analysis.load import sweep_folder
    from orchestration.report.finish import finish_sweep
    from orchestration.specs.layout import PAGE

    folder = sweep_folder(args.sweep, args.output)
    page = folder / PAGE
    if not page.is_file():
        print(f"placewright: writing the report of {folder}", file=sys.stderr)
        notes = finish_sweep(folder).notes
        if not page.is_file():
            raise InputError(f"{page} could not be written: {'; '.join(notes)}")
    print(page.resolve().as_uri(), flush=True)
    if not webbrowser.open(page.resolve().as_uri()):
        print("placewright: no browser could be started here; open this address in one", file=sys.stderr)
