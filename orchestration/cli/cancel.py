"""``placewright cancel``: stop a running sweep cleanly; running it again goes on."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any


def add_parser(subparsers: Any) -> None:
    """Declare ``placewright cancel`` and its options."""
    parser = subparsers.add_parser("cancel", help="stop a running sweep; running it again goes on where it was")
    parser.add_argument("sweep", type=Path, metavar="SWEEP.yaml", help="sweep definition")
    parser.add_argument("--output", type=Path, default=Path(".placewright"), metavar="FOLDER", help="output folder (.placewright)")
    parser.add_argument("--timeout", type=float, default=60.0, metavar="SECONDS", help="how long to wait for its end (60)")


def run(args: argparse.Namespace) -> int:
    """Stop it and say so; 1 if it does not end in time."""
    from orchestration.commands.status import cancel
    from orchestration.definition.sweep import load_sweep
    from orchestration.specs.files import safe_name

    sweep = load_sweep(args.sweep)
    ended = cancel(args.output / safe_name(sweep.name), args.timeout)
    print(f"{sweep.name}: {'stopped' if ended else f'still running after {args.timeout:g} s'}")
    return 0 if ended else 1
