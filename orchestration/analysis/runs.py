"""Trial records as comparable runs: one per trial and problem, with what is best known of each problem. No statistics here."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection as AnyCollection
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from envs.problem.problem import shown_in
from orchestration.analysis.source import PLAIN_SIMULATOR, ScoredBy, origin
from orchestration.specs.results import STATUSES, CurvePoint, ProblemResult, ProposedBlock, TrialResult

Bounds = Mapping[tuple[str, bool], float]
"""Lower bounds of the objective by problem hash and by whether inputs are free."""


@dataclass(frozen=True)
class Run:
    """What one trial reached on one problem."""

    trial: str
    stage: str
    method: str
    """Label of the method in the sweep."""
    problem: str
    """Index key of the problem: same problem measured in the same way."""
    seed: int
    objective: float
    """Best objective, seconds or joules; +inf if no valid placement was found."""
    evaluations: int
    wall_seconds: float
    """The trial's wall time, shared evenly by its problems."""
    curve: tuple[CurvePoint, ...] = ()
    """Against placements of this problem, of which a trial on many problems has spent more."""
    proposed: tuple[ProposedBlock, ...] = ()
    """All that the method proposed for the problem, in blocks."""
    placement: tuple[int, ...] | None = None
    deviation: float | None = None
    """Standard deviation of the runs behind the best measurement, seconds; None where it is not made of runs of real hardware."""
    compile_seconds: float = 0.0
    """Mean time to make a placement of the trial ready to run, no part of any measured time."""
    measured_by: str = ""
    """Protocol and fingerprint of what measured the best placement."""
    learner_seconds: float = 0.0
    """Time in the method itself, of ``wall_seconds``."""
    source: ScoredBy = PLAIN_SIMULATOR
    host: str = ""
    """Fingerprint of what measured the best placement."""

    @property
    def row(self) -> tuple[str, str]:
        """Its row of the leaderboard: stage and method."""
        return self.stage, self.method


@dataclass(frozen=True)
class ProblemInfo:
    """One problem of a comparison, as measured in one way."""

    key: str
    name: str
    """``graph@network``; followed by how it was measured where a sweep has several ways."""
    graph: str
    network: str
    problem_hash: str
    objective_name: str
    best: float
    """Best objective of any run, seconds or joules; +inf if there is none."""
    bound: float | None = None
    """Largest known lower bound of the objective; None where none is known."""
    source: ScoredBy = PLAIN_SIMULATOR
    arbitrary: bool = False
    """Whether its times are those of an invented graph on a simulator: they compare placements and are no times of any machine."""

    @property
    def scale(self) -> tuple[float, str]:
        """Factor and unit for people: seconds are shown in ms, or in thousandths of a unit that means nothing; joules as they are."""
        factor, unit = shown_in(self.objective_name)
        return factor, "units" if self.arbitrary and self.objective_name == "makespan" else unit


@dataclass(frozen=True)
class Tally:
    """What happened in the trials of one row, beyond their results."""

    trials: Mapping[str, int] = field(default_factory=dict)
    """Number of trials by status (`orchestration.specs.results.STATUSES`)."""
    invalid: int = 0
    """Evaluated placements that could not run: INVALID, OUT_OF_MEMORY or TOO_SLOW."""


@dataclass(frozen=True)
class Collection:
    """All runs of a sweep, in an order that depends on their content alone."""

    runs: tuple[Run, ...]
    problems: tuple[ProblemInfo, ...]
    tallies: Mapping[tuple[str, str], Tally] = field(default_factory=dict)

    @cached_property
    def rows(self) -> list[tuple[str, str]]:
        """Stage and method of every row, sorted."""
        return sorted({*self.tallies, *(r.row for r in self.runs)})

    @property
    def origin(self) -> str:
        """``simulated``, ``measured on HOST``, or both."""
        return origin((r.source, r.host) for r in self.runs)

    @cached_property
    def index(self) -> dict[str, int]:
        """Position of each problem by key."""
        return {p.key: i for i, p in enumerate(self.problems)}

    @property
    def stages(self) -> list[str]:
        """Stages that have rows."""
        return sorted({stage for stage, _ in self.rows})

    def of(self, row: tuple[str, str]) -> list[Run]:
        """The runs of one row."""
        return self._by_row.get(row, [])

    def on(self, row: tuple[str, str], problem: str) -> list[Run]:
        """The runs of one row on one problem, given by its key."""
        return self._by_cell.get((row, problem), [])

    @cached_property
    def _by_row(self) -> dict[tuple[str, str], list[Run]]:
        found: dict[tuple[str, str], list[Run]] = {}
        for run in self.runs:
            found.setdefault(run.row, []).append(run)
        return found

    @cached_property
    def _by_cell(self) -> dict[tuple[tuple[str, str], str], list[Run]]:
        found: dict[tuple[tuple[str, str], str], list[Run]] = {}
        for run in self.runs:
            found.setdefault((run.row, run.problem), []).append(run)
        return found

    def strata(self, runs: Sequence[Run]) -> np.ndarray:
        """The problem of each run, int64[N]."""
        return np.array([self.index[r.problem] for r in runs], dtype=np.int64)

    def scores(self, runs: Sequence[Run]) -> np.ndarray:
        """Objective over the best known of its problem, float64[N]: 1 is the best; 0/0 counts as 1."""
        return _ratio(runs, [self.problems[i].best for i in self.strata(runs)])

    def bound_scores(self, runs: Sequence[Run]) -> np.ndarray:
        """Objective over the lower bound of its problem, float64[N]; NaN where no bound is known."""
        bounds = [self.problems[i].bound for i in self.strata(runs)]
        return _ratio(runs, [math.nan if b is None else b for b in bounds])

    def label(self, row: tuple[str, str]) -> str:
        """The row's name in pictures: the method, with its stage where there are several."""
        return row[1] if len(self.stages) < 2 else f"{row[1]} ({row[0]})"


def _ratio(runs: Sequence[Run], references: Sequence[float]) -> np.ndarray:
    values, reference = np.array([r.objective for r in runs], dtype=np.float64), np.array(references, dtype=np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = values / reference
    ratio[np.isinf(values)] = np.inf
    ratio[(values == 0) & (reference == 0)] = 1.0
    return ratio


def collect(
    results: Iterable[TrialResult],
    bounds: Bounds | None = None,
    sources: Mapping[str, ScoredBy] | None = None,
    invented: AnyCollection[str] = (),
) -> Collection:
    """Runs of all finished trials, except those of pretraining, which place nothing that counts.

    Args:
        results: at most one record a trial.
        bounds: lower bounds in the problem's objective; a method's own proven bound (``lower_bound`` among the numbers it
            reports) is taken where it is larger.
        sources: what scored each trial, by its hash; the plain simulator where nothing is said.
        invented: hashes of problems whose graph is synthetic.
    """
    ordered = sorted(results, key=lambda t: (t.stage, t.method, [p.name for p in t.problems], t.seed, t.trial))
    runs, known = [], dict(bounds or {})
    tallies: dict[tuple[str, str], Counter[str]] = {}
    infos: dict[str, tuple[ProblemResult, ScoredBy]] = {}
    best: dict[str, float] = {}
    for trial in ordered:
        if trial.kind == "pretrain":
            continue
        tally = tallies.setdefault((trial.stage, trial.method), Counter())
        tally[trial.status] += 1
        tally["invalid"] += sum(n for outcome, n in trial.outcomes.items() if outcome != "OK")
        if trial.status != "finished":
            continue
        if any(not p.protocol for p in trial.problems):  # nothing was measured, so nothing says which problem it is
            tally["finished"] -= 1
            tally["failed"] += 1
            continue
        proven, source = trial.report.get("lower_bound"), (sources or {}).get(trial.trial, PLAIN_SIMULATOR)
        for p in trial.problems:
            key = _key(p)
            infos.setdefault(key, (p, source))
            value = math.inf if p.objective is None else p.objective
            best[key] = min(best.get(key, math.inf), value)
            if proven is not None and len(trial.problems) == 1 and p.objective_name != "energy":
                # What is proven counts the inputs.
                known[p.problem_hash, False] = max(known.get((p.problem_hash, False), 0.0), float(proven))
            runs.append(
                Run(trial.trial, trial.stage, trial.method, key, trial.seed, value, p.evaluations, trial.wall_seconds / len(trial.problems),
                    tuple(c._replace(evaluations=c.own or c.evaluations) for c in p.curve), p.proposed, p.placement, p.deviation,
                    trial.compile_seconds / max(1, trial.evaluations), f"{p.protocol} on {p.host}",
                    trial.learner_seconds / len(trial.problems), source, p.host)
            )  # fmt: skip
    counted = {row: Tally({s: c[s] for s in STATUSES if c[s]}, c["invalid"]) for row, c in tallies.items()}
    return Collection(tuple(runs), _infos(infos, best, known, invented), counted)


def _key(p: ProblemResult) -> str:
    return f"{p.problem_hash} {p.protocol}"


def _own_words(protocol: str, all_protocols: Sequence[str]) -> str:
    """The words of a protocol that not all have; all of them if that leaves none."""
    common = set[str].intersection(*(set(p.split()) for p in all_protocols))
    return " ".join(word for word in protocol.split() if word not in common) or protocol


def _infos(
    infos: Mapping[str, tuple[ProblemResult, ScoredBy]], best: Mapping[str, float], bounds: Bounds, invented: AnyCollection[str]
) -> tuple[ProblemInfo, ...]:
    """In order of name; names that several problems share are told apart by what differs in their protocols, or by hash where
    those are equal too."""
    shared = Counter(p.name for p, _ in infos.values())
    shared_protocol = Counter((p.name, p.protocol) for p, _ in infos.values())
    made = []
    for key, (p, source) in infos.items():
        name = p.name
        if shared[p.name] > 1:
            alone = shared_protocol[p.name, p.protocol] == 1
            own = _own_words(p.protocol, [o.protocol for o, _ in infos.values() if o.name == p.name]) if alone else p.problem_hash[:6]
            name += f" [{own}]"
        bound = bounds.get((p.problem_hash, source.free_inputs)) if source.exact else None
        made.append(
            ProblemInfo(
                key,
                name,
                p.graph,
                p.network,
                p.problem_hash,
                p.objective_name,
                best[key],
                bound,
                source,
                source.simulated and p.problem_hash in invented,
            )
        )
    return tuple(sorted(made, key=lambda info: (info.name, info.key)))
