"""Tables in a paper's shape: those a definition asks for, and those that ablations and held-out graphs bring by themselves."""

import csv
import io
import json
import math

import mlflow
import pytest
from rich.console import Console

from orchestration.analysis.load import load_sweep_record, remembered
from orchestration.cli.main import main
from orchestration.definition.issues import Issues
from orchestration.definition.source import read_source, write_yaml
from orchestration.definition.sweep import load_sweep
from orchestration.driver.run_sweep import run_sweep
from orchestration.folder.definition_copy import save_definition
from orchestration.report.finish import STUDY, finish_sweep
from orchestration.report.paper import contrasts
from orchestration.report.paper.section import report_section
from orchestration.report.paper.shapes import study_tables

TEXT = """
sweep: both
problems:
  graphs: {layered: {synthetic: {tasks: 12}, seeds: 0..2}}
  networks: {four: {synthetic: {devices: 4}}}
methods: {toy-learner: , local-search: }
ablations:
  base: local-search
  small-batch: {batch: 2}
  hot: {temperature: 0.5}
seeds: [0, 1]
budget: 40
evaluator: {kind: simulator, local: true}
report:
  tables: [{shape: final, title: Final, baseline: local-search, stages: [scratch]}]
stages:
  pretrain: {hold_out: each, methods: [toy-learner]}
  finetune: {from: pretrain, budget: 20}
  zero-shot: {from: pretrain}
  scratch: {kind: search}
"""


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """The sweep, run here; its folder."""
    from pathlib import Path

    import methods
    from orchestration.report import finish

    folder = tmp_path_factory.mktemp("both")
    (folder / "both.yaml").write_text(TEXT)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(methods, "__path__", [*methods.__path__, str(Path(__file__).parents[1] / "toy_methods")])
        patch.setattr(finish, "_write_plots", lambda *_: [])
        patch.setattr(finish, "PLACEMENTS_UP_TO", 0)
        console = Console(file=io.StringIO())
        return run_sweep(load_sweep(folder / "both.yaml"), local=True, output=folder / "out", console=console).folder


@pytest.fixture
def record(ran):
    return load_sweep_record(ran)


def tables_of(record):
    return {t.title: t for t in study_tables(record, report_section(record.folder, record.folder))}


def objectives(record, method, stage):
    """By graph, a list over seeds."""
    names = {p.key: p.graph for p in record.collection.problems}
    found = {}
    for run in record.collection.runs:
        if (run.method, run.stage) == (method, stage):
            found.setdefault(names[run.problem], []).append(run.objective)
    return found


def change(own, base):
    """In percent: geometric mean over graphs of means over seeds."""
    ratios = [math.log(sum(own[g]) / sum(base[g])) for g in own]
    return f"{100 * math.expm1(sum(ratios) / len(ratios)):+.1f} %"


@pytest.mark.thorough
def test_the_tables_are_files_and_artifacts(ran):
    assert [name for name in STUDY if not (ran / name).stat().st_size] == []
    titles = ["Final", "Ablations of local-search", "Held-out graphs"]
    assert [t["title"] for t in json.loads((ran / "study.json").read_text())] == titles
    assert [line[4:] for line in (ran / "study.md").read_text().splitlines() if line.startswith("### ")] == titles
    cells = list(csv.DictReader(io.StringIO((ran / "study.csv").read_text())))
    assert list(dict.fromkeys(c["table"] for c in cells)) == titles
    client = mlflow.MlflowClient(f"sqlite:///{ran.parent}/mlflow.db")
    (parent,) = client.search_runs([client.get_experiment_by_name("both").experiment_id], "tags.kind = 'sweep'")
    assert {a.path for a in client.list_artifacts(parent.info.run_id)} >= STUDY.keys()


@pytest.mark.thorough
@pytest.mark.parametrize("style", ["table", "markdown", "latex", "json"])
def test_the_command_shows_them_in_every_format(ran, capsys, style):
    assert main(["report", str(ran), "--format", style]) == 0
    text = capsys.readouterr().out
    assert "Ablations of local-search" in text and "Held-out graphs" in text
    assert main(["report", str(ran), "--study", "--format", "csv"]) == 0
    assert len(list(csv.DictReader(io.StringIO(capsys.readouterr().out)))) > 20


def test_programs_get_numbers(ran, capsys):
    """JSON and CSV hold each number by itself, with what belongs to it, and words where there is no number."""
    tables = {t["title"]: t for t in json.loads((ran / "study.json").read_text())}
    final = tables["Final"]
    (leader,) = [row for row in final["rows"] if row[0] == "local-search"]
    mean = leader[3]
    (better,) = (row[4] for row in final["rows"] if row[0] == "hot")
    assert mean["n"] == 2 and mean["least"] <= mean["value"] <= mean["most"]
    assert better.keys() == {"better", "equal", "worse"} and sum(better.values()) == pytest.approx(1)
    times = [row[1] for row in tables["Held-out graphs"]["rows"][:3]]
    assert all(t["unit"] in ("ms", "units") and t["n"] == t["of"] == 2 and t["deviation"] >= 0 and t["change"] > -100 for t in times)
    cells = list(csv.DictReader(io.StringIO((ran / "study.csv").read_text())))
    numbers = cells[0].keys() - {"table", "label", "column", "unit", "words"}
    assert {"row", "value", "low", "high", "deviation", "n", "better", "equal", "worse"} <= numbers
    for cell in cells:
        assert all(float(cell[name]) is not None for name in numbers if cell[name]), cell
        assert cell["words"] in ("", "base", "–")
    assert main(["report", str(ran), "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["study"] == list(tables.values())


def test_ablations_are_told_as_changes_of_their_base(record):
    table = tables_of(record)["Ablations of local-search"]
    assert table.columns[:3] == ("method", "problems", "change") and [r[0] for r in table.rows] == ["local-search", "small-batch", "hot"]
    base = objectives(record, "local-search", "scratch")
    for row in table.texts[1:]:
        own = objectives(record, row[0], "scratch")
        assert row[1:3] == ("3", change(own, base))
        assert [row[3 + i] for i in range(3)] == [change({g: own[g]}, {g: base[g]}) for g in ("layered/0", "layered/1", "layered/2")]
        better, equal, worse = map(float, row[-2].split(" / "))
        assert better + equal + worse == pytest.approx(100, abs=0.2)
        assert (worse > better) == (float(row[2].split()[0]) > 0) or equal == 100
        assert 0 < float(row[-1]) <= 1


def test_held_out_graphs_are_told_against_a_search_from_scratch(record):
    table = tables_of(record)["Held-out graphs"]
    assert table.columns == ("graph", "zero-shot", "finetune", "scratch (from scratch)")
    found = {stage: objectives(record, "toy-learner", stage) for stage in ("zero-shot", "finetune", "scratch")}
    for graph, zero, tuned, scratch in table.texts[:3]:
        for cell, stage in ((zero, "zero-shot"), (tuned, "finetune"), (scratch, "scratch")):
            mean = 1e3 * sum(found[stage][graph]) / 2
            assert float(cell.split()[0].replace(",", "")) == pytest.approx(mean, rel=1e-3)
        assert tuned.endswith(f"({change({graph: found['finetune'][graph]}, {graph: found['scratch'][graph]})})")
    assert table.texts[3] == (
        "geometric mean",
        change(found["zero-shot"], found["scratch"]),
        change(found["finetune"], found["scratch"]),
        "",
    )


def test_columns_may_gather_stages(record):
    entry = {"shape": "generalization", "columns": {"direct": "scratch", "transferred": ["finetune"]}}
    (table,) = study_tables(record, {"tables": [entry]})
    assert table.columns == ("graph", "direct", "transferred") and len(table.rows) == 4
    assert table.texts[3][1] == "" and table.texts[3][2].endswith("%")


def test_an_entry_replaces_what_comes_by_itself():
    ablations = [{"base": "a", "x": {"k": 1}}, {"base": "b", "y": {"k": 1}}]
    definition = {"ablations": ablations, "stages": {"train": {"hold_out": "each"}, "ft": {"from": "train"}, "all": {"kind": "search"}}}
    plain = contrasts.with_defaults(definition)
    assert [(e["shape"], e.get("base")) for e in plain] == [("ablation", "a"), ("ablation", "b"), ("generalization", None)]
    assert plain[0]["methods"] == ["a", "x"] and plain[2]["stages"] == ["ft", "all"]
    section = {"tables": [{"shape": "ablation", "base": "b", "title": "Mine"}, {"shape": "generalization", "columns": {"c": "ft"}}]}
    mine, columns = contrasts.with_defaults({**definition, "report": section})
    assert mine == {"shape": "ablation", "title": "Mine", "base": "b", "methods": ["b", "y"]}
    assert columns == {"shape": "generalization", "columns": {"c": "ft"}}
    assert contrasts.with_defaults({"stages": {"one": {"kind": "search"}}}) == []


def test_a_table_that_cannot_be_made_does_not_stop_the_others(ran, record):
    notes = []
    asked = [{"shape": "outputs", "title": "T4"}, {"shape": "final"}, {"shape": "ablation", "base": "nobody"}]
    (table,) = study_tables(record, {"tables": asked}, notes)
    assert table.title == "final"
    assert len(notes) == 2 and "no table 'T4'" in notes[0] and "base 'nobody' of the ablations has no result" in notes[1]


def test_files_of_tables_that_are_no_longer_asked_for_go(ran, tmp_path, monkeypatch):
    import shutil

    from orchestration.report import finish

    folder = tmp_path / "both"
    shutil.copytree(ran, folder, ignore=shutil.ignore_patterns("placements", "trials"))
    monkeypatch.setattr(finish, "_write_plots", lambda *_: [])
    monkeypatch.setattr(finish, "report_section", lambda *_: {})
    finished = finish_sweep(folder)
    assert finished.study == () and not any((folder / name).exists() for name in STUDY)


FRAGMENT = """
problems:
  graphs: {g: {synthetic: {tasks: 8}, seed: 0}}
  networks: {four: {synthetic: {devices: 4}}}
methods: [heft, random]
budget: 5 # few
evaluator: {kind: simulator, local: true}
report: {include: tables.yaml, baseline: random}
"""


def test_what_a_definition_includes_is_kept_and_read(tmp_path, monkeypatch, capsys):
    from orchestration.report import finish

    monkeypatch.setattr(finish, "_write_plots", lambda *_: [])
    monkeypatch.setattr(finish, "PLACEMENTS_UP_TO", 0)
    here = tmp_path / "sweeps"
    (here / "parts").mkdir(parents=True)
    (tmp_path / "pyproject.toml").touch()
    (here / "small.yaml").write_text("include: parts/full.yaml\nsweep: small\n")
    (here / "parts" / "full.yaml").write_text(FRAGMENT)
    (here / "parts" / "tables.yaml").write_text("tables: [{shape: final, title: From a fragment}]")
    arguments = ["run", str(here / "small.yaml"), "--local", "--output", str(tmp_path / "out")]
    assert main(arguments) == 0
    folder = tmp_path / "out" / "small"
    assert load_sweep_record(folder).baseline == "random"
    kept_files = sorted(str(p.relative_to(folder)) for p in folder.glob("definition/**/*.yaml"))
    assert kept_files == ["definition/parts/full.yaml", "definition/parts/tables.yaml", "definition/small.yaml"]
    assert load_sweep(folder / "definition" / "small.yaml").content_hash == load_sweep(here / "small.yaml").content_hash
    assert load_sweep(folder / "resolved.yaml").content_hash == load_sweep(here / "small.yaml").content_hash
    client = mlflow.MlflowClient(f"sqlite:///{tmp_path}/out/mlflow.db")
    (parent,) = client.search_runs([client.get_experiment_by_name("small").experiment_id], "tags.kind = 'sweep'")
    names = {a.path for path in (None, "definition/parts") for a in client.list_artifacts(parent.info.run_id, path)}
    assert names >= {"sweep.yaml", "resolved.yaml", "definition/parts/full.yaml", "study.md"}
    capsys.readouterr()
    assert main(["report", "small", "--output", str(tmp_path / "out")]) == 0
    text = capsys.readouterr().out
    assert "Against random" in text and "From a fragment" in text

    assert remembered(folder) is not None
    (here / "parts" / "full.yaml").write_text(FRAGMENT.replace("few", "not many"))
    save_definition(folder, load_sweep(here / "small.yaml"))
    assert remembered(folder) is not None, "a comment changes nothing"
    (here / "parts" / "full.yaml").write_text(FRAGMENT.replace("budget: 5", "budget: 6"))
    save_definition(folder, load_sweep(here / "small.yaml"))
    assert remembered(folder) is None, "the fragment has been changed since"


def test_a_resolved_definition_means_the_same(tmp_path):
    values = {
        "on": ["1e-4", 1e-4, 1e-05, "no", "0..4", None, True, "~", "1_0", math.inf, "2024-01-01", "0x1F", "é: #"],
        "0": {"a b": "x\ny"},
    }
    (tmp_path / "x.yaml").write_text(write_yaml(values))
    source = read_source(tmp_path / "x.yaml", Issues())
    assert source is not None and source.node.plain() == values


def test_a_wrong_table_in_an_edited_definition_does_not_stop_the_leaderboard(ran, tmp_path, capsys):
    (tmp_path / "both.yaml").write_text(TEXT.replace("shape: final, title: Final", "shape: finl, title: Final"))
    assert main(["report", str(tmp_path / "both.yaml"), "--output", str(ran.parent)]) == 0
    captured = capsys.readouterr()
    assert "Leaderboard" in captured.out and "Held-out graphs" in captured.out
    assert "no table 'Final': unknown shape 'finl' of a table in 'report'; did you mean 'final'?" in captured.err


def test_a_baseline_without_a_result_is_told(ran, tmp_path):
    import shutil

    folder = tmp_path / "both"
    shutil.copytree(ran, folder, ignore=shutil.ignore_patterns("placements", "trials"))
    (folder / "resolved.yaml").write_text("report: {baseline: heft}")
    record = load_sweep_record(folder)
    assert record.known_baseline is None and record.notes == ("the baseline 'heft' has no result, so the leader stands in for it",)
