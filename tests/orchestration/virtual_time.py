"""An event loop in which waiting takes no time: when nothing is left to do, its clock jumps to what is due next. No tests belong here.

What is tested on it neither waits nor depends on how busy the machine is: whoever sleeps 10 s wakes exactly 10 s later.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class _Jumping(selectors.DefaultSelector):  # type: ignore[misc, valid-type]
    """Adds the time that it would have waited to ``now``; raises where it would have waited for ever."""

    now = 0.0

    def select(self, timeout: float | None = None) -> Any:
        self.now += max(timeout or 0.0, 0.0)
        found = super().select(0)
        if timeout is None and not found:
            raise RuntimeError("everybody waits for something that never comes")
        return found


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """Starts at 0 s."""

    def __init__(self) -> None:
        self._jumping = _Jumping()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.now


def run(work: Coroutine[Any, Any, T]) -> T:
    """`asyncio.run` on virtual time."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(work)
