"""Tables of a record as Markdown: who is best over all problems, times by graph, methods paired by seed.

Statistics come from `orchestration.analysis`.
"""

from __future__ import annotations

import math

import numpy as np
import pandas as pd

from envs.problem.errors import InputError, nearest
from orchestration.analysis.statistics import holm, iqm_interval, paired_test, resample

UNITS = {"ms": ("s", 1e3), "s": ("s", 1.0), "J": ("J", 1.0), "units": ("units", 1e3)}
"""Unit of a table: unit of the record, and the factor between them. Units that mean nothing are shown in thousandths, as in reports."""


def leaderboard(frame: pd.DataFrame, stages: str = "together") -> str:
    """Every method over all problems that all methods have run on: score (objective over the best known of the problem).

    Args:
        stages: ``apart`` if stages differ in objective or costs, so that the same graph and network are other problems in each.

    Raises:
        InputError: if it is neither ``apart`` nor ``together``.
    """
    if stages not in (known := ("apart", "together")):
        raise InputError(f"stages={stages!r}{nearest(stages, known)}")
    problem = ["graph", "network", *(["stage"] if stages == "apart" else [])]
    shared = _shared(frame, problem)
    best = shared.groupby(problem)["objective"].transform("min")
    shared = shared.assign(score=shared["objective"] / best, problem=shared.groupby(problem).ngroup())
    rows = []
    for method, runs in shared.groupby("method"):
        scores, strata = runs["score"].to_numpy(), runs["problem"].to_numpy()
        rows.append((iqm_interval(scores, strata), method, runs))
    lines = ["| method | IQM of scores [95 %] | mean | worst | on | seeds | problems |", "|---|--:|--:|--:|---|--:|--:|"]
    for value, method, runs in sorted(rows, key=lambda row: (row[0].value, row[1])):
        worst = runs.iloc[int(runs["score"].to_numpy().argmax())]
        span = "" if math.isnan(value.low) else f" [{value.low:.3f}, {value.high:.3f}]"
        lines.append(
            f"| {method} | {value.value:.3f}{span} | {runs['score'].mean():.3f} | {worst['score']:.2f} | {worst['graph']} "
            f"| {runs['seed'].nunique()} | {runs['problem'].nunique()} |"
        )
    return "\n".join([*lines, "", provenance(frame)])


def by_graph(frame: pd.DataFrame, unit: str = "ms", against: str = "", only: str = "") -> str:
    """A row a method (and stage, if it has several), a column a graph: mean and deviation over seeds.

    Args:
        unit: one of `UNITS`; runs in others are left out.
        against: a method; figures are then how much less time than it, in %, with the lowest and highest seed.
        only: what the names of the graphs begin with, with commas; all if empty.

    Raises:
        InputError: if the unit or the method is unknown.
    """
    if unit not in UNITS:
        raise InputError(f"unit {unit!r}{nearest(unit, UNITS)}")
    kept = _by_stage(frame[(frame["unit"] == UNITS[unit][0]) & frame["graph"].str.startswith(tuple(only.split(",")))])
    if against and against not in set(kept["method"]):
        raise InputError(f"against {against!r}{nearest(against, set(kept['method']))}")
    graphs = list(dict.fromkeys(kept["graph"]))
    base = kept[kept["method"] == against].groupby("graph")["objective"].mean() if against else None
    lines = [f"| method | {' | '.join(graphs)} |", "|---|" + "--:|" * len(graphs)]
    for method in _from_best(kept):
        runs = kept[kept["method"] == method]
        cells = [_cell(runs[runs["graph"] == g]["objective"], UNITS[unit][1], None if base is None else base[g]) for g in graphs]
        lines.append(f"| {method} | {' | '.join(cells)} |")
    what = f"% less than {against}, mean (lowest to highest seed)" if against else f"{unit}, mean ± deviation over seeds"
    return "\n".join([*lines, "", f"{what}. {provenance(frame)}"])


def below(frame: pd.DataFrame, *baselines: str) -> str:
    """A row a method (and stage, if it has several), a column a baseline: how much less time than it over all graphs, in %.

    The baseline has its geometric mean over seeds. Figures are geometric means over the graphs that both could run, which are counted if
    they are fewer than the baseline's.

    Raises:
        InputError: if there is no such method.
    """
    kept = _by_stage(frame)
    methods = _from_best(kept)
    for b in baselines:
        if b not in methods:
            raise InputError(f"against {b!r}{nearest(b, methods)}")
    times = kept["objective"].where(np.isfinite(kept["objective"]))
    logs = kept.assign(log=np.log(times)).groupby(["method", "seed", "graph", "network"])["log"].mean().unstack(["graph", "network"])
    lines = [f"| method | seeds | {' | '.join(f'less than {b}, %' for b in baselines)} |", "|---|" + "--:|" * (len(baselines) + 1)]
    for method in methods:
        cells = ["–" if b == method else _less(logs.loc[method], logs.loc[b].mean()) for b in baselines]
        lines.append(f"| {method} | {len(logs.loc[method])} | {' | '.join(cells)} |")
    return "\n".join([*lines, "", f"Geometric mean over graphs (lowest to highest seed). {provenance(frame)}"])


def paired(frame: pd.DataFrame, against: str) -> str:
    """A row a method and graph: how much slower than ``against`` with the same seed, in %, and whether that is more than chance.

    The mean is geometric, its interval a bootstrap over seeds; p is of Wilcoxon's signed-rank test over seeds, after Holm over all rows.

    Raises:
        InputError: if the method is unknown.
    """
    if against not in set(frame["method"]):
        raise InputError(f"against {against!r}{nearest(against, set(frame['method']))}")
    keys = ["stage", "graph", "network", "seed"]
    base = frame[frame["method"] == against].set_index(keys)["objective"]
    rest = frame[frame["method"] != against]
    rest = rest.assign(base=base.reindex(pd.MultiIndex.from_frame(rest[keys])).to_numpy()).dropna(subset=["base"])
    groups = list(rest.groupby(["method", "graph"]))
    p = holm([paired_test(runs["objective"].to_numpy(), runs["base"].to_numpy()) for _, runs in groups])
    lines = ["| method | graph | slower, % [95 %] | seeds slower | equal | p |", "|---|---|--:|--:|--:|--:|"]
    for ((method, graph), runs), chance in zip(groups, p, strict=True):
        logs = np.log(runs["objective"].to_numpy() / runs["base"].to_numpy())
        means = logs[resample(np.zeros(len(logs)), np.random.default_rng(0), 10_000)].mean(axis=1)
        value, low, high = 100 * np.expm1([logs.mean(), *np.percentile(means, [2.5, 97.5])])
        slower, equal = int((logs > 0).sum()), int((logs == 0).sum())
        shown = f"{chance:.3f}" if chance >= 0.0005 else "< 0.001"
        lines.append(f"| {method} | {graph} | {value:+.1f} [{low:+.1f}, {high:+.1f}] | {slower} of {len(logs)} | {equal} | {shown} |")
    return "\n".join([*lines, "", f"Against {against}, seed by seed. {provenance(frame)}"])


def provenance(frame: pd.DataFrame) -> str:
    """Where the figures come from, a sentence."""
    seeds = ", ".join(map(str, sorted(frame["seed"].unique())))
    words = [
        ", ".join(sorted(frame["source"].unique())),
        f"seed {seeds}" if frame["seed"].nunique() == 1 else f"seeds {seeds}",
        f"commit {', '.join(sorted(map(str, frame['commit'].unique())))}",
    ]
    return f"{'; '.join(words)}; {', '.join(sorted(frame['machine'].unique()))}."


def _by_stage(frame: pd.DataFrame) -> pd.DataFrame:
    """The runs with a method's stage in its name where it has several on one problem."""
    stages = frame.groupby(["method", "graph", "network"])["stage"].transform("nunique")
    several = stages.groupby(frame["method"]).transform("max") > 1
    return frame.assign(method=frame["method"].where(~several, frame["method"] + ", " + frame["stage"]))


def _less(logs: pd.DataFrame, base: pd.Series) -> str:
    """How much less the times of ``logs`` (a row a seed) are than those of ``base``, %; how many graphs both have, if not all of its."""
    ratios = (logs - base).dropna(axis=1, how="all")
    if not ratios.size:
        return "–"
    seeds = ratios.mean(axis=1)
    value, low, high = (round(-100 * float(np.expm1(x)), 1) + 0.0 for x in (ratios.mean().mean(), seeds.max(), seeds.min()))
    span = f" ({low:.1f} to {high:.1f})" if low < high else ""
    failed = int(ratios.isna().sum().sum())
    of = f", {ratios.shape[1]} of {base.count()} graphs" if ratios.shape[1] < base.count() else ""
    return f"{value:.1f}{span}{of}" + (f", {failed} failed" if failed else "")


def _from_best(frame: pd.DataFrame) -> list[str]:
    """Methods by their mean objective over the best of the graph."""
    ratio = frame["objective"] / frame.groupby("graph")["objective"].transform("min")
    return list(ratio.groupby(frame["method"]).mean().sort_values(kind="stable").index)


def _cell(objectives: pd.Series, factor: float, base: float | None) -> str:
    values = objectives.to_numpy()
    if not len(values) or not all(map(math.isfinite, values)):
        return "–"
    if base is not None:
        gains = 100 * (1 - values / base)
        return f"{gains.mean():.1f}" + (f" ({gains.min():.1f}–{gains.max():.1f})" if len(values) > 1 and gains.min() < gains.max() else "")
    shown = values * factor
    return f"{shown.mean():.4g}" + (f" ± {shown.std(ddof=1):.2g}" if len(values) > 1 and shown.min() < shown.max() else "")


def _shared(frame: pd.DataFrame, problem: list[str]) -> pd.DataFrame:
    """The runs on problems that every method has run on; a problem is known by those columns."""
    methods = frame["method"].nunique()
    ran = frame.groupby(problem)["method"].transform("nunique")
    return frame[ran == methods]
