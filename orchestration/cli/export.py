"""``placewright export``: a placement in the form that its runtime takes."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any


def add_parser(subparsers: Any) -> None:
    """Declare ``placewright export`` and its options."""
    parser = subparsers.add_parser("export", help="write a placement as something that runs: a torch callable, an OpenVINO model")
    parser.add_argument("placement", type=Path, metavar="PLACEMENT", help="a .placed.json file that placewright place --on wrote")
    parser.add_argument("--to", type=Path, required=True, metavar="FOLDER", help="the folder to write")
    parser.add_argument(
        "--runtime",
        choices=("torch", "openvino", "accelerate"),
        help="what it has to run on, an error if that cannot express the placement; accelerate writes a device_map",
    )
    parser.add_argument("--json", action="store_true", help="print for programs")


def run(args: argparse.Namespace) -> None:
    """Write the folder that runs the placement, and print what it holds."""
    import json

    from orchestration.commands.machine.export import export

    files = export(args.placement, args.to, args.runtime)
    if args.json:
        print(json.dumps({str(path): what for path, what in files}, indent=2))
        return
    for path, what in files:
        print(f"{path}  {what}")
