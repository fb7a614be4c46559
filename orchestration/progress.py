"""How a sweep gets on, in the terminal. What runs does not belong here."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from types import TracebackType

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

PLAIN_SECONDS = 10.0
"""A line this often where the output is no terminal."""
SHOWN_PROBLEMS = 12


class Display:
    """Trials done, running and failed, the best so far of each problem, and the time left."""

    def __init__(self, total: int, skipped: int, console: Console | None = None) -> None:
        self.console = console or Console(file=sys.stderr)
        self.total, self.skipped = total, skipped
        self.done = self.failed = self.running = self.evaluations = 0
        self.note = ""
        self.best: dict[str, tuple[float, str, str]] = {}
        self._begin = self._printed = time.monotonic()
        self._live = Live(get_renderable=self._render, console=self.console, refresh_per_second=4, transient=True)

    def __enter__(self) -> Display:
        self._begin = self._printed = time.monotonic()
        if self.console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self.console.is_terminal:
            self._live.stop()
        self.console.print(self.line(), highlight=False, markup=False, soft_wrap=True)

    def ended(self, label: str, best: tuple[tuple[str, str, float], ...], evaluations: int, failed: bool) -> None:
        """One more trial ended."""
        self.done += not failed
        self.failed += failed
        self.evaluations += evaluations
        for problem, objective, value in best:
            if problem not in self.best or value < self.best[problem][0]:
                self.best[problem] = (value, objective, label)

    def tick(self, running: int) -> None:
        """Called often by the driver."""
        self.running = running
        if not self.console.is_terminal and time.monotonic() - self._printed >= PLAIN_SECONDS:
            self._printed = time.monotonic()
            self.console.print(self.line(), highlight=False, markup=False, soft_wrap=True)

    def say(self, sentence: str) -> None:
        """Print a line that stays."""
        self.console.print(sentence, highlight=False, markup=False, soft_wrap=True)

    def left(self) -> float | None:
        """Seconds left at the speed so far; None before the first trial ended."""
        ended = self.done + self.failed
        if not ended:
            return None
        return (time.monotonic() - self._begin) / ended * max(0, self.total - self.skipped - ended)

    def line(self) -> str:
        """Everything in one line."""
        parts = [f"{self.skipped + self.done + self.failed}/{self.total} trials"]
        if self.skipped:
            parts.append(f"{self.skipped} done before")
        parts += [f"{self.running} running", f"{self.failed} failed", f"{self.evaluations:,} evaluations"]
        if len(self.best) == 1:
            ((problem, (value, objective, label)),) = self.best.items()
            parts.append(f"best {show(value, objective)} on {problem} by {label}")
        left, spent = self.left(), time.monotonic() - self._begin
        parts.append(f"{clock(spent)} spent" + (f", {clock(left)} left" if left else ""))
        return ", ".join(parts) + (f" ({self.note})" if self.note else "")

    def _render(self) -> RenderableType:
        bar = ProgressBar(total=max(1, self.total), completed=self.skipped + self.done + self.failed, width=40)
        table = Table.grid(padding=(0, 2))
        for problem, (value, objective, label) in list(self.best.items())[-SHOWN_PROBLEMS:]:
            table.add_row(Text("best", style="dim"), Text(problem), Text(show(value, objective), style="bold"), Text(label, style="cyan"))
        return Group(Text(self.line()), bar, table)


def show(value: float, objective: str) -> str:
    """A makespan in ms, an energy in joules."""
    return f"{value * 1e3:.4g} ms" if objective == "makespan" else f"{value:.4g} J"


def clock(seconds: float | None) -> str:
    """``1:02:03`` or ``2:03``."""
    total = int(seconds or 0)
    hours, minutes = divmod(total // 60, 60)
    return f"{hours}:{minutes:02d}:{total % 60:02d}" if hours else f"{minutes}:{total % 60:02d}"


def counts(labels: Mapping[str, int]) -> str:
    """``3 finished, 1 failed``."""
    return ", ".join(f"{n} {label}" for label, n in labels.items() if n)
