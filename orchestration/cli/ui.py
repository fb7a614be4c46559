"""``placewright ui``: open MLflow's own pages on the runs kept here."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any


def add_parser(subparsers: Any) -> None:
    """Declare ``placewright ui`` and its options."""
    parser = subparsers.add_parser("ui", help="open the MLflow UI on the runs kept here")
    parser.add_argument("output", type=Path, nargs="?", default=Path(".placewright"), metavar="FOLDER", help="output folder (.placewright)")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (127.0.0.1)")
    parser.add_argument("--port", type=int, default=5000, help="port to listen on (5000)")


def run(args: argparse.Namespace) -> int:
    """Become the server; Ctrl-C ends it."""
    import os
    import sys

    from envs.problem.errors import InputError
    from orchestration.tracking.stale import close_stale
    from orchestration.tracking.store_checks import default_uri

    if not (args.output / "mlflow.db").is_file():
        raise InputError(f"{args.output} holds no mlflow.db; run a sweep first, or name the folder given to its --output")
    close_stale(args.output)
    uri = default_uri(args.output)
    artifacts = (args.output / "mlartifacts").resolve().as_uri()
    print(f"http://{args.host}:{args.port}  (Ctrl-C ends it)", flush=True)
    command = [sys.executable, "-m", "mlflow", "ui", "--backend-store-uri", uri, "--default-artifact-root", artifacts]
    # One reader needs one worker; the four of MLflow's default each import everything, and are killed where that takes long.
    os.execv(sys.executable, [*command, "--host", args.host, "--port", str(args.port), "--workers", "1"])
    return 0
