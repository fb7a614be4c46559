"""``placewright validate``: everything that is wrong with sweeps, before anything starts."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from orchestration.cli.run import add_set


def add_parser(subparsers: Any) -> None:
    """Declare ``placewright validate`` and its options."""
    parser = subparsers.add_parser("validate", help="check sweeps and report every error with file and line")
    parser.add_argument("sweeps", nargs="+", type=Path, metavar="SWEEP.yaml", help="sweep definitions")
    add_set(parser)
    parser.add_argument("--quick", action="store_true", help="check the text alone; do not build the problems")


def run(args: argparse.Namespace) -> int:
    """Check every sweep; errors of all of them are reported together."""
    from orchestration.analysis.table import plural
    from orchestration.definition.issues import Issue, SweepErrors
    from orchestration.definition.sweep import load_sweep

    found: list[Issue] = []
    for path in args.sweeps:
        try:
            sweep = load_sweep(path, args.settings)
            if not args.quick:
                sweep.check_problems()
        except SweepErrors as errors:
            found.extend(errors.issues)
            continue
        expansion = sweep.expansion()
        trials, searches = len(expansion.trials) + len(expansion.waiting), len(expansion.searches) + len(expansion.waiting_searches)
        print(f"{path}: valid, {plural(trials, 'trial')} and {searches} {'search' if searches == 1 else 'searches'}")
    if found:
        raise SweepErrors(found)
    return 0
