"""The definitions of Agarwal et al. (rliable), from answers worked out by hand and from every resample there is.

rliable maximises; here lower is better, so its inequalities are turned round.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from orchestration.analysis.statistics import (
    LEVEL,
    iqm,
    iqm_curve,
    iqm_interval,
    performance_profile,
    probability_of_improvement,
    profile_band,
)

A, B = (1.0, 1.3, 2.1), (1.05, 1.6, 3.0)
"""Scores of three seeds on two problems."""
VALUES, STRATA = np.array([*A, *B]), np.array([0, 0, 0, 1, 1, 1])
OTHER = np.array([1.2, 1.4, 2.9, 1.0, 1.7, 2.0])


def every_resample() -> np.ndarray:
    """All 27 x 27 ways to draw three seeds of each problem with replacement, as indices [729, 6]: equally likely."""
    draws = list(itertools.product(range(3), repeat=3))
    return np.array([[*a, *(3 + i for i in b)] for a in draws for b in draws])


def ends(replicated: np.ndarray, level: float) -> tuple[float, float]:
    """The percentile interval of equally likely values: the least of them with at least the wanted share at or below it."""
    ordered, n = np.sort(replicated), len(replicated)
    shares = np.arange(1, n + 1) / n
    tail = (1 - level) / 2
    low, high = (ordered[np.argmax(shares >= q - 1e-12)] for q in (tail, 1 - tail))
    return float(low), float(high)


def assert_is_95_not_90(found: tuple[float, float], replicated: np.ndarray) -> None:
    """Nearer to the exact 95 % interval than a third of the way to the exact 90 % interval."""
    exact, narrow = ends(replicated, 0.95), ends(replicated, 0.90)
    assert exact[0] < narrow[0] and narrow[1] < exact[1], "the sample must tell them apart"
    for end, wanted, wrong in zip(found, exact, narrow, strict=True):
        assert abs(end - wanted) < abs(wrong - wanted) / 3


def test_the_level_is_95_percent() -> None:
    assert LEVEL == 0.95


def test_interquartile_mean() -> None:
    # Six values: the least and the greatest (floor(6 / 4) = 1 at each end) go: 1.05, 1.3, 1.6, 2.1.
    assert iqm(VALUES) == pytest.approx(6.05 / 4)
    # Eight values: two go at each end.
    assert iqm(np.array([9.0, 1, 2, 3, 4, 5, 6, 0])) == pytest.approx((2 + 3 + 4 + 5) / 4)


def test_performance_profile() -> None:
    # rliable: the mean over problems of the share of runs beyond tau; here at or below it. Unequal numbers of seeds weigh alike.
    values, strata = np.array([1.0, 1.3, 2.1, 1.05]), np.array([0, 0, 0, 1])
    found = performance_profile(values, strata, np.array([0.9, 1.0, 1.05, 1.3, 5.0]))
    assert found == pytest.approx([0, (1 / 3) / 2, (1 / 3 + 1) / 2, (2 / 3 + 1) / 2, 1])


def test_probability_of_improvement() -> None:
    # Problem 0, pairs won of nine: 1.0 beats all three, 1.3 two, 2.1 one: 6/9. Problem 1: 1.05 two, 1.6 two, 3.0 none: 4/9.
    assert probability_of_improvement(VALUES, STRATA, OTHER, STRATA).value == pytest.approx((6 / 9 + 4 / 9) / 2)
    # A tie counts a half: one of one pair.
    assert probability_of_improvement(np.ones(1), np.zeros(1), np.ones(1), np.zeros(1)).value == 0.5


def test_the_interval_of_the_interquartile_mean_is_that_of_all_resamples() -> None:
    replicated = np.array([iqm(VALUES[rows]) for rows in every_resample()])
    found = iqm_interval(VALUES, STRATA, replicates=20_000)
    assert_is_95_not_90((found.low, found.high), replicated)


def test_the_interval_of_the_probability_of_improvement_is_that_of_all_resamples() -> None:
    def chance(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """By pair of resamples of one problem."""
        draws = np.array(list(itertools.product(range(3), repeat=3)))
        wins = (a[:, None] < b[None, :]) + 0.5 * (a[:, None] == b[None, :])
        return np.array([wins[np.ix_(x, y)].mean() for x in draws for y in draws])

    first, second = chance(VALUES[:3], OTHER[:3]), chance(VALUES[3:], OTHER[3:])
    replicated = ((first[:, None] + second[None, :]) / 2).ravel()
    found = probability_of_improvement(VALUES, STRATA, OTHER, STRATA, replicates=20_000)
    assert_is_95_not_90((found.low, found.high), replicated)


def test_bands_are_intervals_at_every_point() -> None:
    rng = np.random.default_rng(8)
    values, strata = rng.lognormal(0.2, 0.4, 60), np.repeat(np.arange(2), 30)
    at = np.array([float(np.median(values))])
    # The share of 60 runs at or below a threshold, resampled within problems, is a mean of binomials: enumerated as such.
    shares = [np.mean(values[strata == k] <= at[0]) for k in (0, 1)]
    drawn = np.random.default_rng(0).binomial(30, shares, size=(400_000, 2)).mean(axis=1) / 30
    _, low, high = profile_band(values, strata, at, replicates=20_000)
    assert_is_95_not_90((float(low[0]), float(high[0])), drawn)
    curves = np.repeat(VALUES[:, None], 2, axis=1)
    _, low, high = iqm_curve(curves, STRATA, replicates=20_000)
    assert_is_95_not_90((float(low[1]), float(high[1])), np.array([iqm(VALUES[rows]) for rows in every_resample()]))
