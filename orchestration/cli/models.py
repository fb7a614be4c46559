"""``placewright models``: the models known by name, with their options."""

from __future__ import annotations

import argparse
from typing import Any

from orchestration.cli.methods import print_known


def add_parser(subparsers: Any) -> None:
    """Declare ``placewright models`` and its options."""
    parser = subparsers.add_parser("models", help="list the models known by name, with their options")
    parser.add_argument("--format", choices=("text", "json"), default="text", help="text (default) or json")


def run(args: argparse.Namespace) -> None:
    """Print them."""
    from orchestration.commands import known

    print_known(known.models(), args.format)
