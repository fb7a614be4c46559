"""Sweeps of many small trials that really ran, left in a folder as the driver would: for tests of reports and pages at scale."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from orchestration.definition.sweep import load_sweep
from orchestration.folder.definition_copy import save_definition
from orchestration.folder.ledger import Ledger, TrialEnd
from orchestration.rewards.evaluators import build_evaluator
from orchestration.specs.trial import Trial
from orchestration.trials.run_trial import run_trial

AT_ONCE = 200
"""Trials that a process is handed together."""
SWEEP = """
sweep: big
description: Many small trials
problems:
  networks: {{n3: {{synthetic: {{devices: 3}}, seed: 0}}, n4: {{synthetic: {{devices: 4}}, seed: 0}}}}
  graphs: {{deep: {{synthetic: {{tasks: 16, shape: 0.5}}, seeds: {deep}}}, wide: {{synthetic: {{tasks: 20, shape: 1.0}}, seeds: {wide}}}}}
methods:
  d0: {{method: single-device, device: d0}}
  d1: {{method: single-device, device: d1}}
  d2: {{method: single-device, device: d2}}
  round-robin:
  heft:
  cpop:
  metis:
  random:
  local-search:
  problem-space:
seeds: 0..{seeds}
budget: 10
evaluator: {{kind: simulator, local: true}}
"""


def definition(graphs: int, seeds: int) -> str:
    """A sweep of ``10 · 2 · graphs · seeds`` trials: ten methods on two networks."""
    return SWEEP.format(deep=f"0..{(graphs + 1) // 2 - 1}", wide=f"0..{graphs // 2 - 1}", seeds=seeds - 1)


def write(folder: Path, graphs: int, seeds: int, processes: int = 2) -> Path:
    """Run every trial of the `definition` and record it; the sweep's folder, without a report."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "big.yaml").write_text(definition(graphs, seeds))
    sweep = load_sweep(folder / "big.yaml")
    made = folder / "big"
    with Ledger(made) as ledger:
        save_definition(made, sweep)
        for ended in _run(sweep.expand(), processes):
            ledger.append(ended)
    return made


def _run(trials: list[Trial], processes: int) -> Iterator[list[TrialEnd]]:
    with ProcessPoolExecutor(processes) as pool:
        yield from pool.map(_ended, (trials[i : i + AT_ONCE] for i in range(0, len(trials), AT_ONCE)))


def _ended(trials: list[Trial]) -> list[TrialEnd]:
    evaluator = build_evaluator(trials[0].evaluator)
    return [TrialEnd.of(trial, run_trial(trial, evaluator)) for trial in trials]


if __name__ == "__main__":
    print(write(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])))
