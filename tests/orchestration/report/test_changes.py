"""What a sweep that is run anew says of the last time."""

from __future__ import annotations

import pytest

from orchestration.driver.run_sweep import run_sweep
from orchestration.report.changes import changes
from orchestration.specs.layout import CHANGES, RUNS
from tests.orchestration.sweeps_for_tests import small_sweep

HEAD = "stage,method,problem,seed,objective,unit,score,lower_bound,evaluations,trial\n"


def runs(**objectives: object) -> str:
    """A table of runs of ``METHOD_SEED=OBJECTIVE``."""
    lines = [f"main,{name.partition('_')[0]},p,{name.partition('_')[2]},{value},s,1,1,1,x" for name, value in objectives.items()]
    return HEAD + "\n".join(lines) + "\n"


def test_what_changed_most_comes_first_and_what_is_the_same_not_at_all():
    old = runs(same_0=1.5, slow_0=2.0, slow_1=2.0, fast_0=8.0, fast_1=8.0, lost_0=1.0, none_0="")
    new = runs(same_0=1.5, slow_0=3.0, slow_1=2.0, fast_0=2.0, fast_1=2.0, none_0="", fresh_0=1.0)
    table = changes(old, new)
    assert table.texts == (("main", "fast", "p", "0.2500", "0", "2", "2"), ("main", "slow", "p", "1.2247", "1", "0", "2"))
    assert table.notes[0] == "Of 6 results that both runs have, 3 are the same to the last digit."
    assert table.notes[1:] == ("New: 1 result.", "Missing: 1 result of the last run.")


def test_a_run_that_places_nothing_any_more_is_worse():
    (row,) = changes(runs(a_0=1.0, a_1=1.0), runs(a_0="", a_1=1.0)).texts
    assert row[4:] == ("1", "0", "2")


@pytest.mark.thorough
def test_a_sweep_run_anew_says_what_is_different(tmp_path):
    sweep, folder = small_sweep(tmp_path), tmp_path / "out" / "small"
    run_sweep(sweep, local=True, output=tmp_path / "out")
    assert not (folder / CHANGES).exists(), "there is no last time"
    text = (folder / RUNS).read_text()
    first = next(line for line in text.splitlines() if line.startswith("main,heft"))
    (folder / RUNS).write_text(text.replace(first, first.replace(first.split(",")[4], "1000.0", 1)))
    run = run_sweep(sweep, local=True, output=tmp_path / "out", fresh=True)
    said = (folder / CHANGES).read_text()
    assert "heft" in said and "local-search" not in said and "are the same to the last digit" in said
    assert folder / CHANGES in run.files
