"""Every learner at its published settings on two independent chains, alike and unlike devices: see `tests.methods.two_chains`."""

import pytest

from tests.methods.two_chains import OPTIMUM, eighths, random_mean, solved, two_chains


def test_the_toy_is_what_it_says():
    assert pytest.approx(0.08) == OPTIMUM
    assert random_mean(True) == pytest.approx(0.19, abs=0.005) and random_mean(False) == pytest.approx(0.137, abs=0.005)
    assert two_chains(True).graph.n_edges == 14 and solved(0.08, True) and not solved(0.13, False)


@pytest.mark.thorough
@pytest.mark.parametrize("learner", ["gdp", "doppler"])
def test_unlike_devices_are_told_apart_at_published_settings(learner):
    assert solved(eighths(learner, True, 0)[-1], True)


@pytest.mark.thorough
@pytest.mark.parametrize("learner", ["mars", "rnn-placer"])
def test_alike_devices_share_the_chains_within_a_quarter_of_the_budget(learner):
    assert solved(eighths(learner, False, 0, budget=150)[-1], False)


@pytest.mark.thorough
@pytest.mark.parametrize("unlike", [True, False])
def test_placeto_does_not_solve_it(unlike):
    assert not solved(eighths("placeto", unlike, 0)[-1], unlike), "docs/results/tuning.md says so"
