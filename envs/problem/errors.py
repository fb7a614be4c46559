"""The one exception for bad input: a sentence with the offending value and the cure. Nothing else belongs here."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class InputError(ValueError):
    """Something a person wrote or passed is wrong; the message is one clear sentence, shown without a traceback."""


def nearest(word: str, known: Iterable[str]) -> str:
    """A hint for a misspelt ``word``: ``"; did you mean 'heft'?"`` or the list of what is known."""
    known = [str(k) for k in known]
    close = difflib.get_close_matches(str(word), known, n=1, cutoff=0.6)
    if close:
        return f"; did you mean {close[0]!r}?"
    return f"; known are {', '.join(sorted(known))}" if known else ""
