"""What every host has that measures for real: a process of its own that starts when it is needed and can be killed, and files for it.

What is measured, and how, is not known here.
"""

from __future__ import annotations

import tempfile
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from envs.hosts.child_process import ChildProcess
from envs.problem.errors import InputError
from envs.problem.measurement import BaseEvaluator

START_LIMIT = 120.0
"""Seconds for a process to start and to look at its devices."""
GRACE = 5.0
"""Seconds beyond a limit within which the process may still say by itself that something took too long."""


@dataclass
class MeasuringHost(BaseEvaluator):
    """An evaluator whose measurements run in a process of their own, which ends with `close` or with this process.

    A copy in another process (pickled, for a worker) starts a process of its own.
    """

    measures_for_real: ClassVar[bool] = True
    child: ClassVar[str]
    """The module that runs as the process."""
    environment: ClassVar[Mapping[str, str]] = {}
    """Variables that are set for it."""
    _process: ChildProcess | None = field(default=None, init=False, repr=False, compare=False)
    _prepared: list[str] = field(default_factory=list, init=False, repr=False, compare=False)
    """Content hashes of what the process has made ready to be measured, the latest last."""
    _folder: tempfile.TemporaryDirectory[str] | None = field(default=None, init=False, repr=False, compare=False)
    _written: dict[str, Any] = field(default_factory=dict, init=False, repr=False, compare=False)
    """What lies in the folder: by its key, where, and whatever else is known of it."""

    @abstractmethod
    def _opening(self) -> tuple[Any, ...]:
        """What the process is told when it starts."""

    @property
    def deterministic(self) -> bool:
        """Never: the times are real."""
        return False

    def _started(self) -> ChildProcess:
        """The process, started if need be.

        Raises:
            InputError: if the machine does not offer what it is to measure on.
            Fault: if it does not start.
        """
        if self._process is None or not self._process.alive:
            self._process, self._prepared = ChildProcess(self.child, self.environment), []
            try:
                self._process.ask(START_LIMIT, "open", *self._opening())
            except InputError:
                self.close()
                raise
        return self._process

    def _scratch(self) -> Path:
        """A folder for files of the process; it goes with `close`."""
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="placewright-")
        return Path(self._folder.name)

    def close(self) -> None:
        """End the measuring process; the next measurement starts another."""
        self._end()
        if self._folder is not None:
            self._folder.cleanup()
            self._folder, self._written = None, {}

    def _end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process, self._prepared = None, []

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_process": None, "_prepared": [], "_folder": None, "_written": {}}
