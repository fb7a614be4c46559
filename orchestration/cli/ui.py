"""``placewright ui``: the MLflow UI on everything that ran here."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any


def add_parser(subparsers: Any) -> None:
    """Declare the command."""
    parser = subparsers.add_parser("ui", help="open the MLflow UI on what ran here")
    parser.add_argument(
        "folder", nargs="?", type=Path, default=Path(".placewright"), metavar="FOLDER", help="where sweeps are (.placewright)"
    )
    parser.add_argument("--port", type=int, default=5000, metavar="N", help="port to serve on (5000)")
    parser.add_argument("--print", action="store_true", dest="only_print", help="print the command instead of running it")


def run(args: argparse.Namespace) -> int:
    """Serve until Ctrl-C."""
    import shlex
    import subprocess
    import sys

    from envs.errors import InputError
    from orchestration.tracking import default_uri

    database = args.folder / "mlflow.db"
    if not database.is_file():
        raise InputError(f"there is no {database}, so no sweep was tracked there; run one, or name the --output folder it was run with")
    if not 0 < args.port < 65536:
        raise InputError(f"port {args.port} is impossible; give one from 1 to 65535")
    command = [sys.executable, "-m", "mlflow", "ui", "--backend-store-uri", default_uri(args.folder), "--port", str(args.port)]
    if args.only_print:
        print(shlex.join(command))
        return 0
    print(f"MLflow UI on http://127.0.0.1:{args.port} (Ctrl-C ends it)", flush=True)
    return subprocess.run(command, check=False).returncode
