"""``make results``: make the pages' tables from what ``results/`` holds. Named folders of finished sweeps are recorded there first."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from envs.problem.errors import InputError
from orchestration.analysis.load import load_sweep_record
from orchestration.records.pages import RESULTS, make
from orchestration.records.record import record

ROOT = Path(__file__).parents[2]


def main(words: list[str]) -> int:
    """Record and write; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m orchestration.records", description=__doc__)
    parser.add_argument("folders", nargs="*", type=Path, metavar="FOLDER", help="folder of a finished sweep, to be recorded")
    parser.add_argument("--commit", default="", help="that the sweeps were run at; by default the one that is checked out")
    parser.add_argument("--curves", action="store_true", help="keep what was reached after 1, 2, 5, 10, … evaluations, too")
    options = parser.parse_args(words)
    try:
        for folder in options.folders:
            path = record(load_sweep_record(folder), ROOT / RESULTS, options.commit, options.curves)
            print(f"recorded {path.relative_to(ROOT)}")
        for page, text in make(ROOT).items():
            if page.read_text(encoding="utf-8") != text:
                page.write_text(text, encoding="utf-8")
                print(f"wrote {page.relative_to(ROOT)}")
    except InputError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
