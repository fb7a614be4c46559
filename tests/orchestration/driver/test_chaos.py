"""One study of stages and a search, wherever it runs and whatever is killed: always the same tables."""

from pathlib import Path

import pytest

from tests.orchestration.chaos import KILLS, SWEEP, Driver, Report, chaos, check, undisturbed_run
from tests.orchestration.ray_cluster import ray_nodes

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory) -> Path:
    """The sweep's directory after a run in one process, without Ray; the sweep's definition lies two folders above."""
    return undisturbed_run(tmp_path_factory.mktemp("chaos"))


@pytest.mark.parametrize("workers", [1, 4])
def test_any_number_of_workers_gives_the_same_tables(undisturbed, tmp_path, workers):
    report = Report(seed=0)
    with ray_nodes(workers=0, cpus=workers) as nodes:
        driver = Driver(undisturbed.parents[1] / "chaos.yaml", tmp_path / "out", nodes.environment, "--address", nodes.address)
        driver.start()
        assert driver.process.wait() == 0, driver.log.read_text()[-4000:]
    check(undisturbed, tmp_path / "out" / "chaos", report)
    assert report.faults == [] and report.trials >= 60


def test_a_sweep_under_fire_gives_the_same_tables(undisturbed, tmp_path):
    (tmp_path / "chaos.yaml").write_text(SWEEP)
    report = chaos(0, tmp_path, undisturbed)
    assert report.faults == [], report
    assert report.trials >= 60 and report.kills.total() == len(KILLS) >= 20
