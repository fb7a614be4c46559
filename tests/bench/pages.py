"""A report and its page at 20,000 trials: time and memory of the report, and until the page is drawn in a real browser."""

from __future__ import annotations

import resource
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

from tests.bench.figure import Figure, at_most

GRAPHS, SEEDS, LOADS = 100, 10, 5


def measure(folder: Path | None = None) -> list[Figure]:
    """Of the sweep of `tests.orchestration.big_sweep`, or of one in a ``folder`` that ran before; the report is made in this process."""
    from orchestration.report.finish import finish_sweep
    from orchestration.specs.layout import PAGE
    from tests.orchestration import big_sweep

    with tempfile.TemporaryDirectory() as made:
        sweep = folder or big_sweep.write(Path(made), GRAPHS, SEEDS)
        begin, cpu = time.perf_counter(), time.process_time()
        runs = len(finish_sweep(sweep).comparison.collection.runs)
        report, cpu = time.perf_counter() - begin, time.process_time() - cpu
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        page = sweep / PAGE
        opened, size = _opened(page), page.stat().st_size / 1e6
    note = f"{runs:,} runs"
    return [
        at_most("Report of a large sweep, with plots, timelines and page", report, "s", 60, f"{note}; {cpu:.0f} s of one core"),
        at_most("Report of a large sweep, peak memory", memory, "GiB", 2, note),
        at_most("Page of a large sweep, from the click to all charts", opened, "s", 3, f"{note}; {size:.1f} MB, median of {LOADS}"),
    ]


def _opened(page: Path) -> float:
    """Seconds until everything is drawn: the median of several loads in Chromium, each with a cache of its own."""
    from playwright.sync_api import sync_playwright

    times = []
    with (
        sync_playwright() as playwright,
        playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"]) as browser,
    ):
        for _ in range(LOADS):
            context = browser.new_context(viewport={"width": 1400, "height": 1000})
            view = context.new_page()
            begin = time.perf_counter()
            view.goto(page.as_uri())
            view.locator("html[data-ready=yes]").wait_for()
            times.append(time.perf_counter() - begin)
            context.close()
    return statistics.median(times)


if __name__ == "__main__":
    for figure in measure(*(Path(argument).resolve() for argument in sys.argv[1:2])):
        print(f"{figure.name}: {figure.value:,.4g} {figure.unit} (target {figure.target}) {figure.note}")
