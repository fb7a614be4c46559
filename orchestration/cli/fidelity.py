"""``placewright fidelity``: how well a simulator stands for a measuring host, on the problems of a sweep."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any


def add_parser(subparsers: Any) -> None:
    """Declare ``placewright fidelity`` and its options."""
    parser = subparsers.add_parser("fidelity", help="compare a simulator with a measuring host on the same placements")
    parser.add_argument("sweep", type=Path, metavar="SWEEP.yaml", help="sweep whose problems to place, and whose evaluators to compare")
    parser.add_argument("--simulator", metavar="NAME", help="a stage, for its evaluator, or a kind of evaluator (simulator)")
    parser.add_argument("--host", metavar="NAME", help="likewise (the first stage that measures)")
    parser.add_argument("--costs", metavar="COSTS", help="cost model of the simulated problem, by name or in JSON (the sweep's)")
    parser.add_argument("--graph", action="append", metavar="NAME", help="only this graph; may be given again")
    parser.add_argument("--placements", type=int, default=40, metavar="N", help="placements a problem (40)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="seed of the placements (0)")
    parser.add_argument("--output", type=Path, default=Path("fidelity"), metavar="FOLDER", help="folder of plots and times (fidelity)")


def run(args: argparse.Namespace) -> None:
    """Print correlations; leave a scatter plot and a CSV file a problem."""
    from orchestration.commands.fidelity import run_fidelity

    print(
        run_fidelity(args.sweep, args.output, args.simulator, args.host, args.costs, args.graph, args.placements, args.seed),
        end="",
    )
