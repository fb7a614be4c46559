"""``placewright simulate``: makespan, start and finish of the placements in a problem's file, as JSON."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any


def add_parser(subparsers: Any) -> None:
    """Declare ``placewright simulate`` and its options."""
    parser = subparsers.add_parser("simulate", help="simulate the placements in a problem's file; prints JSON")
    parser.add_argument("problem", type=Path, metavar="PROBLEM.json", help="graph, network and placements")
    parser.add_argument("--placements", type=Path, metavar="FILE.json", help="take the placements from this file instead")
    parser.add_argument(
        "--noise", type=float, default=0.0, metavar="SIGMA", help="spread of all times, in [0, 1): t(1-SIGMA) to t(1+SIGMA)"
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="seed of the noise (0)")


def run(args: argparse.Namespace) -> None:
    """Print one JSON document."""
    import json

    from orchestration.commands.simulate import simulate_file

    print(json.dumps(simulate_file(args.problem, args.noise, args.seed, args.placements), indent=1, allow_nan=False))
