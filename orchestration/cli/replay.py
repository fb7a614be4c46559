"""``placewright replay``: measure a recorded placement again and say whether it agrees."""

from __future__ import annotations

import argparse
from typing import Any

from orchestration.cli.run import add_home


def add_parser(subparsers: Any) -> None:
    """Declare ``placewright replay`` and its options."""
    parser = subparsers.add_parser("replay", help="measure a recorded placement again and say whether it agrees")
    parser.add_argument("run", metavar="RUN", help="a trial's hash (its beginning will do) or the id of its MLflow run")
    add_home(parser)
    parser.add_argument("--tracking-uri", metavar="URI", help="MLflow store or server, if RUN is an id there; or env:NAME, file:PATH")


def run(args: argparse.Namespace) -> int:
    """Print a line a problem; 1 if one disagrees."""
    from orchestration.commands.replay import elsewhere, find_run, replay

    trial, result = find_run(args.run, args.output, args.tracking_uri)
    print(f"{trial.label} on {trial.problem_label}, seed {trial.seed}, stage {trial.stage} ({trial.evaluator.key})")
    made = replay(trial, result)
    for one in made:
        print(one.text())
    if note := elsewhere(result):
        print(note)
    return 0 if all(one.agrees for one in made) else 1
