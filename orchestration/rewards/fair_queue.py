"""Who is served next: a queue that is fair between users, their sweeps and the sweeps' trials. What is queued and who serves it do not
belong here."""

from __future__ import annotations

import time
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from envs.problem.errors import InputError

T = TypeVar("T")

AGING_SECONDS = 30.0
"""A priority that waits gains one for every so many seconds in which nothing of it was served."""


@dataclass(frozen=True)
class Share:
    """On whose behalf something is asked, and what part of shared hardware that gets while others wait too."""

    user: str = ""
    sweep: str = ""
    user_weight: float = 1.0
    """Of the user beside other users."""
    weight: float = 1.0
    """Of the sweep beside other sweeps of the user."""


NOBODY = Share()


def made_share(user: str, weight: float) -> Share:
    """Of what a command was given: ``NAME`` or ``NAME:WEIGHT``, and the sweep's weight. InputError for what is no weight."""
    name, _, given = user.partition(":")
    try:
        of_user = float(given or 1)
    except ValueError:
        raise InputError(f"user {user!r} has no number behind the colon; write NAME or NAME:WEIGHT") from None
    for what, number in (("user", of_user), ("sweep", weight)):
        if not 0.001 <= number <= 1000:
            raise InputError(f"the {what}'s weight is {number:g}; it must be from 0.001 to 1000")
    return Share(name, "", of_user, weight)


class _Turns(Generic[T]):
    """Children of which those that wait are served in proportion to their weights (stride scheduling): who has passed least is next."""

    def __init__(self) -> None:
        self.waiting: OrderedDict[str, T] = OrderedDict()
        self._passed: dict[str, float] = {}
        """How far each has come, in items by weight; of those too that do not wait now, or they would begin anew each time."""
        self._now = 0.0

    def enter(self, name: str, child: T) -> None:
        """A child begins to wait: it has not saved up anything meanwhile."""
        self.waiting[name] = child
        self._passed[name] = max(self._passed.get(name, 0.0), self._now)

    def leave(self, name: str) -> None:
        """A child waits no more."""
        del self.waiting[name]
        if len(self._passed) > 2 * len(self.waiting) + 64:
            self._passed = {n: p for n, p in self._passed.items() if n in self.waiting or p > self._now}

    def next(self) -> str:
        """Whose turn it is."""
        return min(self.waiting, key=self._passed.__getitem__)

    def pass_on(self, name: str, step: float) -> None:
        """One item of it was served, or, with a negative step, given back."""
        self._now = max(self._now, self._passed[name]) if step > 0 else self._now
        self._passed[name] += step


class _Sweep(Generic[T]):
    """The trials of a sweep that wait, in turn."""

    def __init__(self) -> None:
        self.trials: OrderedDict[str, deque[T]] = OrderedDict()
        self.weight = 1.0


class _User(Generic[T]):
    """The sweeps of a user."""

    def __init__(self) -> None:
        self.sweeps: _Turns[_Sweep[T]] = _Turns()
        self.weight = 1.0


class _Level(Generic[T]):
    """All that waits with one priority."""

    def __init__(self, now: float) -> None:
        self.users: _Turns[_User[T]] = _Turns()
        self.since = now
        """When something of it was last served, or began to wait."""


class FairQueue(Generic[T]):
    """Highest priority first, where waiting makes priority grow, so that nobody waits for ever; within a priority users share by weight,
    a user's sweeps share that by weight, and a sweep's trials take turns. Each trial's items keep their order.

    Args:
        clock: seconds of any origin.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._levels: dict[int, _Level[T]] = {}
        self._chosen: int | None = None
        """The priority that `peek` looked at, which time must not change before `pop`."""
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def push(self, trial: str, priority: int, item: T, share: Share = NOBODY, *, front: bool = False) -> None:
        """Queue ``item``; ``front`` puts work back that was taken but not done, before the trial's other items and turn."""
        level = self._levels.setdefault(priority, _Level(self._clock()))
        if not level.users.waiting:
            level.since = self._clock()
        user = level.users.waiting.get(share.user) or _User()
        if share.user not in level.users.waiting:
            level.users.enter(share.user, user)
        sweep = user.sweeps.waiting.get(share.sweep) or _Sweep()
        if share.sweep not in user.sweeps.waiting:
            user.sweeps.enter(share.sweep, sweep)
        user.weight, sweep.weight = share.user_weight, share.weight
        line = sweep.trials.setdefault(trial, deque())
        if front:
            line.appendleft(item)
            sweep.trials.move_to_end(trial, last=False)
            level.users.pass_on(share.user, -1 / user.weight)
            user.sweeps.pass_on(share.sweep, -1 / sweep.weight)
        else:
            line.append(item)
        self._length += 1
        self._chosen = None

    def peek(self) -> T | None:
        """The item that `pop` would take, which stays; None if the queue is empty."""
        if not self._length:
            return None
        users = self._levels[self._choose()].users
        sweeps = users.waiting[users.next()].sweeps
        return next(iter(sweeps.waiting[sweeps.next()].trials.values()))[0]

    def _choose(self) -> int:
        if self._chosen is None:
            now = self._clock()
            waiting = {priority: level for priority, level in self._levels.items() if level.users.waiting}
            self._chosen = max(waiting, key=lambda p: (p + (now - waiting[p].since) / AGING_SECONDS, p))
        return self._chosen

    def pop(self) -> T | None:
        """The next item, or None if there is none; its trial goes to the end of the turn."""
        if not self._length:
            return None
        level = self._levels[self._choose()]
        user_name = level.users.next()
        user = level.users.waiting[user_name]
        sweep_name = user.sweeps.next()
        sweep = user.sweeps.waiting[sweep_name]
        trial, line = next(iter(sweep.trials.items()))
        item = line.popleft()
        self._length -= 1
        self._chosen, level.since = None, self._clock()
        level.users.pass_on(user_name, 1 / user.weight)
        user.sweeps.pass_on(sweep_name, 1 / sweep.weight)
        if line:
            sweep.trials.move_to_end(trial)
        else:
            del sweep.trials[trial]
            self._tidy(level, user_name, sweep_name)
        return item

    @staticmethod
    def _tidy(level: _Level[T], user: str, sweep: str) -> None:
        """Take a sweep that waits for nothing more out of the turns, and its user likewise."""
        sweeps = level.users.waiting[user].sweeps
        if not sweeps.waiting[sweep].trials:
            sweeps.leave(sweep)
        if not sweeps.waiting:
            level.users.leave(user)

    def drop(self, sweep: str) -> list[T]:
        """Take out all items of a sweep, which nobody waits for any more."""
        items: list[T] = []
        for level in self._levels.values():
            for name, user in list(level.users.waiting.items()):
                if sweep in user.sweeps.waiting:
                    lines = user.sweeps.waiting[sweep].trials
                    items += [item for line in lines.values() for item in line]
                    lines.clear()
                    self._tidy(level, name, sweep)
        self._length -= len(items)
        self._chosen = None
        return items

    def drain(self) -> list[T]:
        """All items in the order of `pop`; the queue is empty afterwards."""
        items = []
        while (item := self.pop()) is not None:
            items.append(item)
        return items
