"""One real measurement at a time on a machine, whatever sweep, kind or process it is for: two at once would slow each other down."""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

LOCK = Path(tempfile.gettempdir()) / "placewright-measuring.lock"


class MachineLock:
    """Held from `acquire` to `release`, or until the process ends."""

    def __init__(self, path: Path = LOCK) -> None:
        self._path = path
        self._file: int | None = None

    def acquire(self) -> None:
        """Wait until nobody else on this machine measures; at once if this lock is held already."""
        if self._file is not None:
            return
        mask = os.umask(0)  # other users measure on this machine too
        try:
            self._file = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o666)
        finally:
            os.umask(mask)
        fcntl.flock(self._file, fcntl.LOCK_EX)

    def release(self) -> None:
        """Let others measure."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """For the time of a block."""
        self.acquire()
        try:
            yield
        finally:
            self.release()
