"""``placewright schema``: the JSON Schema of a sweep, with which editors complete and check sweeps."""

from __future__ import annotations

import argparse
from typing import Any


def add_parser(subparsers: Any) -> None:
    """Declare ``placewright schema`` and its options."""
    subparsers.add_parser("schema", help="print the JSON Schema of a sweep, for editors")


def run(_args: argparse.Namespace) -> None:
    """Print the JSON Schema of a sweep."""
    import json

    from orchestration.definition.schema import sweep_schema

    print(json.dumps(sweep_schema(), indent=1, ensure_ascii=False))
