"""``placewright best-known``: the archive of best known placements and lower bounds of the benchmark."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any


def add_parser(subparsers: Any) -> None:
    """Declare ``placewright best-known`` and its options."""
    parser = subparsers.add_parser("best-known", help="check, add to or show the best known placements of the benchmark")
    parser.add_argument("action", choices=("check", "add", "show"), help="check simulates and compares all of it")
    parser.add_argument("sweeps", nargs="*", metavar="SWEEP", help="for add: sweeps that ran here, whose placements are tried")
    parser.add_argument("--bounds", action="store_true", help="for add: compute the lower bounds anew as well, which takes minutes")
    parser.add_argument(
        "--only", default="", metavar="TEXT", help="problems whose name begins so, as test-layered or train-workflows/blast"
    )
    parser.add_argument("--archive", type=Path, default=None, metavar="FILE", help="results/best-known/benchmark.jsonl")
    parser.add_argument("--benchmark", type=Path, default=None, metavar="SWEEP.yaml", help="sweeps/benchmark/benchmark.yaml")


def run(args: argparse.Namespace) -> int:
    """Print what was asked for; 1 if something does not hold."""
    from envs.problem.errors import InputError
    from orchestration.commands import best_known as archive

    path = args.archive or archive.ARCHIVE
    everything, known = archive.problems(args.benchmark or archive.BENCHMARK), archive.read(path)
    named = {name: one for name, one in everything.items() if name.startswith(args.only)}
    if not named:
        raise InputError(f"no problem of the benchmark begins with {args.only!r}; placewright best-known show lists them")
    chosen = {name: entry for name, entry in known.items() if name in named}
    if args.action == "show":
        print(archive.table(chosen, named), end="")
        return 0
    if args.action == "check":
        wrong = 0
        for sentence in archive.check(chosen, named):
            wrong += 1
            print(sentence)
        print(f"{len(chosen)} problems checked, {wrong} complaints")
        return 1 if wrong else 0
    if not args.sweeps and not args.bounds:
        raise InputError("nothing to add; name a sweep that has run, or give --bounds")
    for sweep in args.sweeps:
        matched, improved = archive.add_sweep(known, named, sweep)
        archive.write(known, path)
        print(f"{sweep}: {matched} problems of the benchmark, {improved} improved")
    if args.bounds:
        print(f"bounds: {archive.add_bounds(known, named.values())} improved")
        archive.write(known, path)
    return 0
