"""How the reward service grows with the nodes of a cluster: several Ray nodes on this machine, simulators that only wait."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from tests.bench.figure import Figure, at_least, at_most
from tests.orchestration.ray_cluster import ray_nodes
from tests.orchestration.waiting import ROW_SECONDS, ROWS, SIMULATORS, asking, prepare

REQUESTS, NODES, ROUNDS = 768, 4, 2


def measure() -> list[Figure]:
    """The best of some rounds with one node and with all; and how long the last one took from its start to its first rows."""
    path = os.environ.get("PYTHONPATH")
    with tempfile.TemporaryDirectory() as name:
        prepare(Path(name) / "package")
        try:
            with ray_nodes(workers=0, cpus=1) as nodes, asking(nodes) as asker:
                rates, joined = {}, 0.0
                for count in range(1, NODES + 1):
                    if count > 1:
                        nodes.add()
                    asker.tell("until", count)
                    joined = asker.answer()["seconds"]
                    if count in (1, NODES):
                        found = []
                        for _ in range(ROUNDS):
                            asker.tell("ask", REQUESTS)
                            found.append(asker.answer())
                        if not all(f["right"] for f in found):
                            raise RuntimeError("the service answered wrongly")
                        rates[count] = max(f["rows_per_second"] for f in found)
        finally:
            os.environ.pop("PYTHONPATH") if path is None else os.environ.update(PYTHONPATH=path)
    note = (
        f"{rates[NODES]:,.0f} against {rates[1]:,.0f}; {REQUESTS} requests of {ROWS} rows, "
        f"{SIMULATORS} simulators a node that wait {ROW_SECONDS * 1e3:g} ms a row"
    )
    return [
        at_least(f"rows/s through the service on {NODES} nodes, of one node's", rates[NODES] / rates[1],
                 "times", 3.5, note),
        at_most("a node that has joined measures its first rows after", joined, "s", 20),
    ]  # fmt: skip
