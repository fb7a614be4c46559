"""Tables of recorded curves as Markdown: methods against each other, and against the best known placements, as the budget grows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from envs.problem.errors import InputError, nearest
from orchestration.analysis.anytime import PROBLEM, budgets, by_problem, interval, paired
from orchestration.commands.best_known import Known

WRONG = "-wrong"
"""In the names of stages whose methods see a wrong cost model."""


def against(frame: pd.DataFrame, method: str, baseline: str, at: str, rows: str = "budgets", after: str = "", only: str = "") -> str:
    """``method`` against ``baseline``: mean logarithm of the ratio of their best objectives, bootstrapped over problems.

    Args:
        frame: curves (`orchestration.analysis.anytime`).
        method: see there.
        baseline: see there.
        at: numbers of evaluations, with commas.
        rows: ``budgets`` (columns are all problems, those with right costs and those with wrong ones), ``stages`` or ``problems`` (columns
            are budgets; of a problem the interval is that of its seeds).
        after: evaluations that the baseline has at every budget; as many as the method if empty.
        only: what the names of the stages begin with, with commas; all if empty.

    Raises:
        InputError: for a method, a budget or a kind of rows that there is not.
    """
    kinds = {"budgets": _by_budget, "stages": _by_stage, "problems": _by_seeds}
    if rows not in kinds:
        raise InputError(f"rows={rows!r}{nearest(rows, kinds)}")
    found = paired(frame, method, baseline, int(after) if after else None)
    found = found[found["stage"].str.startswith(tuple(only.split(",")))]
    return kinds[rows](found, _asked(at, found))


def gaps(frame: pd.DataFrame, known: Mapping[str, Known], methods: str, at: str) -> str:
    """Mean and median of how far methods are above the best known placements of the benchmark, right costs only.

    Args:
        frame: curves.
        known: best known placements by problem.
        methods: those to show, with commas.
        at: numbers of evaluations, with commas.
    """
    names = frame["stage"] + "/" + frame["graph"] + "@" + frame["network"]
    value = names.map({name: entry.value for name, entry in known.items()}).astype(float)
    archive = frame.assign(method="best known", **{str(n): value for n in budgets(frame)})[~frame["stage"].str.contains(WRONG)]
    everything = pd.concat([frame[~frame["stage"].str.contains(WRONG)], archive.drop_duplicates([*PROBLEM, "seed"])])
    columns = _asked(at, frame)
    lines = [f"| method | {' | '.join(f'{int(n):,}' for n in columns)} | problems |", "|---|" + "--:|" * (len(columns) + 1)]
    for method in methods.split(","):
        found = by_problem(paired(everything, method, "best known"))
        cells = [_mean(found[n], f"; {_percent(found[n].dropna().median())}", sign="") for n in columns]
        lines.append(f"| {method} | {' | '.join(cells)} | {len(found)} |")
    return "\n".join([*lines, "", "Mean [95 %]; median, % above the best known (logarithm of the ratio). Right costs only."])


def _asked(at: str, frame: pd.DataFrame) -> list[str]:
    known = budgets(frame)
    for word in at.split(","):
        if not word.isdigit() or int(word) not in known:
            raise InputError(f"at={word!r}: no curve says what is reached there; known are {', '.join(map(str, known))}")
    return at.split(",")


def _by_budget(found: pd.DataFrame, at: Sequence[str]) -> str:
    problems = by_problem(found)
    wrong = problems["stage"].str.contains(WRONG)
    parts = {"all": problems, "right costs": problems[~wrong], "wrong costs": problems[wrong]}
    shown = {name: part for name, part in parts.items() if len(part) and (wrong.any() or name == "all")}
    titles = [f"{name} ({len(part)})" for name, part in shown.items()]
    lines = [f"| evaluations | {' | '.join(titles)} | worst | on |", "|--:|" + "--:|" * (len(shown) + 1) + "---|"]
    for n in at:
        worst = problems.loc[problems[n].idxmax()]
        cells = [_mean(part[n]) for part in shown.values()]
        lines.append(f"| {int(n):,} | {' | '.join(cells)} | {_percent(worst[n], '+')} % | {worst['graph']}@{worst['network']} |")
    return "\n".join(lines)


def _by_stage(found: pd.DataFrame, at: Sequence[str]) -> str:
    problems = by_problem(found)
    lines = [f"| problems | {' | '.join(f'{int(n):,}' for n in at)} |", "|---|" + "--:|" * len(at)]
    for stage, part in problems.groupby("stage"):
        lines.append(f"| {stage} ({len(part)}) | {' | '.join(_mean(part[n]) for n in at)} |")
    return "\n".join([*lines, f"| **all ({len(problems)})** | {' | '.join(_mean(problems[n]) for n in at)} |"])


def _by_seeds(found: pd.DataFrame, at: Sequence[str]) -> str:
    lines = [f"| problem | seeds | {' | '.join(f'{int(n):,}' for n in at)} |", "|---|--:|" + "--:|" * len(at)]
    for (stage, graph, network), part in found.groupby(PROBLEM):
        lines.append(f"| {stage}: {graph}@{network} | {len(part)} | {' | '.join(_mean(part[n]) for n in at)} |")
    return "\n".join(lines)


def _mean(values: pd.Series, more: str = "", sign: str = "+") -> str:
    """A mean with its interval, in %; how many values it is of, where some are missing."""
    there = values.dropna().to_numpy()
    if not len(there):
        return "–"
    low, high = interval(there)
    missing = f" ({len(there)})" if len(there) < len(values) else ""
    span = f" [{_percent(low, sign)}, {_percent(high, sign)}]" if len(there) > 1 else ""
    return f"{_percent(float(there.mean()), sign)}{span}{more}{missing}"


def _percent(value: float, sign: str = "") -> str:
    rounded = np.round(100 * value, 1) + 0.0  # no negative zero
    return f"{rounded:{sign}.1f}".replace("-", "−")
