"""How far a sweep has come, from its definition and its ledger. Nothing is run or changed here."""

from __future__ import annotations

import fcntl
import json
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestration.checkpoint import safe_name
from orchestration.ledger import LEDGER, LOCK, entries, trial_folder
from orchestration.runner import CHECKPOINT

if TYPE_CHECKING:
    from orchestration.definition.sweep import Sweep

HOSTS = "hosts.json"
STATES = ("finished", "pruned", "failed", "started", "waiting")
"""A trial is ``started`` if it left a checkpoint to go on from."""


@dataclass(frozen=True)
class SweepStatus:
    """Counts of trials by stage and state, and what failed."""

    sweep: str
    active: bool
    """Whether a driver is running it now."""
    stages: dict[str, dict[str, int]]
    failures: tuple[tuple[str, str, str], ...]
    """(trial hash, what it was, last line of its traceback)."""

    def to_json(self) -> dict[str, Any]:
        """As a dict of JSON values."""
        failures = [{"trial": t, "what": what, "error": error} for t, what, error in self.failures]
        return {"sweep": self.sweep, "active": self.active, "stages": self.stages, "failures": failures}

    def text(self) -> str:
        """For the terminal."""
        lines = [f"{self.sweep}: {'running' if self.active else 'not running'}"]
        width = max(map(len, self.stages))
        for stage, counts in self.stages.items():
            parts = [f"{counts[state]} {state}" for state in STATES if counts.get(state)]
            lines.append(f"  {stage:{width}}  {', '.join(parts)}")
        lines += [f"  failed: {trial[:12]} {what}: {error}" for trial, what, error in self.failures]
        return "\n".join(lines)


def sweep_status(sweep: Sweep, output: Path) -> SweepStatus:
    """The status of ``sweep`` in the output folder; a sweep that never ran is all waiting."""
    folder = output / safe_name(sweep.name)
    ended = {r.trial: (t, r) for t, r in entries(folder)} if (folder / LEDGER).exists() else {}
    stages: dict[str, Counter[str]] = {}
    failures = []
    for trial in sweep.expand():
        key = trial.content_hash
        if key in ended:
            state, result = ended[key][1].status, ended[key][1]
            if state == "failed":
                last = (result.traceback or "").strip().splitlines()[-1:] or ["unknown"]
                failures.append((key, f"{trial.label} on {trial.problem_label}, seed {trial.seed}", last[0]))
        else:
            state = "started" if (trial_folder(folder, key) / CHECKPOINT).exists() else "waiting"
        stages.setdefault(trial.stage, Counter())[state] += 1
    return SweepStatus(sweep.name, is_active(folder), {k: dict(v) for k, v in stages.items()}, tuple(failures))


def write_statistics(folder: Path, statistics: Mapping[str, Any]) -> None:
    """Note how the reward service's hosts are; the driver does so every few seconds."""
    path = folder / HOSTS
    part = path.with_suffix(".part")
    part.write_text(json.dumps({"at": time.time(), **statistics}), encoding="utf-8")
    part.replace(path)


def read_statistics(output: Path) -> dict[str, dict[str, Any]]:
    """The last note of every sweep under ``output``, by its folder's name; ``active`` says whether it still runs."""
    found = {}
    for path in sorted(output.glob(f"*/{HOSTS}")):
        try:
            found[path.parent.name] = {**json.loads(path.read_text(encoding="utf-8")), "active": is_active(path.parent)}
        except (OSError, ValueError):
            continue
    return found


def is_active(folder: Path) -> bool:
    """Whether a driver holds the ledger's lock."""
    path = folder / LOCK
    if not path.exists():
        return False
    with path.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return True
    return False
