"""``placewright hosts``: the reward services of running sweeps, their hosts, queues and faults."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any


def add_parser(subparsers: Any) -> None:
    """Declare ``placewright hosts`` and its options."""
    parser = subparsers.add_parser("hosts", help="show what measures for the running sweeps, with queues, utilisation and faults")
    parser.add_argument("--output", type=Path, default=Path(".placewright"), metavar="FOLDER", help="output folder (.placewright)")
    parser.add_argument("--all", action="store_true", help="also sweeps that have ended, as they were last seen")
    parser.add_argument("--format", choices=("text", "json"), default="text", help="text (default) or json")


def run(args: argparse.Namespace) -> None:
    """Print a line a host."""
    import json

    from orchestration.commands.status import hosts_text, read_statistics

    found = {name: s for name, s in read_statistics(args.output).items() if s["active"] or args.all}
    print(json.dumps(found, indent=1) if args.format == "json" else hosts_text(found))
