"""``placewright cancel``: stop a running sweep cleanly, through its URL from any machine; running it again goes on."""

from __future__ import annotations

import argparse
from typing import Any

from orchestration.cli.run import add_home


def add_parser(subparsers: Any) -> None:
    """Declare ``placewright cancel`` and its options."""
    parser = subparsers.add_parser("cancel", help="stop a running sweep; running it again goes on where it was")
    parser.add_argument("sweep", metavar="SWEEP", help="its YAML file, its name or its folder")
    add_home(parser)
    parser.add_argument("--timeout", type=float, default=60.0, metavar="SECONDS", help="how long to wait for its end (60)")


def run(args: argparse.Namespace) -> int:
    """Stop it and say so; 1 if it does not end in time."""
    from orchestration.analysis.load import sweep_folder
    from orchestration.commands.status import cancel
    from orchestration.folder.mirror import stop
    from orchestration.folder.remote import url_of
    from orchestration.tracking.stale import close_stale

    folder = sweep_folder(args.sweep, args.output, started=False)
    close_stale(folder.parent)
    url = url_of(folder.parent)
    ended = cancel(folder, args.timeout) if url is None else stop(f"{url}/{folder.name}", args.timeout)
    print(f"{folder.name}: {'stopped' if ended else f'still running after {args.timeout:g} s'}")
    return 0 if ended else 1
