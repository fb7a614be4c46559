"""Statistics against closed forms, brute force and SciPy."""

from __future__ import annotations

from dataclasses import astuple
from inspect import signature

import numpy as np
import pytest
from scipy import stats

from orchestration.analysis import statistics
from orchestration.analysis.statistics import (
    curve_band,
    gap,
    holm,
    iqm,
    iqm_curve,
    iqm_interval,
    least_p,
    on_grid,
    paired_test,
    performance_profile,
    probability_of_improvement,
    profile_band,
    resample,
    stratified_bootstrap,
)


def test_iqm_drops_a_quarter_at_each_end() -> None:
    values = np.array([100.0, 1, 2, 3, 4, 5, 6, -100])
    assert iqm(values) == pytest.approx(3.5)
    rng = np.random.default_rng(0)
    batch = rng.normal(size=(5, 23))
    assert iqm(batch) == pytest.approx(stats.trim_mean(batch, 0.25, axis=1))
    assert iqm(np.array([7.0])) == 7.0
    assert np.isnan(iqm(np.array([])))


def test_iqm_survives_a_few_runs_without_a_placement() -> None:
    assert iqm(np.array([1.0, 1, 2, 2, 3, 3, np.inf, np.inf])) == pytest.approx(2.5)
    assert iqm(np.array([1.0, 2, np.inf, np.inf])) == np.inf


def test_resampling_stays_inside_its_stratum() -> None:
    strata = np.array([2, 0, 1, 0, 2, 2, 7])
    drawn = resample(strata, np.random.default_rng(1), 500)
    assert (strata[drawn] == strata).all()
    # Every member of a stratum is drawn about equally often.
    counts = np.bincount(drawn[:, [0, 4, 5]].ravel(), minlength=7)[[0, 4, 5]]
    assert counts.min() > 400


def test_bootstrap_interval_is_seeded_contains_the_truth_and_matches_the_normal_one() -> None:
    rng = np.random.default_rng(3)
    strata = np.repeat(np.arange(4), 50)
    values = rng.normal(strata * 10.0, 1.0)
    low, high = stratified_bootstrap(values, strata, lambda x: x.mean(axis=-1), seed=5)
    assert (low, high) == stratified_bootstrap(values, strata, lambda x: x.mean(axis=-1), seed=5)
    # Between problems the means differ by far more than this; resampling within problems must not see that.
    assert high - low == pytest.approx(2 * 1.96 * 1.0 / np.sqrt(200), rel=0.2)
    assert low < values.mean() < high


def test_the_interval_leaves_a_fortieth_on_either_side() -> None:
    """The mean of 100 coins drawn again is binomial, so its quantiles are known exactly."""
    values, strata = np.repeat([0.0, 1.0], 50), np.zeros(100)

    def interval(**options: float) -> list[float]:
        ends = stratified_bootstrap(values, strata, lambda x: x.sum(axis=-1), replicates=20_000, **options)
        return [float(end) for end in ends]

    assert interval() == interval(level=0.95) == stats.binom.ppf([0.025, 0.975], 100, 0.5).tolist() == [40, 60]
    assert interval(level=0.9) == stats.binom.ppf([0.05, 0.95], 100, 0.5).tolist() == [42, 58]


def test_every_interval_is_one_of_95_percent_if_nothing_else_is_said() -> None:
    rng = np.random.default_rng(0)
    strata, thresholds = np.repeat(np.arange(4), 25), np.linspace(0, 12, 5)
    x, y = rng.exponential(size=100) + strata, rng.exponential(size=100) + strata
    curves = x[:, None] + rng.exponential(size=(100, 3))
    for interval in (
        lambda **o: stratified_bootstrap(x, strata, iqm, **o),
        lambda **o: astuple(iqm_interval(x, strata, **o)),
        lambda **o: astuple(probability_of_improvement(x, strata, y, strata, **o)),
        lambda **o: profile_band(x, strata, thresholds, **o),
        lambda **o: iqm_curve(curves, strata, **o),
    ):
        plain, same, narrow = (np.array(interval(**o)) for o in ({}, {"level": 0.95}, {"level": 0.9}))
        assert np.array_equal(plain, same) and not np.array_equal(plain, narrow)


def test_no_interval_from_one_seed_a_problem() -> None:
    found = iqm_interval(np.array([1.0, 2, 3]), np.array([0, 1, 2]))
    assert found.value == 2 and np.isnan(found.low) and np.isnan(found.high)
    deterministic = iqm_interval(np.array([1.0, 1, 3, 3]), np.array([0, 0, 1, 1]))
    assert deterministic.low == deterministic.value == deterministic.high == 2


def test_probability_of_improvement_averages_over_problems_and_halves_ties() -> None:
    x, y = np.array([1.0, 2, 5, 5]), np.array([2.0, 3, 1, 1])
    strata = np.array([0, 0, 1, 1])
    # Problem 0: 3 wins and a tie of 4 pairs; problem 1: none.
    assert probability_of_improvement(x, strata, y, strata).value == pytest.approx((3.5 / 4 + 0) / 2)
    assert probability_of_improvement(x, strata, x, strata).value == pytest.approx(0.5)
    other = probability_of_improvement(y, strata, x, strata)
    assert other.value == pytest.approx(1 - 3.5 / 8) and other.low <= other.value <= other.high
    assert np.isnan(probability_of_improvement(x, strata, y, strata + 10).value)


def test_probability_of_improvement_counts_infinite_as_lost() -> None:
    one = np.array([0])
    assert probability_of_improvement(np.array([1.0]), one, np.array([np.inf]), one).value == 1.0
    assert probability_of_improvement(np.array([np.inf]), one, np.array([np.inf]), one).value == 0.5


def test_paired_test_is_wilcoxon_on_log_ratios() -> None:
    rng = np.random.default_rng(0)
    y = rng.uniform(1, 3, 20)
    x = y * rng.uniform(0.8, 1.05, 20)
    assert paired_test(x, y) == pytest.approx(stats.wilcoxon(np.log(x / y)).pvalue)
    assert paired_test(y, y) == 1.0
    assert np.isnan(paired_test(np.array([np.nan]), np.array([1.0])))
    worst = x.copy()
    worst[3] = np.inf
    assert 0 < paired_test(worst, y) <= 1


def test_holm_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03, np.nan]) == pytest.approx([0.03, 0.06, 0.06, np.nan], nan_ok=True)
    assert holm([0.9, 0.8]) == pytest.approx([1.0, 1.0])


def test_profile_weighs_problems_alike() -> None:
    values, strata = np.array([1.0, 1.2, 1.4, 3.0]), np.array([0, 0, 0, 1])
    thresholds = np.array([0.9, 1.0, 1.3, 2.0, 3.0])
    assert performance_profile(values, strata, thresholds) == pytest.approx([0, 1 / 6, 2 / 6, 0.5, 1.0])
    value, low, high = profile_band(values, strata, thresholds)
    assert (low <= value + 1e-12).all() and (value <= high + 1e-12).all()
    assert performance_profile(np.array([np.inf, 1.0]), np.array([0, 0]), np.array([1e9])) == pytest.approx([0.5])


def test_gap() -> None:
    assert gap(np.array([2.0, 1.0, 0.0]), np.array([1.0, 1.0, 0.0])) == pytest.approx([1.0, 0.0, 0.0])


def test_curves_are_steps() -> None:
    grid = np.array([1, 2, 3, 4, 5, 10])
    assert on_grid(np.array([2, 4]), np.array([7.0, 3.0]), grid).tolist() == [np.inf, 7, 7, 3, 3, 3]
    assert np.isinf(on_grid(np.array([]), np.array([]), grid)).all()
    curves = np.array([[3.0, 1], [5.0, 2], [np.inf, 9]])
    middle, low, high = curve_band(curves)
    assert middle.tolist() == [5, 2] and low.tolist() == [3, 1] and high.tolist() == [np.inf, 9]
    value, low, high = iqm_curve(np.array([[2.0, 1], [4.0, 1], [3.0, 3]]), np.array([0, 0, 1]))
    assert value.tolist() == [3.0, 5 / 3] and (low <= value).all() and (value <= high).all()


def test_what_is_drawn_if_nothing_else_is_said() -> None:
    """Published intervals were drawn so; another seed or number of draws moves their ends."""
    drawn = {stratified_bootstrap: 2000, iqm_interval: 2000, probability_of_improvement: 2000, profile_band: 500, iqm_curve: 300}
    for function, replicates in drawn.items():
        defaults = {k: p.default for k, p in signature(function).parameters.items() if k in ("seed", "replicates", "level")}
        assert defaults == {"seed": 0, "replicates": replicates, "level": 0.95}


def test_shapes_where_there_is_nothing_to_average_or_to_resample() -> None:
    assert iqm(np.empty((3, 2, 0))).shape == (3, 2)
    alone, strata, thresholds = np.array([1.0, 2.0]), np.array([0, 1]), np.array([0.5, 1.5, 2.5])
    low, high = stratified_bootstrap(alone, strata, lambda v: performance_profile(v, strata, thresholds))
    assert low.shape == high.shape == (3,) and np.isnan([low, high]).all()
    band = profile_band(alone, strata, thresholds)
    assert all(part.tolist() == [0.0, 0.5, 1.0] for part in band)
    value, low, high = iqm_curve(np.array([[2.0, 1.0], [4.0, 1.0]]), strata)
    assert value.tolist() == [3.0, 1.0] and np.isnan([low, high]).all()


def test_what_is_held_at_once_is_bounded_and_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    rng, sizes = np.random.default_rng(0), []
    values, strata = rng.normal(size=20), np.repeat([0, 1], 10)

    def statistic(resampled: np.ndarray) -> np.ndarray:
        sizes.append(len(resampled))
        return iqm(resampled)

    def both() -> list[np.ndarray]:
        curves = np.stack([values, values + 1], axis=1)
        one = iqm_curve(curves, strata, replicates=1)
        return [*stratified_bootstrap(values, strata, statistic), *iqm_curve(curves, strata), *one]

    whole = both()
    assert sizes == [2000]
    for chunk, size in ((1, 1), (60, 3)):
        sizes.clear()
        monkeypatch.setattr(statistics, "_CHUNK", chunk)
        assert all(np.array_equal(a, b) for a, b in zip(whole, both(), strict=True))
        assert max(sizes) == size and sum(sizes) == 2000


def test_an_improvement_has_an_interval_where_either_side_has_two_seeds() -> None:
    for n, m, known in ((1, 1, False), (2, 1, True), (1, 2, True), (2, 2, True)):
        x, y = np.array([1.0, 3.0])[:n], np.array([2.0, 0.5])[:m]
        found = probability_of_improvement(x, np.zeros(n), y, np.zeros(m))
        assert np.isfinite([found.low, found.high]).tolist() == [known] * 2


def test_pairs_that_say_nothing_are_left_out_and_infinite_ones_rank_highest() -> None:
    rng = np.random.default_rng(1)
    y = rng.uniform(1, 3, 12)
    x = y * rng.uniform(0.7, 1.2, 12)
    expected = stats.wilcoxon(np.log(x / y)).pvalue
    for left, right in ((np.nan, 1.0), (1.0, np.nan), (np.nan, np.nan), (np.inf, np.inf), (np.nan, np.inf)):
        assert paired_test(np.append(x, left), np.append(y, right)) == pytest.approx(expected)
    wide = y * np.exp(np.linspace(-3.0, 4.0, 12))
    assert paired_test(wide, y) == pytest.approx(stats.wilcoxon(np.log(wide / y)).pvalue)
    difference = np.log(x / y)
    for left, right, rank in ((np.inf, 1.0, 100.0), (1.0, np.inf, -100.0)):
        assert paired_test(np.append(x, left), np.append(y, right)) == pytest.approx(stats.wilcoxon(np.append(difference, rank)).pvalue)


def test_a_gap_is_relative() -> None:
    assert gap(np.array([3.0]), 2.0) == pytest.approx([0.5])


def test_the_least_p_is_that_of_differences_of_one_sign():
    for pairs in (1, 4, 6):
        x = np.arange(1.0, pairs + 1)
        assert least_p(pairs) == stats.wilcoxon(x, method="exact").pvalue
    assert least_p(6, 3) == 3 * least_p(6) and least_p(2, 5) == 1.0 and np.isnan(least_p(0))
