"""Who is served next: a queue that is fair between trials. What is queued and who serves it do not belong here."""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import Generic, TypeVar

T = TypeVar("T")


class FairQueue(Generic[T]):
    """Highest priority first; within a priority trials take turns, and each trial's items keep their order."""

    def __init__(self) -> None:
        self._levels: dict[int, OrderedDict[str, deque[T]]] = {}
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def push(self, trial: str, priority: int, item: T, *, front: bool = False) -> None:
        """Queue ``item``; ``front`` puts work back that was taken but not done, before the trial's other items and turn."""
        level = self._levels.setdefault(priority, OrderedDict())
        line = level.setdefault(trial, deque())
        if front:
            line.appendleft(item)
            level.move_to_end(trial, last=False)
        else:
            line.append(item)
        self._length += 1

    def peek(self) -> T | None:
        """The item that `pop` would take, which stays; None if the queue is empty."""
        if not self._length:
            return None
        level = self._levels[max(self._levels)]
        return next(iter(level.values()))[0]

    def pop(self) -> T | None:
        """The next item, or None if there is none; its trial goes to the end of the turn."""
        if not self._length:
            return None
        priority = max(self._levels)
        level = self._levels[priority]
        trial, line = next(iter(level.items()))
        item = line.popleft()
        self._length -= 1
        if line:
            level.move_to_end(trial)
        else:
            del level[trial]
            if not level:
                del self._levels[priority]
        return item

    def drain(self) -> list[T]:
        """All items in the order of `pop`; the queue is empty afterwards."""
        items = []
        while (item := self.pop()) is not None:
            items.append(item)
        return items
