"""Simulations on a cluster: every node with CPUs serves them, whatever comes and goes."""

from __future__ import annotations

import time

import pytest

from tests.orchestration.ray_cluster import ray_nodes
from tests.orchestration.waiting import asking, prepare


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_nodes_that_come_are_used_and_nodes_that_go_take_nothing_with_them(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", "")
    prepare(tmp_path / "package")
    with ray_nodes(workers=0, cpus=2) as nodes, asking(nodes) as asker:
        asker.tell("until", 1)
        assert asker.answer()["nodes"] == 1
        nodes.add()
        asker.tell("until", 2)
        both = asker.answer()
        assert both["nodes"] == 2 and both["right"], both
        asker.tell("ask", 200)
        time.sleep(1.0)
        nodes.kill(0)
        assert asker.answer()["right"]
        asker.tell("until", 1)
        alone = asker.answer()
        assert alone["nodes"] == 1 and alone["right"], alone
