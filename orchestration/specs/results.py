"""What a trial leaves behind: frozen records that go through JSON unchanged. Nothing that runs or stores belongs here."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from envs.problem.errors import InputError
from envs.problem.measurement import Measurements

FORMAT = 1
"""Version of the JSON form; a record of another version is refused."""

STATUSES = ("finished", "failed", "pruned", "paused")
"""How a trial ended; ``paused`` at a rung of a search, to be continued or pruned (never in a ledger)."""


class CurvePoint(NamedTuple):
    """One point of a search curve: an improvement, or the end of the search."""

    evaluations: int
    """Placements the trial had spent, over all its problems, when this was measured."""
    best: float
    """Best objective so far (seconds or joules)."""
    wall_seconds: float
    """Seconds since the trial started, interruptions not counted."""
    own: int = 0
    """Placements of this problem among ``evaluations``; 0 where a record does not say."""


class ProposedBlock(NamedTuple):
    """Placements that a method proposed one after another."""

    evaluations: int
    """Placements measured on the problem when the block ended."""
    mean: float
    """Mean objective (seconds or joules) of those in the block that could run; 0 if none could."""
    valid: int
    """How many could."""


@dataclass(frozen=True)
class Trace:
    """When operations and transfers ran in one real run of a placement: seconds from its start, to the nanosecond."""

    seconds: float
    """What the protocol made of the measurement that this run is the last of, makespan in seconds."""
    start: tuple[float | None, ...]
    """Of every operation, V values; None for inputs, which take no time."""
    finish: tuple[float | None, ...]
    transfers: tuple[tuple[int, int, int, float, float], ...]
    """Producer, sender, receiver, start and finish of each."""

    @staticmethod
    def of(m: Measurements) -> Trace | None:
        """That of a batch of one; None if the placement did not run or transfers are not known as tasks."""
        if not m.ok[0] or m.start is None or m.finish is None or m.transfers is None:
            return None
        start, finish = (tuple(None if math.isnan(t) else round(t, 9) for t in times[0].tolist()) for times in (m.start, m.finish))
        moved = ((int(u), int(a), int(b), round(s, 9), round(f, 9)) for u, a, b, s, f in m.transfers[0].tolist())
        return Trace(float(m.seconds[0]), start, finish, tuple(moved))

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Trace:
        """The inverse of `dataclasses.asdict`."""
        return Trace(data["seconds"], tuple(data["start"]), tuple(data["finish"]), tuple(tuple(t) for t in data["transfers"]))


@dataclass(frozen=True)
class ProblemResult:
    """What a trial reached on one of its problems."""

    name: str
    """``graph@network``."""
    graph: str
    network: str
    problem_hash: str
    objective_name: str = "makespan"
    """``makespan`` or ``energy``."""
    objective: float | None = None
    """Best objective, seconds or joules; None if no placement was OK."""
    seconds: float | None = None
    """Makespan of that placement, seconds."""
    outcome: str = "INVALID"
    """`Outcome` name of the best placement; of the last one measured if none was OK."""
    placement: tuple[int, ...] | None = None
    """The best placement, V device indices; None if none was OK."""
    evaluations: int = 0
    """Placements measured on this problem."""
    best_evaluation: int = 0
    """Which of the trial's evaluations (counted from 1) found it; 0 if none was OK."""
    seed: int = 0
    """With ``first``, the noise stream of the best measurement, so that it can be replayed."""
    first: int = 0
    protocol: str = ""
    host: str = ""
    """Fingerprint of what measured the best placement."""
    curve: tuple[CurvePoint, ...] = ()
    """Improvements in order, thinned out to at most a few hundred, closed by the last evaluation."""
    proposed: tuple[ProposedBlock, ...] = ()
    """All that was proposed for this problem, in at most some dozens of blocks."""
    deviation: float | None = None
    """Standard deviation of the runs behind the best measurement, seconds; None where it is not made of runs."""
    trace: Trace | None = None
    """The best placement measured once more, where real hardware tells when what ran."""


@dataclass(frozen=True)
class TrialResult:
    """The end of one trial; ``trial`` (the content hash) is its identity in ledger, MLflow and checkpoint folder."""

    trial: str
    """Content hash of the trial."""
    status: str
    """One of `STATUSES`."""
    problems: tuple[ProblemResult, ...] = ()
    sweep: str = ""
    stage: str = ""
    method: str = ""
    """Label of the method in the sweep (an ablation has its own)."""
    method_name: str = ""
    """Name of the method in the registry."""
    kind: str = ""
    seed: int = 0
    evaluations: int = 0
    outcomes: Mapping[str, int] = field(default_factory=dict)
    """Evaluations by `Outcome` name; infrastructure failures were measured again and are not among them."""
    learner_seconds: float = 0.0
    """Time in propose, update and pretrain."""
    evaluation_seconds: float = 0.0
    """Time in which placements were measured, queue wait not included."""
    compile_seconds: float = 0.0
    """Time to make placements ready to run, part of ``evaluation_seconds`` and of no measured time."""
    queue_seconds: float = 0.0
    """Time in which requests waited for a host."""
    wall_seconds: float = 0.0
    """All of the trial, interruptions not counted."""
    started_at: float = 0.0
    """When the trial first started, seconds since 1970."""
    report: Mapping[str, float] = field(default_factory=dict)
    """Numbers the method itself reports, such as cp-sat's lower_bound or the losses of pretraining."""
    processor: str = ""
    """What computed it (`envs.hosts.processor`), on which the last bits of what is learned depend; empty if that was not kept yet."""
    resumed: int = 0
    """How often the trial went on from a checkpoint."""
    notes: tuple[str, ...] = ()
    """What went wrong without changing the result, such as a damaged checkpoint."""
    infrastructure: bool = False
    """Whether a failed trial failed for reasons of infrastructure, so that running the sweep again tries it again."""
    traceback: str | None = None
    """Why a failed trial failed."""
    log: str | None = None
    """The end of what a failed trial printed, logged and warned of."""

    def __post_init__(self) -> None:
        if self.status not in STATUSES:
            raise InputError(f"trial {self.trial!r} has status {self.status!r}; known are {', '.join(STATUSES)}")

    @property
    def ok(self) -> bool:
        """Whether the trial ran to its end and found a placement for each of its problems."""
        return self.status == "finished" and all(p.objective is not None for p in self.problems)

    @property
    def objective(self) -> float | None:
        """Best objective, averaged over the problems; None if one has no valid placement (or there are none)."""
        values = [p.objective for p in self.problems]
        known = [v for v in values if v is not None]
        return math.fsum(known) / len(known) if known and len(known) == len(values) else None

    def to_json(self) -> dict[str, Any]:
        """JSON values only; `from_json` gives an equal record back."""
        return {"format": FORMAT, **dataclasses.asdict(self)}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> TrialResult:
        """The record written by `to_json`; InputError if it is of another version."""
        if data.get("format") != FORMAT:
            raise InputError(f"result record has format {data.get('format')!r}; this version reads {FORMAT}")
        values = {key: value for key, value in data.items() if key != "format"}
        values["problems"] = tuple(_problem(p) for p in values["problems"])
        values["notes"] = tuple(values.get("notes", ()))
        return TrialResult(**values)

    def content(self) -> dict[str, Any]:
        """Everything that the spec alone determines on a simulator: no times, hosts, labels or resumptions."""
        data = self.to_json()
        for key in _CIRCUMSTANCES:
            del data[key]
        for problem in data["problems"]:
            del problem["host"], problem["trace"]
            problem["curve"] = [point[:2] for point in problem["curve"]]
        return data


_CIRCUMSTANCES = (
    "learner_seconds", "evaluation_seconds", "compile_seconds", "queue_seconds", "wall_seconds", "started_at", "processor", "resumed",
    "infrastructure", "traceback", "log", "notes", "sweep",
)  # fmt: skip


def _problem(data: Mapping[str, Any]) -> ProblemResult:
    values = dict(data)
    if values["placement"] is not None:
        values["placement"] = tuple(values["placement"])
    values["curve"] = tuple(CurvePoint(*point) for point in values["curve"])
    values["proposed"] = tuple(ProposedBlock(*block) for block in values.get("proposed", ()))
    if values.get("trace") is not None:
        values["trace"] = Trace.from_json(values["trace"])
    return ProblemResult(**values)


def placement_array(result: ProblemResult) -> np.ndarray | None:
    """The best placement as int16[V], or None."""
    return None if result.placement is None else np.array(result.placement, dtype=np.int16)


def dumps(result: TrialResult) -> str:
    """One line of JSON."""
    return json.dumps(result.to_json(), separators=(",", ":"), allow_nan=False)
