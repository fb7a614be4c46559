"""``placewright methods``: every method with its settings, read from the source text so that nothing heavy is imported."""

from __future__ import annotations

import argparse
from typing import Any


def add_parser(subparsers: Any) -> None:
    """Declare the command."""
    parser = subparsers.add_parser("methods", help="list the methods and their settings")
    parser.add_argument("name", nargs="?", metavar="METHOD", help="only this one, with what each setting means")
    parser.add_argument("--format", choices=("text", "json"), default="text", help="text (default) or json")


def run(args: argparse.Namespace) -> None:
    """Print the list."""
    import dataclasses
    import json

    from orchestration.commands.methods import describe, text

    found = describe(args.name)
    if args.format == "json":
        print(json.dumps([dataclasses.asdict(m) for m in found], indent=1, ensure_ascii=False))
    else:
        print(text(found, whole=args.name is not None), end="")
