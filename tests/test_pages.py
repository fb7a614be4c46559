"""The documentation's pages: they build without a warning, and what they tell a reader to write and to type works, in their order."""

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
        fetched = re.findall(r"<(?:script|link|img)[^>]+(?:src|href)=\"?(https?://[^\">\s]+)", page.read_text(encoding="utf-8"))
        assert fetched == [], f"{page.name} fetches {fetched}"


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("page", TUTORIALS, ids=lambda page: page.stem)
def test_a_tutorial_can_be_followed(page, tmp_path):
    """A block with a title is a file; ``sh`` is typed, ``python`` run; ``text`` is for the eye."""
    blocks = BLOCK.findall(page.read_text(encoding="utf-8"))
    assert {language for language, _, _ in blocks} <= {"yaml", "toml", "json", "python", "sh", "text"}
    for language, title, body in blocks:
        if title:
            (tmp_path / title).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / title).write_text(body, encoding="utf-8")
            continue
        assert language in ("sh", "python", "text"), f"a block of {language} without a title is not used"
        if language == "text":
            continue
        command = ["bash", "-euc", body] if language == "sh" else [sys.executable, "-c", body]
        done = subprocess.run(command, check=False, cwd=tmp_path, env=environment(), capture_output=True, text=True)
        assert done.returncode == 0, f"{body}\n{done.stdout}\n{done.stderr}"


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
