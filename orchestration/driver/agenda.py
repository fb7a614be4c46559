"""What of a sweep still has to run, in an order that respects its DAG: plain trials, searches, and what waits for either.
Where it runs does not belong here."""

from __future__ import annotations

import heapq
import itertools
import math
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from envs.problem.errors import InputError
from envs.simulators.bounds import lower_bound
from orchestration.driver.captures import Captures
from orchestration.folder.ledger import Ledger, TrialEnd, parse
from orchestration.specs.canonical import FrozenDict
from orchestration.specs.layout import CHECKPOINT, POLICY, trial_folder
from orchestration.specs.results import TrialResult
from orchestration.specs.sources import build_problem
from orchestration.specs.state_files import damaged
from orchestration.specs.trial import ProblemSpec, Trial, TrialTask

if TYPE_CHECKING:
    from orchestration.definition.expansion import Expansion
    from orchestration.definition.searches import SearchSpec
    from orchestration.search.search import Search

RETRIES = 5
"""How often a trial is tried again after a failure of infrastructure."""
FIRST_RETRY_SECONDS = 1.0
"""Pause before the first of these; doubled each time."""


class Expandable(Protocol):
    """A sweep, as far as its work is concerned."""

    def expansion(self, winners: dict[str, Any] | None = None) -> Expansion:
        """See `orchestration.definition.sweep.Sweep.expansion`."""
        ...


def _saved_at(path: Path) -> int | None:
    """When a checkpoint was written; None if there is none."""
    try:
        return path.stat().st_mtime_ns
    except FileNotFoundError:
        return None


class ReadyQueue:
    """Jobs that can start, those of highest priority first, in a queue of their own for every choice of resources: what waits for
    scarce ones holds up no others."""

    def __init__(self) -> None:
        self._queues: dict[FrozenDict, list[tuple[int, int, TrialTask]]] = {}
        self._numbers, self._fronts = itertools.count(), itertools.count(-1, -1)

    def __bool__(self) -> bool:
        return bool(self._queues)

    def push(self, task: TrialTask, *, front: bool = False) -> None:
        """Queue a task behind, or before, all others of its priority."""
        entry = (-task.trial.priority, next(self._fronts if front else self._numbers), task)
        heapq.heappush(self._queues.setdefault(task.trial.resources, []), entry)

    def pop(self, room: Callable[[FrozenDict], int]) -> TrialTask | None:
        """The first task whose resources ``room`` has some of left; None if there is none."""
        open_ = [resources for resources in self._queues if room(resources) > 0]
        if not open_:
            return None
        first = min(open_, key=lambda resources: self._queues[resources][0][:2])
        task = heapq.heappop(self._queues[first])[2]
        if not self._queues[first]:
            del self._queues[first]
        return task


class Agenda:
    """The state of a sweep's run. Everything it decides follows from the sweep and the ledger.

    Args:
        open_study: gives the kept study of a search; asked only if there is one. With a number it begins anew, with so many trials.
        retry_failed: run trials that failed for their own reasons again too, and begin searches that they were part of anew.
    """

    def __init__(
        self,
        sweep: Expandable,
        ledger: Ledger,
        open_study: Callable[[SearchSpec, int | None], Any] | None = None,
        *,
        retry_failed: bool = False,
    ) -> None:
        self._sweep, self._ledger, self._open_study = sweep, ledger, open_study
        self._retry = {key for key, e in ledger.entries.items() if e.status == "failed" and not e.infrastructure} if retry_failed else set()
        self.trials: dict[str, Trial] = {}
        """Plain trials known so far, by content hash."""
        self.searches: dict[str, Search] = {}
        self.winners: dict[str, dict[str, Any]] = {}
        self.skipped = self.failed = self.blocked = 0
        self.ended: list[tuple[Trial, TrialEnd]] = []
        """Trials that ended since this was last emptied, for whoever watches."""
        self.notes: list[str] = []
        """What was found wrong since this was last emptied."""
        self._ready = ReadyQueue()
        self._captures = Captures()
        self._later: list[tuple[float, TrialTask]] = []
        self._attempts: dict[str, tuple[int, int | None]] = {}
        """How often a trial was tried from the same checkpoint, and when that was saved."""
        self._behind: dict[str, list[Trial]] = {}
        self._state: dict[str, str] = {}
        """``done``, ``failed`` or ``open`` of every plain trial."""
        self._wanted: dict[str, list[str]] = {}
        """Searches that wait for a trial, by its content hash."""
        self._paused: dict[str, TrialResult] = {}
        self._read: dict[str, TrialResult] = {}
        self._waiting_specs: list[SearchSpec] = []
        self._stand_ins = 0
        self._stand_in_trials: list[Trial] = []
        """What a search's winner will configure, as far as that is known."""
        self._remade: set[str] = set()
        """Trials that are recorded but run again, because what they learned is lost."""
        self._seen: set[str] = set()
        """Trials of searches that were counted."""
        self._bounds: dict[str, float] = {}
        self._expand()

    # --- what there is

    @property
    def total(self) -> int:
        """Trials of the sweep; an upper bound while searches go on."""
        return len(self.trials) + self._stand_ins + sum(s.most_trials for s in self.searches.values())

    @property
    def complete(self) -> bool:
        """Whether nothing is left to hand out or wait for, except what is with the workers."""
        return not (self._ready or self._later or self._behind or self._wanted or self._captures)

    @property
    def open_trials(self) -> list[Trial]:
        """Trials that are not over, with one configuration of every search for the rest of it."""
        plain = [t for key, t in self.trials.items() if self._state[key] == "open"]
        open_searches = [s.spec for s in self.searches.values() if not s.over] + self._waiting_specs
        return plain + [t for spec in open_searches for t in spec.templates] + self._stand_in_trials

    @property
    def counted(self) -> list[str]:
        """Content hashes of the trials that a report compares: plain ones, and of each search those of its winner."""
        winning = [t.content_hash for s in self.searches.values() for t in s.winning]
        return list(dict.fromkeys([*self.trials, *winning]))

    def next(self, room: Callable[[FrozenDict], int] = lambda _resources: 1) -> TrialTask | None:
        """Something to run now, of those whose resources ``room`` has some of left."""
        now = time.monotonic()
        due = [task for when, task in self._later if when <= now]
        if due:
            self._later = [(when, task) for when, task in self._later if when > now]
        for task in reversed(due):
            self._ready.push(task, front=True)
        return self._ready.pop(room)

    def next_capture(self) -> ProblemSpec | None:
        """A problem whose graph a worker should capture now, since trials wait for it."""
        return self._captures.next()

    def captured(self, spec: ProblemSpec) -> None:
        """The graph of a problem was captured, or could not be: what waited for it goes on, and fails by itself if need be."""
        for task in self._captures.captured(spec):
            self._queue(task)
        self._open_searches()

    @property
    def ready(self) -> bool:
        """Whether a trial could start now."""
        return bool(self._ready)

    def _queue(self, task: TrialTask) -> None:
        """The task starts as soon as there is room, and its graphs are there."""
        if not self._captures.hold(task):
            self._ready.push(task)

    def next_pause(self) -> float | None:
        """Seconds until the next attempt of a trial that failed for reasons of infrastructure; None if there is none."""
        return max(0.0, min(when for when, _ in self._later) - time.monotonic()) if self._later else None

    # --- what came back

    def returned(self, back: Iterable[tuple[TrialTask, TrialEnd]]) -> None:
        """Take in what came back: record what ended, try again what was no fault of its own, let follow what can follow."""
        ended = [(task, e) for task, e in back if not (e.infrastructure and self._again(task))]
        # What was run again for its policy alone has its record, and was counted, unless it ended in another way now.
        known = {e.trial for _, e in ended if e.trial in self._remade and e.status == "finished"}
        if final := [e for _, e in ended if e.status != "paused" and e.trial not in known]:
            self._ledger.append(final)
        for task, e in ended:
            key = task.trial.content_hash
            self._attempts.pop(key, None)
            self._retry.discard(key)
            self._remade.discard(key)
            self._read.pop(key, None)
            if e.status == "paused":
                self._paused[key] = parse(e.line)[1]
            else:
                self._paused.pop(key, None)
                self._seen.add(key)
                if key not in known:
                    self.ended.append((task.trial, e))
            if key in self._state:
                self._ended(task.trial, e.status == "failed")
            wanted = self._wanted.pop(key, [])
            self.failed += bool(wanted) and e.status == "failed"
            for name in wanted:
                if e.infrastructure:
                    self.searches[name].give_up()
                self.searches[name].came_back(key)
                self._pull(self.searches[name])
        if any(s.over and s.spec.content_hash not in self.winners and s.winner is not None for s in self.searches.values()):
            self._expand()

    def _again(self, task: TrialTask) -> bool:
        """Try it again later, unless it was tried often enough without getting on."""
        key = task.trial.content_hash
        count, saved = self._attempts.get(key, (0, None))
        now = _saved_at(trial_folder(self._ledger.folder, key) / CHECKPOINT)
        count = 1 if now != saved else count + 1
        if count > RETRIES:
            return False
        self._attempts[key] = count, now
        if not self._remake(task):
            self._later.append((time.monotonic() + FIRST_RETRY_SECONDS * 2 ** (count - 1), task))
        return True

    def _remake(self, task: TrialTask) -> bool:
        """Whether the trial now waits for its parent, which runs again because what it learned was found damaged."""
        parent = task.trial.parent
        if parent not in self.trials or task.trial.content_hash not in self._state or not self._policy_lost(parent):
            return False
        self._behind.setdefault(parent, []).append(task.trial)
        if self._state[parent] == "done":
            self._state[parent] = "open"
            self._remade.add(parent)
            self._queue(TrialTask(self.trials[parent]))
        return True

    def end(self) -> None:
        """Count what could never start."""
        lost = self._stand_ins + sum(len(s.templates) for s in self._waiting_specs)
        self.failed += lost
        self.blocked += lost

    # --- plain trials

    def _expand(self) -> None:
        """Add what is known by now, until no search ends at once."""
        while True:
            self.winners.update({k: s.winner for k, s in self.searches.items() if s.winner is not None})
            expansion = self._sweep.expansion(self.winners)
            for trial in expansion.trials:
                self._add(trial)
            known = {s.content_hash for s in self._waiting_specs}
            self._waiting_specs += [s for s in expansion.searches if s.content_hash not in self.searches and s.content_hash not in known]
            self._stand_ins = len(expansion.waiting) + sum(s.settings.configurations * len(s.templates) for s in expansion.waiting_searches)
            self._stand_in_trials = [*expansion.waiting, *(t for s in expansion.waiting_searches for t in s.templates)]
            self._open_searches()
            if all(s.winner is None or k in self.winners for k, s in self.searches.items()):
                return

    def _add(self, trial: Trial) -> None:
        key = trial.content_hash
        if key in self._state:
            return
        self.trials[key] = trial
        entry = self._ledger.entries.get(key)
        parent = None if trial.parent is None else self._parent_state(trial.parent)
        settled = entry is not None and entry.settled and key not in self._retry
        if settled and self._policy_lost(key):
            self._remade.add(key)
        self.skipped += settled
        if entry is not None and settled and key not in self._remade:
            self.failed += entry.status == "failed"
            self._state[key] = "failed" if entry.status == "failed" else "done"
        elif parent == "failed":
            self._state[key] = "open"
            self._block(trial)
        elif parent == "unknown":
            raise InputError(f"trial {trial.short} starts from trial {str(trial.parent)[:12]}, which is not part of the sweep")
        else:
            self._state[key] = "open"
            if parent == "open":
                self._behind.setdefault(str(trial.parent), []).append(trial)
            else:
                self._queue(TrialTask(trial))

    def _parent_state(self, parent: str) -> str:
        """That of the trial, or ``done`` of a policy from elsewhere that lies where a trial's would."""
        if parent not in self._state and (trial_folder(self._ledger.folder, parent) / POLICY).exists():
            return "done"
        return self._state.get(parent, "unknown")

    def _policy_lost(self, key: str) -> bool:
        """Whether what a trial learned was found damaged; from its last checkpoint it is soon made again."""
        path = trial_folder(self._ledger.folder, key) / POLICY
        return not path.exists() and damaged(path).exists()

    def _ended(self, trial: Trial, failed: bool) -> None:
        """A plain trial is over; those behind it may run, or cannot."""
        key = trial.content_hash
        self._state[key] = "failed" if failed else "done"
        self.failed += failed
        for child in self._behind.pop(key, []):
            if failed:
                self._block(child)
            else:
                self._queue(TrialTask(child))
        self._open_searches()

    def _block(self, trial: Trial) -> None:
        self._state[trial.content_hash] = "failed"
        self.failed += 1
        self.blocked += 1
        for child in self._behind.pop(trial.content_hash, []):
            self._block(child)

    # --- searches

    def _open_searches(self) -> None:
        """Begin the searches whose trials can start."""
        for spec in list(self._waiting_specs):
            parents = {self._parent_state(t.parent) for t in spec.templates if t.parent is not None}
            if parents <= {"done"} and not self._captures.missing(p for t in spec.templates for p in t.problems):
                self._waiting_specs.remove(spec)
                self._begin(spec)

    def _begin(self, spec: SearchSpec) -> None:
        from orchestration.search.search import Search, has_failures

        if self._open_study is None:
            raise InputError(f"stage {spec.stage!r} is a search, which needs a study to keep it in")
        open_study = partial(self._open_study, spec)
        if self._retry and has_failures(open_study(None)):
            open_study(0)
        search = Search(spec, open_study, self._known, self._recorded, self._lower_bounds(spec), self._record_pruned)
        self.searches[spec.content_hash] = search
        if search.note:
            self.notes.append(search.note)
        self._skip(search)
        self._pull(search)

    def _lower_bounds(self, spec: SearchSpec) -> dict[str, float]:
        for problem in (p for t in spec.templates for p in t.problems):
            if problem.content_hash not in self._bounds:
                bound = lower_bound(build_problem(problem))
                self._bounds[problem.content_hash] = bound if math.isfinite(bound) and bound > 0 else 1.0
        return self._bounds

    def _known(self, key: str) -> TrialResult | None:
        """What is recorded of a search's trial: of its pause and the ledger whatever went further."""
        entry = self._ledger.entries.get(key)
        paused = self._paused.get(key)
        if entry is None or entry.infrastructure or key in self._retry:
            return paused
        if key not in self._read:
            self._read[key] = self._ledger.read(key)[1]
        recorded = self._read[key]
        return paused if paused is not None and paused.evaluations > recorded.evaluations else recorded

    def _recorded(self, key: str) -> bool:
        """Whether the ledger holds a trial that is not to be run again."""
        entry = self._ledger.entries.get(key)
        return entry is not None and entry.settled

    def _pull(self, search: Search) -> None:
        """Hand out what a search wants; record what it has pruned."""
        decided = search.decided
        for task in search.advance():
            key = task.trial.content_hash
            waiting = self._wanted.setdefault(key, [])
            waiting.append(search.spec.content_hash)
            if len(waiting) == 1:  # else another search has it run, and this one asks again when it is back
                self._queue(task)
        self._record_pruned(search)
        if decided != search.decided:
            self._read.clear()  # nobody asks for the records of that batch again
            self._skip(search)

    def _record_pruned(self, search: Search) -> None:
        pruned, search.records = [(trial, TrialEnd.of(trial, result)) for trial, result in search.records], []
        if pruned:
            self._ledger.append(end for _, end in pruned)
        for trial, _ in pruned:
            self._paused.pop(trial.content_hash, None)
            self._seen.add(trial.content_hash)
        self.ended += pruned

    def _skip(self, search: Search) -> None:
        """Count the trials of decided configurations that an earlier run has ended."""
        before = [k for k in search.trials if k not in self._seen and k in self._ledger.entries]
        self._seen.update(before)
        self.skipped += len(before)
        self.failed += sum(self._ledger.entries[k].status == "failed" for k in before)
