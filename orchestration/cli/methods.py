"""``placewright methods``: every method with what it can do and its settings."""

from __future__ import annotations

import argparse
from typing import Any


def add_parser(subparsers: Any) -> None:
    """Declare ``placewright methods`` and its options."""
    parser = subparsers.add_parser("methods", help="list the methods and their settings")
    parser.add_argument("name", nargs="?", metavar="METHOD", help="only this one, with what each setting means")
    parser.add_argument("--format", choices=("text", "json"), default="text", help="text (default) or json")


def run(args: argparse.Namespace) -> None:
    """Print what can place, with settings and abilities."""
    import dataclasses
    import json
    import sys

    from orchestration.commands.methods import describe, text

    def importing(name: str) -> None:
        if sys.stderr.isatty():  # torch alone takes seconds
            print(f"\r\033[Kimporting {name} …", end="", file=sys.stderr, flush=True)

    found = describe(args.name, importing)
    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr, flush=True)
    if args.format == "json":
        print(json.dumps([dataclasses.asdict(m) for m in found], indent=1, ensure_ascii=False))
    else:
        print(text(found, whole=args.name is not None), end="")


def print_known(found: list[Any], style: str) -> None:
    """A listing of what is known by name."""
    import dataclasses
    import json

    from orchestration.commands.known import text

    print(json.dumps([dataclasses.asdict(k) for k in found], indent=1, ensure_ascii=False) if style == "json" else text(found), end="")
    if style == "json":
        print()
