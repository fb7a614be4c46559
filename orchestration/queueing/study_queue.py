"""Which study of a cluster runs next: order, priority, dependency, time, recurrence, quotas. Free of Ray, so that every rule can be tested
by itself; ``orchestration/queueing/turns.py`` puts it into an actor. How a study runs does not belong here."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

from envs.problem.errors import InputError, nearest

SILENT_SECONDS = 60.0
"""A study whose driver has said nothing for so long is lost."""
PERIODS = {"hour": 3600.0, "day": 86400.0, "week": 7 * 86400.0}
OPEN = ("waiting", "paused", "running")
KEPT_ENDED = 200
"""Studies that have ended and are still listed."""


@dataclass(frozen=True)
class Wish:
    """What a study asks of the queue."""

    name: str
    user: str = ""
    priority: int = 0
    after: tuple[str, ...] = ()
    """Studies that must have finished before."""
    at: float = 0.0
    """Not before this time, seconds since 1970."""
    every: str = ""
    """Run again so often: one of `PERIODS`; empty for once."""


@dataclass
class QueuedStudy:
    """A study in the queue."""

    wish: Wish
    token: str
    """Of the driver that entered it."""
    priority: int
    place: float
    """Of equal priority the least is next."""
    at: float
    heard: float
    state: str = "waiting"
    note: str = ""
    runs: int = 0
    began: float | None = None
    ended: float | None = None


@dataclass
class StudyQueue:
    """See the module's docstring.

    Args:
        clock: seconds since 1970.
    """

    clock: Callable[[], float] = time.time
    together: int = 1
    """How many studies run at a time."""
    each: int | None = None
    """How many of one user; None sets no limit."""
    studies: dict[str, QueuedStudy] = field(default_factory=dict)
    entered: int = 0

    def enter(self, wish: Wish, token: str, again: bool = False) -> None:
        """Take a study in. ``again`` says that this queue's process died and has forgotten it, and what ended before it.

        Raises:
            InputError: if another study has its name, or one that it waits for is not known.
        """
        self._look()
        known = self.studies.get(wish.name)
        if known is not None and known.state in OPEN and known.token != token:
            raise InputError(f"a study {wish.name!r} is in the queue already ({known.state}); cancel it, or give another --name")
        unknown = [name for name in wish.after if name not in self.studies or name == wish.name]
        if unknown and not again:
            raise InputError(f"no study {unknown[0]!r} is in the queue{nearest(unknown[0], self.studies)}")
        if wish.name in self._before(wish.after):
            raise InputError(f"{wish.name!r} would wait for itself, since {wish.after[0]!r} waits for it")
        if known is None or known.state not in OPEN:
            self.studies.pop(wish.name, None)
            self.entered += 1
            self.studies[wish.name] = QueuedStudy(wish, token, wish.priority, self.entered, wish.at, self.clock())
        over = [name for name, s in self.studies.items() if s.state not in OPEN]
        for name in over[: max(0, len(over) - KEPT_ENDED)]:
            del self.studies[name]

    def poll(self, name: str, token: str) -> str:
        """``wait``, ``run`` or ``cancel``, for the driver of a study, which shows by it that it lives; ``unknown`` if it is to enter."""
        study = self.studies.get(name)
        if study is None or study.token != token or study.state == "lost":
            return "unknown"
        study.heard = self.clock()
        self._look()
        if study.state in ("waiting", "paused") and self._next() is study:
            study.state, study.began, study.runs = "running", self.clock(), study.runs + 1
        return {"running": "run", "waiting": "wait", "paused": "wait"}.get(study.state, "cancel")

    def left(self, name: str, token: str, state: str) -> None:
        """A study's run is over: ``finished``, ``failed`` or ``cancelled``. One that recurs waits for its next time."""
        study = self.studies.get(name)
        if study is None or study.token != token or study.state not in OPEN:
            return
        study.ended, study.state = self.clock(), state
        if study.wish.every and state != "cancelled":
            period = PERIODS[study.wish.every]
            begin = study.at or study.began or study.ended
            study.at = begin + period * max(1, 1 + int((study.ended - begin) // period))
            study.state, study.note = "waiting", f"{state} {study.runs} times so far" if study.runs > 1 else f"{state} once so far"

    def _next(self) -> QueuedStudy | None:
        """The study that may run now, if one may."""
        running = [s for s in self.studies.values() if s.state == "running"]
        if len(running) >= self.together:
            return None
        now, users = self.clock(), [s.wish.user for s in running]
        ready = [
            s for s in self.studies.values()
            if s.state == "waiting" and s.at <= now and not self._behind(s) and (self.each is None or users.count(s.wish.user) < self.each)
        ]  # fmt: skip
        return min(ready, key=lambda s: (-s.priority, s.place), default=None)

    def _behind(self, study: QueuedStudy) -> list[str]:
        """Studies that it still waits for; one that recurs counts as soon as it has run once."""
        found = {name: self.studies[name] for name in study.wish.after if name in self.studies}
        return [name for name, s in found.items() if s.state != "finished" and not (s.wish.every and s.runs and s.state == "waiting")]

    def _before(self, names: tuple[str, ...]) -> set[str]:
        """All that must have finished before these: the open ones that they wait for, and so on."""
        found: set[str] = set()
        left = list(names)
        while left:
            study = self.studies.get(left.pop())
            more = set(study.wish.after) - found if study is not None and study.state in OPEN else set()
            found |= more
            left += more
        return found

    def _look(self) -> None:
        """Find drivers that have died, and what can never start."""
        for study in self.studies.values():
            if study.state in OPEN and self.clock() - study.heard > SILENT_SECONDS:
                study.state, study.ended, study.note = "lost", self.clock(), f"its driver said nothing for {SILENT_SECONDS:.0f} s"
        changed = True
        while changed:
            changed = False
            for study in self.studies.values():
                behind = [self.studies[n] for n in self._behind(study)] if study.state in ("waiting", "paused") else []
                if bad := next((s for s in behind if s.state not in OPEN), None):
                    study.state, study.ended, changed = "cancelled", self.clock(), True
                    study.note = f"it waited for {bad.wish.name}, which was {bad.state}"

    # --- for people

    def listing(self) -> list[dict[str, Any]]:
        """Every study with its state: running ones, waiting ones in their order, then what ended, the last first."""
        self._look()
        order = {"running": 0, "waiting": 1, "paused": 1}

        def key(s: QueuedStudy) -> tuple[float, ...]:
            return (order.get(s.state, 2), -s.priority, s.place) if s.state in OPEN else (2, -(s.ended or 0.0), 0)

        return [
            {
                **asdict(s.wish), "priority": s.priority, "at": s.at, "state": s.state, "note": s.note, "runs": s.runs, "began": s.began,
                "ended": s.ended, "behind": self._behind(s) if s.state in OPEN else [],
            }
            for s in sorted(self.studies.values(), key=key)
        ]  # fmt: skip

    def move(self, name: str, where: str) -> None:
        """``first`` or ``last`` of all that wait, or the number of a priority."""
        study = self._open(name)
        others = [s for s in self.studies.values() if s.state in ("waiting", "paused") and s is not study] or [study]
        if where == "first":
            study.priority, study.place = max(s.priority for s in others), min(s.place for s in others) - 1
        elif where == "last":
            study.priority, study.place = min(s.priority for s in others), max(s.place for s in others) + 1
        else:
            try:
                study.priority = int(where)
            except ValueError:
                raise InputError(f"a study moves first, last, or to the number of a priority, not {where!r}") from None

    def pause(self, name: str) -> None:
        """It does not start until `resume`."""
        study = self._open(name)
        if study.state == "running":
            raise InputError(f"{name!r} runs already; cancel it, and the same command goes on where it stopped")
        study.state = "paused"

    def resume(self, name: str) -> None:
        """It may start again."""
        study = self._open(name)
        study.state = "waiting" if study.state == "paused" else study.state

    def cancel(self, name: str) -> None:
        """Take it out of the queue; if it runs, its driver stops as at Ctrl-C."""
        study = self._open(name)
        study.state, study.ended, study.note = "cancelled", self.clock(), study.note or "by request"

    def allow(self, together: int, each: int | None = None) -> None:
        """How many studies may run at a time, and how many of one user."""
        if together < 1 or (each is not None and each < 1):
            raise InputError(f"at least one study must be allowed at a time, not {min(together, together if each is None else each)}")
        self.together, self.each = together, each

    def _open(self, name: str) -> QueuedStudy:
        self._look()
        there = {n: s for n, s in self.studies.items() if s.state in OPEN}
        if name not in there:
            was = f"; it is {self.studies[name].state}" if name in self.studies else nearest(name, there)
            raise InputError(f"no study {name!r} waits or runs{was}")
        return there[name]
