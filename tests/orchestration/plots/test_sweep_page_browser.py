"""The page of a sweep in a real browser, opened from the file system: 200 trials and 20,000, light and dark, wide and narrow."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from orchestration.report.finish import finish_sweep
from orchestration.specs.layout import PAGE
from tests.orchestration import big_sweep

CHROMIUM = shutil.which("chromium")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600), pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")]
PATIENCE = 90_000
"""Milliseconds that a page may take on a busy machine."""
SIZES = {"200": (2, 5), "20000": (100, 10)}
"""Graphs and seeds."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-dev-shm-usage"])
        yield started
        started.close()


@pytest.fixture(scope="module", params=SIZES)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sweep's folder with its report."""
    graphs, seeds = SIZES[request.param]
    made = big_sweep.write(tmp_path_factory.mktemp("sweep"), graphs, seeds)
    finished = finish_sweep(made)
    assert finished.notes == () and len(finished.comparison.collection.runs) == int(request.param)
    return made


@pytest.fixture
def page(browser: Any, folder: Path) -> Iterator[Any]:
    context = browser.new_context(viewport={"width": 1400, "height": 1000}, color_scheme="light")
    context.set_default_timeout(PATIENCE)
    page, errors = context.new_page(), []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    page.goto((folder / PAGE).as_uri())
    page.locator("html[data-ready=yes]").wait_for()
    yield page
    context.close()
    assert not errors


def methods(page: Any) -> list[str]:
    return page.locator("#leaderboard td.name").all_inner_texts()


def choose(page: Any, kind: str, value: str) -> None:
    """Leave one value of a filter."""
    pick = page.locator(f".pick[data-kind={kind}]")
    pick.locator("summary").click()
    pick.get_by_role("button", name="None").click()
    pick.locator(f"input[type=checkbox][value='{value}']").check()
    pick.locator("summary").click()


def test_everything_is_there_and_says_that_it_is_simulated(page: Any, folder: Path, tmp_path: Path) -> None:
    page.screenshot(path=tmp_path / "light.png", full_page=True)
    assert len(methods(page)) == 10 and page.title() == "big · simulated"
    for section in ("leaderboard", "curves", "profile", "wins", "problems"):
        assert page.locator(f"#{section} h2 .origin").inner_text() == "simulated"
        assert page.locator(f"#{section} .caption").first.inner_text().startswith("Simulated")
    assert page.locator("#curves svg g[data-row]").count() == page.locator("#profile svg g[data-row]").count() == 10
    assert "of invented graphs" in page.locator("#problems .caption").inner_text()
    # What the report says.
    line = page.locator("#leaderboard tbody tr").first.inner_text()
    iqm = re.search(r"\| 1 \| [\w-]+ \| ([\d.]+ \[[\d., ]+\])", (folder / "leaderboard.md").read_text())
    assert iqm and iqm[1] in line


def test_filters_change_what_is_shown_and_stay_in_the_address(page: Any, tmp_path: Path) -> None:
    problems = page.locator("#problems tbody tr").count()
    choose(page, "network", "n3")
    assert "of the problems chosen" in page.locator("#leaderboard .caption").inner_text()
    assert page.locator("#problems tbody td.name", has_text="@n4").count() == 0
    on_n3 = page.evaluate("D.problems.filter(p => p.network === 'n3').length")
    assert page.locator("#problems tbody tr").count() == min(on_n3, 100)  # the first hundred
    choose(page, "graph", "deep/0")
    assert page.locator("#problems tbody td.name").all_inner_texts() == ["deep/0@n3"]
    choose(page, "method", "heft")
    assert methods(page) == ["heft"] and page.locator("#curves svg g[data-row]").count() == 1
    page.screenshot(path=tmp_path / "filtered.png", full_page=True)
    page.reload()
    page.locator("html[data-ready=yes]").wait_for()
    assert methods(page) == ["heft"] and page.locator("#problems tbody tr").count() == 1
    page.locator("#reset").click()
    assert len(methods(page)) == 10 and page.locator("#problems tbody tr").count() == problems


def test_a_problem_has_its_own_curves_in_its_own_unit(page: Any) -> None:
    page.locator("#which").select_option(label="deep/0@n4")
    assert "deep/0@n4" in page.locator("#curves h2").inner_text() and "[units]" in page.locator("#curves svg").text_content()
    box = page.locator("#curves svg").bounding_box()
    page.mouse.move(box["x"] + 0.4 * box["width"], box["y"] + 0.5 * box["height"])
    assert "units" in page.locator("#tip").inner_text()


def test_tables_are_sorted(page: Any) -> None:
    ranked = methods(page)
    page.locator("#leaderboard th button", has_text=re.compile("^method")).click()
    assert methods(page) == sorted(ranked)
    page.locator("#leaderboard th button", has_text="method ↑").click()
    assert methods(page) == sorted(ranked, reverse=True)


def test_a_timeline_opens(page: Any, tmp_path: Path) -> None:
    name = page.locator("#problems tbody tr:has(a:text-is('timeline')) td.name").first.inner_text()
    page.get_by_role("link", name="timeline").first.click()
    page.get_by_text("lower bound").first.wait_for()
    page.screenshot(path=tmp_path / "timeline.png")
    assert page.locator("#title").inner_text().startswith(f"{name}:") and page.url.startswith("file:")


@pytest.mark.parametrize("width", [380, 800, 1800])
def test_nothing_leaves_the_screen(page: Any, tmp_path: Path, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    page.locator("#theme").click()
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    page.wait_for_function(
        f"Math.max(...[...document.querySelectorAll('.chart svg')].map(s => s.getBoundingClientRect().right)) <= {width}"
    )
    page.screenshot(path=tmp_path / f"dark-{width}.png", full_page=True)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    for pick in page.locator(".pick").all():
        pick.locator("summary").click()
        box = pick.locator(".menu").bounding_box()
        assert box["x"] >= 0 and box["x"] + box["width"] <= width, "an open menu"
        pick.locator("summary").click()
