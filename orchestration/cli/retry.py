"""``placewright retry``: run the trials of a sweep again that failed for reasons of their own."""

from __future__ import annotations

import argparse
from typing import Any

from orchestration.cli.run import add_run_arguments, finish


def add_parser(subparsers: Any) -> None:
    """Declare ``placewright retry`` and its options."""
    parser = subparsers.add_parser("retry", help="run a sweep's failed trials again, and what waited for them")
    parser.add_argument("--failed", action="store_true", required=True, help="the trials that failed for reasons of their own")
    add_run_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Run the sweep with its failed trials; 1 if trials failed again."""
    return finish(args, retry_failed=True)
