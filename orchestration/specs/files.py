"""Names, writing and reading of files: what everybody who leaves a file uses. What is written belongs to those who write it."""

from __future__ import annotations

import contextlib
import json
import os
import re
from pathlib import Path
from typing import Any

from envs.problem.errors import InputError

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


def safe_name(name: str) -> str:
    """``name`` if it can be a file name anywhere and stays in its folder; InputError otherwise."""
    if not isinstance(name, str) or not _NAME.fullmatch(name) or ".." in name:
        raise InputError(f"{name!r} cannot be a file name; use letters, digits, '.', '_' and '-', starting with a letter or digit")
    return name


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def write_atomic(path: Path, data: bytes, keep: Path | None = None, *, private: bool = False) -> None:
    """Write ``data`` so that ``path`` always holds either the old or the new content, also after a power cut.

    With ``keep``, a path in the same folder, the old content moves there; a power cut may then leave it there alone. A ``private``
    file can be read by its owner alone.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    with open(part, "wb", opener=_private if private else None) as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    if keep is not None and path.exists():
        path.replace(keep)
    part.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def read_object(path: Path) -> dict[str, Any] | None:
    """The JSON object in a file that others may replace meanwhile, empty if it holds something else; None if it cannot be read."""
    with contextlib.suppress(OSError, ValueError):
        found = json.loads(path.read_text(encoding="utf-8"))
        return found if isinstance(found, dict) else {}
    return None
