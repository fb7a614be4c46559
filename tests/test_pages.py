"""The documentation's pages: they build without a warning, and what they tell a reader to write and to type works, in their order."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
CHROMIUM = shutil.which("chromium")
TUTORIALS = sorted((ROOT / "docs" / "tutorials").glob("*.md"))
WORKFLOW = ROOT / "tests" / "envs" / "sources" / "data" / "wfinstances" / "helloworld-forkjoin-10-chameleon.json"
SERVER = re.compile(r"^placewright ui\b.*$", re.MULTILINE)
"""Goes on until it is stopped; browsers look at it in other tests."""
BLOCK = re.compile(r"^```(\w+)(?: title=\"([^\"]+)\")?\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def environment():
    """Commands of this environment, on this code, wherever they are run."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    return {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), "NO_MKDOCS_2_WARNING": "1"}


@pytest.mark.slow
def test_the_site_builds_without_a_warning(tmp_path):
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site")]
    done = subprocess.run(command, check=False, cwd=ROOT, env=environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    pages = {p.relative_to(tmp_path / "site").as_posix() for p in (tmp_path / "site").rglob("*.html")}
    assert {"index.html", "sweeps.html", "cluster.html", "results.html", "reference/methods.html", "reference/commands.html"} <= pages
    assert (tmp_path / "site" / "search" / "search_index.js").exists(), "search needs its index as a script to work without a server"
    for page in (tmp_path / "site").rglob("*.html"):
        assert "```" not in page.read_text(encoding="utf-8"), f"{page.name} has a code block that is none"
        fetched = re.findall(r"<(?:script|link|img)[^>]+(?:src|href)=\"?(https?://[^\">\s]+)", page.read_text(encoding="utf-8"))
        assert fetched == [], f"{page.name} fetches {fetched}"


def follow(page, folder):
    """A block with a title is a file; ``sh`` is typed, ``python`` run; ``bash`` needs what is not here, and ``text`` is for the eye."""
    blocks = BLOCK.findall(page.read_text(encoding="utf-8"))
    assert {language for language, _, _ in blocks} <= {"yaml", "toml", "json", "python", "sh", "bash", "text"}
    for language, title, body in blocks:
        if title:
            (folder / title).parent.mkdir(parents=True, exist_ok=True)
            (folder / title).write_text(body, encoding="utf-8")
            continue
        assert language in ("sh", "python", "bash", "text") or not body.startswith("sweep:"), "a sweep without a title is not used"
        if language not in ("sh", "python"):
            continue
        command = ["bash", "-euc", SERVER.sub("", body)] if language == "sh" else [sys.executable, "-c", body]
        done = subprocess.run(command, check=False, cwd=folder, env=environment(), capture_output=True, text=True)
        assert done.returncode == 0, f"{body}\n{done.stdout}\n{done.stderr}"


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("page", TUTORIALS, ids=lambda page: page.stem)
def test_a_tutorial_can_be_followed(page, tmp_path):
    follow(page, tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_readme_can_be_followed(tmp_path):
    """The files that it takes for a reader's own are a small model, a workflow, and the problem and the graph of docs/format.md."""
    model = BLOCK.findall((ROOT / "docs" / "tutorials" / "own-model.md").read_text(encoding="utf-8"))[0][2]
    subprocess.run([sys.executable, "-c", model.replace("branches.onnx", "model.onnx")], check=True, cwd=tmp_path, env=environment())
    shutil.copy(WORKFLOW, tmp_path / "workflow.json")
    problem = BLOCK.findall((ROOT / "docs" / "format.md").read_text(encoding="utf-8"))[0][2]
    (tmp_path / "problem.json").write_text(problem, encoding="utf-8")
    graph = {"format": "placewright/1", "graph": json.loads(problem)["graph"]}
    for node in graph["graph"]["nodes"]:  # devices and hardware that other networks do not have
        node.pop("devices", None), node.pop("hardware", None)
    (tmp_path / "my-graph.json").write_text(json.dumps(graph), encoding="utf-8")
    follow(ROOT / "README.md", tmp_path)
    assert (tmp_path / "placed" / "model.placement.json").exists() and (tmp_path / ".placewright" / "first-look" / "report.html").exists()


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_guide_of_clusters_can_be_followed_on_a_laptop(tmp_path):
    """Its first step; the others need Docker and machines: `tests/test_code_blocks.py` and `tests/test_infra.py` check their words."""
    shutil.copytree(ROOT / "sweeps", tmp_path / "sweeps")
    follow(ROOT / "infra" / "README.md", tmp_path)
    assert (tmp_path / ".placewright" / "quickstart" / "report.html").exists()


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")
def test_search_works_on_files(tmp_path):
    """In a real browser, without a server: a word is typed, and its page is found and opened."""
    from playwright.sync_api import sync_playwright

    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site")]
    subprocess.run(command, check=True, cwd=ROOT, env=environment())
    with sync_playwright() as p, p.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"]) as browser:
        page = browser.new_page(viewport={"width": 1400, "height": 900})
        page.goto((tmp_path / "site" / "index.html").as_uri())
        page.fill("input[name=query]", "checkpoint_every")
        found = page.locator(".md-search-result__link").first
        found.wait_for(timeout=60_000)
        found.click()
        page.wait_for_url(re.compile("sweeps.html"))
