"""What the driver costs: many trials of one placement of three operations, on Ray, tracked."""

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
from orchestration.driver.run_sweep import DRAIN_SECONDS, _run_all
from orchestration.folder.definition_copy import save_definition
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
budget: 1
"""


class Watched(Display):
    """Notes the driver's memory at a tenth and at the end."""

    def __init__(self, total: int) -> None:
        super().__init__(total, 0, (), Console(quiet=True))
        self.memory: list[tuple[int, float]] = []
        self.times: list[float] = []

    def ended(self, *args, **kwargs) -> None:
        super().ended(*args, **kwargs)
        self.times.append(time.perf_counter())
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
    last: float
    """Trials a second in the last tenth of them."""
    begin: float
    """CPU seconds from reading the sweep to knowing all of its trials."""
    tracked: float
    """Seconds from the last trial taken back until MLflow had all."""


def resident() -> float:
    """Resident bytes of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return float(pages * resource.getpagesize())


def run(trials: int, output: Path) -> Cost:
    """So many trials that do nothing; the folder ``output / "nothing"`` is left as a sweep leaves it, without its report."""
    output.mkdir(parents=True, exist_ok=True)
    path = output / "nothing.yaml"
    path.write_text(SWEEP.replace("LAST", str(trials - 1)))
    begin = time.process_time()
    sweep = load_sweep(path)
    with Ledger(output / "nothing") as ledger:
        save_definition(output / "nothing", sweep)
        agenda, display = Agenda(sweep, ledger), Watched(trials)
        begin = time.process_time() - begin
        backend = RayBackend(output / "nothing", address=None, cpus=None, simulators=None, service=False)
        try:
            backend.begin_tracking(TrackingSpec(default_uri(output), str(output / "nothing"), "nothing"))
            wall, cpu = time.perf_counter(), time.process_time()
            _run_all(agenda, backend, display, "nothing")
            wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
            tracked = time.perf_counter()
            note = backend.end_tracking("FINISHED", [], DRAIN_SECONDS)
            tracked = time.perf_counter() - tracked
        finally:
            backend.close()
    if display.done != trials or note:
        raise RuntimeError(f"{display.done} of {trials} trials ended, {display.failed} failed; {note}")
    return Cost(trials, wall, cpu, display.memory[-1][1] - display.memory[0][1], last_rate(display.times), begin, tracked)


def last_rate(times: list[float]) -> float:
    """How many a second there were in the last tenth, of events at these times."""
    last = times[-max(2, len(times) // 10) :]
    return (len(last) - 1) / max(last[-1] - last[0], 1e-9) if len(last) > 1 else 0.0


def measure() -> list[Figure]:
    """Driver time and memory; the trials' own time is the workers'."""
    with tempfile.TemporaryDirectory() as name:
        first = run(WARM_UP, Path(name, "first"))
        whole = first.wall / WARM_UP * TRIALS <= LONGEST
        cost = run(TRIALS if whole else FEWER, Path(name, "all"))
    note = f"{cost.trials:,} no-op trials" + ("" if whole else f" ({TRIALS:,} would have taken more than {LONGEST:.0f} s)")
    return [
        at_most("driver's CPU time a trial", cost.cpu / cost.trials * 1e3, "ms", 10, note),
        at_most("wall time a trial, workers and tracker on the same cores", cost.wall / cost.trials * 1e3, "ms", 20, note),
        at_most("growth of the driver's memory from a tenth of the trials to the end", cost.growth / 2**20, "MiB", 32, note),
    ]
