"""The clock of a trial: it stands still while this process compiles or loads machine code, which is paid once a process and is no work of a
method's. What is timed belongs to `orchestration.trials.run_trial`."""

from __future__ import annotations

import time

from numba.core import event


class _Compiling(event.Listener):
    """Seconds for which numba's compiler was at work, loading from its cache included."""

    def __init__(self) -> None:
        self.depth, self.began, self.seconds = 0, 0.0, 0.0

    def on_start(self, event: object) -> None:
        """Of an outermost call."""
        if self.depth == 0:
            self.began = time.perf_counter()
        self.depth += 1

    def on_end(self, event: object) -> None:
        """Of an outermost call."""
        self.depth = max(0, self.depth - 1)
        if self.depth == 0:
            self.seconds += time.perf_counter() - self.began


_COMPILING = _Compiling()
event.register("numba:compiler_lock", _COMPILING)


def working_seconds() -> float:
    """Seconds since some moment, less those spent on compiling."""
    return time.perf_counter() - _COMPILING.seconds
