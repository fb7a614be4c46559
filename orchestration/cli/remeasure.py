"""``placewright remeasure``: measure the best placements of a sweep again, in turn."""

from __future__ import annotations

import argparse
from typing import Any

from orchestration.cli.run import add_home


def add_parser(subparsers: Any) -> None:
    """Declare ``placewright remeasure`` and its options."""
    parser = subparsers.add_parser("remeasure", help="measure the best placements of a sweep again, in turn")
    parser.add_argument("sweep", metavar="SWEEP", help="its YAML file, its name or its folder")
    parser.add_argument("--rounds", type=int, default=20, metavar="N", help="how often each placement is measured (20)")
    parser.add_argument("--on", metavar="STAGE", help="measure all as this stage does (each as it was in the search, if that varies)")
    parser.add_argument("--methods", nargs="+", default=(), metavar="METHOD", help="these alone")
    parser.add_argument("--each-seed", action="store_true", help="the best of every seed, not of all seeds together")
    parser.add_argument("--baseline", metavar="METHOD", help="compare with this one (the sweep's baseline, or else the fastest)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="seed of simulated noise (0)")
    add_home(parser)


def run(args: argparse.Namespace) -> None:
    """Print a table a problem; leave every time and a picture in the sweep's directory."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from orchestration.analysis.load import load_sweep_record, sweep_folder
    from orchestration.analysis.table import dress
    from orchestration.commands import remeasure

    record = load_sweep_record(sweep_folder(args.sweep, args.output))
    found = remeasure.contests(record, args.on, args.methods, args.each_seed)
    columns = (TextColumn("measuring"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=args.rounds * sum(len(c.candidates) for c in found))
        remeasure.measure_in_turn(found, args.rounds, args.seed, lambda: bar.advance(task))
    baseline = args.baseline or record.known_baseline
    print(dress([remeasure.table(c, baseline) for c in found], "table"), end="")
    for path in remeasure.write(found, record.folder):
        print(f"wrote {path}")
