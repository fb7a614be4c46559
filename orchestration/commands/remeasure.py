"""The best placements of a sweep measured again, in turn, so that they compare under the same conditions. A search's own best time
is the least of many noisy ones, and was taken at another hour than its rival's. Searching for placements does not belong here.
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from envs.problem.errors import InputError, nearest
from envs.problem.measurement import Evaluator
from envs.problem.problem import shown_in
from orchestration.analysis.contest import Contest, Contestant
from orchestration.analysis.quantity import significant
from orchestration.analysis.table import Table, plural
from orchestration.plots import remeasured
from orchestration.rewards.evaluators import build_evaluator, close_evaluators, measures_for_real
from orchestration.rewards.machine_lock import MachineLock
from orchestration.specs.sources import recorded_problem
from orchestration.specs.trial import EvaluatorSpec

if TYPE_CHECKING:
    from orchestration.analysis.load import SweepRecord

ROUNDS = 20
FILES = "remeasured"


def contests(record: SweepRecord, on: str | None = None, methods: Sequence[str] = (), each_seed: bool = False) -> list[Contest]:
    """The best placement of each row of the leaderboard (stage and method, all seeds) on each problem.

    Args:
        on: a stage, whose evaluator is to measure all; None leaves each placement to the one that found it, and leaves out
            what was found by evaluators that give the same every time.
        methods: these alone; none for all.
        each_seed: the best of every seed, which does not choose a seed by noisy times.

    Raises:
        InputError: if nothing is left.
    """
    chosen = _evaluator_of(record, on) if on is not None else None
    known = sorted({run.method for run in record.collection.runs})
    for name in methods:
        if name not in known:
            raise InputError(f"sweep {record.name!r} has no result of method {name!r}{nearest(name, known)}")
    best: dict[tuple[str, str, str, int], tuple[float, str, int]] = {}
    for run in record.collection.runs:
        info = record.collection.problems[record.collection.index[run.problem]]
        spec = chosen or record.ended[run.trial][0].evaluator
        if run.placement is None or (methods and run.method not in methods) or _repeats(spec):
            continue
        key = (info.problem_hash, record.collection.label(run.row), spec.content_hash, run.seed if each_seed else 0)
        best[key] = min(best.get(key, (math.inf, "", 0)), (run.objective, run.trial, run.seed))
    made: dict[str, Contest] = {}
    for (problem_hash, label, *_), (objective, trial, seed) in best.items():
        spec = chosen or record.ended[trial][0].evaluator
        contest = made.get(problem_hash) or made.setdefault(problem_hash, _contest(record, problem_hash))
        _enter(contest, record, Contestant([label], seed, trial, np.empty(0), spec, objective))
    if not made:
        raise InputError(
            f"sweep {record.name!r} has no placement whose measurement varies, so measuring again would change nothing; "
            "name a stage that measures for real or with noise by --on"
        )
    return sorted(made.values(), key=lambda c: c.name)


def _evaluator_of(record: SweepRecord, stage: str) -> EvaluatorSpec:
    found = {trial.stage: trial.evaluator for trial, _ in record.ended.values()}
    if stage not in found:
        raise InputError(f"sweep {record.name!r} has no result of stage {stage!r}{nearest(stage, sorted(found))}")
    return found[stage]


def _repeats(spec: EvaluatorSpec) -> bool:
    return not measures_for_real(spec.kind) and build_evaluator(spec).deterministic


def _contest(record: SweepRecord, problem_hash: str) -> Contest:
    spec = record.specs[problem_hash]
    problem = recorded_problem(spec, problem_hash)
    return Contest(problem, spec.label, shown_in(problem.objective), [])


def _enter(contest: Contest, record: SweepRecord, candidate: Contestant) -> None:
    """Add a candidate with its placement; one that is there already gets another name."""
    result = next(p for p in record.ended[candidate.trial][1].problems if p.problem_hash == contest.problem.content_hash)
    candidate.placement = np.array(result.placement, dtype=np.int16)
    for other in contest.candidates:
        if np.array_equal(other.placement, candidate.placement) and other.evaluator == candidate.evaluator:
            other.names += [name for name in candidate.names if name not in other.names]
            return
    contest.candidates.append(candidate)


def measure_in_turn(found: Sequence[Contest], rounds: int, seed: int = 0, done: Callable[[], None] = lambda: None) -> None:
    """Measure every candidate once a round, each round beginning with another one; nobody else measures on this
    machine meanwhile.

    Args:
        found: the contests; values are added to their candidates.
        rounds: how often.
        seed: of noise; round r draws from the stream (seed, r).
        done: called after every measurement.

    Raises:
        InputError: for less than two rounds.
    """
    if rounds < 2:
        raise InputError(f"rounds is {rounds}, which does not show how measurements vary; give at least 2")
    for contest in found:
        real = any(measures_for_real(c.evaluator.kind) for c in contest.candidates)
        with MachineLock().held() if real else nullcontext():
            _measure(contest, rounds, seed, done)


def _measure(contest: Contest, rounds: int, seed: int, done: Callable[[], None]) -> None:
    built: dict[str, Evaluator] = {}
    try:
        for candidate in contest.candidates:
            built.setdefault(candidate.evaluator.content_hash, build_evaluator(candidate.evaluator))
        for r in range(rounds):
            turn = r % len(contest.candidates)
            for candidate in contest.candidates[turn:] + contest.candidates[:turn]:
                evaluator = built[candidate.evaluator.content_hash]
                m = evaluator.evaluate(contest.problem, candidate.placement[None, :], seed, first=r)
                candidate.values.append(float(m.objective[0]))
                candidate.protocol = m.protocol
                if not m.ok[0]:
                    candidate.notes[(m.notes or ("it did not run",))[0]] = None
                if m.host not in contest.devices:
                    contest.devices.append(m.host)
                done()
        contest.devices += list(dict.fromkeys(text for e in built.values() for text in e.describe()))
    finally:
        close_evaluators(built.values())


def table(contest: Contest, baseline: str | None = None) -> Table:
    """Median, quartiles and the ratio to the baseline (the fastest if None or not there), fastest first."""
    ordered = sorted(contest.candidates, key=lambda c: float(np.median(c.values)))
    names = [(name, c) for c in ordered for name in c.names]
    against, base = next((x for x in names if baseline in (x[0], x[0].partition(" (")[0])), names[0])
    factor, unit = contest.scale
    rows = []
    for c in ordered:
        low, median, high = (_shown(factor * float(q)) for q in np.percentile(c.values, (25, 50, 75), method="inverted_cdf"))
        rows.append((c.name, f"{c.seed}", _shown(factor * c.recorded), median, f"{low} – {high}", _versus(contest, c, base)))
    columns = ("method", "seed", f"in the search, {unit}", f"median, {unit}", "quartiles", f"against {against}")
    rounds = len(ordered[0].values)
    notes = [f"{rounds} rounds, in turn. Against: median over rounds of the ratio of the same round, less 1, with its 95 % interval."]
    notes += [f"measured by {p}" for p in dict.fromkeys(c.protocol for c in ordered)] + contest.devices
    notes += [f"{c.name}: {plural(sum(not math.isfinite(v) for v in c.values), 'round')} failed: {n}" for c in ordered for n in c.notes]
    return Table(contest.name, columns, tuple(rows), tuple(notes))


def _shown(value: float) -> str:
    return significant(value) if math.isfinite(value) else "failed"


def _versus(contest: Contest, candidate: Contestant, baseline: Contestant) -> str:
    if candidate is baseline or not np.isfinite([*candidate.values, *baseline.values]).all():
        return "–"
    ratio = contest.against(candidate, baseline)
    return f"{100 * ratio.value:+.1f} % [{100 * ratio.low:+.1f}, {100 * ratio.high:+.1f}]"


def write(found: Sequence[Contest], folder: Path) -> list[Path]:
    """``remeasured.json`` and ``remeasured.csv`` with every time, and a picture."""
    content = [
        {
            "problem": c.name, "problem_hash": c.problem.content_hash, "devices": c.devices,
            "candidates": [
                {
                    "methods": x.names, "seed": x.seed, "trial": x.trial, "recorded": x.recorded, "protocol": x.protocol,
                    "values": [v if math.isfinite(v) else None for v in x.values], "notes": list(x.notes),
                }
                for x in c.candidates
            ],
        }
        for c in found
    ]  # fmt: skip
    (folder / f"{FILES}.json").write_text(json.dumps(content, indent=1), encoding="utf-8")
    with (folder / f"{FILES}.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(("problem", "methods", "seed", "round", "objective"))
        writer.writerows((c.name, x.name, x.seed, r, v) for c in found for x in c.candidates for r, v in enumerate(x.values))
    return [folder / f"{FILES}.json", folder / f"{FILES}.csv", *remeasured.draw(found, folder / "plots" / FILES)]
