"""Progress of commands that have several parts, on standard error."""

from __future__ import annotations

import sys
from typing import Any

from rich.console import Console
from rich.progress import Progress

from orchestration.commands.machine.target import Tell


class Parts:
    """A line for each part: a bar on a terminal, otherwise its name once."""

    def __init__(self) -> None:
        self.progress: Any = None
        self.tasks: dict[str, Any] = {}

    def __enter__(self) -> Tell:
        if sys.stderr.isatty():
            self.progress = Progress(console=Console(stderr=True), transient=True)
            self.progress.start()
        return self._tell

    def _tell(self, part: str, done: int, total: int) -> None:
        if part not in self.tasks:
            self.tasks[part] = self.progress.add_task(part, total=total) if self.progress else None
            if not self.progress:
                print(f"{part} …", file=sys.stderr, flush=True)
        if self.progress:
            self.progress.update(self.tasks[part], completed=done, total=total)

    def __exit__(self, *_: object) -> None:
        if self.progress:
            self.progress.stop()
