"""``placewright inspect``: what a file holds, before anything is done with it."""

from __future__ import annotations

import argparse
from typing import Any


def add_parser(subparsers: Any) -> None:
    """Declare ``placewright inspect`` and its options."""
    parser = subparsers.add_parser("inspect", help="tell what a graph's file or a known model holds")
    parser.add_argument("file", metavar="FILE", help="placewright, WfFormat or dnn-partitioning .json, .stg, .onnx, .xml, or a known model")
    parser.add_argument("--json", action="store_true", help="print it for programs")


def run(args: argparse.Namespace) -> None:
    """Print what the file holds."""
    import json

    from orchestration.commands.inspect import inspect, text, to_json

    found = inspect(args.file)
    print(json.dumps(to_json(found), indent=1, allow_nan=False) + "\n" if args.json else text(found), end="")
