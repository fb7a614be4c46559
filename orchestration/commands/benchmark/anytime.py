"""``python -m orchestration.commands.benchmark.anytime SWEEP``: methods of a finished sweep against one of them, as the budget grows.

One figure a problem: the mean over seeds of the logarithm of the best objective so far over the baseline's, at equal evaluations and equal
seeds. What is printed is the mean over problems with the 95 % interval of a bootstrap over problems, and the worst problem. Stages are
taken together. Under a wrong cost model or noise, the objective is what was measured.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

import pandas as pd

from envs.problem.errors import InputError
from orchestration.analysis.anytime import budgets, by_problem, curves, interval, paired
from orchestration.analysis.load import load_sweep_record, sweep_folder
from orchestration.analysis.table import Table, terminal


def table(frame: pd.DataFrame, methods: Sequence[str], baseline: str) -> str:
    """One row a method and number of evaluations, for a terminal.

    Args:
        frame: curves (`orchestration.analysis.anytime`).
        methods: what is compared.
        baseline: with what.

    Raises:
        InputError: for a method that the curves do not have.
    """
    rows = []
    for method in methods:
        found = by_problem(paired(frame, method, baseline))
        for at in budgets(found):
            known = found.dropna(subset=str(at))
            if known.empty:
                continue
            values = known[str(at)]
            low, high = interval(values.to_numpy())
            worst = known.loc[values.idxmax()]
            shown = f"{_percent(float(values.mean()))} [{_percent(low)}, {_percent(high)}]"
            on = f"{worst['stage']}/{worst['graph']}@{worst['network']}"
            rows.append((method, f"{at:,}", str(len(known)), shown, _percent(float(values.max())), on))
    columns = ("method", "evaluations", "problems", "mean logarithm of the ratio [95 %]", "worst", "on")
    return terminal([Table(f"Against {baseline}, negative is better", columns, tuple(rows), ())])


def _percent(value: float) -> str:
    return f"{100 * value:+.2f} %"


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("sweep", help="a sweep that ran here: its name or folder")
    parser.add_argument("--baseline", default="problem-space", help="what the others are compared with (problem-space)")
    parser.add_argument("--methods", nargs="*", metavar="METHOD", help="those to compare (all)")
    parser.add_argument("--only", default="", metavar="TEXT", help="stages whose name begins so, as test-")
    args = parser.parse_args(arguments)
    try:
        frame = curves(load_sweep_record(sweep_folder(args.sweep)).collection)
        frame = frame[frame["stage"].str.startswith(args.only)]
        methods = args.methods or sorted(set(frame["method"]) - {args.baseline})
        print(table(frame, methods, args.baseline), end="")
    except InputError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
