"""How a sweep gets on, in the terminal. What runs does not belong here."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import TracebackType

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from envs.problem.problem import shown_in
from orchestration.analysis.table import plural
from orchestration.folder.ledger import TrialEnd
from orchestration.specs.canonical import FrozenDict
from orchestration.specs.trial import ProblemSpec, Trial

PLAIN_SECONDS = 10.0
"""A line this often where the output is no terminal."""
SHOWN_PROBLEMS = 12


@dataclass
class Rate:
    """What the trials of one method in one stage have taken and have left; in units of `weight`."""

    measures: bool
    """Whether they evaluate placements; training that needs none says nothing about the pace of what does."""
    left: float = 0.0
    work: float = 0.0
    spent: float = 0.0
    """Seconds for ``work``."""

    def ended(self, trial: Trial, status: str, evaluations: int, seconds: float) -> None:
        """A trial is over: finished, pruned or failed early."""
        self.left -= weight(trial)
        if status != "failed":
            self.work += weight(trial) if status == "finished" else evaluations
            self.spent += seconds


def weight(trial: Trial) -> float:
    """How much work a trial is, relative to others of its method: evaluations, or seconds where only those are bounded."""
    return float(trial.budget.evaluations or 0) + 1.0 if trial.budget.evaluations is not None else float(trial.budget.seconds or 1.0)


class Display:
    """Trials done, running and failed, the best so far of each problem, and the time left."""

    def __init__(self, total: int, skipped: int, expected: Iterable[Trial] = (), console: Console | None = None) -> None:
        self.console = console or Console(file=sys.stderr)
        self.total, self.skipped = total, skipped
        self.done = self.failed = self.pruned = self.running = self.evaluations = 0
        self.shown, self.ticked = False, 0.0
        """Whether trials are being handed out, and when the driver last looked at them (`time.monotonic`)."""
        self.pause: float | None = None
        """Seconds until a trial is tried again, if nothing else goes on."""
        self._rates: dict[tuple[str, str], Rate] = {}
        for trial in expected:
            self._rate(trial).left += weight(trial)
        self.waiting = ""
        """How many trials wait for machines that are not there."""
        self.note = ""
        self._capturing: list[FrozenDict] = []
        self.best: dict[str, tuple[float, str, str]] = {}
        self._begin = self._printed = time.monotonic()
        self._live = Live(get_renderable=self._render, console=self.console, refresh_per_second=4, transient=True)

    def __enter__(self) -> Display:
        self._begin = self._printed = self.ticked = time.monotonic()
        self.shown = True
        if self.console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.shown = False
        if self.console.is_terminal:
            self._live.stop()
        self.console.print(self.line(), highlight=False, markup=False, soft_wrap=True)

    def ended(self, trial: Trial, end: TrialEnd) -> None:
        """One more trial ended."""
        self.done += end.status != "failed"
        self.failed += end.status == "failed"
        self.pruned += end.status == "pruned"
        self.evaluations += end.evaluations
        self._rate(trial).ended(trial, end.status, end.evaluations, end.seconds)
        for problem, objective, value in end.best:
            if problem not in self.best or value < self.best[problem][0]:
                self.best[problem] = (value, objective, trial.label)

    def _rate(self, trial: Trial) -> Rate:
        return self._rates.setdefault((trial.label, trial.stage), Rate(trial.budget.evaluations != 0))

    def capturing(self, spec: ProblemSpec) -> str:
        """A graph is being captured; its name, for people."""
        self._capturing.append(spec.graph)
        return str(spec.graph.get("model") or spec.graph_label)

    def captured(self, spec: ProblemSpec) -> str:
        """It no longer is; its name."""
        self._capturing.remove(spec.graph)
        return str(spec.graph.get("model") or spec.graph_label)

    def tick(self, running: int, pause: float | None = None, waiting: str = "") -> None:
        """Called often by the driver."""
        self.running, self.pause, self.waiting, self.ticked = running, pause, waiting, time.monotonic()
        if not self.console.is_terminal and time.monotonic() - self._printed >= PLAIN_SECONDS:
            self._printed = time.monotonic()
            self.console.print(self.line(), highlight=False, markup=False, soft_wrap=True)

    def say(self, sentence: str) -> None:
        """Print a line that stays."""
        self.console.print(sentence, highlight=False, markup=False, soft_wrap=True)

    def left(self) -> float | None:
        """Seconds left: what every method still has to do at the pace it has shown, as many trials at a time as there were so far.

        A method that has shown none counts at the pace of the others. None before that is known, and at the end.
        """
        rates = self._rates.values()
        spent = sum(r.spent for r in rates)
        if not spent or self.skipped + self.done + self.failed >= self.total:
            return None
        left = 0.0
        for rate in rates:
            alike = [rate] if rate.work else [r for r in rates if r.measures == rate.measures and r.work]
            if rate.left > 0 and not alike:
                return None
            left += max(0.0, rate.left) * sum(r.spent for r in alike) / max(sum(r.work for r in alike), 1e-9)
        elapsed = max(time.monotonic() - self._begin, 1e-9)
        return left * elapsed / spent

    def line(self) -> str:
        """Everything in one line."""
        parts = [f"{self.skipped + self.done + self.failed}/{self.total} trials"]
        if self.skipped:
            parts.append(f"{self.skipped} done before")
        if self.pruned:
            parts.append(f"{self.pruned} pruned")
        captures = f"capturing {plural(len(self._capturing), 'graph')}" if self._capturing else ""
        parts += [
            f"{self.running} running",
            *filter(None, [captures, self.waiting]),
            f"{self.failed} failed",
            f"{self.evaluations:,} evaluations",
        ]
        if len(self.best) == 1:
            ((problem, (value, objective, label)),) = self.best.items()
            parts.append(f"best {show(value, objective)} on {problem} by {label}")
        left, spent = self.left(), time.monotonic() - self._begin
        parts.append(f"{clock(spent)} spent" + (f", {clock(left)} left" if left else ""))
        if self.pause and not self.running:
            parts.append(f"next attempt in {self.pause:.0f} s")
        return ", ".join(parts) + (f" ({self.note})" if self.note else "")

    def _render(self) -> RenderableType:
        bar = ProgressBar(total=max(1, self.total), completed=self.skipped + self.done + self.failed, width=40)
        table = Table.grid(padding=(0, 2))
        for problem, (value, objective, label) in list(self.best.items())[-SHOWN_PROBLEMS:]:
            table.add_row(Text("best", style="dim"), Text(problem), Text(show(value, objective), style="bold"), Text(label, style="cyan"))
        return Group(Text(self.line()), bar, table)


def show(value: float, objective: str) -> str:
    """An objective in the unit that people are shown."""
    factor, unit = shown_in(objective)
    return f"{value * factor:.4g} {unit}"


def clock(seconds: float | None) -> str:
    """Seconds as a clock shows them: ``1:02:03`` or ``2:03``."""
    total = int(seconds or 0)
    hours, minutes = divmod(total // 60, 60)
    return f"{hours}:{minutes:02d}:{total % 60:02d}" if hours else f"{minutes}:{total % 60:02d}"


def counts(labels: Mapping[str, int]) -> str:
    """``3 finished, 1 failed``."""
    return ", ".join(f"{n} {label}" for label, n in labels.items() if n)
