"""``python -m orchestration.commands.benchmark.anytime SWEEP``: methods of a finished sweep against one of them, as the budget grows.

One figure a problem: the mean over seeds of the logarithm of the best objective so far over the baseline's, at equal evaluations and equal
seeds. What is printed is the mean over problems with the 95 % interval of a bootstrap over problems, and the worst problem. Stages are
taken together. Under a wrong cost model or noise, the objective is what was measured.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence

import numpy as np

from envs.problem.errors import InputError, nearest
from orchestration.analysis.load import load_sweep_record, sweep_folder
from orchestration.analysis.runs import Collection, Run
from orchestration.analysis.statistics import on_grid
from orchestration.analysis.table import Table, terminal

AT = (1, 2, 5, 10, 20, 50, 100, 200, 300, 500, 1000, 2000, 5000, 10_000)
REPLICATES = 4000
"""Of the bootstrap."""

Differences = dict[str, np.ndarray]
"""By problem, the mean logarithm of the ratio at each number of evaluations, float64[len(AT)]; NaN where either has run nothing yet."""


def differences(collection: Collection, method: str, baseline: str, only: str = "") -> Differences:
    """Of ``method`` against ``baseline`` on the problems that both ran, in stages whose name begins with ``only``.

    Raises:
        InputError: for a method that the sweep does not have.
    """
    runs: dict[str, dict[tuple[str, str, int], Run]] = {}
    for run in collection.runs:
        if run.stage.startswith(only):
            runs.setdefault(run.method, {})[run.stage, run.problem, run.seed] = run
    for name in (method, baseline):
        if name not in runs:
            raise InputError(f"the sweep has no method {name!r}{nearest(name, list(runs))}")
    found: dict[str, list[np.ndarray]] = {}
    for key, run in runs[method].items():
        other = runs[baseline].get(key) or _unseeded(runs[baseline], key)
        if other is not None:
            name = f"{key[0]}/{collection.problems[collection.index[key[1]]].name}"
            found.setdefault(name, []).append(_curve(run) - _curve(other))
    return {name: np.mean(rows, axis=0) for name, rows in found.items()}


def _unseeded(runs: dict[tuple[str, str, int], Run], key: tuple[str, str, int]) -> Run | None:
    """The run of a method that has nothing to draw, whatever its seed."""
    same = [run for (stage, problem, _), run in runs.items() if (stage, problem) == key[:2]]
    return same[0] if len(same) == 1 else None


def _curve(run: Run) -> np.ndarray:
    """Logarithm of the best objective so far at `AT`; NaN before anything ran, and beyond the budget of a search that its budget ended."""
    points = np.array([(p.evaluations, p.best) for p in run.curve], dtype=np.float64).reshape(-1, 2)
    best = on_grid(points[:, 0], points[:, 1], np.array(AT))
    with np.errstate(divide="ignore"):
        return np.where(np.isfinite(best) & (best > 0), np.log(np.where(best > 0, best, 1.0)), np.nan)


def table(found: dict[str, Differences], baseline: str, most: int) -> str:
    """One row a method and number of evaluations up to ``most``, for a terminal."""
    rows = []
    for method, by_problem in found.items():
        for i, at in enumerate(AT):
            values = {name: float(row[i]) for name, row in by_problem.items() if not math.isnan(row[i])}
            if at > most or not values:
                continue
            low, high = interval(np.array(list(values.values())))
            worst = max(values, key=values.__getitem__)
            shown = f"{_percent(float(np.mean(list(values.values()))))} [{_percent(low)}, {_percent(high)}]"
            rows.append((method, f"{at:,}", str(len(values)), shown, _percent(values[worst]), worst))
    columns = ("method", "evaluations", "problems", "mean logarithm of the ratio [95 %]", "worst", "on")
    return terminal([Table(f"Against {baseline}, negative is better", columns, tuple(rows), ())])


def interval(values: np.ndarray) -> tuple[float, float]:
    """95 % interval of the mean of values float64[P], by a bootstrap over them."""
    rng = np.random.default_rng(0)
    means = values[rng.integers(0, len(values), (REPLICATES, len(values)))].mean(axis=1)
    low, high = np.percentile(means, [2.5, 97.5])
    return float(low), float(high)


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
        collection = load_sweep_record(sweep_folder(args.sweep)).collection
        methods = args.methods or sorted({run.method for run in collection.runs} - {args.baseline})
        found = {method: differences(collection, method, args.baseline, args.only) for method in methods}
    except InputError as error:
        print(error, file=sys.stderr)
        return 2
    most = max((run.evaluations for run in collection.runs), default=0)
    print(table(found, args.baseline, most), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
