"""How far a sweep has come and how its hosts are, from its definition and its directory; and how to stop it. Nothing is run here."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from envs.problem.errors import InputError
from orchestration.folder.ledger import entries
from orchestration.folder.lock import holder, is_active
from orchestration.folder.mirror import driven
from orchestration.specs.layout import CHECKPOINT, LEDGER, SEARCHES, trial_folder

if TYPE_CHECKING:
    from orchestration.definition.sweep import Sweep

HOSTS = "hosts.json"
"""How the reward service's hosts are, in the sweep's directory."""
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


def sweep_status(sweep: Sweep, folder: Path) -> SweepStatus:
    """The status of ``sweep`` in its folder; a sweep that never ran is all waiting.

    Of searches, and of what waits for them, it counts what has ended and, as waiting, the most that may still come.
    """
    expansion = sweep.expansion()
    stages: dict[str, Counter[str]] = {s.name: Counter() for s in sweep.stages}
    left = {t.content_hash: t.stage for t in expansion.trials}
    plain = frozenset(left)
    searched: Counter[str] = Counter(t.stage for t in expansion.waiting)
    for spec in (*expansion.searches, *expansion.waiting_searches):
        searched[spec.stage] += spec.settings.configurations * len(spec.templates)
    failures = []
    for trial, result in entries(folder) if (folder / LEDGER).exists() else ():  # one at a time: there may be a million
        key = result.trial
        left.pop(key, None)
        if key not in plain and trial.stage not in searched:
            continue  # of an earlier definition of this sweep
        stages[trial.stage][result.status] += 1
        if result.status == "failed":
            last = (result.traceback or "").strip().splitlines()[-1:] or ["unknown"]
            failures.append((key, f"{trial.label} on {trial.problem_label}, seed {trial.seed}", last[0]))
    for key, stage in left.items():
        stages[stage]["started" if (trial_folder(folder, key) / CHECKPOINT).exists() else "waiting"] += 1
    active = is_active(folder) or driven(folder.parent, sweep.name)
    over = (folder / SEARCHES).exists() and not active
    for stage, most in searched.items():
        stages[stage]["waiting"] += 0 if over else max(0, most - sum(stages[stage].values()))
    return SweepStatus(sweep.name, active, {k: dict(v) for k, v in stages.items()}, tuple(failures))


def cancel(folder: Path, timeout: float) -> bool:
    """Ask the driver of a sweep to stop, as Ctrl-C does; whether it did so within ``timeout`` seconds.

    Raises:
        InputError: if no driver runs it, or one on another machine.
    """
    if not is_active(folder):
        raise InputError(f"no driver is running the sweep in {folder}; placewright status shows how far it came")
    owner = holder(folder)
    if owner.get("host") != socket.gethostname() or not isinstance(owner.get("pid"), int):
        raise InputError(f"the sweep in {folder} is run by process {owner.get('pid')} of {owner.get('host')!r}; cancel it there")
    os.kill(owner["pid"], signal.SIGTERM)
    deadline = time.monotonic() + timeout
    while is_active(folder):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True


def write_statistics(folder: Path, statistics: Mapping[str, Any]) -> None:
    """Note how the reward service's hosts are; the driver does so every few seconds, and can do without."""
    path = folder / HOSTS
    part = path.with_suffix(".part")
    with contextlib.suppress(OSError):
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


def hosts_text(found: Mapping[str, Mapping[str, Any]]) -> str:
    """For the terminal."""
    if not found:
        return "no sweep is running that asks a reward service"
    lines = []
    for sweep, statistics in found.items():
        age = time.time() - statistics["at"]
        cache = statistics["cache"]
        seen = f"{age:.0f} s ago" if statistics["active"] else "ended"
        lines.append(f"{sweep} ({seen}; {cache['hits']:,} rows from the cache)")
        if statistics.get("store_fault"):
            lines.append(f"  measurements could not be kept: {statistics['store_fault']}")
        for key, pool in statistics["keys"].items():
            shares = ", ".join(f"{n:,} for {name}" for name, n in pool.get("served", {}).items() if name)
            lines.append(f"  {key}: {pool['queued']} requests queued{f'; measured {shares}' if shares else ''}")
            for h in pool["hosts"]:
                state = next((word for word in ("quarantined", "waiting") if h[word]), "busy" if h["running"] else "idle")
                done = f"{h['measurements']:,} measured, {h['faults']} faults"
                if h["last_fault"]:
                    done += f", the last: {h['last_fault']}"
                lines.append(f"    {h['name']:16} {state:11} {100 * h['utilisation']:3.0f}% used, {done}")
    return "\n".join(lines)
