"""``placewright queue``: the studies that wait on a cluster, and their order."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

ACTIONS = ("list", "move", "pause", "resume", "cancel", "allow")


def add_parser(subparsers: Any) -> None:
    """Declare ``placewright queue`` and its options."""
    parser = subparsers.add_parser("queue", help="show, reorder, pause or cancel the studies that wait on a cluster")
    parser.add_argument("action", nargs="?", choices=ACTIONS, default="list", metavar="ACTION", help=f"one of {', '.join(ACTIONS)} (list)")
    parser.add_argument("study", nargs="?", metavar="STUDY", help="its name; of allow: how many studies run at a time")
    parser.add_argument("place", nargs="?", metavar="PLACE", help="of move: first, last or a priority; of allow: how many of one user")
    what = "Ray cluster (auto, on one of its machines), or the http:// address of its job server, from anywhere"
    parser.add_argument("--address", default="auto", metavar="ADDRESS", help=what)
    parser.add_argument("--working-dir", type=Path, default=Path(), metavar="FOLDER", help="the code that a job server is sent (.)")
    parser.add_argument("--format", choices=("text", "json"), default="text", help="text (default) or json")


def run(args: argparse.Namespace) -> int:
    """Do it and show the queue."""
    from envs.problem.errors import InputError

    needs = {"list": 0, "move": 2, "pause": 1, "resume": 1, "cancel": 1, "allow": 1}[args.action]
    words = [word for word in (args.study, args.place) if word is not None]
    if len(words) < needs or (args.action == "list" and words):
        raise InputError(
            f"queue {args.action} needs {('nothing more', 'a STUDY', 'a STUDY and a PLACE')[needs]}; see placewright queue --help"
        )
    if args.action == "allow" and not all(word.isdigit() for word in words):
        raise InputError(f"queue allow needs numbers, not {' '.join(words)!r}")
    return _remotely(args, words) if args.address.startswith("http") else _here(args, words)


def _here(args: argparse.Namespace, words: list[str]) -> int:
    import json

    from orchestration.driver.ray_start import start_ray
    from orchestration.queueing.listing import listing_text
    from orchestration.queueing.turns import act

    start_ray(args.address, None)
    if args.action != "list":
        act(args.action, *(map(int, words) if args.action == "allow" else words))
    found = act("listing")
    print(json.dumps(found, indent=1) if args.format == "json" else listing_text(found))
    return 0


def _remotely(args: argparse.Namespace, words: list[str]) -> int:
    import shlex

    from orchestration.commands.submit import submit

    command = ["python", "-m", "orchestration.cli.main", "queue", args.action, *words, "--address", "auto", "--format", args.format]
    _, status = submit(shlex.join(command), args.working_dir.resolve(), args.address)
    return 0 if status == "SUCCEEDED" else 1
