"""Which file a host's entry for a graph's model names, wherever that lies on this machine."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from envs.graphs.store import file_hash
from envs.problem.errors import InputError

PLACES = ("file", "root", "sha256")
"""Keys of an entry that say where its file lies and what is in it."""


def model_file(spec: Mapping[str, Any]) -> str:
    """The path of ``{file: PATH}``, which may be below a ``root``, and have a ``sha256``.

    Raises:
        InputError: if the file has another content than that, or is gone.
    """
    given = Path(str(spec["file"]))
    if "sha256" not in spec:
        return str(given)
    path = next((p for p in (Path(spec.get("root", "")) / given, given) if p.is_file()), None)
    if path is None:
        raise InputError(f"model file {str(given)!r} is gone; bring it back, or measure where it is")
    if file_hash(path) != spec["sha256"]:
        raise InputError(f"model file {str(path)!r} has changed since the graph was made from it; calibrate or capture it again")
    return str(path)
