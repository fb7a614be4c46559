"""``placewright networks``: the networks of devices known by name."""

from __future__ import annotations

import argparse
from typing import Any

from orchestration.cli.methods import print_known


def add_parser(subparsers: Any) -> None:
    """Declare ``placewright networks`` and its options."""
    parser = subparsers.add_parser("networks", help="list the networks of devices known by name")
    parser.add_argument("--format", choices=("text", "json"), default="text", help="text (default) or json")


def run(args: argparse.Namespace) -> None:
    """Print them."""
    from orchestration.commands import known

    print_known(known.networks(), args.format)
