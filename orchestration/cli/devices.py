"""``placewright devices``: what this machine offers to place models on."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any


def add_parser(subparsers: Any) -> None:
    """Declare ``placewright devices`` and its options."""
    parser = subparsers.add_parser("devices", help="list the devices of this machine that models can be placed on")
    parser.add_argument("--write", type=Path, metavar="FILE", help="also write a network file of torch's devices, with measured speeds")
    parser.add_argument("--json", action="store_true", help="print for programs")


def run(args: argparse.Namespace) -> None:
    """Find this machine's devices, write them as a network if asked, and print them."""
    import json

    from envs.hosts.discovery import discover
    from envs.problem.errors import InputError
    from orchestration.commands.machine import devices

    if args.write is not None and args.write.suffix != ".json":
        raise InputError(f"--write {str(args.write)!r} is no network file; its name must end in .json")
    found = discover()
    if args.write is not None:
        devices.write(found, args.write)
    print(json.dumps(devices.as_json(found), indent=2) if args.json else devices.table(found), end="\n" if args.json else "")
    if args.write is not None and not args.json:
        print(f"{args.write}  network of torch's devices")
