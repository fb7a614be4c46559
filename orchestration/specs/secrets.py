"""Passwords in URLs: where they come from, and how a URL is shown without its own."""

from __future__ import annotations

import os
import re
from pathlib import Path

from envs.problem.errors import InputError

_LOGIN = re.compile(r"(://[^\s:/@'\"]*):[^\s'\"]*@")
_TOKEN = re.compile(r"(https?://)[^\s:/@'\"]+@")
_QUERY = re.compile(r"([?&](?:password|passwd|pwd|token|secret|sslpassword)=)[^\s&'\"]+", re.IGNORECASE)


def masked(text: str) -> str:
    """``text``, a URL or a sentence that quotes some, with ``***`` in place of passwords and tokens."""
    return _QUERY.sub(r"\1***", _TOKEN.sub(r"\1***@", _LOGIN.sub(r"\1:***@", text)))


def secret(text: str) -> bool:
    """Whether `masked` would leave something out."""
    return masked(text) != text


def resolved_uri(given: str) -> str:
    """The URI that ``env:NAME`` or ``file:PATH`` stands for, so that no password need stand on a command line; others as they are.

    Raises:
        InputError: if the variable is not set or the file cannot be read.
    """
    kind, _, name = given.partition(":")
    if kind == "env":
        if not (found := os.environ.get(name, "").strip()):
            raise InputError(f"{given!r} names an environment variable that is not set; set {name} to the URI")
        return found
    if kind == "file":
        try:
            return Path(name).read_text(encoding="utf-8").strip()
        except (OSError, ValueError) as error:
            raise InputError(f"{given!r} names a file that cannot be read ({error}); it must hold the URI alone") from None
    return given
