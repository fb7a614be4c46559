"""What changed between two runs of one sweep, as a nightly regression wants to know: from their ``runs.csv``, which have full precision."""

from __future__ import annotations

import csv
import io
import math

from orchestration.analysis.quantity import Quantity
from orchestration.analysis.table import Table, plural

MOST_ROWS = 50
Key = tuple[str, str, str, str]
"""Stage, method, problem, seed."""


def changes(before: str, after: str) -> Table:
    """What is not the same, a row for each method on each problem, the largest change first.

    Args:
        before, after: contents of ``runs.csv``; objectives of equal stage, method, problem and seed are compared.
    """
    old, new = _objectives(before), _objectives(after)
    both = [key for key in new if key in old]
    same = sum(_equal(old[key], new[key]) for key in both)
    groups: dict[tuple[str, str, str], list[Key]] = {}
    for key in both:
        groups.setdefault(key[:3], []).append(key)
    rows = []
    for (stage, method, problem), keys in groups.items():
        if changed := [key for key in keys if not _equal(old[key], new[key])]:
            factors = [new[key] / old[key] if old[key] else math.nan for key in keys]
            known = [f for f in factors if math.isfinite(f) and f > 0]
            factor = math.exp(sum(map(math.log, known)) / len(known)) if known else math.nan
            worse = sum(new[key] > old[key] or math.isnan(new[key]) for key in changed)
            rows.append((factor, (stage, method, problem), worse, len(changed) - worse, len(keys)))
    rows.sort(key=lambda row: (-abs(math.log(row[0])) if math.isfinite(row[0]) else -math.inf, row[1]))
    cells = tuple((*names, _factor(factor, n), _count(worse), _count(better), _count(n)) for factor, names, worse, better, n in rows)
    notes = [f"Of {plural(len(both), 'result')} that both runs have, {same:,} are the same to the last digit."]
    notes += [f"New: {plural(len(new.keys() - old.keys()), 'result')}."] if new.keys() - old.keys() else []
    notes += [f"Missing: {plural(len(old.keys() - new.keys()), 'result')} of the last run."] if old.keys() - new.keys() else []
    notes += [f"{len(cells) - MOST_ROWS} more rows changed less."] if len(cells) > MOST_ROWS else []
    columns = ("stage", "method", "problem", "now / before", "seeds worse", "seeds better", "seeds")
    return Table("Changes since the last run", columns, cells[:MOST_ROWS], tuple(notes), left=3)


def _objectives(text: str) -> dict[Key, float]:
    """Objectives of the runs; NaN where a run placed nothing."""
    found = {}
    for row in csv.DictReader(io.StringIO(text)):
        try:
            value = float(row["objective"])
        except ValueError:
            value = math.nan
        found[row["stage"], row["method"], row["problem"], row["seed"]] = value
    return found


def _equal(a: float, b: float) -> bool:
    return a == b or (math.isnan(a) and math.isnan(b))


def _factor(value: float, n: int) -> Quantity:
    return Quantity(lambda value, n: f"{value:.4f}" if math.isfinite(value) else "?", {"value": value, "n": n})


def _count(value: int) -> Quantity:
    return Quantity(lambda value: f"{value:,}", {"value": value})
