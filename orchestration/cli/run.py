"""``placewright run``: check a sweep, say what it will do, do it."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any


def add_parser(subparsers: Any) -> None:
    """Declare ``placewright run`` and its options."""
    parser = subparsers.add_parser("run", help="run a sweep; run it again to go on where it stopped")
    add_run_arguments(parser)
    parser.add_argument("--fresh", action="store_true", help="run everything anew, even trials that are finished")
    add_turn(parser)


def add_turn(parser: argparse.ArgumentParser) -> None:
    """When it is this sweep's turn among the studies of a cluster; any of these puts it into the cluster's queue."""
    parser.add_argument("--priority", type=int, metavar="N", help="wait in the cluster's queue of studies; higher ones go first (0)")
    parser.add_argument("--after", action="append", default=[], metavar="STUDY", help="wait until that study has finished; may be repeated")
    parser.add_argument("--at", metavar="TIME", help="not before 22:00, or 2026-12-01T22:00")
    parser.add_argument("--every", metavar="PERIOD", help="run it anew every hour, day or week")
    parser.add_argument("--name", metavar="STUDY", help="what the queue calls it (the sweep's name)")


def add_run_arguments(parser: argparse.ArgumentParser) -> None:
    """What is said about a run: of which sweep, where, tracked where."""
    parser.add_argument("sweep", type=Path, metavar="SWEEP.yaml", help="sweep definition")
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--address", metavar="ADDRESS", help="Ray cluster to run on (auto finds a running one); by default one is started here"
    )
    where.add_argument("--local", action="store_true", help="run the trials one after another in this process, without Ray")
    parser.add_argument(
        "--tracking-uri",
        metavar="URI",
        help="MLflow store or server, or env:NAME or file:PATH for where it stands; by default a SQLite file in the output folder",
    )
    add_home(parser, writes=True)
    add_share(parser)
    add_stages(parser)
    what = "answer Prometheus there while it runs, and say whether it is well (/metrics, /healthz, /readyz)"
    parser.add_argument("--metrics", metavar="[HOST:]PORT", help=what)


def add_share(parser: argparse.ArgumentParser) -> None:
    """Whose run it is, for what a cluster shares."""
    parser.add_argument("--user", metavar="NAME[:WEIGHT]", help="on whose behalf; users share a cluster's measuring hosts by weight (1)")
    parser.add_argument("--weight", type=float, default=1.0, metavar="W", help="of this sweep beside the user's others there (1)")


def share_of(args: argparse.Namespace) -> Any:
    """What `add_share` asked for."""
    import getpass

    from orchestration.rewards.fair_queue import made_share

    try:
        user = args.user or getpass.getuser()
    except (KeyError, OSError):  # a container's user without a name
        user = "nobody"
    return made_share(user, args.weight)


def add_home(parser: argparse.ArgumentParser, *, writes: bool = False) -> None:
    """The folder with the folders of all sweeps: one word for it in every command; ``writes`` for those that run a sweep there."""
    what = "where sweeps are kept (.placewright); a URL such as s3://BUCKET/LAB keeps them there, for any machine to go on"
    kind = _output_folder if writes else _output_view
    parser.add_argument("--output", type=kind, default=Path(".placewright"), metavar="FOLDER", help=what)


def _output_folder(text: str) -> Path:
    from orchestration.folder.remote import output_folder

    return output_folder(text) if "://" in text else Path(text)


def _output_view(text: str) -> Path:
    from orchestration.folder.remote import output_view

    return output_view(text) if "://" in text else Path(text)


def add_stages(parser: argparse.ArgumentParser) -> None:
    """Which part of the sweep is meant, and what of it is changed."""
    add_set(parser)
    parser.add_argument("--stages", nargs="+", metavar="STAGE", help="these stages alone, and those that they start from")


def add_set(parser: argparse.ArgumentParser) -> None:
    """Changes of single values of a sweep."""
    what = "change a value of the sweep, as stages.train.budget=500 or seeds=0..4; may be repeated"
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", dest="settings", help=what)


def run(args: argparse.Namespace) -> int:
    """Run the sweep, if need be when it is its turn; 1 if trials failed."""
    if not any((args.priority is not None, args.after, args.at, args.every, args.name)):
        return finish(args, fresh=args.fresh)
    from envs.problem.errors import InputError
    from orchestration.definition.sweep import load_sweep
    from orchestration.driver.ray_start import start_ray
    from orchestration.queueing.listing import moment, period
    from orchestration.queueing.study_queue import Wish
    from orchestration.queueing.turns import in_turn

    if args.address is None:
        raise InputError("studies wait for their turn on a cluster; give its --address, such as auto")
    at = moment(args.at) if args.at else 0.0
    name = args.name or load_sweep(args.sweep, args.settings).name
    wish = Wish(name, share_of(args).user, args.priority or 0, tuple(args.after), at, period(args.every))
    start_ray(args.address, None)
    return in_turn(wish, lambda again: finish(args, fresh=args.fresh or again), lambda line: print(line, file=sys.stderr, flush=True))


def finish(args: argparse.Namespace, *, fresh: bool = False, retry_failed: bool = False) -> int:
    """Check the sweep, print its plan and run it; 1 if trials failed."""
    print(f"reading {args.sweep}", file=sys.stderr, flush=True)
    from orchestration.commands.planning.plan import make_plan, render
    from orchestration.commands.planning.rates import Rates
    from orchestration.definition.sweep import load_sweep
    from orchestration.driver.run_sweep import run_sweep
    from orchestration.specs.secrets import resolved_uri
    from orchestration.tracking.store_checks import default_uri

    store = default_uri(args.output) if args.tracking_uri is None else resolved_uri(args.tracking_uri)
    sweep = load_sweep(args.sweep, args.settings, store)
    sweep = sweep.only(args.stages) if args.stages else sweep
    print("checking its problems and methods", file=sys.stderr, flush=True)
    sweep.check_problems(leave=True)
    print(render(make_plan(sweep, Rates.from_runs(args.output))), flush=True)
    result = run_sweep(
        sweep, address=args.address, tracking_uri=args.tracking_uri, local=args.local, fresh=fresh, retry_failed=retry_failed,
        output=args.output, share=share_of(args), metrics=args.metrics,
    )  # fmt: skip
    return 1 if result.failed else 0
