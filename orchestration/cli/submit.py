"""``placewright submit``: send the code and a sweep to a Ray cluster and run it there as a job."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from orchestration.cli.run import add_set, add_share, share_of


def add_parser(subparsers: Any) -> None:
    """Declare ``placewright submit`` and its options."""
    parser = subparsers.add_parser("submit", help="send a sweep to a Ray cluster and run it there as a job")
    parser.add_argument("sweep", type=Path, metavar="SWEEP.yaml", help="sweep definition, inside the working directory")
    parser.add_argument("--address", default="http://127.0.0.1:8265", metavar="URL", help="job server (http://127.0.0.1:8265)")
    parser.add_argument("--output", required=True, metavar="FOLDER", help="output folder on the cluster; one that all its machines share")
    parser.add_argument("--tracking-uri", metavar="URI", help="MLflow server, as the cluster calls it; env:NAME names a variable there")
    add_set(parser)
    add_share(parser)
    parser.add_argument("--fresh", action="store_true", help="run everything anew, even trials that are finished")
    parser.add_argument("--working-dir", type=Path, default=Path(), metavar="FOLDER", help="what is sent (.); at most 100 MiB packed")
    parser.add_argument("--exclude", action="append", default=[], metavar="PATTERN", help="leave files or folders out; may be repeated")
    parser.add_argument("--no-wait", action="store_true", help="do not follow the job's output")


def run(args: argparse.Namespace) -> int:
    """Send and follow; 1 if the job did not succeed."""
    from orchestration.commands.submit import entrypoint, hidden_uri, submit
    from orchestration.definition.sweep import load_sweep

    load_sweep(args.sweep, args.settings).check_problems()
    share = share_of(args)
    uri, variables = hidden_uri(args.tracking_uri)
    options = ["--tracking-uri", uri] if uri else []
    options += [part for setting in args.settings for part in ("--set", setting)]
    options += ["--fresh"] if args.fresh else []
    options += ["--user", f"{share.user}:{share.user_weight:g}", "--weight", f"{share.weight:g}"]
    root = args.working_dir.resolve()
    command = entrypoint(args.sweep, root, args.output, options)
    job, status = submit(command, root, args.address, args.exclude, variables, wait=not args.no_wait)
    print(f"job {job}: {status}")
    return 0 if status in ("SUCCEEDED", "PENDING", "RUNNING") else 1
