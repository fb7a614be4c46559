"""What a trial prints, logs and warns of, kept for the case that it fails. The trial itself does not notice."""

from __future__ import annotations

import contextlib
import logging
import sys
from collections import deque
from collections.abc import Iterator
from typing import Any, TextIO, cast

MOST = 64 * 1024
"""Characters kept, the last ones."""


class Captured:
    """The end of a text that is written piece by piece."""

    def __init__(self) -> None:
        self._pieces: deque[str] = deque()
        self._length = 0

    def write(self, text: str) -> None:
        """Add to the end; the beginning goes once there is more than `MOST`."""
        self._pieces.append(text[-MOST:])
        self._length += len(self._pieces[-1])
        while self._length - len(self._pieces[0]) >= MOST:
            self._length -= len(self._pieces.popleft())

    @property
    def text(self) -> str:
        """At most `MOST` characters."""
        return "".join(self._pieces)[-MOST:]


class _Tee:
    """A stream that also keeps what is written to it."""

    def __init__(self, stream: TextIO, captured: Captured) -> None:
        self._stream, self._captured = stream, captured

    def write(self, text: str) -> int:
        self._captured.write(text)
        return self._stream.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextlib.contextmanager
def capturing() -> Iterator[Captured]:
    """Keep what this process prints and logs while the block runs. Warnings are printed, so they are kept as well."""
    captured = Captured()
    handler = logging.StreamHandler(captured)  # type: ignore[type-var]
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    root = logging.getLogger()
    if root.handlers:  # else Python prints warnings and errors to stderr by itself, and adding a handler would stop it
        root.addHandler(handler)
    try:
        # Who keeps such a stream for longer than the block still writes to the stream behind it.
        stdout, stderr = (cast(TextIO, _Tee(stream, captured)) for stream in (sys.stdout, sys.stderr))
        with contextlib.redirect_stdout(stdout), contextlib.redirect_stderr(stderr):
            yield captured
    finally:
        root.removeHandler(handler)
