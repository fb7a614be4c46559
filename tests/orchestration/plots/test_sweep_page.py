"""The page of a sweep: the numbers that it is given, and where it is opened from."""

from __future__ import annotations

import json
import math
import re
import webbrowser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from orchestration.analysis.comparison import compare
from orchestration.analysis.runs import collect
from orchestration.analysis.source import source_of
from orchestration.analysis.statistics import iqm
from orchestration.cli.main import main
from orchestration.plots.sweep_page import CURVE_NUMBERS, page_data, write_page
from orchestration.report import tables
from orchestration.specs.layout import LEDGER, PAGE
from orchestration.specs.trial import EvaluatorSpec
from tests.orchestration.big_sweep import write
from tests.orchestration.results import problem, small_study, trial


def data_in(path: Path) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', path.read_text(encoding="utf-8"), re.S)
    assert found
    return json.loads(found[1])


def test_the_page_holds_the_numbers_of_the_report(tmp_path: Path) -> None:
    comparison = compare(collect([*small_study(), trial("m2", 9, problem("ga", None))]))
    versus = tables.versus(comparison)
    assert versus is not None
    (tmp_path / "plots").mkdir()
    files = [tmp_path / "runs.csv", tmp_path / "plots" / "a b.png"]
    placements = {comparison.problems[1].key: [tmp_path / "placements" / f"x{end}" for end in (".json", ".trace.json", ".timeline.html")]}
    page = write_page(comparison, tmp_path / PAGE, "study", "of nothing", [versus], files, placements)
    data = data_in(page)
    assert [r["method"] for r in data["rows"]] == ["m0", "m1", "m2"] and data["origin"] == "simulated"
    assert data["rows"][1]["standing"]["iqm"][0] == comparison.standings[1].iqm.value
    assert data["rows"][2]["standing"]["to_best"] == "inf" and data["rows"][2]["standing"]["unplaced"] == 1
    # Scores of single runs give the leaderboard's numbers again, whatever problems are chosen.
    m1 = [s for row, _, scores, *_ in data["cells"] if row == 1 for s in scores]
    assert iqm(np.array(m1)) == pytest.approx(comparison.standings[1].iqm.value, rel=1e-7)
    assert next(scores for row, p, scores, *_ in data["cells"] if (row, p) == (2, 0))[-1] is None
    assert (data["files"], data["pictures"]) == (["runs.csv"], ["plots/a%20b.png"])
    assert [p["timeline"] for p in data["problems"]] == [None, "placements/x.timeline.html", None]
    assert data["problems"][1]["placement"] == "placements/x.json"
    assert data["tables"][0]["title"] == versus.title


def test_curves_are_medians_and_ranges_of_the_best_so_far() -> None:
    data = page_data(compare(collect(small_study(1))))
    (row, index, scores, evaluations, wall, end, *curves), *_ = data["cells"]
    best = data["problems"][index]["best"]
    assert (row, index, evaluations, wall, end) == (0, 0, 100, 4, 100)
    points = [e for e in data["grid"] if e < end] + [end]
    # Every curve falls from twice its end to its end at evaluation 60; seeds are 1 % apart.
    for curve, factor in zip(curves, (1.01, 1.0, 1.02), strict=True):
        assert curve == pytest.approx([factor * (1 if e >= 60 else 2) for e in points], rel=1e-4)
    assert min(scores) == 1.0 and best == 0.001


@pytest.mark.thorough
def test_many_methods_and_problems_have_coarse_curves() -> None:
    results = [trial(f"m{m}", seed, problem(f"g{g}", 1.0 + m + seed)) for m in range(40) for g in range(60) for seed in range(2)]
    data = page_data(compare(collect(results)))
    assert sum(len(band or ()) for cell in data["cells"] for band in cell[6:]) <= 1.2 * CURVE_NUMBERS


def test_every_title_says_where_numbers_come_from() -> None:
    results = small_study(1)
    real = {results[0].trial: source_of(EvaluatorSpec("openvino"))}
    data = page_data(compare(collect(results, None, real)))
    assert {p["graph"]: p["origin"] for p in data["problems"]}["gb"] == "simulated"
    assert data["problems"][0]["origin"].startswith("simulated and measured on") and data["origin"].startswith("simulated and measured on")
    invented = page_data(compare(collect(results, invented={"ga" * 4})))
    assert [p["unit"] for p in invented["problems"]] == ["units", "ms", "ms"]


def test_hostile_names_stay_text(tmp_path: Path) -> None:
    name = "</script><img src=x onerror=alert(1)>\u2028"
    comparison = compare(collect([trial(name, seed, problem(name, 1.0 + seed)) for seed in range(2)]))
    page = write_page(comparison, tmp_path / PAGE, name, name)
    assert data_in(page)["rows"][0]["method"] == name
    assert page.read_text(encoding="utf-8").count("</script>") == 2


def test_a_page_of_nothing_and_of_failures(tmp_path: Path) -> None:
    for results in ([], [trial("a", 0, status="failed")], [trial("a", 0, problem("ga", None))]):
        data = data_in(write_page(compare(collect(results)), tmp_path / PAGE))
        assert all(math.isfinite(p["best"]) for p in data["problems"])


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Addresses that a browser was asked to open."""
    addresses: list[str] = []
    monkeypatch.setattr(webbrowser, "open", lambda address: addresses.append(address) or True)
    return addresses


def test_open_finds_the_page_by_name_folder_and_file(tmp_path: Path, opened: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    folder, definition = tmp_path / "big", tmp_path / "any.yaml"
    folder.mkdir()
    definition.write_text("sweep: big")
    (folder / LEDGER).touch()
    write_page(compare(collect(small_study())), folder / PAGE)
    for sweep in (str(folder), "big", str(definition)):
        assert main(["open", sweep, "--output", str(tmp_path)]) == 0
    assert opened == [(folder / PAGE).resolve().as_uri()] * 3 and capsys.readouterr().out.split() == opened
    assert main(["open", "bog", "--output", str(tmp_path)]) == 2 and "did you mean 'big'" in capsys.readouterr().err


@pytest.mark.slow
def test_open_writes_the_report_that_is_missing(tmp_path: Path, opened: list[str]) -> None:
    folder = write(tmp_path, graphs=2, seeds=1, processes=1)
    assert main(["open", str(folder)]) == 0 and len(opened) == 1
    data = data_in(folder / PAGE)
    assert data["description"] == "Many small trials" and len(data["problems"]) == 4
    assert all((folder / link).is_file() for link in [p["timeline"] for p in data["problems"]] + data["files"] + data["pictures"])
