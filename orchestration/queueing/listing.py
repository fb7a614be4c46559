"""The queue of studies in words, and from words. Its rules belong to ``orchestration/queueing/study_queue.py``."""

from __future__ import annotations

import datetime
import time
from collections.abc import Mapping, Sequence
from typing import Any

from envs.problem.errors import InputError, nearest
from orchestration.queueing.study_queue import PERIODS


def moment(text: str, now: float | None = None) -> float:
    """``22:00``, the next time that this machine's clock shows it; ``2026-12-01T22:00``; or ``@`` and seconds since 1970.

    Raises:
        InputError: for anything else.
    """
    now = time.time() if now is None else now
    try:
        if text.startswith("@"):
            return float(text[1:])
        if "T" in text or "-" in text:
            return datetime.datetime.fromisoformat(text).timestamp()
        hour, minute = map(int, text.split(":"))
        today = datetime.datetime.fromtimestamp(now).replace(hour=hour, minute=minute, second=0, microsecond=0)
        return (today if today.timestamp() >= now else today + datetime.timedelta(days=1)).timestamp()
    except (ValueError, OverflowError, OSError):
        raise InputError(f"--at {text!r} is no time; write 22:00 or 2026-12-01T22:00") from None


def period(text: str | None) -> str:
    """One of `PERIODS`, or nothing; InputError for anything else."""
    if text and text not in PERIODS:
        raise InputError(f"--every {text!r} is none of {', '.join(PERIODS)}{nearest(text, PERIODS)}")
    return text or ""


def listing_text(studies: Sequence[Mapping[str, Any]]) -> str:
    """For the terminal: a line a study."""
    if not studies:
        return "no study is in the queue; `placewright submit STUDY.yaml --priority 0` enters one"
    width = max(len(s["name"]) for s in studies)
    return "\n".join(f"{s['name']:{width}}  {s['state']:9} {_about(s)}".rstrip() for s in studies)


def _about(study: Mapping[str, Any]) -> str:
    parts = []
    if study["state"] == "running" and study["began"]:
        parts.append(f"for {datetime.timedelta(seconds=round(time.time() - study['began']))}")
    if study["state"] in ("waiting", "paused"):
        if study["behind"]:
            parts.append(f"after {', '.join(study['behind'])}")
        if study["at"] > time.time():
            parts.append(f"at {datetime.datetime.fromtimestamp(study['at']):%a %d %b %H:%M}")
    if study["priority"]:
        parts.append(f"priority {study['priority']}")
    if study["every"]:
        parts.append(f"every {study['every']}")
    if study["user"]:
        parts.append(f"of {study['user']}")
    return ", ".join([*parts, *([study["note"]] if study["note"] else [])])
