"""Methods against a baseline at equal evaluations."""

import numpy as np
import pytest

from envs.problem.errors import InputError
from orchestration.analysis.runs import collect
from orchestration.commands.benchmark.anytime import AT, differences, interval, table
from tests.orchestration.results import problem, small_study, trial


def test_differences_are_means_over_seeds_at_equal_evaluations():
    collection = collect([*small_study(), trial("m0", 0, problem("gz", None)), trial("m1", 0, problem("gz", 1.0))])
    found = differences(collection, "m1", "m0")
    assert len(found) == 4
    for name, row in found.items():
        expected = np.nan if "gz" in name else np.log(1.2)
        np.testing.assert_allclose(row, expected, rtol=1e-12)
    text = table({"m1": found}, "m0", 100)
    assert "+18.23 % [+18.23 %, +18.23 %]" in text and text.count("m1") == sum(at <= 100 for at in AT)
    with pytest.raises(InputError, match="no method 'm9'"):
        differences(collection, "m9", "m0")
    assert differences(collection, "m1", "m0", "main") and interval(np.ones(3)) == (1.0, 1.0)
