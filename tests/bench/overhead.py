"""What the driver costs: many trials that do nothing, on Ray, tracked."""

from __future__ import annotations

import resource
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from orchestration.definition.sweep import load_sweep
from orchestration.driver.agenda import Agenda
from orchestration.driver.backends import RayBackend
from orchestration.driver.progress import Display
from orchestration.driver.run_sweep import _run_all
from orchestration.folder.ledger import Ledger
from orchestration.tracking.store_checks import default_uri
from orchestration.tracking.tracker import TrackingSpec
from tests.bench.figure import Figure, at_most

TRIALS, FEWER, WARM_UP = 10_000, 2_000, 200
LONGEST = 600.0
"""Seconds that all trials may take; if they would take longer, fewer are run."""
SWEEP = """
sweep: nothing
problems:
  networks: {n2: {synthetic: {devices: 2}, seed: 0}}
  graphs: {tiny: {synthetic: {tasks: 3}, seed: 0}}
methods: [random]
evaluator: {kind: simulator, local: true}
seeds: 0..LAST
budget: 0
"""


class Watched(Display):
    """Notes the driver's memory at a tenth and at the end."""

    def __init__(self, total: int) -> None:
        super().__init__(total, 0, (), Console(quiet=True))
        self.memory: list[tuple[int, float]] = []

    def ended(self, *args, **kwargs) -> None:
        super().ended(*args, **kwargs)
        if self.done % max(1, self.total // 10) == 0:
            self.memory.append((self.done, resident()))


@dataclass(frozen=True)
class Cost:
    """Of a run of so many trials."""

    trials: int
    wall: float
    """Seconds from the first trial handed out to the last one taken back."""
    cpu: float
    """Seconds of the driver's own process."""
    growth: float
    """Bytes by which the driver grew from a tenth of the trials to the end."""


def resident() -> float:
    """Resident bytes of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return float(pages * resource.getpagesize())


def run(trials: int) -> Cost:
    """So many trials that do nothing."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path = folder / "nothing.yaml"
        path.write_text(SWEEP.replace("LAST", str(trials - 1)))
        sweep, output = load_sweep(path), folder / "out"
        with Ledger(output / "nothing") as ledger:
            agenda, display = Agenda(sweep, ledger), Watched(trials)
            backend = RayBackend(output / "nothing", address=None, cpus=None, simulators=None, service=False)
            try:
                backend.begin_tracking(TrackingSpec(default_uri(output), str(output / "nothing"), "nothing"))
                wall, cpu = time.perf_counter(), time.process_time()
                _run_all(agenda, backend, display, "nothing")
                wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
            finally:
                backend.close()
        if display.done != trials:
            raise RuntimeError(f"{display.done} of {trials} trials ended, {display.failed} failed")
        return Cost(trials, wall, cpu, display.memory[-1][1] - display.memory[0][1])


def measure() -> list[Figure]:
    """Driver time and memory; the trials' own time is the workers'."""
    first = run(WARM_UP)
    whole = first.wall / WARM_UP * TRIALS <= LONGEST
    cost = run(TRIALS if whole else FEWER)
    note = f"{cost.trials:,} no-op trials" + ("" if whole else f" ({TRIALS:,} would have taken more than {LONGEST:.0f} s)")
    return [
        at_most("driver's CPU time a trial", cost.cpu / cost.trials * 1e3, "ms", 10, note),
        at_most("wall time a trial, workers and tracker on the same cores", cost.wall / cost.trials * 1e3, "ms", 20, note),
        at_most("growth of the driver's memory from a tenth of the trials to the end", cost.growth / 2**20, "MiB", 32, note),
    ]
