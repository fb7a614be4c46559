"""Statistics for comparing methods over seeds and problems, with NumPy and SciPy alone. No files, tables or plots belong here.

A sample is every score of one method: ``values`` float64[N] with ``strata`` int64[N], the problem of each. Scores are to be
minimised and already normalised per problem (a makespan over the best known one, say), because raw seconds of different
problems do not average. A run that found no valid placement scores +inf; a run that never finished is left out.

The interquartile mean, the stratified bootstrap, the probability of improvement and performance profiles follow Agarwal et
al., "Deep Reinforcement Learning at the Edge of the Statistical Precipice" (NeurIPS 2021), turned round for minimisation;
the paired test over problems follows Demšar (JMLR 2006).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

REPLICATES = 2000
LEVEL = 0.95
_CHUNK = 4_000_000
"""Resampled values held at once: memory stays flat however many runs there are."""


@dataclass(frozen=True)
class Interval:
    """A statistic with its confidence interval; the ends are NaN where resampling can say nothing (one seed a problem)."""

    value: float
    low: float
    high: float


def iqm(values: np.ndarray) -> np.ndarray:
    """Interquartile mean over the last axis: the mean without the ``floor(N / 4)`` smallest and largest values; NaN if empty."""
    values = np.asarray(values, dtype=np.float64)
    n = values.shape[-1]
    if n == 0:
        return np.full(values.shape[:-1], np.nan)
    cut = n // 4
    return np.mean(np.sort(values, axis=-1)[..., cut : n - cut], axis=-1)


def resample(strata: np.ndarray, rng: np.random.Generator, replicates: int) -> np.ndarray:
    """Indices int64[replicates, N]: for each run another run of the same stratum, drawn with replacement."""
    _, which, sizes = np.unique(strata, return_inverse=True, return_counts=True)
    order = np.argsort(which, kind="stable")
    starts = np.concatenate(([0], np.cumsum(sizes)[:-1]))
    drawn = (rng.random((replicates, len(which))) * sizes[which]).astype(np.int64)
    return order[starts[which] + drawn]


def can_resample(strata: np.ndarray) -> bool:
    """Whether any stratum has two runs; with one seed a problem, resampling within problems always returns the same sample."""
    return bool(np.size(strata)) and int(np.unique(strata, return_counts=True)[1].max()) > 1


def stratified_bootstrap(
    values: np.ndarray,
    strata: np.ndarray,
    statistic: Callable[[np.ndarray], np.ndarray],
    seed: int = 0,
    replicates: int = REPLICATES,
    level: float = LEVEL,
) -> tuple[np.ndarray, np.ndarray]:
    """Percentile interval of ``statistic``, resampling seeds within each problem.

    Args:
        values: float64[N].
        strata: int64[N], the problem of each value.
        statistic: maps float64[R, N] to ``[R, ...]``.

    Returns:
        Lower and upper end, each shaped like one statistic; NaN where no problem has two seeds.
    """
    values, strata = np.asarray(values, dtype=np.float64), np.asarray(strata)
    if not can_resample(strata):
        shape = np.shape(statistic(values[None, :]))[1:]
        return np.full(shape, np.nan), np.full(shape, np.nan)
    rng, parts, left = np.random.default_rng(seed), [], replicates
    step = max(1, _CHUNK // len(values))
    while left:
        size = min(step, left)
        parts.append(statistic(values[resample(strata, rng, size)]))
        left -= size
    return _percentile(np.concatenate(parts), level)


def _percentile(replicated: np.ndarray, level: float) -> tuple[np.ndarray, np.ndarray]:
    """Both ends over the first axis. No interpolation, so that infinite replicates do not turn an end into NaN."""
    tail = (1 - level) / 2
    low, high = np.quantile(replicated, [tail, 1 - tail], axis=0, method="inverted_cdf")
    return low, high


def iqm_interval(values: np.ndarray, strata: np.ndarray, seed: int = 0, replicates: int = REPLICATES, level: float = LEVEL) -> Interval:
    """Interquartile mean over all runs with its stratified-bootstrap interval."""
    low, high = stratified_bootstrap(values, strata, iqm, seed, replicates, level)
    return Interval(float(iqm(values)), float(low), float(high))


def probability_of_improvement(
    x: np.ndarray, x_strata: np.ndarray, y: np.ndarray, y_strata: np.ndarray,
    seed: int = 0, replicates: int = REPLICATES, level: float = LEVEL,
) -> Interval:  # fmt: skip
    """P(X < Y): the chance that a run of X beats a run of Y on a problem drawn at random; ties count a half.

    The mean, over the problems both have run, of the Mann-Whitney statistic, with a bootstrap over the seeds of both.
    """
    x, y, x_strata, y_strata = (np.asarray(a) for a in (x, y, x_strata, y_strata))
    shared = np.intersect1d(x_strata, y_strata)
    if not shared.size:
        return Interval(np.nan, np.nan, np.nan)
    rng = np.random.default_rng(seed)
    total, resampled, spread = 0.0, np.zeros(replicates), False
    for stratum in shared:
        a, b = x[x_strata == stratum], y[y_strata == stratum]
        wins = (a[:, None] < b[None, :]) + 0.5 * (a[:, None] == b[None, :])
        total += wins.mean()
        rows, columns = (rng.integers(n, size=(replicates, n)) for n in wins.shape)
        resampled += wins[rows[:, :, None], columns[:, None, :]].mean(axis=(1, 2))
        spread |= len(a) > 1 or len(b) > 1
    value = float(total / len(shared))
    if not spread:
        return Interval(value, np.nan, np.nan)
    low, high = _percentile(resampled / len(shared), level)
    return Interval(value, float(low), float(high))


def paired_test(x: np.ndarray, y: np.ndarray) -> float:
    """Two-sided p of Wilcoxon's signed-rank test on two methods' scores paired by problem, float64[P] each.

    Scores are compared as log ratios, so every problem counts alike. Pairs with a NaN, or infinite on both sides, are left
    out; equal pairs count as no evidence. 1.0 if nothing differs, NaN if there is no pair.
    """
    from scipy import stats

    x, y = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    keep = ~(np.isnan(x) | np.isnan(y) | (np.isinf(x) & np.isinf(y)))
    if not keep.any():
        return float("nan")
    difference = np.log(x[keep]) - np.log(y[keep])
    difference = difference[difference != 0]
    if not difference.size:
        return 1.0
    # The test uses ranks alone, so an infinite difference only has to be larger than every finite one.
    bound = 1 + np.abs(difference[np.isfinite(difference)]).max(initial=0.0)
    return float(stats.wilcoxon(np.clip(difference, -bound, bound)).pvalue)


def least_p(pairs: int, comparisons: int = 1) -> float:
    """The least p that `paired_test` on so many pairs can give, after `holm` for so many comparisons: all differences of one sign."""
    return min(1.0, comparisons * 2.0 ** (1 - pairs)) if pairs else float("nan")


def holm(p_values: Sequence[float]) -> np.ndarray:
    """Holm's correction for as many comparisons as there are p-values, float64[K]; NaNs stay and do not count."""
    p = np.asarray(p_values, dtype=np.float64)
    adjusted = np.full(p.shape, np.nan)
    known = np.flatnonzero(~np.isnan(p))
    order = known[np.argsort(p[known], kind="stable")]
    adjusted[order] = np.minimum(1.0, np.maximum.accumulate(p[order] * np.arange(len(order), 0, -1)))
    return adjusted


def performance_profile(values: np.ndarray, strata: np.ndarray, thresholds: np.ndarray) -> np.ndarray:
    """Fraction of runs that score at most each threshold, every problem weighing alike: ``[..., N]`` to ``[..., T]``."""
    values = np.asarray(values, dtype=np.float64)
    _, which, sizes = np.unique(strata, return_inverse=True, return_counts=True)
    weights = 1.0 / (sizes[which] * len(sizes))
    order = np.argsort(values, axis=-1, kind="stable")
    below = np.cumsum(weights[order], axis=-1)
    below = np.concatenate([np.zeros((*below.shape[:-1], 1)), below], axis=-1)
    # How many are at most each threshold: by bisection a row, since comparing all with all takes minutes for thousands of runs.
    ranked = np.take_along_axis(values, order, axis=-1).reshape(-1, values.shape[-1])
    rank = np.array([np.searchsorted(row, thresholds, side="right") for row in ranked]).reshape(*values.shape[:-1], np.size(thresholds))
    return np.take_along_axis(below, rank, axis=-1)


def profile_band(
    values: np.ndarray, strata: np.ndarray, thresholds: np.ndarray, seed: int = 0, replicates: int = 500, level: float = LEVEL
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A performance profile with its pointwise stratified-bootstrap band: value, low and high, float64[T] each."""
    strata = np.asarray(strata)
    value = performance_profile(values, strata, thresholds)
    if not can_resample(strata):
        return value, value, value
    # Resampling keeps each run's stratum, so the weights of `performance_profile` stay those of the sample.
    indices = resample(strata, np.random.default_rng(seed), replicates)
    low, high = _percentile(performance_profile(np.asarray(values)[indices], strata, thresholds), level)
    return value, low, high


def gap(values: np.ndarray, reference: np.ndarray | float) -> np.ndarray:
    """Relative distance above a reference: ``values / reference - 1``; 0 where both are 0."""
    values, reference = np.broadcast_arrays(np.asarray(values, dtype=np.float64), np.asarray(reference, dtype=np.float64))
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(values == reference, 0.0, values / reference - 1.0)


def on_grid(evaluations: np.ndarray, best: np.ndarray, grid: np.ndarray) -> np.ndarray:
    """A best-so-far curve, given at rising ``evaluations``, as the step function it is on ``grid``; +inf before its first point."""
    position = np.searchsorted(evaluations, grid, side="right") - 1
    best = np.asarray(best, dtype=np.float64)
    return np.where(position >= 0, best[np.maximum(position, 0)] if len(best) else np.inf, np.inf)


def iqm_curve(
    curves: np.ndarray, strata: np.ndarray, seed: int = 0, replicates: int = 300, level: float = LEVEL
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Pointwise IQM over runs of normalised curves ``[N, T]`` with its stratified-bootstrap interval: three of ``[T]``."""
    value = iqm(curves.T)
    if not can_resample(strata):
        return value, np.full_like(value, np.nan), np.full_like(value, np.nan)
    drawn = resample(strata, np.random.default_rng(seed), replicates)
    step = max(1, _CHUNK // curves.size)
    parts = [iqm(np.moveaxis(curves[drawn[i : i + step]], 1, -1)) for i in range(0, replicates, step)]
    return value, *_percentile(np.concatenate(parts), level)


def curve_band(curves: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Median and range over the runs of one problem, ``[S, T]`` to three of ``[T]``; runs without a value yet are +inf.

    With a handful of seeds the range is shown rather than a quantile, which would promise more than the runs can say.
    """
    return np.quantile(curves, 0.5, axis=0, method="inverted_cdf"), curves.min(axis=0), curves.max(axis=0)
