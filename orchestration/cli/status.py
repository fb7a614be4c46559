"""``placewright status``: how far a sweep has come, read from its directory without disturbing a run."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any


def add_parser(subparsers: Any) -> None:
    """Declare ``placewright status`` and its options."""
    parser = subparsers.add_parser("status", help="say how far a sweep has come")
    parser.add_argument("sweep", type=Path, metavar="SWEEP.yaml", help="sweep definition")
    parser.add_argument("--output", type=Path, default=Path(".placewright"), metavar="FOLDER", help="output folder (.placewright)")
    parser.add_argument("--format", choices=("text", "json"), default="text", help="text (default) or json")


def run(args: argparse.Namespace) -> int:
    """Print counts a stage and the failures; 1 if there are any."""
    import json

    from orchestration.commands.status import sweep_status
    from orchestration.definition.sweep import load_sweep
    from orchestration.tracking.stale import close_stale

    close_stale(args.output)
    status = sweep_status(load_sweep(args.sweep), args.output)
    print(json.dumps(status.to_json(), indent=1) if args.format == "json" else status.text())
    return 1 if status.failures else 0
