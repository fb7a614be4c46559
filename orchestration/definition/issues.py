"""What is wrong with a sweep, collected with file and line so that all of it is reported at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from envs.problem.errors import InputError


@dataclass(frozen=True, order=True)
class Mark:
    """A place in a file; lines count from 1, 0 means the file as a whole."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" if self.line else self.file


@dataclass(frozen=True, order=True)
class Issue:
    """One error: where, and what to do about it."""

    mark: Mark
    message: str

    def __str__(self) -> str:
        return f"{self.mark}: {self.message}"


class SweepErrors(InputError):
    """Everything that is wrong with a sweep; the message has one line an error, ``file:line: message; cure``."""

    def __init__(self, issues: Sequence[Issue]) -> None:
        self.issues = tuple(sorted(set(issues)))
        super().__init__("\n".join(str(i) for i in self.issues))

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        return SweepErrors, (self.issues,)


class Issues:
    """Collects errors; `raise_any` ends a phase that later phases need to be clean."""

    def __init__(self) -> None:
        self.found: list[Issue] = []

    def add(self, mark: Mark, message: str) -> None:
        """Record an error."""
        self.found.append(Issue(mark, " ".join(message.split())))

    def raise_any(self) -> None:
        """Raises SweepErrors if anything was recorded."""
        if self.found:
            raise SweepErrors(self.found)
