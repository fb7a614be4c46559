"""``placewright graphs``: the kinds of graphs that a sweep may describe, with their settings."""

from __future__ import annotations

import argparse
from typing import Any

from orchestration.cli.methods import print_known


def add_parser(subparsers: Any) -> None:
    """Declare ``placewright graphs`` and its options."""
    parser = subparsers.add_parser("graphs", help="list the kinds of graphs that a sweep may describe, with their settings")
    parser.add_argument("--format", choices=("text", "json"), default="text", help="text (default) or json")


def run(args: argparse.Namespace) -> None:
    """Print them."""
    from orchestration.commands import known

    print_known(known.graphs(), args.format)
