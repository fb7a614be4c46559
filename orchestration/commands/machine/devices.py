"""What ``placewright devices`` shows and writes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from envs.hosts.discovery import Offered, network
from envs.sources.files import dump_network, save
from orchestration.analysis.table import Table, terminal


def table(found: Sequence[Offered]) -> str:
    """The devices that this machine offers, as a table for a terminal."""
    rows = tuple((d.name, d.text, _size(d.memory)) for d in found)
    note = "use them with: placewright place MODEL --on NAME,NAME (torch) or --on openvino"
    return terminal([Table("devices of this machine", ("name", "what it is", "memory"), rows, (note,), left=2)])


def as_json(found: Sequence[Offered]) -> list[dict[str, Any]]:
    """The same for programs; memory in bytes, None where it is unknown."""
    return [
        {
            "name": d.name, "runtime": d.runtime, "kind": d.kind, "text": d.text,
            "memory": d.memory if math.isfinite(d.memory) else None, "properties": dict(d.properties),
        }
        for d in found
    ]  # fmt: skip


def write(found: Sequence[Offered], path: Path) -> None:
    """A network file (docs/format.md) of torch's devices, with measured speeds and bandwidths."""
    save(dump_network(network(found, path.stem)), path)


def _size(memory: float) -> str:
    return f"{memory / 2**30:.1f} GiB" if math.isfinite(memory) else "–"
