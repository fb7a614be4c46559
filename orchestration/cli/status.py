"""``placewright status``: how far a sweep has come, read from its directory without disturbing a run."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from orchestration.cli.run import add_home


def add_parser(subparsers: Any) -> None:
    """Declare ``placewright status`` and its options."""
    parser = subparsers.add_parser("status", help="say how far a sweep has come")
    parser.add_argument("sweep", metavar="SWEEP", help="its YAML file, its name or its folder")
    add_home(parser)
    parser.add_argument("--format", choices=("text", "json"), default="text", help="text (default) or json")


def run(args: argparse.Namespace) -> int:
    """Print counts a stage and the failures; 1 if there are any."""
    import json

    from orchestration.analysis.load import sweep_folder
    from orchestration.commands.status import sweep_status
    from orchestration.definition.sweep import load_sweep
    from orchestration.folder.definition_copy import definition_origin
    from orchestration.tracking.stale import close_stale

    folder = sweep_folder(args.sweep, args.output, started=False)
    close_stale(folder.parent)
    given = Path(args.sweep)
    path, changed = definition_origin(folder)
    is_file = given.suffix in (".yaml", ".yml") and given.is_file()
    sweep = load_sweep(given, changed if path == given.resolve() else ()) if is_file else load_sweep(path, changed)
    status = sweep_status(sweep, folder)
    print(json.dumps(status.to_json(), indent=1) if args.format == "json" else status.text())
    return 1 if status.failures else 0
