"""What the documents say, checked: links lead somewhere, the methods are all there, and the example sweep is valid."""

import importlib
import re
from pathlib import Path

import pytest

from methods.contract.registry import names
from orchestration.cli.main import main
from orchestration.definition.sweep import load_sweep

ROOT = Path(__file__).parents[1]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted(ROOT.glob("docs/**/*.md")), *sorted(ROOT.glob("infra/*.md"))]
README = (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    targets = re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text(encoding="utf-8"))
    made = ("reference/", "../reference/")  # by docs/hooks.py
    assert [t for t in targets if not (page.parent / t).exists() and not t.startswith(made)] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_lines_can_be_read(page):
    long = [f"line {n}: {len(line)}" for n, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1) if len(line) > 160]
    assert long == []


@pytest.mark.parametrize("page", [ROOT / "RESULTS.md", *sorted(ROOT.glob("docs/results/*.md"))], ids=lambda page: page.stem)
def test_figures_have_columns_of_their_own(page):
    """A cell has a figure with its interval, two that are compared, or words with a few numbers; lists of figures are columns."""
    number = re.compile(r"(?<![\w.])\d[\d,]*(?:\.\d+)?")
    rows = [line for line in page.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    cells = [cell.strip() for row in rows for cell in re.sub(r"`[^`]*`|\]\([^)]*\)", "", row).split("|")]
    assert [cell for cell in cells if len(number.findall(cell)) > 5] == []
    assert [cell for cell in cells if re.search(r"\d.* / .*\d.* / |^\d[^a-z]*, [^a-z]*\d[^a-z]*, [^a-z]*, ", cell)] == []


@pytest.mark.parametrize("page", sorted(ROOT.glob("docs/tutorials/*.md")), ids=lambda page: page.stem)
def test_the_tutorials_sweeps_and_code_can_be_read(page, tmp_path):
    """Quickly, what the slow tests run (tests/test_pages.py); methods and evaluators of a tutorial are known only there."""
    blocks = re.findall(r"^```(\w+)(?: title=\"([^\"]+)\")?\n(.*?)^```$", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    for language, title, body in blocks:
        (tmp_path / (title or "untitled")).write_text(body, encoding="utf-8")
        if language == "python":
            compile(body, title or page.name, "exec")
        elif language == "yaml" and body.startswith("sweep:") and "pyproject.toml" not in {t for _, t, _ in blocks}:
            assert load_sweep(tmp_path / title).expansion()


@pytest.mark.parametrize(
    "page", ["RESULTS.md", "infra/README.md", "docs/tutorials/own-model.md", "docs/tutorials/own-method.md", "docs/sweeps.md"]
)
def test_a_stranger_finds_it_in_one_click(page):
    """Which claims hold, how to run on a cluster, how to place a model, how to write a method, what a key means."""
    assert f"]({page})" in README


def test_speed_has_a_place_for_what_bench_writes():
    bench = importlib.import_module("tests.bench.__main__")
    text = bench.PAGE.read_text(encoding="utf-8")
    assert [text.count(mark) for section in bench.SECTIONS for mark in bench.marks(section)] == [1] * 6


def test_the_architecture_names_what_is_there():
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    named = re.findall(r"`((?:orchestration|methods|envs|tests)/[\w/.]*)`", page)
    assert len(named) > 40
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_the_readme_lists_every_method():
    rows = [line.split("|")[1] for line in README.splitlines() if line.startswith("| `")]
    assert sorted(name for row in rows for name in re.findall(r"`([^`]+)`", row)) == sorted(names())


def test_the_readmes_commands_exist(capsys):
    with pytest.raises(SystemExit):
        main(["--help"])
    known = capsys.readouterr().out
    assert [c for c in re.findall(r"^placewright (\w+)", README, re.MULTILINE) if f"\n    {c} " not in known] == []


def test_the_readmes_sweep_is_valid(tmp_path):
    (sweep,) = re.findall(r"```yaml title=\"first-look.yaml\"\n(.*?)```", README, re.DOTALL)
    (tmp_path / "first-look.yaml").write_text(sweep)
    graph = '{"format": "placewright/1", "graph": {"nodes": [{"name": "a", "flops": 1}], "edges": []}}'
    (tmp_path / "my-graph.json").write_text(graph)
    assert load_sweep(tmp_path / "first-look.yaml").name == "first-look"
