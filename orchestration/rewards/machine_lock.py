"""One real measurement at a time on a machine, whatever sweep, kind or process it is for: two at once would slow each other down.

The lock is a file in a folder of the user's own in the machine's temporary folder, which nobody else may enter. A file that all users
share would keep apart what several users measure, but any of them could hold it for ever, or put a link there beforehand that has
us open a file of ours; who shares a machine with other users who measure lets a scheduler keep them apart. The home folder would not do:
several machines may share it, and each has a lock of its own.
"""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

from filelock import FileLock

from envs.problem.errors import InputError


def own_folder(parent: Path) -> Path:
    """The user's own folder in ``parent``, made if it is not there.

    Raises:
        InputError: if what has its name is a link or no folder, somebody else's, or open to others.
    """
    user = os.getuid() if hasattr(os, "getuid") else 0
    path = parent / f"placewright-{user}"
    with contextlib.suppress(FileExistsError):
        path.mkdir(mode=0o700)
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode):
        wrong = "is a link" if stat.S_ISLNK(found.st_mode) else "is no folder"
    elif hasattr(os, "getuid") and found.st_uid != user:
        wrong = f"belongs to user {found.st_uid}"
    elif hasattr(os, "getuid") and stat.S_IMODE(found.st_mode) & 0o077:
        wrong = f"is open to others (mode {stat.S_IMODE(found.st_mode):o})"
    else:
        return path
    raise InputError(f"{str(path)!r}, where the lock for measuring lies, {wrong}; have it removed, or set TMPDIR to a folder of your own")


class MachineLock:
    """Held from `acquire` to `release`, or until the process or this object ends; which of its threads asks makes no difference.

    Args:
        path: the file; by default ``measuring.lock`` in the user's `own_folder`, looked at when the lock is first acquired.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._lock: FileLock | None = None

    def acquire(self) -> None:
        """Wait until nobody else measures; at once if this lock is held already.

        Raises:
            InputError: if the folder of the lock is not the user's own.
        """
        if self._lock is None:
            path = self._path or own_folder(Path(tempfile.gettempdir())) / "measuring.lock"
            self._lock = FileLock(path, thread_local=False, poll_interval=0.01)
        if not self._lock.is_locked:
            self._lock.acquire()

    def release(self) -> None:
        """Let other processes of this machine measure, however often it was acquired here."""
        if self._lock is not None:
            self._lock.release(force=True)

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """For the time of a block."""
        self.acquire()
        try:
            yield
        finally:
            self.release()
