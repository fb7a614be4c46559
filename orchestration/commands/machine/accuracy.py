"""``python -m orchestration.commands.machine.accuracy MODEL --on …``: how well calibrated simulations foretell placements near the best.

Placements are drawn around the best ones that searches find, and the fifth that is simulated fastest is measured in turn: half of it to
correct the model by, the other half to compare with. A table says what each correction brings. Run it on a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy import stats

from envs.problem.problem import Problem
from methods.placing.moves import Neighbours
from methods.placing.regions import grouped
from orchestration.analysis.table import Table, terminal
from orchestration.commands.machine.calibration import calibrated
from orchestration.commands.machine.candidates import Candidate, in_turn
from orchestration.commands.machine.options import add_target
from orchestration.commands.machine.parts import Parts
from orchestration.commands.machine.search import Settings, corrected, search
from orchestration.commands.machine.target import Target, Tell
from orchestration.commands.machine.targets import make_target
from orchestration.rewards.evaluators import build_evaluator

_POOL = 10
"""Placements simulated for each that is measured."""
_TOP = 0.2


@dataclass(frozen=True)
class Accuracy:
    """How simulated seconds of the placements that were compared agree with the measured."""

    model: str
    """What the simulation knows."""
    spearman: float
    error: float
    """Median of ``|simulated / measured − 1|``."""
    ratio: float
    """Median of simulated over measured."""


def accuracy(target: Target, count: int, rounds: int, settings: Settings, tell: Tell | None = None) -> list[Accuracy]:
    """The agreement of ``count`` placements near the best, for simulations that know more and more.

    The last row compares measurements with each other: no simulation can be expected to foretell what they do not agree on.

    Args:
        target: the model and the devices.
        count: placements to compare; as many others correct the model.
        rounds: in turn, of which the median counts.
        settings: of the searches around whose results placements are drawn.
        tell: told of progress.
    """
    problem, about = calibrated(target, fresh=settings.fresh, tell=tell)
    near = near_best(problem, target, about, 2 * count, settings)
    candidates = [Candidate(str(k), "placed", p, None) for k, p in enumerate(near)]
    learn, compare = candidates[::2], candidates[1::2]
    in_turn(learn, max(2, rounds // 2), lambda c: target.sample(problem, c.placement), False, _part(tell, "correcting"))
    residuals = target.learned(problem, about)
    evaluator = build_evaluator(target.simulator(about))
    fitted, _ = corrected(residuals, learn, evaluator)
    in_turn(compare, rounds, lambda c: target.sample(problem, c.placement), False, _part(tell, "comparing"))
    variants = [*target.variants(problem, about), ("and residuals", residuals, about), ("and factors of all", fitted, about)]
    ran = [c for c in compare if not c.why]
    rows, real = np.array([c.placement for c in ran]), np.array([c.median for c in ran])
    found = [_agreement(name, build_evaluator(target.simulator(known)).evaluate(on, rows).seconds, real) for name, on, known in variants]
    halves = [np.array([np.median(c.screening[start::2]) for c in ran]) for start in (0, 1)]
    return [*found, _agreement("(half of the rounds against the other)", *halves)]


def _agreement(name: str, foretold: np.ndarray, real: np.ndarray) -> Accuracy:
    ratio = foretold / real
    rank = float(stats.spearmanr(foretold, real)[0]) if np.ptp(foretold) > 0 else float("nan")
    return Accuracy(name, rank, float(np.median(np.abs(ratio - 1))), float(np.median(ratio)))


def _part(tell: Tell | None, name: str):  # type: ignore[no-untyped-def]
    return (lambda k, n: tell(name, k, n)) if tell else None


def near_best(problem: Problem, target: Target, about: dict[str, object], count: int, settings: Settings) -> np.ndarray:
    """Distinct placements int16[count, V]: the fastest simulated fifth of what a few moves make of the best that searches find."""
    simulator, rng = target.simulator(about), np.random.default_rng(settings.seed)
    works = problem.compute_seconds.max(axis=1) > 0
    grains = [grouped(problem, chains=chains) for chains in (True, False)]
    best = [p for on in grains for m in settings.methods if (p := search(on, simulator, m, settings, settings.seed)) is not None]
    pool = {p.tobytes(): p for p in best}
    neighbours = [Neighbours(on, works) for on in grains]
    for _ in range(20 * _POOL * count):
        if len(pool) >= _POOL * count:
            break
        placement = best[int(rng.integers(len(best)))]
        around = neighbours[int(rng.integers(len(neighbours)))]
        for _ in range(int(rng.integers(1, 5))):
            placement = around.draw(placement, rng).astype(np.int16)
        pool[placement.tobytes()] = placement
    rows = problem.colocate(np.array(list(pool.values())))
    seconds = build_evaluator(simulator).evaluate(problem, rows).objective
    top = np.argsort(seconds, kind="stable")[: max(count, int(_TOP * len(rows)))]
    return rows[rng.permutation(top)[:count]]


def summary(found: Sequence[Accuracy], title: str) -> str:
    """A table for the terminal."""
    rows = tuple((f.model, f"{f.spearman:.3f}", f"{100 * f.error:.1f} %", f"{f.ratio:.3f}") for f in found)
    return terminal([Table(title, ("the simulation knows", "Spearman", "median error", "simulated / measured"), rows)])


def main() -> None:
    """Print the table; with ``--output`` the numbers as JSON too."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("model", metavar="MODEL")
    add_target(parser, required=True)
    parser.add_argument("--count", type=int, default=24, help="placements to compare (24)")
    parser.add_argument("--rounds", type=int, default=7, help="rounds in turn (7)")
    parser.add_argument("--budget", type=int, default=2000, help="of each search (2000)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, default=None, metavar="FILE", help="where to write the numbers")
    args = parser.parse_args()
    target = make_target(args.model, args.on, args.memory, args.input_shape, args.size, args.instances)
    try:
        with Parts() as tell:
            found = accuracy(target, args.count, args.rounds, Settings(budget=args.budget, fresh=args.fresh, seed=args.seed), tell)
    finally:
        target.close()
    sys.stdout.write(summary(found, f"{target.graph.name} on {', '.join(target.devices)}: {args.count} placements near the best"))
    if args.output:
        args.output.write_text(json.dumps([vars(f) for f in found], indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
