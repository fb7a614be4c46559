"""Which graphs have to be captured before the trials on them can start. How a model becomes a graph is `envs.graphs.capture`'s affair."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from orchestration.specs.canonical import FrozenDict
from orchestration.specs.sources import must_be_captured
from orchestration.specs.trial import ProblemSpec, TrialTask


class Captures:
    """Graphs of models that are not on this machine's disk yet. Each is captured by one worker; the trials on it wait, and others run."""

    def __init__(self) -> None:
        self._open: dict[FrozenDict, list[TrialTask]] = {}
        """Trials that wait, by the source of the graph."""
        self._queue: deque[ProblemSpec] = deque()
        self._over: set[FrozenDict] = set()
        """Captured, or failed: then the trials say why."""

    def __bool__(self) -> bool:
        """Whether a graph is still missing."""
        return bool(self._open)

    def missing(self, problems: Iterable[ProblemSpec]) -> list[FrozenDict]:
        """Sources of the graphs that have to be captured for these problems; from now on `next` names them."""
        found = []
        for spec in problems:
            if spec.graph in self._over or not (spec.graph in self._open or must_be_captured(spec)):
                continue
            if spec.graph not in self._open:
                self._open[spec.graph] = []
                self._queue.append(spec)
            found.append(spec.graph)
        return found

    def hold(self, task: TrialTask) -> bool:
        """Whether the task has to wait; `captured` gives it back."""
        missing = self.missing(task.trial.problems)
        if missing:
            self._open[missing[0]].append(task)
        return bool(missing)

    def next(self) -> ProblemSpec | None:
        """A problem whose graph is to be captured now, once; None if there is none."""
        return self._queue.popleft() if self._queue else None

    def captured(self, spec: ProblemSpec) -> list[TrialTask]:
        """Its graph is there, or never will be: the trials that waited for it."""
        self._over.add(spec.graph)
        return self._open.pop(spec.graph, [])
