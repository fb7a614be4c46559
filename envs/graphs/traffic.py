"""Traces of connected vehicles between intersections, recorded from SUMO (GiPH section 5.3). What they compute is decided elsewhere.

The recorded trace that ships with the project needs no SUMO; `record` makes a new one. The paper gives: a 6-block area with road-side
units at 36 intersections, 3980 vehicles in an hour, a tenth of them connected, positions every 10 s. Its streets (Tempe, Arizona) are a
grid here: 6 x 6 signalled intersections 400 m apart, with random trips that mostly cross the area.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from xml.etree import ElementTree

import numpy as np

from envs.problem.errors import InputError

RECORDED = Path(__file__).with_name("traffic.npz")
"""The trace that ships with the project: ``record(path)`` with its defaults."""
SIDE = 6
BLOCK = 400.0
"""Length of a block, metres."""
INTERVAL = 10
"""Simulated seconds from one snapshot of the traffic to the next."""


@dataclass(frozen=True, eq=False)
class VehicleTrace:
    """Where connected vehicles were, snapshot by snapshot; rows are sorted by time, then vehicle."""

    time: np.ndarray
    """Seconds since the start, int32[N]."""
    vehicle: np.ndarray
    """Number of the vehicle, int32[N]."""
    position: np.ndarray
    """Metres, float32[N, 2]."""
    intersections: np.ndarray
    """Metres, float32[I, 2]."""

    def at(self, time: int) -> np.ndarray:
        """Rows of one snapshot, int64[K]."""
        return np.arange(*np.searchsorted(self.time, [time, time + 1]))


@lru_cache(maxsize=4)
def load_trace(path: Path = RECORDED) -> VehicleTrace:
    """A trace from its file.

    Raises:
        InputError: if it is no trace.
    """
    try:
        with np.load(path, allow_pickle=False) as data:
            trace = VehicleTrace(*(data[key] for key in ("time", "vehicle", "position", "intersections")))
    except (OSError, ValueError, KeyError) as error:
        raise InputError(f"{path} is no trace of traffic ({error}); make one with `placewright traffic`") from None
    n = len(trace.time)
    if trace.position.shape != (n, 2) or trace.vehicle.shape != (n,) or trace.intersections.ndim != 2 or (np.diff(trace.time) < 0).any():
        raise InputError(f"{path} is no trace of traffic (its arrays do not fit together); make one with `placewright traffic`")
    return trace


def record(path: Path, vehicles: int = 3980, seconds: int = 3600, share: float = 0.1, seed: int = 0) -> VehicleTrace:
    """Simulate traffic by SUMO, without a window, and keep the positions of a ``share`` of the vehicles in ``path``.

    Raises:
        InputError: if SUMO is not installed, or a value is out of range.
    """
    if vehicles < 1 or seconds < INTERVAL or not 0 < share <= 1 or path.suffix != ".npz":
        raise InputError(
            f"vehicles {vehicles}, seconds {seconds}, share {share}, file {path}: at least 1 vehicle, {INTERVAL} s, a share in (0, 1] "
            "and a file that ends in .npz are needed"
        )
    home, programs = _sumo()
    with tempfile.TemporaryDirectory() as folder:
        net, trips, routes, out = (str(Path(folder) / name) for name in ("net.xml", "trips.xml", "routes.xml", "fcd.xml"))
        common = ["--seed", str(seed)]
        grid = ["--grid", "--grid.number", str(SIDE), "--grid.length", str(BLOCK), "--grid.attach-length", str(BLOCK / 2)]
        _run([programs["netgenerate"], *grid, "--default.lanenumber", "2", "--default-junction-type", "traffic_light", *common, "-o", net])
        period = ["-b", "0", "-e", str(seconds), "-p", repr(seconds / vehicles), "--fringe-factor", "5"]
        files = ["-n", net, "-o", trips, "-r", routes]
        _run([sys.executable, str(home / "tools" / "randomTrips.py"), *files, *period, *common], SUMO_HOME=str(home))
        steps = ["-b", "0", "-e", str(seconds), "--fcd-output", out, "--device.fcd.period", str(INTERVAL)]
        _run([programs["sumo"], "-n", net, "-r", trips, *steps, *common, "--no-step-log", "--no-warnings", "--time-to-teleport", "120"])
        connected = np.flatnonzero(np.random.default_rng(np.random.SeedSequence(seed)).random(vehicles) < share)
        rows = _positions(out, set(connected.tolist()))
        # Of the grid's junctions those named by column and row (A0 … F5); the others end the streets that lead out.
        inside = [j for j in ElementTree.parse(net).getroot().iter("junction") if re.fullmatch(r"[A-Z]\d", j.get("id", ""))]
        intersections = np.array([[float(j.get(a, "nan")) for a in "xy"] for j in inside], dtype=np.float32)
    rows.sort()
    table = np.array(rows, dtype=np.float64).reshape(-1, 4)
    trace = VehicleTrace(table[:, 0].astype(np.int32), table[:, 1].astype(np.int32), table[:, 2:].astype(np.float32), intersections)
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(path, time=trace.time, vehicle=trace.vehicle, position=trace.position, intersections=intersections)
    return trace


def _positions(path: str, connected: set[int]) -> list[tuple[float, int, float, float]]:
    """(time, vehicle, x, y) of the connected vehicles of SUMO's floating-car data, rounded to metres."""
    rows = []
    for _, step in ElementTree.iterparse(path):
        if step.tag == "timestep":
            time = float(step.get("time", "nan"))
            for car in step:
                number = int(car.get("id", "-1"))
                if number in connected:
                    rows.append((time, number, float(round(float(car.get("x", "nan")))), float(round(float(car.get("y", "nan"))))))
            step.clear()
    return rows


def _sumo() -> tuple[Path, dict[str, str]]:
    """Where SUMO lies, and its programs."""
    spec = importlib.util.find_spec("sumo")
    home = os.environ.get("SUMO_HOME") or (spec.submodule_search_locations[0] if spec and spec.submodule_search_locations else None)
    places = os.pathsep.join([*([str(Path(home) / "bin")] if home else []), str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    found = {name: shutil.which(name, path=places) for name in ("sumo", "netgenerate")}
    if home is None or not all(found.values()):
        raise InputError("SUMO is not installed; run `pip install 'placewright[traffic]'`, or use the recorded trace")
    return Path(home), {name: str(file) for name, file in found.items()}


def _run(command: list[str], **environment: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **environment})
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise InputError(f"{Path(command[0]).name} failed: {last}; is this SUMO whole?")
