"""``placewright hosts``: the reward services of running sweeps, their hosts, queues and faults."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from orchestration.cli.run import add_home


def add_parser(subparsers: Any) -> None:
    """Declare ``placewright hosts`` and its options."""
    parser = subparsers.add_parser("hosts", help="show what measures for the running sweeps, with queues, utilisation and faults")
    parser.add_argument("sweep", nargs="?", metavar="SWEEP", help="only this one: its YAML file, its name or its folder")
    add_home(parser)
    parser.add_argument("--all", action="store_true", help="also sweeps that have ended, as they were last seen")
    parser.add_argument("--format", choices=("text", "json"), default="text", help="text (default) or json")


def run(args: argparse.Namespace) -> None:
    """Print a line a host."""
    import json

    from orchestration.analysis.load import sweep_folder
    from orchestration.commands.status import hosts_text, read_statistics

    only = None if args.sweep is None else sweep_folder(args.sweep, args.output, started=False)
    found = read_statistics(args.output if only is None else only.parent)
    found = {name: s for name, s in found.items() if (s["active"] or args.all) and only in (None, (only or Path()).parent / name)}
    print(json.dumps(found, indent=1) if args.format == "json" else hosts_text(found))
