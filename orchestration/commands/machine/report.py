"""What ``placewright place --on`` and ``calibrate`` write and print."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np

from envs.hosts.engine.host import fingerprint
from envs.hosts.engine.placed import FORMAT
from envs.problem.errors import InputError
from orchestration.analysis.table import Table, terminal
from orchestration.commands.machine.calibration import save_problem
from orchestration.commands.machine.candidates import Candidate
from orchestration.commands.machine.search import Found
from orchestration.commands.machine.target import Target
from orchestration.plots import timeline


def record(found: Found, target: Target) -> dict[str, Any]:
    """Everything, for programs; seconds."""
    return {
        "format": FORMAT, **target.describe(), "machine": fingerprint(), "chosen": found.chosen.name, "kind": found.chosen.kind,
        "reason": found.reason, "placement": _placement(found), "candidates": [_candidate(c) for c in found.candidates],
        "calibration": found.calibration, "corrections": list(found.corrections),
    }  # fmt: skip


def _placement(found: Found) -> dict[str, str] | None:
    if found.chosen.placement is None:
        return None
    names, devices = found.problem.graph.names, found.problem.network.names
    return {name: devices[d] for name, d in zip(names, found.chosen.placement.tolist(), strict=True)}


def _candidate(c: Candidate) -> dict[str, Any]:
    interval = c.interval()
    return {
        "name": c.name, "kind": c.kind, "simulated": c.simulated, "measured": c.median if np.isfinite(c.median) else None,
        "interval": list(interval) if interval else None, "rounds": len(c.samples or c.screening), "deciding": bool(c.samples),
        "samples": c.samples or c.screening, "why": c.why or None,
    }  # fmt: skip


def write(found: Found, target: Target, folder: Path) -> list[tuple[Path, str]]:
    """The placement with all about it, and the calibrated problem with its placements."""
    folder.mkdir(parents=True, exist_ok=True)
    stem = re.sub(r"[^\w.-]+", "-", found.problem.graph.name)
    path, problem = folder / f"{stem}.placed.json", folder / f"{stem}.problem.json"
    path.write_text(json.dumps(record(found, target), indent=1) + "\n", encoding="utf-8")
    rows = [c.placement for c in (found.chosen, *found.candidates) if c.placement is not None]
    save_problem(found.problem, target, problem, np.array(rows))
    files = [(path, "placement (give it to placewright export)"), (problem, "calibrated problem, for sweeps and placewright simulate")]
    return files + _measured(found, target, folder / stem)


def _measured(found: Found, target: Target, stem: Path) -> list[tuple[Path, str]]:
    """Timeline and trace of a run of the choice, or of the fastest placement where the runtime's own way was chosen."""
    running = [c for c in found.candidates if c.placement is not None and np.isfinite(c.median)]
    if not running:
        return []
    shown = found.chosen if found.chosen.placement is not None else min(running, key=lambda c: c.median)
    try:
        run = target.run(found.problem, shown.placement)
    except InputError:  # what ran until now may fail once more, which takes nothing from what was found
        return []
    title = f"{found.problem.graph.name}: {shown.name}"
    origin = f"measured: one run of {1e3 * run.makespan:,.4g} ms on {fingerprint()}"
    page = timeline.write_page(run, stem.with_name(f"{stem.name}.timeline.html"), title, origin=origin)
    trace = timeline.write_trace(run, stem.with_name(f"{stem.name}.trace.json"), f"{title}, measured")
    return [(page, "timeline of a measured run (open in a browser)"), (trace, "the same for ui.perfetto.dev")]


def summary(found: Found) -> str:
    """For a terminal: fastest first, measured beside simulated."""
    rows = []
    for c in sorted(found.candidates, key=lambda c: (not c.samples, c.median)):
        interval = c.interval()
        spread = f"{interval[0] * 1e3:.2f} to {interval[1] * 1e3:.2f}" if interval else ""
        measured = f"{c.median * 1e3:.2f}" if np.isfinite(c.median) else "–"
        simulated = "" if c.simulated is None else f"{c.simulated * 1e3:.2f}"
        what = "chosen" if c is found.chosen else c.why or ("" if c.samples else "sorted out")
        rows.append((c.name, measured, spread, simulated, what))
    title = f"{found.problem.name}: {found.problem.n_nodes} operations, {found.problem.graph.n_edges} edges"
    head = ("placement", "measured ms", "95 % interval", "simulated ms", "")
    return terminal([Table(title, head, tuple(rows), (found.reason,))])
