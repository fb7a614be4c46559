"""Methods against each other as the budget grows: best objectives so far on a grid of evaluations, paired by problem and seed.

Curves are a table, a row a run: `KEYS`, then the best objective so far after each number of evaluations of `AT`. Nothing is printed here.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from envs.problem.errors import InputError, nearest
from orchestration.analysis.runs import Collection
from orchestration.analysis.statistics import on_grid

AT = (1, 2, 5, 10, 20, 50, 100, 200, 300, 500, 1000, 2000, 5000, 10_000)
KEYS = ("stage", "graph", "network", "method", "seed")
PROBLEM = ["stage", "graph", "network"]
"""What a problem is known by: stages may differ in costs, objective and evaluator."""
REPLICATES = 4000
"""Of the bootstrap."""


def curves(collection: Collection) -> pd.DataFrame:
    """The curves of a sweep's runs, up to the longest run; infinite before a placement ran.

    A run that its method ended goes on with its last value.
    """
    most = max((run.evaluations for run in collection.runs), default=0)
    at, rows = [n for n in AT if n <= most], []
    for run in collection.runs:
        p = collection.problems[collection.index[run.problem]]
        points = np.array([(c.evaluations, c.best) for c in run.curve], dtype=np.float64).reshape(-1, 2)
        rows.append((run.stage, p.graph, p.network, run.method, run.seed, *on_grid(points[:, 0], points[:, 1], np.array(at))))
    return pd.DataFrame(rows, columns=[*KEYS, *map(str, at)]).sort_values(list(KEYS), ignore_index=True)


def budgets(frame: pd.DataFrame) -> list[int]:
    """The numbers of evaluations that a table of curves has."""
    return [int(column) for column in frame.columns if column not in KEYS]


def paired(frame: pd.DataFrame, method: str, baseline: str, after: int | None = None) -> pd.DataFrame:
    """Logarithm of ``method``'s best objective over ``baseline``'s, a row a problem and seed, columns as `budgets`.

    NaN where either has run nothing yet. A method without randomness may have one run, which stands for every seed.

    Args:
        frame: curves.
        method: see there.
        baseline: see there; of several, joined by ``+``, the best.
        after: evaluations that the baseline has at every budget of the method; None is as many as the method.

    Raises:
        InputError: for a method or a number of evaluations that the table does not have.
    """
    at = [str(n) for n in budgets(frame)]
    together = baseline.split("+")
    for name in (method, *together):
        if name not in set(frame["method"]):
            raise InputError(f"the sweep has no method {name!r}{nearest(name, sorted(set(frame['method'])))}")
    if after is not None and str(after) not in at:
        raise InputError(f"no curve says what is reached after {after} evaluations; known are {', '.join(at)}")
    own, other = (_logarithms(frame[frame["method"].isin(names)], at) for names in ([method], together))
    other = other.groupby([*PROBLEM, "seed"])[at].min().reset_index()
    if after is not None:
        other[at] = np.repeat(other[[str(after)]].to_numpy(), len(at), axis=1)
    once = other.groupby(PROBLEM)["seed"].transform("size") == 1
    seeded = own.merge(other, on=[*PROBLEM, "seed"], suffixes=("", " other"))
    same = own.merge(other[once].drop(columns="seed"), on=PROBLEM, suffixes=("", " other"))
    both = pd.concat([seeded, same]).drop_duplicates([*PROBLEM, "seed"])
    found = both[[*PROBLEM, "seed"]].copy()
    found[at] = both[at].to_numpy() - both[[f"{n} other" for n in at]].to_numpy()
    return found.sort_values([*PROBLEM, "seed"], ignore_index=True)


def _logarithms(frame: pd.DataFrame, at: Sequence[str]) -> pd.DataFrame:
    found = frame[[*PROBLEM, "seed", *at]].copy()
    values = found[list(at)].to_numpy(dtype=np.float64)
    known = np.isfinite(values) & (values > 0)
    found[list(at)] = np.where(known, np.log(np.where(known, values, 1.0)), np.nan)
    return found


def by_problem(differences: pd.DataFrame) -> pd.DataFrame:
    """One figure a problem: the mean over seeds; NaN where any seed has none."""
    at = [str(n) for n in budgets(differences)]
    return differences.groupby(PROBLEM)[at].agg(lambda values: values.mean(skipna=False)).reset_index()


def interval(values: np.ndarray) -> tuple[float, float]:
    """95 % interval of the mean of values float64[P], by a bootstrap over them."""
    rng = np.random.default_rng(0)
    means = values[rng.integers(0, len(values), (REPLICATES, len(values)))].mean(axis=1)
    low, high = np.percentile(means, [2.5, 97.5])
    return float(low), float(high)
