"""Names of the files that a sweep leaves in its folder."""

from __future__ import annotations

from pathlib import Path

from orchestration.specs.files import safe_name

HOME = Path(".placewright")
"""Where sweeps leave their folders, if nothing else is said."""

LEDGER = "ledger.jsonl"
LOCK = "ledger.lock"
JOURNAL = "studies.journal"
STUDIES_ID = "studies.id"
STATE = "tracking.json"
STORE = "measurements.sqlite"
SEARCHES = "searches.json"
"""The record of all searches: sampler, pruner, every configuration, the winner."""
TRIALS = "trials"
CHECKPOINT = "checkpoint.safetensors"
"""In a trial's folder, as `POLICY`."""
POLICY = "policy.safetensors"
RUNS = "runs.csv"
"""The objective of every run, in full precision."""
CHANGES = "changes.md"
"""What a sweep that was run anew gave differently from the last time."""
PAGE = "report.html"
"""The page of a sweep."""

DRIVER = "driver.json"
"""At a URL that mirrors the folder: which driver writes there."""

BESIDE = (LEDGER, JOURNAL, STUDIES_ID, STORE, TRIALS, STATE)
"""What a fresh run sets aside: the ledger, studies of searches, measurements made for real, what was learned, which runs tell it."""


def trial_folder(folder: Path, trial_hash: str) -> Path:
    """Where a trial keeps its checkpoint and policy."""
    return folder / TRIALS / safe_name(trial_hash[:32])
