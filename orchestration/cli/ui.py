"""``placewright ui``: open MLflow's own pages on the runs kept here, and say where our own page of each sweep is."""

from __future__ import annotations

import argparse
import contextlib
from pathlib import Path
from typing import Any

from orchestration.cli.run import add_home

MOST_SWEEPS = 12
"""Whose pages are listed."""


def add_parser(subparsers: Any) -> None:
    """Declare ``placewright ui`` and its options."""
    parser = subparsers.add_parser("ui", help="open the MLflow UI on the runs kept here")
    add_home(parser)
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (127.0.0.1)")
    parser.add_argument("--port", type=int, default=5000, help="port to listen on (5000)")


def run(args: argparse.Namespace) -> int:
    """Start the server, say where it is once it answers, and wait; Ctrl-C ends it."""
    import os
    import signal
    import subprocess
    import sys

    from envs.problem.errors import InputError
    from orchestration.tracking.stale import close_stale
    from orchestration.tracking.store_checks import default_uri

    if not (args.output / "mlflow.db").is_file():
        raise InputError(f"{args.output} holds no mlflow.db; run a sweep first, or name the folder given to its --output")
    _check_free(args.host, args.port)
    close_stale(args.output)
    artifacts = (args.output / "mlartifacts").resolve().as_uri()
    # One reader needs one worker; the four of MLflow's default each import everything, and are killed where that takes long.
    command = [sys.executable, "-m", "mlflow", "ui", "--backend-store-uri", default_uri(args.output), "--default-artifact-root", artifacts]
    command += ["--host", args.host, "--port", str(args.port), "--workers", "1"]
    environment = {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", **os.environ}  # jobs of language models: processes that nobody needs here
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the server ends with this process
    server = subprocess.Popen(command, env=environment)
    try:
        _announce(server, f"http://{args.host}:{args.port}", args.output)
        return server.wait()
    finally:
        if server.poll() is None:
            server.send_signal(signal.SIGTERM)
            server.wait()


def _check_free(host: str, port: int) -> None:
    import socket

    from envs.problem.errors import InputError

    with contextlib.closing(socket.socket()) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or error
            raise InputError(f"nothing can listen on {host}:{port} ({reason}); choose another --port") from None


def _announce(server: Any, address: str, home: Path) -> None:
    """Print the addresses once the server answers: each sweep's in MLflow's pages, and the file of our own page of it."""
    import sqlite3
    import time
    import urllib.request

    from orchestration.specs.layout import PAGE
    from orchestration.tracking.summary import landing

    while server.poll() is None:
        with contextlib.suppress(OSError), urllib.request.urlopen(f"{address}/health", timeout=5):
            break
        time.sleep(0.2)
    else:
        return
    with contextlib.suppress(sqlite3.Error), contextlib.closing(sqlite3.connect(home / "mlflow.db")) as database:
        where = "lifecycle_stage = 'active' AND experiment_id <> 0 ORDER BY last_update_time DESC"
        for number, name in database.execute(f"SELECT experiment_id, name FROM experiments WHERE {where} LIMIT {MOST_SWEEPS}"):
            print(f"{name}: {landing(address, number)}")
            page = home / name / PAGE
            if page.is_file():
                print(f"  {page.resolve().as_uri()}")
    print(f"{address}/#/experiments?workflowType=machine_learning  (Ctrl-C ends it)", flush=True)
