"""MLflow's own pages on a finished sweep, in a real browser: what users of the tags and artifacts see."""

import itertools
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import mlflow
import pytest

from orchestration.driver.run_sweep import run_sweep
from orchestration.specs.layout import PAGE
from orchestration.tracking.run_contents import grid
from orchestration.tracking.summary import landing
from tests.orchestration.driver.test_driver import quiet
from tests.orchestration.ray_cluster import free_port
from tests.orchestration.servers import MlflowServer, mlflow_server
from tests.orchestration.sweeps_for_tests import small_sweep

CHROMIUM = shutil.which("chromium")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900), pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")]
PATIENCE = 90_000
"""Milliseconds that a page may take on a busy machine."""
OTHER = """
sweep: other
problems:
  networks: {n4: {synthetic: {devices: 4}, seed: 0}}
  graphs: {a: {synthetic: {tasks: 20}, seed: 0}}
methods: [random]
budget: 50
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory) -> Path:
    """An output folder with a sweep of 12 trials, and another one that must not get in its way."""
    folder = tmp_path_factory.mktemp("browser")
    run_sweep(small_sweep(folder), local=True, output=folder / "out", console=quiet())
    run_sweep(small_sweep(folder, OTHER), local=True, output=folder / "out", console=quiet())
    return folder / "out"


@pytest.fixture(scope="module")
def server(home: Path, tmp_path_factory) -> Iterator[MlflowServer]:
    with mlflow_server(f"sqlite:///{home / 'mlflow.db'}", tmp_path_factory.mktemp("server")) as started:
        yield started


@pytest.fixture(scope="module")
def browser() -> Iterator[object]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-dev-shm-usage"])
        yield started
        started.close()


@pytest.fixture
def page(browser) -> Iterator[object]:
    context = browser.new_context(viewport={"width": 1500, "height": 1000})
    context.set_default_timeout(PATIENCE)
    yield context.new_page()
    context.close()


@pytest.fixture(scope="module")
def experiment(server) -> str:
    return mlflow.MlflowClient(server.uri).get_experiment_by_name("small").experiment_id


@pytest.fixture(scope="module")
def runs(server, experiment) -> list[mlflow.entities.Run]:
    return list(mlflow.MlflowClient(server.uri).search_runs([experiment]))


def look(page, tmp_path: Path, name: str) -> None:
    """A screenshot for people, kept with the test's files."""
    page.screenshot(path=tmp_path / f"{name}.png")


def open_table(page, server, experiment: str) -> None:
    page.goto(f"{server.uri}/#/experiments/{experiment}/runs")
    page.locator(".ag-row").first.wait_for()


def expand(page) -> None:
    """Show what lies under the sweep's run."""
    page.locator(".ag-cell:has(a) button").first.click()
    page.locator(".ag-row", has_text="seed 0").first.wait_for()


def names(page) -> list[str]:
    return sorted(a.inner_text() for a in page.locator(".ag-row a").all())


def test_runs_are_grouped_under_their_sweep(page, server, experiment, tmp_path):
    open_table(page, server, experiment)
    assert names(page) == ["small"]
    expand(page)
    look(page, tmp_path, "grouped")
    trials = [f"{method} {graph}@n4 seed {seed}" for method in ("heft", "local-search", "random") for graph in "ab" for seed in (0, 1)]
    assert names(page) == sorted(["small", *trials])


def test_runs_are_filtered_by_tags(page, server, experiment, tmp_path):
    open_table(page, server, experiment)
    box = page.get_by_placeholder(re.compile("metrics.rmse"))
    box.fill("tags.method = 'local-search' and tags.graph = 'b'")
    box.press("Enter")
    page.get_by_text(re.compile(r"^3\s*matching runs")).wait_for()  # the sweep's own run and two seeds
    expand(page)
    look(page, tmp_path, "filtered")
    assert names(page) == ["local-search b@n4 seed 0", "local-search b@n4 seed 1", "small"]


def test_two_methods_are_compared(page, server, experiment, runs, tmp_path):
    two = [r for r in runs if r.data.tags.get("graph") == "a" and r.data.tags["seed"] == "0" and r.data.tags["method"] != "heft"]
    ids = json.dumps([r.info.run_id for r in two])
    page.goto(f"{server.uri}/#/compare-runs?runs={ids}&experiments={json.dumps([experiment])}")
    page.get_by_text("Comparing 2 Runs from 1 Experiment").wait_for()
    page.get_by_text("best_makespan").first.wait_for()
    look(page, tmp_path, "compared")
    text = page.inner_text("body")
    for run in two:
        assert run.data.tags["mlflow.runName"] in text and f"{int(run.data.metrics['best_makespan'])}." in text


def test_a_timeline_is_opened(page, server, experiment, runs, tmp_path):
    parent = next(r for r in runs if r.data.tags["kind"] == "sweep")
    page.goto(f"{server.uri}/#/experiments/{experiment}/runs/{parent.info.run_id}/artifacts/placements/a-n4.timeline.html")
    timeline = page.frame_locator("iframe").locator("body")
    timeline.get_by_text("lower bound").first.wait_for()
    page.wait_for_timeout(1000)
    look(page, tmp_path, "timeline")
    text = timeline.inner_text()
    assert text.startswith("a@n4:") and "20 operations on 4 devices" in text
    assert all(device in text for device in ("d0", "d1", "d2", "d3"))
    assert timeline.locator("svg, canvas").count() > 0


def test_the_landing_page_shows_the_leaderboard_and_groups_by_method(page, server, experiment, tmp_path):
    """The address that ``placewright ui`` prints: in the mode for training models, grouped by method, with a normalised column."""
    page.goto(landing(server.uri, experiment))
    page.get_by_text(re.compile("matching runs")).wait_for()
    page.locator(".ag-row", has_text="Group: heft").wait_for()
    page.locator(".ag-header-cell", has_text="best_over_best_known").first.wait_for()
    page.wait_for_timeout(1000)
    look(page, tmp_path, "landing")
    groups = [r.inner_text() for r in page.locator(".ag-row", has_text="Group:").all()]
    assert {"heft", "local-search", "random"} <= {m for text in groups for m in re.findall(r"Group: ([\w-]+)", text)}
    cells = [c.inner_text() for c in page.locator(".ag-row [col-id*=best_over_best_known]").all()]
    means = [float(c) for c in cells if re.fullmatch(r"[\d.]+", c)]
    assert len(means) >= 3 and min(means) >= 1
    box = page.get_by_text(re.compile("Leaderboard, simulated")).first.locator("xpath=ancestor::*[count(.//button) >= 2][1]")
    box.get_by_role("button").last.click()  # the description's arrow; the pencil stands before it
    page.locator("td", has_text=re.compile("^local-search$")).first.wait_for()
    page.wait_for_timeout(500)
    look(page, tmp_path, "leaderboard")
    assert {"heft", "local-search", "random"} <= {cell.inner_text() for cell in page.locator("td").all()}


def test_the_charts_have_curves_of_the_methods(page, server, experiment, tmp_path):
    page.goto(landing(server.uri, experiment, charts=True))
    page.get_by_placeholder("Search metric charts").fill("best_over_best_known")
    curves = page.locator(".js-plotly-plot .scatterlayer .trace")
    curves.nth(1).wait_for(state="attached")
    page.wait_for_timeout(2000)
    look(page, tmp_path, "charts")
    drawn = [plot.locator(".scatterlayer .trace").count() for plot in page.locator(".js-plotly-plot").all()]
    assert max(drawn) >= 2, "curves of two methods overlay"
    lines = page.evaluate(
        "[...document.querySelectorAll('.js-plotly-plot')].flatMap(p => p.data).filter(t => t.x && t.x.length > 2 && !t.fill)"
        ".map(t => [t.name, [...t.x], [...t.y]])"
    )
    grouped = [(steps, best) for name, steps, best in lines if steps[:5] == [1, 2, 3, 5, 10]]
    assert len({tuple(best) for _, best in grouped}) >= 2, "of local search and of random placements"
    for steps, best in grouped:
        assert steps == grid(300) and best == sorted(best, reverse=True), "means over runs with the same steps do not zigzag"


def test_the_parent_run_says_what_came_out(page, server, experiment, runs, tmp_path):
    parent = next(r for r in runs if r.data.tags["kind"] == "sweep")
    page.goto(f"{server.uri}/#/experiments/{experiment}/runs/{parent.info.run_id}?workflowType=machine_learning")
    page.get_by_text("iqm/heft").first.wait_for()
    page.get_by_text("Show more").first.click()
    page.locator("td", has_text="local-search").first.wait_for()
    look(page, tmp_path, "parent")
    text = page.inner_text("body")
    assert "Leaderboard, simulated" in text and "gap_to_best/random" in text and "Graph" in text and "Datasets" in text


def test_the_command_prints_where_to_look_once_it_answers(home, page):
    """Addresses in MLflow's pages, which open in our view, and the file of our own page of the sweep."""
    address = f"http://127.0.0.1:{(port := free_port())}"
    command = [sys.executable, "-m", "orchestration.cli.main", "ui", "--output", str(home), "--port", str(port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as started:
        try:
            said = list(itertools.takewhile(lambda line: "Ctrl-C" not in line, started.stdout))
            (where,) = [line.split()[1] for line in said if line.startswith("small: ")]
            assert where.startswith(address) and where.endswith("?workflowType=machine_learning&viewStateShareKey=placewright")
            page.goto(where)
            page.locator(".ag-row", has_text="Group: heft").wait_for()
            own = (home / "small" / PAGE).as_uri()
            assert f"  {own}\n" in said
            page.goto(own)
            page.locator("html[data-ready=yes]").wait_for()
        finally:
            started.terminate()
