"""``python -m tests.fuzz --seed 0 --count 1000``: prints what went wrong and a table; 1 if anything did."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.fuzz.harness import BAD, Verdict, cases, fuzz, table


def main() -> int:
    """Run, say how it went."""
    parser = argparse.ArgumentParser(description="Malformed and hostile input through the command line.")
    parser.add_argument("--seed", type=int, action="append", help="what is drawn; may be repeated (0)")
    parser.add_argument("--count", type=int, default=1000, help="inputs a seed (1000)")
    parser.add_argument("--only", metavar="KIND[:NUMBER]", action="append", help="these alone, and all that they said")
    parser.add_argument("--home", type=Path, help="where to work, and to leave the last input; by default a temporary folder")
    args = parser.parse_args()
    home = (args.home or Path(tempfile.mkdtemp(prefix="placewright-fuzz-"))).resolve()
    home.mkdir(parents=True, exist_ok=True)
    wrong = 0
    for seed in args.seed or [0]:
        asked = [c for c in cases(args.count) if not args.only or c[0] in args.only or f"{c[0]}:{c[1]}" in args.only]

        def tell(verdict: Verdict) -> None:
            if verdict.verdict in BAD or args.only:
                print(verdict, flush=True)

        verdicts = fuzz(home, seed, asked, tell)
        bad = sum(v.verdict in BAD for v in verdicts)
        print(f"\nseed {seed}: {len(verdicts)} inputs, {bad} that did not end as they must\n\n{table(verdicts)}", flush=True)
        wrong += bad
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
