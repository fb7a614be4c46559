"""The archive of best known placements and lower bounds of the benchmark's problems: nothing that was not simulated or proven here.

One line a problem in `ARCHIVE`, sorted, so that every improvement is a change of one line. A placement enters only if the simulator gives
it a smaller objective than the one that is there; a bound only if it is larger, and comes from code that proves it (`PROVERS`, and
`envs.simulators.bounds`).
"""

from __future__ import annotations

import base64
import json
import math
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from envs.problem.errors import InputError, nearest
from envs.problem.problem import Problem, shown_in
from envs.simulators.bounds import lower_bound, strong_bound
from envs.simulators.fifo.evaluator import Simulator
from envs.simulators.misjudged import true_problem
from methods.contract.registry import method_class
from orchestration.analysis.load import load_sweep_record, sweep_folder
from orchestration.analysis.quantity import percent, significant
from orchestration.analysis.table import Table, terminal
from orchestration.definition.sweep import load_sweep
from orchestration.specs.sources import build_problem
from orchestration.specs.trial import EvaluatorSpec, ProblemSpec

ARCHIVE = Path("results/best-known/benchmark.jsonl")
BENCHMARK = Path("sweeps/benchmark/benchmark.yaml")
PROVERS = ("cp-sat",)
"""Methods whose report of a lower bound is a proof."""
SAME = 1e-9
"""Relative difference below which two objectives are equal."""
OPTIMAL = 1e-6
"""Relative gap below which a placement counts as optimal, as in `methods.heuristics.cp_sat`."""


@dataclass(frozen=True)
class Named:
    """A problem of the benchmark."""

    name: str
    """``stage/graph@network``."""
    spec: ProblemSpec
    cost_error: float
    """Of the evaluator of its stage; 0 if methods see true costs."""

    def build(self) -> Problem:
        """The problem as it truly is."""
        problem = build_problem(self.spec)
        return true_problem(problem, self.cost_error) if self.cost_error else problem


@dataclass(frozen=True)
class Known:
    """What is known of one problem."""

    problem: str
    problem_hash: str
    """Of the true problem."""
    value: float | None = None
    """Best objective, seconds; None if no placement is known."""
    placement: str = ""
    """See `pack`."""
    found_by: str = ""
    """Method, seed and command that found it."""
    bound: float = 0.0
    proved_by: str = ""
    """What proved the bound."""

    @property
    def gap(self) -> float:
        """How far the best placement may be above the optimum, as a part of it; infinite if nothing is known."""
        return 1.0 - self.bound / self.value if self.value else math.inf


def pack(placement: np.ndarray) -> str:
    """A placement int16[V] as a short text."""
    return base64.b85encode(zlib.compress(np.asarray(placement, dtype="<i2").tobytes(), 9)).decode()


def unpack(text: str) -> np.ndarray:
    """The inverse of `pack`; InputError if it is damaged."""
    try:
        return np.frombuffer(zlib.decompress(base64.b85decode(text)), dtype="<i2").astype(np.int16)
    except (ValueError, zlib.error) as error:
        raise InputError(f"placement {text[:20]!r}… is damaged: {error}; take the line from the last commit") from None


def problems(sweep: Path = BENCHMARK) -> dict[str, Named]:
    """Every problem of the benchmark by name."""
    found = {}
    for stage in load_sweep(sweep).stages:
        evaluator: EvaluatorSpec = stage.shared.evaluator
        for spec in stage.problems:
            name = f"{stage.name}/{spec.label}"
            found[name] = Named(name, spec, float(evaluator.options.get("cost_error") or 0.0))
    return found


def read(archive: Path = ARCHIVE) -> dict[str, Known]:
    """What is known, by problem; empty if there is no archive yet. InputError for a line that cannot be read."""
    if not archive.is_file():
        return {}
    found = {}
    for number, line in enumerate(archive.read_text(encoding="utf-8").splitlines(), 1):
        try:
            known = Known(**json.loads(line))
        except (TypeError, ValueError) as error:
            raise InputError(f"line {number} of {archive} cannot be read: {error}") from None
        found[known.problem] = known
    return found


def write(known: Mapping[str, Known], archive: Path = ARCHIVE) -> None:
    """All of it, sorted by problem."""
    archive.parent.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps(asdict(known[name]), allow_nan=False) for name in sorted(known)]
    archive.write_text("\n".join(lines) + "\n", encoding="utf-8")


def simulated(problem: Problem, placement: np.ndarray) -> float:
    """The objective of a placement, infinite if it cannot run."""
    if len(placement) != problem.n_nodes:
        return math.inf
    return float(Simulator().evaluate(problem, placement[None, :]).objective[0])


def check(known: Mapping[str, Known], named: Mapping[str, Named]) -> Iterator[str]:
    """A sentence for everything that does not hold; builds and simulates every problem."""
    for name in sorted(set(named) - set(known)):
        yield f"{name}: nothing is known of it; add it"
    for name, entry in known.items():
        if name not in named:
            yield f"{name}: the benchmark has no such problem{nearest(name, list(named))}"
        else:
            yield from _check_one(entry, named[name].build())


def _check_one(entry: Known, problem: Problem) -> Iterator[str]:
    if problem.content_hash != entry.problem_hash:
        was, now = entry.problem_hash[:12], problem.content_hash[:12]
        yield f"{entry.problem}: the problem is not what it was when it was frozen ({now}, not {was})"
        return
    if entry.value is not None:
        value = simulated(problem, unpack(entry.placement))
        if not math.isclose(value, entry.value, rel_tol=SAME):
            yield f"{entry.problem}: its placement takes {value:.12g}, not {entry.value:.12g}"
        if entry.bound > entry.value * (1 + SAME):
            yield f"{entry.problem}: bound {entry.bound:.12g} is above the best known {entry.value:.12g}, so one of them is wrong"
    if entry.bound < lower_bound(problem) * (1 - SAME):
        yield f"{entry.problem}: bound {entry.bound:.12g} is below the one that needs no search; add it again"


def improve(
    known: dict[str, Known],
    one: Named,
    problem: Problem,
    placement: np.ndarray | None,
    found_by: str,
    bound: float = 0.0,
    proved_by: str = "",
) -> bool:
    """Takes a placement that is better, or a bound that is larger, than what is known; whether anything was."""
    entry = known.get(one.name) or Known(one.name, problem.content_hash)
    if entry.problem_hash != problem.content_hash:
        raise InputError(f"{one.name} is not what it was when it was frozen; nothing is added to another problem")
    before = entry
    if placement is not None:
        value = simulated(problem, placement)
        if math.isfinite(value) and (entry.value is None or value < entry.value * (1 - SAME)):
            entry = replace(entry, value=value, placement=pack(placement), found_by=found_by)
    if entry.value is not None and bound > entry.value * (1 + SAME):
        raise InputError(f"{one.name}: {proved_by} claims a bound of {bound:.12g}, above a placement that takes {entry.value:.12g}")
    if bound > entry.bound * (1 + SAME):
        entry = replace(entry, bound=bound if entry.value is None else min(bound, entry.value), proved_by=proved_by)
    known[one.name] = entry
    return entry != before


def add_sweep(known: dict[str, Known], named: Mapping[str, Named], folder: str) -> tuple[int, int]:
    """Takes in what the trials of a sweep found; how many problems it has of the benchmark, and how many improved."""
    record = load_sweep_record(sweep_folder(folder))
    by_hash = {(n.spec.content_hash, n.cost_error): n for n in named.values()}
    matched, improved = set(), set()
    for trial, result in record.ended.values():
        error = float(trial.evaluator.options.get("cost_error") or 0.0)
        for spec, found in zip(trial.problems, result.problems, strict=True):
            one = by_hash.get((spec.content_hash, error))
            if one is None or found.placement is None:
                continue
            matched.add(one.name)
            proven = result.report.get("lower_bound", 0.0) if trial.method in PROVERS and not error else 0.0
            changed = _changed(trial.method, trial.config)
            text = f"{trial.method}{changed} seed {trial.seed}, {result.evaluations} evaluations of sweep {record.name}"
            if improve(known, one, one.build(), np.array(found.placement), text, proven, trial.method):
                improved.add(one.name)
    return len(matched), len(improved)


def _changed(method: str, config: Mapping[str, Any]) -> str:
    """The settings that are not the method's defaults, as words after its name."""
    default = asdict(method_class(method).Config())
    kept = {key: value for key, value in config.items() if not isinstance(value, Mapping) and value != default.get(key)}
    return f" {json.dumps(kept)}" if kept else ""


def add_bounds(known: dict[str, Known], named: Iterable[Named]) -> int:
    """Computes `strong_bound` of every problem; how many improved."""
    improved = 0
    for one in named:
        problem = one.build()
        improved += improve(known, one, problem, None, "", strong_bound(problem), "strong_bound")
    return improved


def table(known: Mapping[str, Known], named: Mapping[str, Named]) -> str:
    """What is known of every problem, for a terminal."""
    rows = []
    for name, entry in sorted(known.items()):
        objective = named[name].spec.objective if name in named else "makespan"
        scale, unit = shown_in("makespan" if objective == "own" else objective)
        best = significant(entry.value * scale) if entry.value is not None else "–"
        proven = "optimal" if entry.gap < OPTIMAL else percent(entry.gap)
        rows.append((name, best, significant(entry.bound * scale), unit, proven, entry.found_by.split(" ")[0], entry.proved_by))
    gaps = sorted(e.gap for e in known.values())
    note = (
        f"{len(gaps)} problems, {sum(g < OPTIMAL for g in gaps)} solved to optimality; median proven gap {percent(gaps[len(gaps) // 2])}."
        if gaps
        else "empty"
    )
    columns = ("problem", "best", "bound", "unit", "gap", "found by", "proved by")
    return terminal([Table("Best known", columns, tuple(rows), (note,))])
