"""The lock of a sweep's folder: one driver at a time may write there. What it writes does not belong here."""

from __future__ import annotations

import json
import os
import socket
import time
import uuid
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from envs.problem.errors import InputError
from orchestration.specs.files import read_object
from orchestration.specs.layout import DRIVER, LOCK

SILENT_SECONDS = 60.0
"""A driver elsewhere that has not written its beat to the URL for so long does not run."""


class FolderLock:
    """Held from its making to `release`, or until the process ends; the file names the process that holds it.

    Raises:
        InputError: if another driver holds it.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._lock = FileLock(folder / LOCK, blocking=False)
        try:
            self._lock.acquire()
        except Timeout:
            raise InputError(f"another run is writing to {folder}; wait for it, stop it, or give another --output") from None
        about = {"pid": os.getpid(), "host": socket.gethostname(), "run": uuid.uuid4().hex}
        (folder / LOCK).write_text(json.dumps(about), encoding="utf-8")

    def release(self) -> None:
        """Let another driver write."""
        self._lock.release()


def holder(folder: Path) -> dict[str, Any]:
    """``pid`` and ``host`` of the driver that last held the folder's lock, and ``run``, a name of that holding; empty if not known."""
    found = read_object(folder / LOCK)
    return (read_object(folder / DRIVER) or {}) if found is None else found


def is_active(folder: Path) -> bool:
    """Whether a driver holds the folder's lock."""
    if not (folder / LOCK).exists():  # nor is it there in what was fetched from a URL
        about = holder(folder)
        return not about.get("ended", True) and time.time() - about.get("beat", 0.0) < SILENT_SECONDS
    lock = FileLock(folder / LOCK, blocking=False)
    try:
        lock.acquire()
    except Timeout:
        return True
    except PermissionError:  # somebody else's folder, which may be read only
        return runs_here(holder(folder))
    lock.release()
    return False


def runs_here(process: dict[str, Any]) -> bool:
    """Whether a process that `holder` told of lives on this machine."""
    if process.get("host") != socket.gethostname() or not isinstance(process.get("pid"), int):
        return False
    try:
        os.kill(process["pid"], 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
