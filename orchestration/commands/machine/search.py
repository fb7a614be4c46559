"""The best placement of a model here: searched on the calibrated simulator, measured, the simulator corrected, searched again.

It never leaves you worse: what is returned was faster beyond the noise than every single device and the runtime's own choice, or it is
the best of those.
"""

from __future__ import annotations

import dataclasses
import itertools
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from envs.costs.table import TableCosts
from envs.problem.errors import InputError
from envs.problem.network import DeviceNetwork
from envs.problem.problem import Problem
from envs.sources.files import dump_problem, save
from methods.contract.registry import configure
from methods.placing.regions import dealt, grouped
from orchestration.commands.machine.calibration import calibrated
from orchestration.commands.machine.candidates import Candidate, in_turn, ratio
from orchestration.commands.machine.target import Target, Tell
from orchestration.commands.place import problem_spec
from orchestration.rewards.evaluators import build_evaluator
from orchestration.specs.results import placement_array
from orchestration.specs.trial import Budget, EvaluatorSpec, FrozenDict, Trial
from orchestration.trials.run_trial import run_trial

_FACTORS = 2.0 ** np.arange(-2, 7)
"""Factors of what cuts cost among which a correction chooses."""
_SETS = 20
"""Pairs, and triples, of devices to deal branches out to, at most."""
_SCREENING = 3
"""Rounds by which candidates are sorted out."""


@dataclass(frozen=True)
class Settings:
    """How much is spent."""

    methods: tuple[str, ...] = ("heft", "local-search")
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """Settings of the last method that differ from its defaults."""
    budget: int = 2000
    rounds: int = 12
    """Of measurements that decide."""
    corrections: int = 2
    """Times that the simulator is corrected by what was measured and searched again, at most."""
    fresh: bool = False
    seed: int = 0


@dataclass(frozen=True)
class Found:
    """What search and measurement gave: the candidates, the choice and why."""

    problem: Problem
    """As corrected last."""
    candidates: tuple[Candidate, ...]
    chosen: Candidate
    reason: str
    calibration: dict[str, Any]
    corrections: tuple[dict[str, float], ...]


def find(target: Target, settings: Settings, tell: Tell | None = None) -> Found:
    """Calibrate, search, measure, correct, choose.

    Raises:
        InputError: if nothing runs, and for unknown methods before anything starts.
    """
    for method in settings.methods:
        configure(method, settings.options if method == settings.methods[-1] else {})
    problem, about = calibrated(target, fresh=settings.fresh, tell=tell)
    evaluator = build_evaluator(target.simulator(about))

    def simulate(on: Problem, placement: np.ndarray) -> float | None:
        found = evaluator.evaluate(on, placement[None, :])
        return float(found.seconds[0]) if found.ok[0] else None

    candidates = _singles(problem, simulate) + [Candidate(name, "own", None, None) for name in target.own]
    corrections: list[dict[str, float]] = []

    def sample(candidate: Candidate) -> float:
        if candidate.placement is None:
            return target.sample_own(problem, candidate.name)
        return target.sample(problem, candidate.placement)

    for attempt in range(settings.corrections + 1):
        new = _searched(problem, target, target.simulator(about), settings, attempt, candidates, simulate, tell)
        if attempt and not new:
            break
        candidates += new
        fresh = [c for c in candidates if not c.screening and not c.why]
        in_turn(fresh, _SCREENING, sample, False, _telling(tell, "measuring"))
        problem = target.learned(problem, about)
        for c in candidates:
            c.simulated = None if c.placement is None else simulate(problem, c.placement)
        problem, change = corrected(problem, candidates, evaluator)
        corrections.append(change)
        for c in candidates:
            c.simulated = None if c.placement is None else simulate(problem, c.placement)
    finalists = _finalists(candidates)
    in_turn(finalists, settings.rounds, sample, True, _telling(tell, "confirming"))
    chosen, reason = choose(candidates)
    return Found(problem, tuple(candidates), chosen, reason, about, tuple(corrections))


def _telling(tell: Tell | None, part: str) -> Callable[[int, int], None] | None:
    return (lambda k, n: tell(part, k, n)) if tell else None


def _singles(problem: Problem, simulate: Callable[[Problem, np.ndarray], float | None]) -> list[Candidate]:
    found = []
    for d, name in enumerate(problem.network.names):
        placement = np.full(problem.n_nodes, d, dtype=np.int16)
        valid = bool(problem.valid(placement[None, :])[0])
        why = "" if valid else "it may not run every operation"
        found.append(Candidate(f"all on {name}", "single", placement, simulate(problem, placement) if valid else None, why=why))
    return found


def _searched(
    problem: Problem, target: Target, simulator: EvaluatorSpec, settings: Settings, attempt: int, known: Sequence[Candidate],
    simulate: Callable[[Problem, np.ndarray], float | None], tell: Tell | None,
) -> list[Candidate]:  # fmt: skip
    """The best placement of every method on each of `_spaces`, without those that are known or use one device only."""
    if problem.n_devices < 2:
        return []
    seen = {c.placement.tobytes() for c in known if c.placement is not None}
    found, again = [], f", corrected {attempt}" if attempt else ""

    def add(name: str, placement: np.ndarray | None) -> None:
        if placement is None or placement.tobytes() in seen or len(set(placement[_runs(problem)].tolist())) < 2:
            return
        seen.add(placement.tobytes())
        found.append(Candidate(name + again, "placed", placement, simulate(problem, placement)))

    for space, on in _spaces(problem, target.groups):
        for k, method in enumerate(settings.methods):
            if tell:
                tell(f"searching ({method}{space})", k, len(settings.methods))
            add(method + space, search(on, simulator, method, settings, settings.seed + attempt))
    add("branches dealt out", _dealt(problem, simulate))
    return found


def _spaces(problem: Problem, groups: Sequence[int]) -> list[tuple[str, Problem]]:
    """What is searched: by whole branches and by operations, each with all devices and without groups.

    What it costs to go from a group to its members and back is not simulated, so that the best with groups is often not the best measured.
    """
    grains = [(" by branches", grouped(problem, chains=True)), ("", grouped(problem, chains=False))]
    allowed = np.array(problem.feasible)
    allowed[:, list(groups)] = False
    if not groups or problem.n_devices - len(groups) < 2 or not allowed.any(axis=1).all():
        return grains
    return grains + [(f"{name} without groups", dataclasses.replace(on, allowed=allowed)) for name, on in grains]


def _dealt(problem: Problem, simulate: Callable[[Problem, np.ndarray], float | None]) -> np.ndarray | None:
    """The best by simulation of the last modules' branches dealt out to some devices; None without branches."""
    base = int(problem.compute_seconds.sum(axis=0).argmin())
    sets = [s for n in (2, 3) for s in itertools.islice(itertools.combinations(range(problem.n_devices), n), _SETS)]
    rows = [row for devices in sets for row in dealt(problem, devices, base)]
    timed = [(seconds, k) for k, row in enumerate(rows) if (seconds := simulate(problem, row)) is not None]
    return rows[min(timed)[1]] if timed else None


def search(problem: Problem, simulator: EvaluatorSpec, method: str, settings: Settings, seed: int) -> np.ndarray | None:
    """The best placement int16[V] that a method finds within the budget; None if it finds none."""
    options = dataclasses.asdict(configure(method, settings.options if method == settings.methods[-1] else {}))
    batch = int(np.clip(settings.budget // 8, 1, 64))
    with tempfile.TemporaryDirectory(prefix="placewright-") as folder:
        path = Path(folder) / f"{Path(problem.graph.name).name}.json"
        save(dump_problem(problem), path)
        trial = Trial(
            method, method, FrozenDict(options), (problem_spec(str(path)),), simulator, Budget(settings.budget), seed, batch=batch
        )
        return placement_array(run_trial(trial, build_evaluator(simulator)).problems[0])


def _runs(problem: Problem) -> np.ndarray:
    """Operations that take time, bool[V]."""
    return problem.compute_seconds.max(axis=1) > 0


def corrected(problem: Problem, candidates: Sequence[Candidate], evaluator: Any) -> tuple[Problem, dict[str, float]]:
    """The problem with what measurements say: each device's operations scaled to its measured total, and what cuts cost to fit.

    Returns the factors too; those of cuts are chosen by the least squared logarithms of measured over simulated seconds.
    """
    measured = [(c, float(np.median(c.screening))) for c in candidates if c.placement is not None and c.screening and not c.why]
    seconds, change = np.array(problem.compute_seconds), {}
    for c, found in measured:
        if c.kind == "single" and c.simulated and c.placement is not None:
            d = int(c.placement[0])
            seconds[:, d] *= found / c.simulated
            change[problem.network.names[d]] = found / c.simulated
    mixed = [(c.placement, found) for c, found in measured if c.kind == "placed" and c.placement is not None]
    if not mixed:
        return _with(problem, seconds, 1.0), change
    rows, real = np.array([p for p, _ in mixed]), np.array([s for _, s in mixed])

    def error(factor: float) -> float:
        simulated = evaluator.evaluate(_with(problem, seconds, factor), rows)
        return float(np.mean(np.log(real / simulated.seconds) ** 2)) if simulated.ok.all() else float("inf")

    factor = min(_FACTORS, key=lambda f: (error(f), abs(np.log2(f))))
    return _with(problem, seconds, float(factor)), {**change, "cuts": float(factor)}


def _with(problem: Problem, seconds: np.ndarray, factor: float) -> Problem:
    """The problem with other seconds, and everything that a cut costs by a factor."""
    n = problem.network
    network = DeviceNetwork(
        n.names, n.speed, n.bandwidth / factor, n.delay * factor, n.memory, n.power, n.idle_power, n.link_energy, n.memory_bandwidth,
        n.launch_overhead * factor, n.kinds, n.supports, n.name,
    )  # fmt: skip
    return Problem(problem.graph, network, TableCosts(problem.graph.names, n.names, seconds), problem.objective, problem.allowed)


def _finalists(candidates: Sequence[Candidate]) -> list[Candidate]:
    """The two fastest placements, the fastest single device, and what the runtime does by itself."""
    running = sorted((c for c in candidates if np.isfinite(c.median)), key=lambda c: c.median)
    if not running:
        raise InputError(f"nothing runs: {'; '.join(f'{c.name}: {c.why}' for c in candidates)}")
    first: dict[str, list[Candidate]] = {"placed": [], "single": [], "own": []}
    for c in running:
        first[c.kind].append(c)
    return first["placed"][:2] + first["single"][:1] + first["own"]


def choose(candidates: Sequence[Candidate]) -> tuple[Candidate, str]:
    """What to use, and why: the fastest placement if the interval of its gain over the best simple choice is clear of zero."""
    decided = sorted((c for c in candidates if c.samples and not c.why), key=lambda c: c.median)
    simple = [c for c in decided if c.kind != "placed"]
    placed = [c for c in decided if c.kind == "placed"]
    if not decided:
        raise InputError("nothing ran to the end; see why with --json")
    if not placed:
        alone = sum(c.kind == "single" for c in candidates) < 2
        why = "there is one device only" if alone else "the search found no placement on several devices that is simulated or runs faster"
        return simple[0], f"{simple[0].name} is the fastest; {why}"
    best = placed[0]
    if not simple:
        return best, f"{best.name} is the fastest; no single device runs the model"
    least, low, high = max((ratio(best, other) for other in simple), key=lambda r: r[2])
    if high < 1.0:
        return best, (
            f"{best.name} takes {100 * (1 - least):.1f} % less time than {simple[0].name} "
            f"(95 % interval {100 * (1 - high):.1f} to {100 * (1 - low):.1f} %, {len(best.samples)} rounds in turn)"
        )
    return simple[0], (
        f"no placement is faster than {simple[0].name} beyond the noise: the best, {best.name}, takes {100 * (least - 1):+.1f} % of its "
        f"time (95 % interval {100 * (low - 1):+.1f} to {100 * (high - 1):+.1f} %, {len(best.samples)} rounds in turn)"
    )
