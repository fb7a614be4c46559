"""The papers' claims and what came of them: ``results/claims.yaml`` read, checked, and written as tables for the pages."""

from __future__ import annotations

import dataclasses
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from envs.problem.errors import InputError, nearest

VERDICTS = ("holds", "holds at best", "does not hold", "cannot be tested here")
WIDTH = 140
"""Letters a line of running text on a made page."""


@dataclass(frozen=True)
class Claim:
    """One claim of a paper. Figures are words, because a page shows them as they are."""

    paper: str
    claim: str
    place: str
    """Table, figure or section of the paper."""
    published: str
    ours: str
    """With the paper's own settings."""
    best: str
    """With the best configuration that was found."""
    verdict: str
    """One of `VERDICTS`."""
    command: str
    """What makes our figures again."""
    basis: str
    """What they rest on: seeds, and whether training or search was shorter than the paper's."""
    page: str
    """``docs/results/PAGE.md`` has the whole table."""
    why: str = ""
    main: bool = False
    """It stands in the abstract or in the paper's main table, and so in RESULTS.md."""
    number: int = 0
    """Its place in the file, from 1."""


def read_claims(path: Path) -> list[Claim]:
    """The claims of a file, in its order.

    Raises:
        InputError: naming the first claim with a key that is missing or unknown, a value that is no text, or an unknown verdict.
    """
    with path.open(encoding="utf-8") as file:
        entries = YAML(typ="safe", pure=True).load(file)
    return [_claim(entry, number, path) for number, entry in enumerate(entries, 1)]


def _claim(entry: dict[str, Any], number: int, path: Path) -> Claim:
    fields = {f.name: f for f in dataclasses.fields(Claim) if f.name != "number"}
    where = f"{path.name}, claim {number}"
    for key, value in entry.items():
        if key not in fields:
            raise InputError(f"{where}: unknown key {key!r}{nearest(key, fields)}")
        if key == "main" and value is True:
            continue
        if key == "main":
            raise InputError(f"{where}: main is {value!r}; write true, or leave it out")
        if not isinstance(value, str) or not value.strip():
            raise InputError(f"{where}: {key} is {value!r}; write a text, in quotes where it looks like a number")
    missing = [name for name, f in fields.items() if f.default is dataclasses.MISSING and name not in entry]
    if missing:
        raise InputError(f"{where}: {missing[0]} is missing")
    if entry["verdict"] not in VERDICTS:
        raise InputError(f"{where}: verdict {entry['verdict']!r}{nearest(entry['verdict'], VERDICTS)}")
    return Claim(**entry, number=number)


def verdicts(claims: Sequence[Claim]) -> str:
    """How many claims of each paper came out how, with links to its page."""
    lines = [f"| paper | claims | {' | '.join(VERDICTS)} |", "|---|--:|--:|--:|--:|--:|"]
    for paper in dict.fromkeys(c.paper for c in claims):
        own = [c for c in claims if c.paper == paper]
        counts = [sum(c.verdict == v for c in own) for v in VERDICTS]
        lines.append(f"| [{paper}](docs/results/{own[0].page}.md) | {len(own)} | {' | '.join(map(str, counts))} |")
    totals = [sum(c.verdict == v for c in claims) for v in VERDICTS]
    return "\n".join([*lines, f"| all | {len(claims)} | {' | '.join(map(str, totals))} |"])


def main_claims(claims: Sequence[Claim]) -> str:
    """A line a main claim of any paper, and where its verdict leads: to what stands behind it."""
    chosen = [c for c in claims if c.main]
    lines = ["| paper | claim | published | ours | at best | verdict | rests on | sweep |", "|---|---|---|---|---|---|---|---|"]
    for c in chosen:
        sweep = next((Path(word).with_suffix("").name for word in c.command.split() if word.endswith(".yaml")), "–")
        figures = f"{c.published} | {c.ours} | {c.best}"
        lines.append(f"| {c.paper} | {c.claim} | {figures} | {_verdict(c)} | {c.basis} | {sweep} |")
    return "\n".join([*lines, "", *(f"[{c.number}]: docs/results/{c.page}.md#{anchor(c)}" for c in chosen)])


def overview(claims: Sequence[Claim], paper: str) -> str:
    """A line a claim of a paper, for the paper's own page; its verdict leads to what stands behind it."""
    chosen = _of(claims, paper)
    lines = ["| place | claim | published | ours | at best | verdict | rests on |", "|---|---|---|---|---|---|---|"]
    for c in chosen:
        lines.append(f"| {c.place} | {c.claim} | {c.published} | {c.ours} | {c.best} | {_verdict(c)} | {c.basis} |")
    return "\n".join([*lines, "", *(f"[{c.number}]: #{anchor(c)}" for c in chosen)])


def details(claims: Sequence[Claim], paper: str) -> str:
    """A paragraph a claim, with the command that makes its figures again."""
    return "\n\n".join(_paragraph(c) for c in _of(claims, paper))


def _paragraph(c: Claim) -> str:
    figures = f"Published {c.published}; ours {c.ours}; at best {c.best}."
    text = f"**{c.place}: {c.claim}.** {c.verdict[0].upper()}{c.verdict[1:]}. {figures} Rests on: {c.basis}. {c.why}".strip()
    return "\n".join([f'<a id="{anchor(c)}"></a>', *textwrap.wrap(text, WIDTH, break_on_hyphens=False), "", f"    {c.command}"])


def _verdict(c: Claim) -> str:
    """With a link, whose address stands below the table: lines of a page can then be read."""
    return f"[{f'**{c.verdict}**' if c.verdict == 'does not hold' else c.verdict}][{c.number}]"


def anchor(c: Claim) -> str:
    """Where a claim stands on its paper's page."""
    return f"claim-{c.number}"


def _of(claims: Sequence[Claim], paper: str) -> list[Claim]:
    found = [c for c in claims if c.paper == paper]
    if not found:
        raise InputError(f"no claim is of paper {paper!r}{nearest(paper, {c.paper for c in claims})}")
    return found
