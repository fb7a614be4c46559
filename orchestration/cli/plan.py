"""``placewright plan``: what a sweep will run, and how long that takes at the rates of earlier runs."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from orchestration.cli.run import add_home, add_stages


def add_parser(subparsers: Any) -> None:
    """Declare ``placewright plan`` and its options."""
    parser = subparsers.add_parser("plan", help="print stages, trials, evaluations and hours without running anything")
    parser.add_argument("sweep", type=Path, metavar="SWEEP.yaml", help="sweep definition")
    parser.add_argument("--rates", type=Path, metavar="RATES.json", help="seconds an evaluation; by default those of the runs in --output")
    add_home(parser)
    parser.add_argument("--save-rates", type=Path, metavar="RATES.json", help="also write the rates that were used")
    add_stages(parser)
    parser.add_argument("--format", choices=("text", "json"), default="text", help="text (default) or json")


def run(args: argparse.Namespace) -> int:
    """Print trials, evaluations and hours of a sweep that has not been started."""
    import json

    from orchestration.commands.planning.plan import make_plan, render
    from orchestration.commands.planning.rates import Rates
    from orchestration.definition.sweep import load_sweep
    from orchestration.tracking.store_checks import default_uri

    sweep = load_sweep(args.sweep, args.settings, default_uri(args.output) if (args.output / "mlflow.db").is_file() else None)
    sweep = sweep.only(args.stages) if args.stages else sweep
    rates = Rates.from_file(args.rates) if args.rates is not None else Rates.from_runs(args.output)
    plan = make_plan(sweep, rates)
    print(json.dumps(plan.to_json(), indent=1) if args.format == "json" else render(plan))
    if args.save_rates is not None:
        rates.to_file(args.save_rates)
    return 0
