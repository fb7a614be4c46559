"""Methods against a baseline at equal evaluations."""

import numpy as np
import pytest

from envs.problem.errors import InputError
from orchestration.analysis.anytime import AT, budgets, by_problem, curves, interval, paired
from orchestration.analysis.runs import collect
from orchestration.commands.benchmark.anytime import table
from tests.orchestration.results import problem, small_study, trial


def test_differences_are_means_over_seeds_at_equal_evaluations():
    frame = curves(collect([*small_study(), trial("m0", 0, problem("gz", None)), trial("m1", 0, problem("gz", 1.0))]))
    found = by_problem(paired(frame, "m1", "m0"))
    assert len(found) == 4 and budgets(found) == budgets(frame) == [at for at in AT if at <= 100]
    for row in found.itertuples():
        expected = np.nan if row.graph == "gz" else np.log(1.2)
        np.testing.assert_allclose(row[4:], expected, rtol=1e-12)
    text = table(frame, ["m1"], "m0")
    assert "+18.23 % [+18.23 %, +18.23 %]" in text and text.count("m1") == sum(at <= 100 for at in AT)
    with pytest.raises(InputError, match="no method 'm9'"):
        paired(frame, "m9", "m0")
    assert interval(np.ones(3)) == (1.0, 1.0)


def test_a_baseline_may_have_one_run_or_another_budget():
    frame = curves(collect(small_study()))
    once = frame[(frame["method"] != "m0") | (frame["seed"] == 0)]
    assert len(paired(once, "m1", "m0")) == len(paired(frame, "m1", "m0")) == (frame["method"] == "m1").sum()
    found = paired(frame, "m1", "m0", after=100)
    for row in found.itertuples():
        same = (frame["graph"] == row.graph) & (frame["seed"] == row.seed)
        own, other = (frame[same & (frame["method"] == m)].iloc[0] for m in ("m1", "m0"))
        assert row[5] == pytest.approx(np.log(own["1"] / other["100"])) != pytest.approx(np.log(own["1"] / other["1"]))
    best = paired(frame, "m1", "m0+m1")  # m0 is always the better one
    np.testing.assert_allclose(best["10"], paired(frame, "m1", "m0")["10"])
    with pytest.raises(InputError, match="after 7 evaluations"):
        paired(frame, "m1", "m0", after=7)
