"""What is wrong with a sweep, collected with file, line and column so that all of it is reported at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from envs.problem.errors import InputError


@dataclass(frozen=True, order=True)
class Mark:
    """A place in a file; lines and columns count from 1, 0 means the file, or the line, as a whole."""

    file: str
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        return ":".join([self.file, *(str(n) for n in (self.line, self.column) if n)])


@dataclass(frozen=True, order=True)
class Issue:
    """One error: where, what is wrong, and what to do about it (empty if the message says it)."""

    mark: Mark
    message: str
    cure: str = ""

    @property
    def text(self) -> str:
        """The sentence for people: message and cure."""
        return f"{self.message}; {self.cure}" if self.cure else self.message

    def __str__(self) -> str:
        return f"{self.mark}: {self.text}"


class SweepErrors(InputError):
    """Everything that is wrong with a sweep; the text has one line an error, ``file:line:column: message; cure``."""

    def __init__(self, issues: Sequence[Issue]) -> None:
        self.issues = tuple(sorted(set(issues)))
        super().__init__("\n".join(str(i) for i in self.issues))

    def __reduce__(self) -> tuple[type, tuple[Any, ...], dict[str, Any]]:
        return SweepErrors, (self.issues,), {}


class Issues:
    """Collects errors; `raise_any` ends a phase that later phases need to be clean."""

    def __init__(self) -> None:
        self.found: list[Issue] = []

    def add(self, mark: Mark, message: str, cure: str = "") -> None:
        """Record an error with the place where it stands and its cure."""
        self.found.append(Issue(mark, " ".join(message.split()), " ".join(cure.split())))

    def raise_any(self) -> None:
        """Raises SweepErrors if anything was recorded."""
        if self.found:
            raise SweepErrors(self.found)
