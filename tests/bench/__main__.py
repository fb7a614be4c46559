"""Runs every module of this folder that has a ``measure`` function and writes the table to docs/results/speed.md."""

from __future__ import annotations

import datetime
import importlib
import os
import pkgutil
import subprocess
import sys
from pathlib import Path

import tests.bench
from tests.bench.figure import Figure

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "results" / "speed.md"
BEGIN, END = "<!-- bench: begin -->", "<!-- bench: end -->"


def main(only: list[str]) -> None:
    """Measure all modules, or those named on the command line."""
    figures: list[Figure] = []
    for module in sorted(m.name for m in pkgutil.iter_modules(tests.bench.__path__)):
        if module in ("__main__", "figure") or (only and module not in only):
            continue
        print(f"measuring {module} …", flush=True)
        for figure in importlib.import_module(f"tests.bench.{module}").measure():
            figures.append(figure)
            missed = "" if figure.met else "  MISSED"
            print(f"  {figure.name}: {figure.value:,.4g} {figure.unit} (target {figure.target}){missed} {figure.note}", flush=True)
    if not only:
        _write(figures)


def _write(figures: list[Figure]) -> None:
    git = ["git", "-C", str(ROOT)]
    commit = subprocess.run([*git, "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()
    dirty = subprocess.run(
        [*git, "status", "--porcelain", "--untracked-files=no"], capture_output=True, text=True, check=True
    ).stdout.strip()
    cores = len(os.sched_getaffinity(0))
    lines = [
        BEGIN,
        f"`make bench`, commit {commit}{' with uncommitted changes' if dirty else ''}, {datetime.date.today()}, {cores} shared cores.",
        "",
        "| figure | measured | target | met | note |",
        "|---|---|---|---|---|",
        *(f"| {f.name} | {f.value:,.4g} {f.unit} | {f.target} | {'yes' if f.met else '**no**'} | {f.note} |" for f in figures),
        END,
    ]
    text = PAGE.read_text(encoding="utf-8")
    head, rest = text.split(BEGIN)
    PAGE.write_text(head + "\n".join(lines) + rest.split(END)[1], encoding="utf-8")
    print(f"written to {PAGE.relative_to(ROOT)}")


if __name__ == "__main__":
    main(sys.argv[1:])
