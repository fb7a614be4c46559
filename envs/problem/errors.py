"""The one exception for bad input: a sentence with the offending value and the cure. Nothing else belongs here."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any


class InputError(ValueError):
    """Something a person wrote or passed is wrong; the text is one clear sentence, shown without a traceback.

    Args:
        message: what is wrong, with the offending value.
        cure: what to do about it; empty if the message says it.
    """

    def __init__(self, message: str = "", cure: str = "") -> None:
        super().__init__(f"{message}; {cure}" if cure else message)
        self.message, self.cure = message, cure

    def __reduce__(self) -> tuple[type, tuple[Any, ...], dict[str, Any]]:
        return type(self), (self.message, self.cure), self.__dict__


def nearest(word: str, known: Iterable[str]) -> str:
    """A hint for a misspelt ``word``: ``"; did you mean 'heft'?"`` or the list of what is known."""
    hint = suggestion(word, known)
    return f"; {hint}" if hint else ""


def suggestion(word: str, known: Iterable[str]) -> str:
    """The cure of a misspelt ``word``: ``"did you mean 'heft'?"`` or the list of what is known; empty if nothing is."""
    known = [str(k) for k in known]
    close = difflib.get_close_matches(str(word), known, n=1, cutoff=0.6)
    if close:
        return f"did you mean {close[0]!r}?"
    return f"known are {', '.join(sorted(known))}" if known else ""
