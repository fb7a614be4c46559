"""Runs every module of this folder that has a ``measure`` function and writes the tables to docs/results/speed.md; that of methods alone by
``python -m tests.bench methods``, that of sweeps of many trials by ``python -m tests.bench many``. ``python -m tests.bench against COMMIT``
prints what learners took at another commit and take now."""

from __future__ import annotations

import datetime
import importlib
import os
import pkgutil
import subprocess
import sys
from pathlib import Path

import tests.bench
from tests.bench import against, many
from tests.bench.figure import Figure
from tests.bench.methods import table
from tests.bench.reference import ADDITIONS, LOOP, references

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "results" / "speed.md"
SECTIONS = ("bench", "methods", "many")
UNITS = {"s": 1.0, "ms": 1e-3, "µs": 1e-6, "ns": 1e-9}


def main(only: list[str]) -> None:
    """Measure all modules, or those named on the command line."""
    if only[:1] == ["many"]:
        _write("many", many.table([int(word) for word in only[1:]]))
        return
    if only[:1] == ["against"]:
        print("\n".join(against.table(*only[1:])))
        return
    figures: list[Figure] = []
    base = references()
    for module in sorted(m.name for m in pkgutil.iter_modules(tests.bench.__path__)):
        if module in ("__main__", "against", "figure", "many", "methods", "reference") or (only and module not in only):
            continue
        print(f"measuring {module} …", flush=True)
        for figure in importlib.import_module(f"tests.bench.{module}").measure():
            figures.append(figure)
            missed = "" if figure.met else "  MISSED"
            print(f"  {figure.name}: {figure.value:,.4g} {figure.unit} (target {figure.target}){missed} {figure.note}", flush=True)
    if not only:
        _write("bench", _lines(figures, base))
    if not only or "methods" in only:
        _write("methods", table())


def _lines(figures: list[Figure], base: dict[str, float]) -> list[str]:
    """The table of figures; times also as multiples of a plain loop's addition."""
    addition = base[LOOP] / ADDITIONS
    ratios = [f"{f.value * UNITS[f.unit] / addition:,.3g}" if f.unit in UNITS else "" for f in figures]
    return [
        "× loop divides a time by that of one addition of a plain Python loop in the same run, "
        f"{addition * 1e9:.3g} ns, so that machines and days can be compared.",
        "",
        "| figure | measured | × loop | target | met | note |",
        "|---|---|---|---|---|---|",
        *(
            f"| {f.name} | {f.value:,.4g} {f.unit} | {ratio} | {f.target} | {'yes' if f.met else '**no**'} | {f.note} |"
            for f, ratio in zip(figures, ratios, strict=True)
        ),
    ]


def marks(section: str) -> tuple[str, str]:
    """What a section's table stands between."""
    return f"<!-- {section}: begin -->", f"<!-- {section}: end -->"


def _write(section: str, table: list[str]) -> None:
    """Replaces the text between a section's marks."""
    git = ["git", "-C", str(ROOT)]
    commit = subprocess.run([*git, "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()
    dirty = subprocess.run(
        [*git, "status", "--porcelain", "--untracked-files=no"], capture_output=True, text=True, check=True
    ).stdout.strip()
    cores = len(os.sched_getaffinity(0))
    begin, end = marks(section)
    command = "make bench" if section == "bench" else f"python -m tests.bench {section}"
    changed = " with uncommitted changes" if dirty else ""
    lines = [begin, f"`{command}`, commit {commit}{changed}, {datetime.date.today()}, {cores} shared cores.", "", *table, end]
    text = PAGE.read_text(encoding="utf-8")
    head, rest = text.split(begin)
    PAGE.write_text(head + "\n".join(lines) + rest.split(end)[1], encoding="utf-8")
    print(f"written to {PAGE.relative_to(ROOT)}")


if __name__ == "__main__":
    main(sys.argv[1:])
