"""What goes wrong in a report becomes a note: nothing optional costs a result."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from envs.problem.errors import InputError


def reason(error: Exception) -> str:
    """An error in one line: as it stands where it was written for people, with its type otherwise."""
    return str(error) if isinstance(error, InputError) else f"{type(error).__name__}: {' '.join(str(error).split())}"


def attempt(notes: list[str], what: str, make: Callable[[], list[Path]]) -> list[Path]:
    """The files that ``make`` writes; where it fails, none, and a note of what is missing and why."""
    try:
        return make()
    except Exception as error:  # whatever it is: the rest of the report does not depend on it
        notes.append(f"{what} is missing: {reason(error)}")
        return []
