"""Names from outside that mean something to whatever prints them, from the definition to every file of the report."""

from __future__ import annotations

import csv
import io
import itertools
import json
import re
from pathlib import Path
from xml.etree import ElementTree

import mlflow
import pytest
import yaml
from rich.console import Console

from orchestration.analysis import escape
from orchestration.analysis.comparison import compare
from orchestration.analysis.runs import collect
from orchestration.analysis.table import FORMATS, delimited
from orchestration.cli.main import main
from orchestration.definition.sweep import load_sweep
from orchestration.driver.run_sweep import SweepRun, run_sweep
from orchestration.plots.comparison import makespan_per_method, performance_profile
from orchestration.plots.curves import search_curves
from orchestration.report import finish, tables
from tests.orchestration.results import problem, trial

MATH, LINK, FORMULA, TERMINAL = "$\\frac{$", "[x](http://a.b)|![y](z)", "=cmd('x')", "\x1b[31mred\u202e"
NAMES = (MATH, LINK, FORMULA, "</script><b>&amp;", "a$b$c_{d", "\\input{/etc/passwd} 100%")


def definition(folder: Path) -> Path:
    """A sweep with such names wherever a definition and its files may have them; those of methods and stages are checked."""
    devices = [{"name": name, "kind": "cpu", "speed": 1e9 * (i + 1)} for i, name in enumerate(NAMES)]
    nodes = [{"name": f"{name} {i}", "op": name, "flops": 1e6, "output_bytes": 8} for i, name in enumerate(NAMES)]
    edges = [{"from": a["name"], "to": b["name"]} for a, b in itertools.pairwise(nodes)]
    network = {"name": LINK, "devices": devices, "links": {"bandwidth": 1e9, "delay": 0}}
    (folder / "problem.json").write_text(
        json.dumps({"format": "placewright/1", "graph": {"name": MATH, "nodes": nodes, "edges": edges}, "network": network})
    )
    tables = [
        {"shape": "speedup", "title": FORMULA, "note": LINK, "paper": {"heft": {MATH: TERMINAL}}},
        {"shape": "by-network", "title": TERMINAL, "note": MATH},
    ]
    sweep = {
        "sweep": "hostile",
        "problems": {"graphs": {"g": {"file": "problem.json"}}, "networks": {"n": {"file": "problem.json"}}},
        "methods": {"heft": None, "random": None}, "seeds": [0, 1], "budget": 5, "evaluator": {"kind": "simulator", "local": True},
        "report": {"tables": tables},
    }  # fmt: skip
    (folder / "hostile.yaml").write_text(yaml.safe_dump(sweep))
    return folder / "hostile.yaml"


def ran(folder: Path) -> tuple[SweepRun, str]:
    """The sweep, run to its end, and the state of its run in MLflow."""
    done = run_sweep(load_sweep(definition(folder)), local=True, output=folder / "out", console=Console(file=io.StringIO()))
    client = mlflow.MlflowClient(f"sqlite:///{folder}/out/mlflow.db")
    (parent,) = client.search_runs([client.get_experiment_by_name("hostile").experiment_id], "tags.kind = 'sweep'")
    return done, parent.info.status


def assert_literal(text: str, style: str) -> None:
    """What stands in a report of that style is words and numbers of the report, none of it an instruction."""
    assert not set(text) & ({"\x1b"} if style == "json" else {"\x1b", "\u202e"})
    if style == "latex":
        unescaped = re.sub(r"\\(textbackslash|[{}$%&#_])", "", text)
        assert "\\frac" not in text and "\\input" not in text and unescaped.count("{") == unescaped.count("}")
    if style == "markdown":
        assert not re.search(r"(?<!\\)\]\(|(?<!\\)!\[|<img|https?:", text)
        for _, block in itertools.groupby(text.splitlines(), key=lambda line: line.startswith("|")):
            assert len({line.replace(r"\|", "").count("|") for line in block if line.startswith("|")}) <= 1
    if style == "csv":
        cells = [cell for row in csv.reader(io.StringIO(text)) for cell in row]
        assert not [c for c in cells if c[:1] in ("=", "+", "@") or (c[:1] == "-" and not re.fullmatch(r"-[\d.e-]+", c))]


@pytest.mark.thorough
def test_a_sweep_with_such_names_ends_in_order(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    done, status = ran(tmp_path)
    assert status == "FINISHED" and done.notes == () and done.failed == 0
    assert_literal(capsys.readouterr().out, "table")
    for style in FORMATS:
        assert main(["report", str(done.folder), "--study", "--format", style]) == 0
        text = capsys.readouterr().out
        assert_literal(text, style)
        assert "[31mred" in text.replace("\\[", "["), "the name is still to be read"
    for name in ("runs.csv", "leaderboard.csv", "study.csv"):
        assert_literal((done.folder / name).read_text(), "csv")
    (picture,) = done.folder.glob("placements/*.graph.svg")
    drawn = "".join(ElementTree.parse(picture).getroot().itertext())
    assert all(name in drawn for name in (MATH, LINK, FORMULA))


@pytest.mark.thorough
@pytest.mark.parametrize("label", [MATH, LINK, FORMULA, "<img src=x>", "-1+1", TERMINAL])
def test_a_label_means_nothing_to_what_prints_it(tmp_path: Path, label: str) -> None:
    results = [trial(method, seed, problem(label, 1.0 + seed)) for method in (label, "other") for seed in range(2)]
    found = compare(collect(results))
    for style in FORMATS:
        text = tables.render(found, style)
        assert_literal(text, style)
        if style == "table":
            assert escape.plain(label) in text
    assert_literal(delimited(tables.runs_frame(found)), "csv")
    for draw in (makespan_per_method, performance_profile, search_curves):
        _, picture = draw(found, tmp_path / "plot")
        assert escape.plain(label) in "".join(ElementTree.parse(picture).getroot().itertext()), "drawn as it stands"


def test_escapes_leave_plain_names_alone() -> None:
    for name in ("heft", "layered/0@desktop", "résumé 3.5 (b)", "计算图"):
        assert escape.plain(name) == escape.csv_words(name) == escape.latex(name) == escape.markdown(name) == name
    assert escape.markdown("see www.a.b or mailto:x@y") == "see www\\.a.b or mailto\\:x@y"
    assert escape.plain("a\nb\x00c") == "a b\\x00c"
    assert escape.latex_row(["[2cm] x", "1"]) == r"{}[2cm] x & 1 \\"


@pytest.mark.thorough
def test_whatever_fails_in_a_report_is_a_note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from orchestration.plots import placed_graph, timeline

    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("no\nfonts")

    with monkeypatch.context() as patch:
        for module, name in ((finish, "performance_profile"), (placed_graph, "draw"), (timeline, "write_page")):
            patch.setattr(module, name, broken)
        patch.setattr(finish.tables, "leaderboard_frame", broken)
        done, status = ran(tmp_path)
    assert status == "FINISHED"
    assert [note.partition(" is missing: ")[::2] for note in done.notes] == [
        (what, "RuntimeError: no fonts")
        for what in (
            "leaderboard.csv",
            "plot profile",
            "the picture of the best placement of g@n",
            "the timeline of the best placement of g@n",
        )
    ]
    assert (done.folder / "leaderboard.json").exists() and (done.folder / "plots" / "makespan.png").exists()

    (tmp_path / "again").mkdir()
    with monkeypatch.context() as patch:
        patch.setattr(finish, "compare", broken)
        done, status = ran(tmp_path / "again")
    assert status == "FINISHED" and not (done.folder / "leaderboard.json").exists()
    (note,) = done.notes
    assert note.startswith("no report: RuntimeError: no fonts; `placewright report ")
    assert main(["report", str(done.folder), "--write"]) == 0 and (done.folder / "leaderboard.json").exists()
