"""The control plane of 1,000 nodes of 64 CPUs without the nodes: the driver with as many trials handed out, the tracker with as many
reports, the service with as many shards, on a Ray of this machine. In place of workers, tasks wait for what nobody has."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil

from orchestration.driver.backends import MOST_AHEAD, RayBackend
from orchestration.folder.ledger import Ledger
from orchestration.rewards.client import PATIENCE, SHARDS_SECONDS
from orchestration.rewards.ray_service import ServiceActor, Shard, actor
from orchestration.specs.canonical import FrozenDict
from orchestration.specs.trial import Trial, TrialTask
from orchestration.tracking.store_checks import default_uri
from orchestration.tracking.tracker import Tracker, TrackingSpec
from orchestration.trials.worker import LIVE_SECONDS
from tests.bench.figure import Figure, at_most
from tests.orchestration.sweeps_for_tests import trial

NODES, CPUS = 1_000, 64
HANDED = (0, 12_800, NODES * CPUS + MOST_AHEAD)
"""Trials that wait with the workers, as `RayBackend.room` has it at the end."""
LONG = 600.0
"""Seconds that a trial lasts on such a cluster, in the mean."""
REAL, REPORTS, ASKS = 300, 20_000, 500


class Wide(ServiceActor):
    """A service whose cluster has many nodes."""

    def widen(self, nodes: int) -> None:
        """As if it had found so many."""
        self._shards = {f"{i:056x}": Shard(f"{i:056x}", None, 16) for i in range(nodes)}
        self._looked_for_nodes = float("inf")


def cpu(pid: int) -> float:
    """CPU seconds of a process so far."""
    used = psutil.Process(pid).cpu_times()
    return float(used.user + used.system)


def measure() -> list[Figure]:
    """CPU seconds, which others on the machine do not lengthen much."""
    import ray

    figures = []
    with tempfile.TemporaryDirectory() as name, Ledger(Path(name) / "wide") as _:
        folder = Path(name) / "wide"
        backend = RayBackend(folder, address=None, cpus=2, simulators=None, service=False)
        try:
            backend.begin_tracking(TrackingSpec(default_uri(Path(name)), str(folder), "wide"))
            one = trial("random", 1)
            for count in HANDED:
                handed = backend.busy()
                each = _cpu(lambda n=count - handed: _hand_out(backend, one, n)) / max(1, count - handed) * 1e3
                took, wait = _through(backend, one)
                memory = psutil.Process().memory_info().rss / 2**20
                note = f"{count:,} others handed out, {each:.2f} ms each; a wait {wait:.1f} ms; {memory:,.0f} MiB"
                figures.append(at_most("driver's CPU time a trial", took * 1e3, "ms", 1e3 * LONG / (NODES * CPUS), note))
            backend.stop()
            figures.append(_reports(ray, actor(Tracker).remote(TrackingSpec("", str(folder), "wide")), one))
            figures.append(_asks(ray))
        finally:
            backend.close()
    return figures


def _cpu(action: Callable[[], object]) -> float:
    begin = time.process_time()
    action()
    return time.process_time() - begin


def _hand_out(backend: RayBackend, one: Trial, count: int) -> None:
    nowhere = FrozenDict({"num_cpus": 1, "num_gpus": 0, "custom": FrozenDict({"nowhere": 1})})
    for i in range(count):
        backend.submit(TrialTask(replace(one, seed=1_000_000 + i, resources=nowhere)), "wide")


def _through(backend: RayBackend, one: Trial) -> tuple[float, float]:
    """CPU seconds of handing a trial out and taking it back, while others wait; and of one wait, in ms."""
    waits, left, out, begin = [], REAL, 0, time.process_time()
    while left:
        while out < 6 and out < left:
            backend.submit(TrialTask(replace(one, seed=len(waits) * 10 + out)), "wide")
            out += 1
        before = time.process_time()
        back = len(backend.wait())
        waits.append(time.process_time() - before)
        left, out = left - back, out - back
    return (time.process_time() - begin) / REAL, 1e3 * sum(waits) / len(waits)


def _reports(ray: Any, tracker: Any, one: Trial) -> Figure:
    """What the tracker's process needs for a report of a running trial, most of which it drops."""
    ray.get(tracker.notes.remote())
    pid = max(p.pid for p in psutil.Process().children(recursive=True) if p.cmdline()[:1] == ["ray::Tracker"])
    some = [replace(one, seed=i) for i in range(1000)]
    before = cpu(pid)
    for i in range(REPORTS):
        tracker.live.remote(some[i % 1000], {"evaluations": i, "wall_seconds": 1.0, "best": {"best_makespan": 1.0}})
    ray.get(tracker.notes.remote())
    each = (cpu(pid) - before) / REPORTS * 1e3
    note = f"{NODES * CPUS:,} trials that each report every {LIVE_SECONDS:g} s; with fewer each is heard less often"
    return at_most("tracker's CPU time a live report", each, "ms", 1e3 * LIVE_SECONDS / (NODES * CPUS), note)


def _asks(ray: Any) -> Figure:
    """What a sweep's service needs to tell a worker's process that those are still there who simulate."""
    wide = actor(Wide).remote(1)
    ray.get(wide.widen.remote(NODES))
    pid = ray.get(wide.statistics.remote())["pid"]
    name, _ = ray.get(wide.shards.remote("simulator"))
    each = []
    for known in ("", name):
        before = cpu(pid)
        for _ in range(ASKS):
            ray.get(wide.shards.remote("simulator", known))
        each.append((cpu(pid) - before) / ASKS * 1e3)
    between = SHARDS_SECONDS + PATIENCE * NODES
    note = f"{NODES:,} shards; {each[0]:.2f} ms the first time; {NODES * CPUS:,} processes that each ask every {between:g} s"
    return at_most("service's CPU time to say who simulates where", each[1], "ms", 1e3 * between / (NODES * CPUS), note)
