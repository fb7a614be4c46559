"""A view of one value of a sweep: checked access that records errors at the right line and goes on."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from envs.problem.errors import InputError, nearest
from orchestration.definition.issues import Issues, Mark
from orchestration.definition.source import Node

NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._+=-]*$")
_RANGE = re.compile(r"^([0-9]+)\.\.([0-9]+)$")
MAX_RANGE = 100_000


def with_cure(message: str, cure: str = "change the value") -> str:
    """``message`` with a cure, if it has none."""
    return message if ";" in message else f"{message}; {cure}"


class View:
    """``path`` is how the value is called in messages, e.g. ``stages.pretrain.budget``."""

    def __init__(self, node: Node, path: str, issues: Issues, key_mark: Mark | None = None) -> None:
        self.node, self.path, self.issues = node, path, issues
        self.key_mark = key_mark or node.mark
        """Where the key of this value stands; better to point at than the value, which may begin on the next line."""

    @property
    def value(self) -> Any:
        """The raw value: dict of nodes, list of nodes, or scalar."""
        return self.node.value

    @property
    def mark(self) -> Mark:
        """Where to point: the value itself if it is a scalar, else its key."""
        return self.key_mark if isinstance(self.value, dict | list) or self.value is None else self.node.mark

    def plain(self) -> Any:
        """The value without places."""
        return self.node.plain()

    def error(self, message: str) -> None:
        """Record an error at this value."""
        self.issues.add(self.mark, message)

    def attempt(self, make: Callable[[], Any]) -> Any:
        """``make()``, or None with its InputError recorded here."""
        try:
            return make()
        except InputError as error:
            self.error(with_cure(str(error)))
            return None

    @property
    def is_mapping(self) -> bool:
        """Whether the value has keys."""
        return isinstance(self.value, dict)

    def child(self, key: str) -> View | None:
        """The value under ``key``, or None if the key is absent or this is no mapping."""
        if not self.is_mapping or key not in self.value:
            return None
        return View(self.value[key], f"{self.path}.{key}" if self.path else key, self.issues, self.node.keys.get(key))

    def has(self, key: str) -> bool:
        """Whether ``key`` is given with a value that is not null."""
        child = self.child(key)
        return child is not None and child.value is not None

    def children(self) -> Iterator[tuple[str, View]]:
        """Keys and values of a mapping, in order."""
        for key in list(self.value):
            child = self.child(key)
            if child is not None:
                yield key, child

    def items(self) -> list[View]:
        """The elements of a list; a scalar counts as a list of one, null as none."""
        if isinstance(self.value, list):
            return [View(n, f"{self.path}[{i}]", self.issues, n.mark) for i, n in enumerate(self.value)]
        return [] if self.value is None else [self]

    def mapping(self, known: Sequence[str] | None, what: str, required: Sequence[str] = ()) -> bool:
        """Whether this is a mapping; records unknown keys (all of them) and missing ones."""
        if not self.is_mapping:
            shown = "nothing" if self.value is None else "a list" if isinstance(self.value, list) else repr(self.value)
            keys = f" with keys such as {', '.join(known[:4])}" if known else ""
            self.error(f"{what} must be a mapping{keys}, not {shown}; indent its keys below it")
            return False
        if known is not None:
            for key in self.value:
                if key not in known:
                    self.issues.add(self.node.keys[key], f"unknown key {key!r} in {what}{nearest(key, known)}")
        for key in required:
            if key not in self.value:
                self.error(f"{what} lacks {key!r}; add it")
        return True

    def string(self) -> str | None:
        """The value as a word."""
        if isinstance(self.value, str) and self.value:
            return self.value
        self.error(f"{self.path} needs a word, not {self._shown()}; quote it if it is meant as one")
        return None

    def name(self, what: str) -> str | None:
        """A word that may become part of tags and file names."""
        text = str(self.value) if isinstance(self.value, int) and not isinstance(self.value, bool) else self.string()
        return text if text is not None and self.check_name(text, what, self.mark) else None

    def check_name(self, text: str, what: str, mark: Mark) -> bool:
        """Whether ``text`` is a proper name; records an error at ``mark`` if not."""
        if NAME.match(text) and len(text) <= 80:
            return True
        self.issues.add(
            mark, f"{what} {text!r} is no proper name; use letters, digits and . _ - + =, beginning with a letter or digit, at most 80"
        )
        return False

    def integer(self, low: int = 0) -> int | None:
        """A whole number of at least ``low``."""
        v = self.value
        if isinstance(v, float) and v.is_integer():
            v = int(v)
        if isinstance(v, int) and not isinstance(v, bool) and v >= low:
            return v
        self.error(f"{self.path} needs a whole number of at least {low}, not {self._shown()}; change it")
        return None

    def number(self, low: float = 0.0, exclusive: bool = False) -> float | None:
        """A finite number of at least (or above) ``low``."""
        v = self.value
        if isinstance(v, int | float) and not isinstance(v, bool) and math.isfinite(v) and (v > low if exclusive else v >= low):
            return float(v)
        self.error(f"{self.path} needs a number {'above' if exclusive else 'of at least'} {low:g}, not {self._shown()}; change it")
        return None

    def boolean(self) -> bool | None:
        """True or false."""
        if isinstance(self.value, bool):
            return self.value
        self.error(f"{self.path} needs true or false, not {self._shown()}; change it")
        return None

    def choice(self, known: Sequence[str], what: str) -> str | None:
        """One of ``known``."""
        if isinstance(self.value, str) and self.value in known:
            return self.value
        self.error(f"unknown {what} {self._shown()}{nearest(str(self.value), known)}")
        return None

    def integers(self, what: str) -> list[int]:
        """Different whole numbers: ``[0, 1, 2]``, ``0..24`` (both ends included) or one number."""
        result: list[int] = []
        for item in self.items():
            span = _RANGE.match(item.value) if isinstance(item.value, str) else None
            if span:
                low, high = int(span[1]), int(span[2])
                if low > high or high - low >= MAX_RANGE:
                    item.error(f"{what} {item.value!r} is no range; write low..high, at most {MAX_RANGE} numbers")
                    continue
                result.extend(range(low, high + 1))
            elif isinstance(item.value, int) and not isinstance(item.value, bool) and 0 <= item.value < 2**63:
                result.append(item.value)
            else:
                item.error(f"{what} need whole numbers from 0, such as [0, 1, 2] or 0..9, not {item._shown()}; change it")
        twice = sorted({x for x in result if result.count(x) > 1}) if len(result) < 5000 else []
        if twice:
            self.error(f"{what} hold {twice[0]} twice; remove one")
        if not result and not self.items():
            self.error(f"{what} are empty; give at least one, such as [0]")
        return result

    def _shown(self) -> str:
        if isinstance(self.value, dict):
            return "a mapping"
        return "a list" if isinstance(self.value, list) else "nothing" if self.value is None else repr(self.value)
