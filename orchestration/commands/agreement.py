"""``python -m orchestration.commands.agreement``: how well simulated times of placements agree with measured ones (DOPPLER, Figure 18).

The problem is calibrated from traces of the engine, then random placements, none of which was used for that, are both measured
and simulated. What a transfer takes of the sender's processor (`Discipline.send_overhead`) is fitted to placements of their own. Run it
on a machine that does nothing else. With ``--write`` the calibrated problems (graph, network, costs) are left as files, which a sweep can
train on: ``graphs: {chainmm: {problem: chainmm.json}}``.
"""

from __future__ import annotations

import argparse
import os
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from scipy import optimize, stats

from envs.graphs.sharded import sharded
from envs.hosts.engine.calibration import calibrated
from envs.hosts.engine.host import Engine
from envs.hosts.measuring import Measuring
from envs.problem.measurement import Measurements
from envs.problem.network import DeviceNetwork
from envs.problem.problem import Problem
from envs.simulators.work_conserving.discipline import Discipline
from envs.simulators.work_conserving.evaluator import WorkConservingSimulator
from envs.sources.files import dump_problem, save

SIZES = {
    "chainmm": {"size": 1024},
    "ffnn": {"batch": 2048, "hidden": 4096},
    "llama-block": {"sequence": 512, "width": 512, "hidden": 1376, "heads": 8},
    "llama-layer": {"sequence": 512, "width": 512, "hidden": 1376, "heads": 8, "vocabulary": 2048},
}
"""Sizes with about a tenth of a second of work on one core."""


@dataclass(frozen=True)
class SimulatorAgreement:
    """Seconds of the same placements, float64[N], and how they go together."""

    measured: np.ndarray
    simulated: np.ndarray
    dispersion: float
    """Median over placements of the standard deviation of the runs over their mean."""
    model: Problem
    """The calibrated problem."""
    send_overhead: float
    """Seconds, fitted to other placements than these."""

    @property
    def pearson(self) -> float:
        """Pearson's correlation of simulated and measured times."""
        return float(stats.pearsonr(self.measured, self.simulated)[0])

    @property
    def spearman(self) -> float:
        """Spearman's rank correlation of simulated and measured times."""
        return float(stats.spearmanr(self.measured, self.simulated)[0])


def shared_processors(devices: tuple[str, ...]) -> tuple[int, ...]:
    """`Discipline.processors` of the engine's devices: those of one name share; empty if no two do."""
    return tuple(devices.index(name) for name in devices) if len(set(devices)) < len(devices) else ()


def varied_placements(problem: Problem, count: int, seed: int) -> np.ndarray:
    """From good to bad, int16[count, V]: meta-ops or nodes drawn with uneven shares, or shards in turn, part of them redrawn."""
    rng, d, v = np.random.default_rng(seed), problem.n_devices, problem.n_nodes
    placements = np.empty((count, v), dtype=np.int16)
    meta = problem.graph.meta_op
    for k in range(count):
        share = rng.dirichlet(np.ones(d))
        if k % 3 == 0:
            placements[k] = rng.choice(d, v, p=share)
        elif k % 3 == 1:
            placements[k] = rng.choice(d, meta.max() + 2, p=share)[meta]
        else:
            placements[k] = [int(name.rsplit(".", 1)[-1]) % d for name in problem.graph.names]
        redrawn = rng.random(v) < rng.uniform(0, 0.4)
        placements[k, redrawn] = rng.choice(d, redrawn.sum(), p=share)
    return placements


def fitted_overhead(model: Problem, found: Measurements, discipline: Discipline, most: float = 2e-3) -> float:
    """Seconds, up to ``most``, that sending takes, with which simulated times are most nearly proportional to measured ones."""
    placements, measured = found.placements[found.ok], np.log(found.seconds[found.ok])

    def spread(overhead: float) -> float:
        simulator = WorkConservingSimulator(replace(discipline, send_overhead=overhead))
        return float(np.std(measured - np.log(simulator.evaluate(model, placements).seconds)))

    grid = np.linspace(0.0, most, 21)  # not convex, so the best of a grid first
    k = int(np.argmin([spread(float(x)) for x in grid]))
    low, high = grid[max(k - 1, 0)], grid[min(k + 1, len(grid) - 1)]
    return float(optimize.minimize_scalar(spread, bounds=(low, high), method="bounded").x) if k else 0.0


def compare(problem: Problem, engine: Engine, count: int = 120, rounds: int = 3, seed: int = 0) -> SimulatorAgreement:
    """Measure and simulate ``count`` placements; the calibration measures ``rounds`` x D others, and half as many as ``count``."""
    processors = shared_processors(engine.devices)
    model = calibrated(problem, engine, rounds, seed, alone=bool(processors))
    placements = varied_placements(problem, count, seed + 1)
    found = engine.evaluate(problem, placements)
    ok = found.ok
    discipline = replace(engine.discipline, processors=processors)
    overhead = fitted_overhead(model, engine.evaluate(problem, varied_placements(problem, count // 2, seed + 2)), discipline)
    discipline = replace(discipline, send_overhead=overhead)
    simulated = WorkConservingSimulator(discipline).evaluate(model, placements[ok])
    spread = [np.std(s, ddof=1) / np.mean(s) for s, good in zip(found.samples or (), ok, strict=True) if good and len(s) > 1]
    dispersion = float(np.median(spread)) if spread else float("nan")
    return SimulatorAgreement(found.seconds[ok], simulated.seconds, dispersion, model, overhead)


def main() -> None:
    """Print a line for each graph."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("graphs", nargs="*", default=sorted(SIZES), metavar="GRAPH", help=f"of {', '.join(SIZES)}")
    parser.add_argument("--devices", default=None, help="real devices, such as cpu:0,cpu:1; several may share one (the first two cores)")
    parser.add_argument("--count", type=int, default=120, help="placements (120)")
    parser.add_argument("--rounds", type=int, default=3, help="of measurements that the calibration rests on (3)")
    parser.add_argument("--bandwidth", type=float, default=1e9, help="bytes/s of the emulated links (1e9)")
    parser.add_argument("--write", type=Path, default=None, metavar="FOLDER", help="where to leave the calibrated problems")
    args = parser.parse_args()
    cores = sorted(os.sched_getaffinity(0))
    devices = tuple(args.devices.split(",")) if args.devices else tuple(f"cpu:{c}" for c in cores[:2])
    for name in args.graphs:
        graph = sharded(name, element_bytes=4, **SIZES[name])
        network = DeviceNetwork(tuple(f"d{i}" for i in range(len(devices))), np.array(5e10), np.array(args.bandwidth), np.array(1e-4))
        with Engine(devices, Discipline(), Measuring(1, 5, statistic="median")) as engine:
            a = compare(Problem(graph, network), engine, args.count, args.rounds)
        if args.write:
            args.write.mkdir(parents=True, exist_ok=True)
            save(dump_problem(a.model), args.write / f"{name}.json")
        low, high = a.measured.min() * 1e3, a.measured.max() * 1e3
        print(
            f"{name}: {len(a.measured)} placements of {low:.1f} to {high:.1f} ms on {','.join(devices)}, Pearson {a.pearson:.3f}, "
            f"Spearman {a.spearman:.3f}, dispersion {100 * a.dispersion:.1f} %, send_overhead {a.send_overhead:.2g} s", flush=True,
        )  # fmt: skip


if __name__ == "__main__":
    main()
