"""The parts of pages that are made: what stands between ``<!-- results: WORDS -->`` and ``<!-- results: end -->``."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path

from envs.problem.errors import InputError, nearest
from orchestration.commands import best_known
from orchestration.records import anytime, claims, tables
from orchestration.records.claims import Claim
from orchestration.records.record import read_curves, read_record

RESULTS = "results"
BLOCK = re.compile(r"(<!-- results: (?!end)(.*?) -->\n).*?(<!-- results: end -->)", re.DOTALL)


def make(root: Path) -> dict[Path, str]:
    """Every page with made parts, and its text as it should be. Nothing is written.

    Raises:
        InputError: naming the page, if the words of a part say nothing that can be made.
    """
    known = claims.read_claims(root / RESULTS / "claims.yaml")
    pages = [root / "RESULTS.md", *sorted((root / "docs").rglob("*.md"))]
    texts = {page: page.read_text(encoding="utf-8") for page in pages}
    return {page: fill(text, known, root, page.name) for page, text in texts.items() if BLOCK.search(text)}


def fill(text: str, known: Sequence[Claim], root: Path, name: str) -> str:
    """A page's text with its parts made anew."""

    def part(match: re.Match[str]) -> str:
        try:
            return f"{match[1]}\n{render(match[2], known, root)}\n\n{match[3]}"
        except InputError as error:
            raise InputError(f"{name}, {match[1].strip()}: {error}") from None

    return BLOCK.sub(part, text)


def render(words: str, known: Sequence[Claim], root: Path) -> str:
    """One part of a page.

    ``verdicts``, ``main``, ``claims PAPER``, ``details PAPER``, ``leaderboard SWEEP stages=apart``,
    ``by-graph SWEEP unit=ms against=METHOD only=GRAPH,GRAPH``, ``below SWEEP METHOD METHOD``,
    ``against SWEEP METHOD BASELINE at=10,100 rows=stages after=20 only=test-``, ``gaps SWEEP METHODS at=10,100``,
    ``paired SWEEP against=METHOD``, or ``provenance SWEEP``.

    Raises:
        InputError: if the words are not of these.
    """
    what, *rest = shlex.split(words)
    options = dict(word.split("=", 1) for word in rest if "=" in word)
    names = [word for word in rest if "=" not in word]
    makers: dict[str, Callable[..., str]] = {
        "verdicts": lambda: claims.verdicts(known),
        "main": lambda: claims.main_claims(known),
        "claims": lambda paper: claims.overview(known, paper),
        "details": lambda paper: claims.details(known, paper),
        "leaderboard": lambda sweep, stages="together": tables.leaderboard(read_record(root / RESULTS, sweep), stages),
        "provenance": lambda sweep: tables.provenance(read_record(root / RESULTS, sweep)),
        "against": lambda sweep, *pair, **how: anytime.against(read_curves(root / RESULTS, sweep), *pair, **how),
        "gaps": lambda sweep, methods, at: anytime.gaps(
            read_curves(root / RESULTS, sweep), best_known.read(root / best_known.ARCHIVE), methods, at
        ),
        "by-graph": lambda sweep, unit="ms", against="", only="": tables.by_graph(read_record(root / RESULTS, sweep), unit, against, only),
        "below": lambda sweep, *baselines: tables.below(read_record(root / RESULTS, sweep), *baselines),
        "paired": lambda sweep, against: tables.paired(read_record(root / RESULTS, sweep), against),
    }
    if what not in makers:
        raise InputError(f"{what!r} cannot be made{nearest(what, makers)}")
    try:
        return makers[what](*names, **options)
    except TypeError as error:
        raise InputError(f"{words!r}: {error}") from None
