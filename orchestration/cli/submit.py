"""``placewright submit``: send the code and a sweep to a Ray cluster and run it there as a job."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from orchestration.cli.run import add_share, add_stages, add_turn, share_of


def add_parser(subparsers: Any) -> None:
    """Declare ``placewright submit`` and its options."""
    parser = subparsers.add_parser("submit", help="send a sweep to a Ray cluster and run it there as a job")
    parser.add_argument("sweep", type=Path, metavar="SWEEP.yaml", help="sweep definition, inside the working directory")
    parser.add_argument("--address", default="http://127.0.0.1:8265", metavar="URL", help="job server (http://127.0.0.1:8265)")
    parser.add_argument("--output", required=True, metavar="FOLDER", help="output folder on the cluster; one that all its machines share")
    parser.add_argument("--tracking-uri", metavar="URI", help="MLflow server, as the cluster calls it; env:NAME names a variable there")
    add_stages(parser)
    add_share(parser)
    add_turn(parser)
    add_slurm(parser)
    parser.add_argument("--fresh", action="store_true", help="run everything anew, even trials that are finished")
    parser.add_argument("--working-dir", type=Path, default=Path(), metavar="FOLDER", help="what is sent (.); at most 100 MiB packed")
    parser.add_argument("--exclude", action="append", default=[], metavar="PATTERN", help="leave files or folders out; may be repeated")
    parser.add_argument("--no-wait", action="store_true", help="do not follow the job's output")


def run(args: argparse.Namespace) -> int:
    """Send and follow, or write the script; 1 if the job did not succeed."""
    from orchestration.commands.submit import entrypoint, hidden_uri, submit
    from orchestration.definition.sweep import load_sweep

    sweep = load_sweep(args.sweep, args.settings)
    (sweep.only(args.stages) if args.stages else sweep).check_problems()
    share = share_of(args)
    uri, variables = hidden_uri(args.tracking_uri)
    options = ["--tracking-uri", uri] if uri else []
    options += [part for setting in args.settings for part in ("--set", setting)]
    options += ["--stages", *args.stages] if args.stages else []
    options += ["--fresh"] if args.fresh else []
    options += ["--user", f"{share.user}:{share.user_weight:g}", "--weight", f"{share.weight:g}"]
    if args.slurm is not None:
        return _write_script(args, options, sweep.name)
    options += _turn(args)
    root = args.working_dir.resolve()
    command = entrypoint(args.sweep, root, args.output, options)
    job, status = submit(command, root, args.address, args.exclude, variables, wait=not args.no_wait)
    print(f"job {job}: {status}")
    return 0 if status in ("SUCCEEDED", "PENDING", "RUNNING") else 1


def _turn(args: argparse.Namespace) -> list[str]:
    """What `add_turn` asked for, as the job is told it: times as seconds, since its machine may live by another clock."""
    from orchestration.queueing.listing import moment, period

    words = ["--priority", str(args.priority)] if args.priority is not None else []
    words += [part for name in args.after for part in ("--after", name)]
    words += ["--at", f"@{moment(args.at):.0f}"] if args.at else []
    words += ["--every", period(args.every)] if args.every else []
    return words + (["--name", args.name] if args.name else [])


def add_slurm(parser: argparse.ArgumentParser) -> None:
    """What a job of SLURM is to have."""
    parser.add_argument(
        "--slurm", type=Path, metavar="FILE", help="send nothing, but write a script for sbatch; --after are job numbers then"
    )
    parser.add_argument("--nodes", type=int, default=1, metavar="N", help="of a SLURM job: nodes (1)")
    parser.add_argument("--cpus", type=int, default=8, metavar="N", help="of a SLURM job: CPUs of each node (8)")
    parser.add_argument("--hours", type=float, default=24.0, metavar="H", help="of a SLURM job: after these it is requeued (24)")


def _write_script(args: argparse.Namespace, options: list[str], name: str) -> int:
    from orchestration.queueing.listing import moment, period
    from orchestration.queueing.slurm import SlurmJob, script

    job = SlurmJob(
        args.name or name, args.nodes, args.cpus, args.hours, (args.user or "").partition(":")[0], tuple(args.after),
        moment(args.at) if args.at else 0.0, period(args.every), -(args.priority or 0),
    )  # fmt: skip
    words = ["placewright", "run", str(args.sweep), "--output", args.output, *options]
    args.slurm.write_text(script(job, words), encoding="utf-8")
    print(f"{args.slurm}: give it to sbatch")
    return 0
