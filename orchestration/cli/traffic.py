"""``placewright traffic``: record a new trace of connected vehicles for the sensor-fusion study."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any


def add_parser(subparsers: Any) -> None:
    """Declare ``placewright traffic`` and its options."""
    parser = subparsers.add_parser("traffic", help="record a trace of connected vehicles by SUMO (needs the extra 'traffic')")
    parser.add_argument("output", type=Path, metavar="FILE.npz", help="where to keep it; name it in a sweep by fusion: {trace: FILE.npz}")
    parser.add_argument("--vehicles", type=int, default=3980, help="vehicles in all (3980)")
    parser.add_argument("--seconds", type=int, default=3600, help="how long (3600)")
    parser.add_argument("--share", type=float, default=0.1, help="share of connected vehicles (0.1)")
    parser.add_argument("--seed", type=int, default=0, help="seed of streets, trips and driving (0)")


def run(args: argparse.Namespace) -> None:
    """Record it and say what it holds."""
    from envs.graphs.traffic import record

    trace = record(args.output, args.vehicles, args.seconds, args.share, args.seed)
    times, cars = len(set(trace.time.tolist())), len(set(trace.vehicle.tolist()))
    print(f"{args.output}: {len(trace.time)} positions of {cars} connected vehicles in {times} snapshots")
