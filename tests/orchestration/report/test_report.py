"""Leaderboards, comparisons and their formats, from records with known answers."""

from __future__ import annotations

import csv
import io
import itertools
import json
import math
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from envs.problem.errors import InputError
from orchestration.analysis import escape
from orchestration.analysis.comparison import Comparison, compare
from orchestration.analysis.load import remember, remembered, sweep_folder
from orchestration.analysis.quantity import percent, significant
from orchestration.analysis.runs import collect
from orchestration.analysis.source import source_of
from orchestration.analysis.statistics import least_p, paired_test
from orchestration.analysis.table import FORMATS, Table, delimited, terminal
from orchestration.report import tables
from orchestration.specs.canonical import FrozenDict
from orchestration.specs.trial import EvaluatorSpec
from tests.orchestration.results import problem, small_study, trial


@pytest.mark.parametrize(
    ("evaluator", "expected"),
    [
        (EvaluatorSpec(), (True, True, False)),
        (EvaluatorSpec("simulator", FrozenDict({"noise": 0.0, "local": True, "fail": 0.5})), (True, True, False)),
        (EvaluatorSpec("simulator", FrozenDict({"noise": 0.1})), (True, False, False)),
        (EvaluatorSpec("simulator", FrozenDict({"measurement_noise": 0.1})), (True, False, False)),
        (EvaluatorSpec("simulator", FrozenDict({"relocation": 10})), (True, False, False)),
        (EvaluatorSpec("work-conserving"), (True, True, True)),
        (EvaluatorSpec("work-conserving", FrozenDict({"inputs_everywhere": False, "samples": 4})), (True, True, False)),
        (EvaluatorSpec("openvino", FrozenDict({"devices": {}})), (False, False, False)),
        (EvaluatorSpec("dataflow"), (False, False, False)),
    ],
)
def test_what_a_result_is_follows_from_its_evaluator(evaluator: EvaluatorSpec, expected: tuple[bool, bool, bool]) -> None:
    source = source_of(evaluator)
    assert (source.simulated, source.exact, source.free_inputs) == expected


def test_scores_are_normalised_before_they_are_pooled() -> None:
    comparison = compare(collect(small_study()))
    assert [s.method for s in comparison.standings] == ["m0", "m1", "m2"]
    best = comparison.standings[0]
    # Three graphs of very different size, each with scores 1.00, 1.01 and 1.02.
    assert best.mean == pytest.approx(1.01) and best.gap_to_best == pytest.approx(0.01)
    assert best.iqm.value == pytest.approx(1.01) and best.iqm.low < 1.01 < best.iqm.high
    assert comparison.standings[2].mean == pytest.approx(1.01 * 1.44)
    assert (best.runs, best.problems, best.evaluations, best.wall_seconds, best.tally.invalid) == (9, 3, 100, 4.0, 18)


def test_tests_against_the_baseline() -> None:
    leader = compare(collect(small_study()))
    assert leader.baseline == ("main", "m0")
    assert [(v.method, v.improvement.value, v.pairs) for v in leader.versus] == [("m1", 0.0, 3), ("m2", 0.0, 3)]
    assert [v.change for v in leader.versus] == pytest.approx([0.2, 0.44])
    # Three pairs: Wilcoxon's exact p is 0.25, twice corrected.
    assert [v.p_value for v in leader.versus] == pytest.approx([0.5, 0.5])
    against = compare(collect(small_study()), "m2")
    assert [v.improvement.value for v in against.versus] == [1.0, 1.0]
    assert [v.change for v in against.versus] == pytest.approx([1 / 1.44 - 1, 1 / 1.2 - 1])
    with pytest.raises(InputError, match="baseline 'm9' is no method of this sweep; known are m0, m1, m2"):
        compare(collect(small_study()), "m9")


def test_bounds_are_the_largest_known_and_only_for_exact_simulators() -> None:
    noisy = "simulator:fifo noise=0.1"
    results = [
        trial("a", 0, problem("ga", 2.0)),
        trial("cp-sat", 0, problem("ga", 1.5), report={"lower_bound": 1.2}),
        trial("a", 0, problem("gb", 2.0)),
        trial("a", 0, problem("gc", 2.0, protocol=noisy)),
    ]
    sources = {results[-1].trial: source_of(EvaluatorSpec("simulator", FrozenDict({"noise": 0.1})))}
    collection = collect(results, {("ga" * 4, False): 1.0, ("gb" * 4, False): 1.6, ("gc" * 4, False): 1.9}, sources)
    assert {p.graph: p.bound for p in collection.problems} == {"ga": 1.2, "gb": 1.6, "gc": None}
    row = next(s for s in compare(collection).standings if s.method == "a")
    assert row.gap_to_bound == pytest.approx(((2.0 / 1.2 - 1) + (2.0 / 1.6 - 1)) / 2)


def test_runs_without_a_placement_score_infinity_and_failed_trials_none() -> None:
    results = [*small_study(2), trial("bad", 0, problem("ga", None)), trial("bad", 0, problem("gb", 0.5)), trial("bad", 1, status="failed")]
    bad = next(s for s in compare(collect(results)).standings if s.method == "bad")
    assert (bad.runs, bad.unplaced, bad.tally.trials) == (2, 1, {"finished": 2, "failed": 1})
    assert math.isinf(bad.mean)
    text = tables.render(compare(collect(results)), "table")
    assert "∞" in text and "1 runs found no valid placement" in text
    json.loads(tables.render(compare(collect(results)), "json"))


def test_stages_are_rows_of_their_own_and_pretraining_is_none() -> None:
    results = [
        trial("l", 0, problem("ga", 1.0), stage="finetune", kind="finetune"),
        trial("l", 0, problem("ga", 2.0), stage="zero-shot", kind="zero-shot"),
        trial("l", 0, problem("gb", 0.1), stage="pretrain", kind="pretrain"),
    ]
    comparison = compare(collect(results))
    assert [s.row for s in comparison.standings] == [("finetune", "l"), ("zero-shot", "l")]
    assert [s.mean for s in comparison.standings] == [1.0, 2.0]
    assert "stage" in tables.leaderboard(comparison).columns
    assert compare(collect(results), "l (zero-shot)").baseline == ("zero-shot", "l")


def test_a_method_that_skipped_the_hard_problems_does_not_lead() -> None:
    comparison = compare(collect([*small_study(2), trial("partial", 0, problem("ga", 0.0005))]))
    assert [s.method for s in comparison.standings] == ["m0", "m1", "partial"]
    assert comparison.standings[-1].mean == 1.0
    assert "1 (1/3 problems)" in tables.render(comparison, "table")


def test_one_problem_measured_in_two_ways_is_two() -> None:
    results = [trial("a", 0, problem("ga", 1.0)), trial("a", 0, problem("ga", 9.0, protocol="openvino:cpu"), stage="host")]
    comparison = compare(collect(results))
    assert [s.mean for s in comparison.standings] == [1.0, 1.0]
    assert [p.name for p in comparison.problems] == ["ga@net [openvino:cpu]", "ga@net [simulator:fifo noise=0.0]"]
    noisy = trial("a", 0, problem("ga", 2.0, protocol="simulator:fifo noise=0.1 samples=10"))
    assert [p.name for p in collect([results[0], noisy]).problems] == ["ga@net [noise=0.0]", "ga@net [noise=0.1 samples=10]"]


@pytest.mark.parametrize("style", FORMATS)
def test_order_of_arrival_and_times_of_the_machine_leave_the_report_alone(style: str) -> None:
    results = small_study()
    shuffled = [trial(r.method, r.seed, *r.problems, wall_seconds=99.0) for r in results]
    random.Random(4).shuffle(shuffled)
    texts = {tables.render(compare(collect(r)), style, "s", times=False) for r in (results, shuffled)}
    assert len(texts) == 1
    assert delimited(tables.runs_frame(compare(collect(results)))) == delimited(tables.runs_frame(compare(collect(shuffled))))


def test_csv_has_full_precision() -> None:
    comparison = compare(collect(small_study()))
    rows = list(csv.DictReader(io.StringIO(tables.render(comparison, "csv"))))
    assert [r["method"] for r in rows] == ["m0", "m1", "m2"]
    assert float(rows[1]["iqm"]) == comparison.standings[1].iqm.value
    runs = list(csv.DictReader(io.StringIO(delimited(tables.runs_frame(comparison)))))
    assert len(runs) == 27 and min(float(r["score"]) for r in runs) == 1.0


def test_latex_is_escaped_and_balanced() -> None:
    results = [trial("100%_a&b", s, problem("ga", 1.0 + s)) for s in range(2)]
    text = tables.render(compare(collect(results)), "latex")
    assert r"100\%\_a\&b" in text and "100%_a" not in text
    assert text.count(r"\begin{") == text.count(r"\end{")
    assert escape.latex("a^b~{c}") == r"a\textasciicircum{}b\textasciitilde{}\{c\}"


def test_markdown_tables_have_equal_columns() -> None:
    text = tables.render(compare(collect([trial("a|b", 0, problem("ga", 1.0)), trial("c", 0, problem("ga", 2.0))])), "markdown")
    assert r"a\|b" in text
    for _, block in itertools.groupby(text.splitlines(), key=lambda line: line.startswith("|")):
        assert len({line.replace(r"\|", "").count("|") for line in block if line.startswith("|")}) <= 1


def test_wide_tables_are_cut_by_columns_not_wrapped() -> None:
    table = Table("t", ("name", *(f"column {i}" for i in range(20))), (("x", *("1.234567" for _ in range(20))),), left=1)
    text = terminal([table], width=60)
    assert max(map(len, text.splitlines())) <= 60
    assert all(f"column {i}" in text for i in range(20)) and text.count("name") > 3
    assert terminal([table]).count("name") == 1


def test_numbers_for_people() -> None:
    assert [significant(x) for x in (0.0, 0.00123456, 1.23456, 123.456, 12345.6, 1e-9)] == [
        "0", "0.001235", "1.235", "123.5", "12,346", "1.000e-09",
    ]  # fmt: skip
    assert [percent(x) for x in (0.1234, 0.00001, 70.0, math.inf, None)] == ["12.3%", "0.0%", "7,000%", "∞", "–"]


def test_sweeps_are_found_by_name_folder_and_yaml(tmp_path: Path) -> None:
    folder = tmp_path / "home" / "study"
    folder.mkdir(parents=True)
    (folder / "ledger.jsonl").touch()
    (tmp_path / "x.yaml").write_text("sweep: study\n")
    for given in ("study", str(folder), str(tmp_path / "x.yaml")):
        assert sweep_folder(given, tmp_path / "home") == folder
    with pytest.raises(InputError, match=r"no sweep 'stdy'.*did you mean 'study'"):
        sweep_folder("stdy", tmp_path / "home")
    (tmp_path / "long.yaml").write_text(f"sweep: study\nseeds: [{'9' * 5000}]\n")
    assert sweep_folder(str(tmp_path / "long.yaml"), tmp_path / "home") == folder
    (tmp_path / "bad.yaml").write_text("- [")
    with pytest.raises(InputError, match=r"cannot read sweep .*bad\.yaml"):
        sweep_folder(str(tmp_path / "bad.yaml"), tmp_path / "home")
    (folder / "sweep.yaml").write_text("sweep: study")
    remember(folder, ["b", "a"])
    assert remembered(folder) == {"a", "b"}
    (folder / "sweep.yaml").write_text("sweep: study\nseeds: [1]")
    assert remembered(folder) is None


def test_energy_is_told_in_joules() -> None:
    results = [trial("a", 0, problem("ga", 12.0, objective_name="energy", seconds=0.1))]
    text = tables.render(compare(collect(results)), "table")
    assert "Energy" in text and "12.00" in text and ", J" in text


def test_deviation_over_seeds() -> None:
    comparison = compare(collect(small_study(1)))
    cell = comparison.cells[("main", "m0"), comparison.problems[1].key]
    assert cell.mean == pytest.approx(0.505) and cell.deviation == pytest.approx(np.std([0.5, 0.505, 0.51], ddof=1))
    assert "505.0 ± 5.0" in tables.render(comparison, "table")


def test_where_numbers_come_from_is_told() -> None:
    results = [trial("a", s, problem("ga", 1.0 + s, host="box")) for s in range(2)]
    assert compare(collect(results)).collection.origin == "simulated"
    real = {r.trial: source_of(EvaluatorSpec("openvino", FrozenDict({"devices": {}}))) for r in results}
    comparison = compare(collect(results, sources=real))
    for style in ("table", "markdown", "latex"):
        text = tables.render(comparison, style)
        assert "Leaderboard, measured on box" in text and "simulated" not in text
    assert tables.to_json(comparison)["origin"] == "measured on box"


def test_times_of_invented_graphs_have_no_unit_unless_they_are_measured() -> None:
    results = [trial("a", 0, problem("ga", 1.0)), trial("a", 0, problem("gb", 1.0))]
    table = tables.per_problem(compare(collect(results, invented={"ga" * 4})))
    assert table is not None and table.columns == ("method", "ga [units]", "gb [ms]") and table.title.startswith("Makespan")
    real = {r.trial: source_of(EvaluatorSpec("dataflow")) for r in results}
    assert [p.scale for p in compare(collect(results, None, real, {"ga" * 4})).problems] == [(1e3, "ms")] * 2


def test_the_worst_case_stands_beside_the_mean() -> None:
    results = [*small_study(1), trial("m0", 3, problem("gb", 5.0))]
    (standing,) = compare(collect(results)).standings
    assert (standing.worst, standing.worst_problem) == (pytest.approx(10.0), "gb@net")
    assert tables.leaderboard(compare(collect(results))).texts[0][3:5] == ("10.000", "gb")


def test_the_leaderboard_fits_a_terminal() -> None:
    long = [problem("a-graph-with-a-long-name-1", 0.5), problem("a-graph-with-a-long-name-2", 0.02)]
    bounds = {(p.problem_hash, False): 0.01 for p in long}
    about: dict[str, Any] = {"wall_seconds": 1234.5, "evaluations": 10_000}
    rows = [(m, stage) for m in ("local-search", "x") for stage in ("zero-shot", "finetune")]
    runs = [trial(m, seed, p, stage=stage, **about) for m, stage in rows for seed in range(3) for p in long]
    study = compare(collect([*runs, trial("x", 5, status="failed", stage="finetune")], bounds))

    def width(comparison: Comparison) -> int:
        return max(map(len, terminal([tables.leaderboard(comparison)]).splitlines()[1:6]))

    assert width(study) <= 120
    assert width(compare(collect(small_study()))) <= 100
    # What is zero for all is said once instead of in every row.
    clean = tables.leaderboard(compare(collect([replace(t, outcomes={"OK": 100}) for t in small_study()])))
    assert not {"invalid", "failed"} & set(clean.columns) and "No evaluated placement was invalid and no trial failed." in clean.notes
    assert {"invalid", "failed"} <= set(tables.leaderboard(study).columns)


def test_what_few_problems_cannot_show_is_told() -> None:
    # All of three differences have one sign: 2 / 2 ** 3, for two comparisons.
    comparison = compare(collect(small_study()))
    assert [(v.p_value, v.least_p) for v in comparison.versus] == [(0.5, 0.5)] * 2
    table = tables.versus(comparison)
    assert table is not None and table.notes[-1] == "Least p that 2 comparisons can give: 0.5 with 3 problems, which cannot reach 0.05."
    rng = np.random.default_rng(1)
    for n in range(1, 12):
        x = rng.uniform(1, 2, n)
        assert paired_test(x, x * rng.uniform(1.1, 1.5, n)) == pytest.approx(least_p(n))
    assert "cannot" not in tables.least_p_notes([(12, least_p(12, 2))] * 2)[0]


def test_only_rows_that_share_problems_are_ranked() -> None:
    tuning = [trial(f"m{m}", 0, problem("other", 1.0 + m), stage="tune") for m in range(2)]
    comparison = compare(collect([*small_study(), *tuning]))
    ranks = [(s.stage, s.method, s.ranked) for s in comparison.standings]
    assert ranks == [*(("main", f"m{m}", True) for m in range(3)), ("tune", "m0", False), ("tune", "m1", False)]
    table = tables.leaderboard(comparison)
    assert [row[0] for row in table.rows] == ["1", "2", "3", "–", "–"] and any("no problem of those" in n for n in table.notes)
    # A baseline says which rows are meant; rows are also connected by way of a third.
    assert [s.ranked for s in compare(collect([*small_study(), *tuning]), "m0 (tune)").standings] == [True, True, False, False, False]
    bridge = trial("m2", 0, problem("other", 9.0))
    assert all(s.ranked for s in compare(collect([*small_study(), *tuning, bridge])).standings)
