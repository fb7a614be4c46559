"""Folders of sweeps that ran, to be damaged: all done, with a search, stopped within a trial, with what was learned, with measurements."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
from pathlib import Path
from random import Random
from typing import ClassVar

from envs.simulators.fifo.evaluator import Simulator
from orchestration.specs.layout import STORE
from tests.fuzz.mutations import any_bytes, any_json

PLACED = ("small.placement.json",)
"""What ``place`` leaves of the small model."""
_HEAD = """
problems:
  networks: {n3: {synthetic: {devices: 3}, seed: 0}}
  graphs: {a: {synthetic: {tasks: 6}, seed: 0}}
"""
SWEEPS = {
    "plain": _HEAD + "methods: [random, heft, local-search]\nseeds: [0, 1]\nbudget: 12\nevaluator: {kind: simulator, local: true}\n",
    "study": _HEAD
    + """methods: [local-search]
budget: 12
evaluator: {kind: simulator, local: true}
stages:
  tune: {kind: search, search: {space: {batch: {int: [2, 16]}}, configurations: 4, sampler: tpe, seed: 0}}
""",
    "learned": _HEAD
    + """methods: {placeto: {rounds: 1}}
budget: 24
checkpoint_every: 4
evaluator: {kind: simulator, local: true}
stages:
  pretrain: {on: a}
  zero-shot: {from: pretrain, on: a}
""",
    "measured": _HEAD + "methods: [random, local-search]\nseeds: [0, 1]\nbudget: 12\nevaluator: {kind: pretended}\n",
}
SWEEPS["stopped"] = SWEEPS["learned"]


class Pretended(Simulator):
    """Says that it measures, so that what it says is kept."""

    measures_for_real: ClassVar[bool] = True


def pretend_to_measure() -> None:
    """Let sweeps name `Pretended`."""
    from orchestration.rewards import kinds

    kinds.OWN["pretended"] = f"{__name__}:Pretended"
    kinds._entries.cache_clear()


def tables(name: str) -> list[str]:
    """What must be the same again."""
    return [f"{name}/runs.csv", f"{name}/leaderboard.csv"]


def place_command(home: Path) -> list[str]:
    """Places the small model; with a sound cache or a damaged one the result is the same."""
    model, network = home / "sound" / "small.onnx", home / "sound" / "network.json"
    return ["place", str(model), "--network", str(network), "--method", "heft", "--budget", "1"]


def write_folders(home: Path) -> None:
    """Run every sweep; what is not damaged and takes space is left out."""
    from tests.fuzz.worker import call

    checkpoints: list[bytes] = []
    for name, text in SWEEPS.items():
        definition = home / "sound" / f"{name}.yaml"
        definition.write_text(f"sweep: {name}\n{text}")
        with _kept_checkpoints(checkpoints) if name == "stopped" else contextlib.nullcontext():
            code, _ = call(["run", str(definition), "--local", "--output", str(home / name)])
        if code:
            raise RuntimeError(f"sweep {name} ended with {code}")
        shutil.rmtree(home / name / "mlartifacts", ignore_errors=True)
    call([*place_command(home), "--output", str(home / "placed")])
    shutil.copytree(home / "cache", home / "sound" / "cache")
    _stop(home / "stopped" / "stopped", checkpoints)
    _forget(home / "learned" / "learned", "zero-shot")
    (home / "measured" / "measured" / "ledger.jsonl").unlink()  # so that all is read from the store
    with contextlib.closing(sqlite3.connect(home / "measured" / "measured" / STORE)) as store:
        store.execute("PRAGMA wal_checkpoint(TRUNCATE)")  # into the file that is to be damaged


@contextlib.contextmanager
def _kept_checkpoints(kept: list[bytes]):
    from orchestration.specs.layout import CHECKPOINT
    from orchestration.trials import run_trial

    real = run_trial.save_state

    def save_state(path: Path, *args, **options) -> None:
        real(path, *args, **options)
        if path.name == CHECKPOINT:
            kept.append((path, path.read_bytes()))

    run_trial.save_state = save_state
    try:
        yield
    finally:
        run_trial.save_state = real


def _lines(folder: Path) -> list[bytes]:
    return (folder / "ledger.jsonl").read_bytes().splitlines(keepends=True)


def _forget(folder: Path, stage: str) -> None:
    """As if the trials of a stage had not run."""
    (folder / "ledger.jsonl").write_bytes(b"".join(line for line in _lines(folder) if f'"stage":"{stage}"'.encode() not in line))


def _stop(folder: Path, checkpoints: list) -> None:
    """As if the first trial had been killed."""
    path, data = checkpoints[len(checkpoints) // 2]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    trial = path.parent.name.encode()
    (folder / "ledger.jsonl").write_bytes(b"".join(line for line in _lines(folder) if b'"trial":"' + trial not in line))


def damaged(rng: Random, sound: Path, copy: Path, file: str) -> Path:
    """A copy of a folder without its report, in which one file of this name is damaged; that file."""
    shutil.copytree(sound, copy, ignore=shutil.ignore_patterns("plots", "placements", "runs.csv", "leaderboard.*", "*.lock"))
    path = rng.choice(sorted(copy.rglob(file)))
    if file != "ledger.jsonl" and rng.random() < 0.5:  # something is left to do
        ledger = next(copy.rglob("ledger.jsonl"), None)
        if ledger is not None:
            ledger.write_bytes(b"".join(_lines(ledger.parent)[:-1]))
    data = path.read_bytes()
    kind = rng.randrange(20)
    path.unlink()
    if kind == 0:
        path.mkdir()
    elif kind == 1:
        pass
    elif b"\n" in data and file != "mlflow.db" and kind < 10:
        path.write_bytes(_lines_damaged(rng, data))
    else:
        path.write_bytes(any_bytes(rng, data))
    return path


def _lines_damaged(rng: Random, data: bytes) -> bytes:
    """A line less, twice, elsewhere, or with another content."""
    lines = data.splitlines(keepends=True)
    at, other = rng.randrange(len(lines)), rng.randrange(len(lines))
    kind = rng.randrange(5)
    if kind == 0:
        del lines[at]
    elif kind == 1:
        lines.insert(other, lines[at])
    elif kind == 2:
        lines[at], lines[other] = lines[other], lines[at]
    else:
        with contextlib.suppress(ValueError):
            import json

            lines[at] = any_json(rng, json.loads(lines[at])) + b"\n"
    return b"".join(lines)


def damaged_cache(rng: Random, home: Path) -> Path:
    """The cache of graphs with one damaged entry; that file."""
    shutil.rmtree(home / "cache")
    shutil.copytree(home / "sound" / "cache", home / "cache")
    path = rng.choice(sorted((home / "cache").rglob("*.npz")))
    data = path.read_bytes()
    path.unlink()
    if rng.randrange(20) == 0:
        path.mkdir()
    else:
        path.write_bytes(any_bytes(rng, data))
    return path
