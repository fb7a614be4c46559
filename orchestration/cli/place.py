"""``placewright place``: place one model on one network and show what that gains over every single device."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from orchestration.commands.machine.options import add_target


def add_parser(subparsers: Any) -> None:
    """Declare ``placewright place`` and its options."""
    parser = subparsers.add_parser("place", help="place a model of yours on the devices you have")
    parser.add_argument(
        "model", metavar="MODEL", help="an .onnx, .xml, .json or .stg file (see placewright inspect), or a known model's name"
    )
    parser.add_argument("--network", metavar="NETWORK", help="known network or .json file; not needed if MODEL is a whole problem")
    parser.add_argument("--method", metavar="NAME", help="how to search (local-search); see placewright methods")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", dest="settings", help="a setting of the method; may be repeated"
    )
    parser.add_argument("--budget", type=_whole("budget", 1), metavar="N", help="placements to evaluate (2000)")
    parser.add_argument("--seed", type=_whole("seed", 0), default=0, metavar="N", help="seed of the search (0)")
    parser.add_argument("--costs", metavar="MODEL", help="linear, roofline or profiled; by default roofline, or a .json file's own")
    parser.add_argument(
        "--objective", choices=("makespan", "energy", "throughput", "total-cost"), help="what to minimise (makespan, or a problem's own)"
    )
    parser.add_argument("--json", action="store_true", help="print what came out for programs, the device of every node among it")
    parser.add_argument("--policy", metavar="POLICY", help="place zero-shot by a policy: models:/NAME/VERSION, or the folder of one")
    parser.add_argument("--tracking-uri", metavar="URI", help="MLflow store or server with the registered models (.placewright/mlflow.db)")
    parser.add_argument("--output", type=Path, default=Path("placed"), metavar="FOLDER", help="where the files go (placed/)")
    parser.add_argument("--overwrite", action="store_true", help="replace files that an earlier placement left there")
    here = parser.add_argument_group("on this machine", "calibrate, search, measure in turn, choose; see placewright devices")
    add_target(here, required=False)
    here.add_argument("--rounds", type=int, default=12, metavar="N", help="rounds of the measurements that decide (12)")
    here.add_argument(
        "--corrections", type=int, default=2, metavar="N", help="times to correct the simulator and search again, at most (2)"
    )


def _whole(what: str, low: int) -> Callable[[str], int]:
    """Reads a whole number from ``low`` to a thousand million."""

    def read(text: str) -> int:
        if not text.isdecimal() or len(text) > 10 or not low <= int(text) <= 1_000_000_000:
            raise argparse.ArgumentTypeError(f"{what} {text[:40]!r} must be a whole number from {low} to 1000000000")
        return int(text)

    return read


def run(args: argparse.Namespace) -> None:
    """Search for a placement, compare it with every single device, and draw it."""
    _check_policy(args)
    args.method, args.budget = args.method or "local-search", args.budget or 2000
    if args.on:
        _on_this_machine(args)
        return
    import json

    from orchestration.commands.place import problem_spec, stem, summary, to_json, write
    from orchestration.specs.state_files import untouched, writable_folder

    spec = problem_spec(args.model, args.network, args.costs, args.objective)
    writable_folder(args.output)
    untouched(args.output, f"{stem(spec.graph_label)}.place*.json", args.overwrite)
    placed = _searched(args, spec)
    placed = write(placed, args.output)
    if args.json:
        print(json.dumps(to_json(placed), indent=1, allow_nan=False))
        return
    print(summary(placed), end="")
    what = {".html": "timeline (open in a browser)", ".trace.json": "timeline for ui.perfetto.dev", ".png": "picture of the graph"}
    what |= {".svg": "the same as vectors", ".placement.json": "placement (repeat with placewright simulate)"}
    for path in placed.files:
        print(f"{path}  {next(text for end, text in what.items() if path.name.endswith(end))}")


def _check_policy(args: argparse.Namespace) -> None:
    """InputError for what says how to search, where a policy places at once."""
    from envs.problem.errors import InputError

    given = {"--method": args.method, "--set": args.settings, "--budget": args.budget, "--on": args.on}
    if args.policy and (clash := [name for name, value in given.items() if value]):
        raise InputError(f"{clash[0]} does not go with --policy, which places at once by what it has learned; leave one of them out")


def _searched(args: argparse.Namespace, spec: Any) -> Any:
    """The placement that was asked for, by a policy or by a search."""
    from orchestration.commands.place import place, place_by_policy
    from orchestration.specs.policies import read_policy
    from orchestration.specs.secrets import resolved_uri

    if args.policy:
        store = None if args.tracking_uri is None else resolved_uri(args.tracking_uri)
        return place_by_policy(spec, read_policy(args.policy, store=store), args.seed)
    settings = dict(_setting(text) for text in args.settings)
    with _Bar(args.budget, spec.objective) as bar:
        return place(spec, args.method, settings, args.budget, args.seed, bar)


def _on_this_machine(args: argparse.Namespace) -> None:
    import json

    from envs.problem.errors import InputError
    from orchestration.commands.machine import report
    from orchestration.commands.machine.parts import Parts
    from orchestration.commands.machine.search import Settings, find
    from orchestration.commands.machine.targets import make_target
    from orchestration.commands.place import stem
    from orchestration.specs.state_files import untouched, writable_folder

    given = {"--network": args.network, "--costs": args.costs, "--objective": args.objective}
    if clash := [name for name, value in given.items() if value]:
        raise InputError(f"{clash[0]} does not go with --on, which measures times on this machine; leave one of them out")
    if args.rounds < 2 or args.corrections < 0 or args.budget < 1:
        raise InputError("--rounds must be at least 2, --corrections 0 and --budget 1")
    methods = ("heft", args.method) if args.method != "heft" else ("heft",)
    settings = Settings(
        methods, dict(_setting(text) for text in args.settings), args.budget, args.rounds, args.corrections, args.fresh, args.seed
    )
    writable_folder(args.output)
    target = make_target(args.model, args.on, args.memory, args.input_shape, args.size, args.instances)
    try:
        untouched(args.output, f"{stem(target.graph.name)}.place*.json", args.overwrite)
        with Parts() as tell:
            found = find(target, settings, tell)
        files = report.write(found, target, args.output)
        if args.json:
            print(json.dumps({**report.record(found, target), "files": [str(path) for path, _ in files]}, indent=2))
            return
        print(report.summary(found), end="")
        for path, what in files:
            print(f"{path}  {what}")
    finally:
        target.close()


def _setting(text: str) -> tuple[str, Any]:
    """``key=value`` with the value read as YAML reads it."""
    from ruamel.yaml import YAML, YAMLError

    from envs.problem.errors import InputError

    key, equals, value = text.partition("=")
    if not equals or not key:
        raise InputError(f"--set {text!r} is not KEY=VALUE; write for example --set restarts=4")
    try:
        return key, YAML(typ="safe", pure=True).load(value)
    except YAMLError:
        raise InputError(f"--set {text!r}: {value!r} is no value; put it in quotes") from None


class _Bar:
    """A progress bar on standard error, if that is a terminal."""

    def __init__(self, budget: int, objective: str) -> None:
        self.budget, self.objective = budget, objective
        self.progress: Any = None

    def __enter__(self) -> Callable[[int, float], None] | None:
        if not sys.stderr.isatty():
            return None
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (
            TextColumn("searching"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            TextColumn("best {task.fields[best]}, simulated"),
        )
        self.progress = Progress(*columns, console=Console(stderr=True), transient=True)
        self.progress.start()
        task = self.progress.add_task("", total=self.budget, best="–")

        from envs.problem.problem import shown_in

        factor, unit = shown_in("makespan" if self.objective == "own" else self.objective)

        def tell(evaluations: int, best: float) -> None:
            self.progress.update(task, completed=evaluations, best=f"{best * factor:.4g} {unit}" if best < float("inf") else "–")

        return tell

    def __exit__(self, *_: object) -> None:
        if self.progress is not None:
            self.progress.stop()
