"""One trial, as data: what a sweep asks for and what the runner, the tracking and the reports know it by.

Everything here is JSON-able and cheap to import, because Ray ships it and the command line starts with it. How a sweep is
read and how a trial runs do not belong here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, NamedTuple, get_args

from envs.problem.errors import InputError, nearest
from orchestration.specs.canonical import FrozenDict, content_hash, freeze

TrialKind = Literal["search", "pretrain", "finetune", "zero-shot"]
KINDS: tuple[str, ...] = get_args(TrialKind)

_PLACES = ("file", "root")
"""Keys of a source that say where a file lies; its ``sha256`` is what identifies it, wherever that is."""


def _identity(source: Any) -> Any:
    """A source without the places where its files lie (their ``sha256`` stays)."""
    if isinstance(source, Mapping):
        return {k: _identity(v) for k, v in source.items() if not (k in _PLACES and "sha256" in source)}
    return [_identity(v) for v in source] if isinstance(source, list | tuple) else source


@dataclass(frozen=True)
class ProblemSpec:
    """The description of one problem; `orchestration.specs.sources.build_problem` makes the problem itself."""

    graph: FrozenDict
    """Source of the graph, e.g. ``{"model": "resnet-50"}``, ``{"file": …, "root": …, "sha256": …}``, ``{"synthetic": {…}, "seed": 0}``."""
    network: FrozenDict
    """Source of the network, e.g. ``{"named": "cpu-gpu-4"}``."""
    costs: FrozenDict = field(default_factory=lambda: FrozenDict({"kind": "roofline"}))
    """Cost model and its options, e.g. ``{"kind": "roofline"}``."""
    objective: str = "makespan"
    graph_label: str = "graph"
    network_label: str = "network"

    def __post_init__(self) -> None:
        for key in ("graph", "network", "costs"):
            object.__setattr__(self, key, freeze(getattr(self, key)))

    @property
    def label(self) -> str:
        """``graph@network``, for people and tags; not part of the identity."""
        return f"{self.graph_label}@{self.network_label}"

    @cached_property
    def content_hash(self) -> str:
        """sha256 of what the problem is made from; files count by content, labels and places do not count."""
        return content_hash([_identity(self.graph), _identity(self.network), _identity(self.costs), self.objective])

    def to_json(self) -> dict[str, Any]:
        """As a dict of JSON values."""
        return {
            "graph": self.graph, "network": self.network, "costs": self.costs, "objective": self.objective,
            "graph_label": self.graph_label, "network_label": self.network_label,
        }  # fmt: skip

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> ProblemSpec:
        """The inverse of `to_json`."""
        return cls(**data)


@dataclass(frozen=True)
class EvaluatorSpec:
    """Who scores the placements, and how."""

    kind: str = "simulator"
    """What is asked to measure: ``simulator``, or the kind of a measurement host."""
    options: FrozenDict = field(default_factory=FrozenDict)
    """Options of that kind (``noise``, …); ``host`` picks one host of several of that kind."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "options", freeze(self.options))

    @property
    def key(self) -> str:
        """What reward services register under: ``simulator``, ``openvino:flex170``."""
        host = self.options.get("host")
        return f"{self.kind}:{host}" if host else self.kind

    @cached_property
    def content_hash(self) -> str:
        """sha256 of kind and options, without ``local``: where a simulation runs does not change its result. Files count by content."""
        return content_hash([self.kind, _identity({k: v for k, v in self.options.items() if k != "local"})])

    def to_json(self) -> dict[str, Any]:
        """As a dict of JSON values."""
        return {"kind": self.kind, "options": self.options}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> EvaluatorSpec:
        """The inverse of `to_json`."""
        return cls(**data)


@dataclass(frozen=True)
class Budget:
    """When a trial ends: after so many evaluated placements, after so many seconds of wall time, or whichever comes first.

    Raises:
        InputError: if neither is given or one is not positive.
    """

    evaluations: int | None = None
    seconds: float | None = None
    confirm: int = 0
    """Measurements of the best placements of each problem after that; see `orchestration.trials.run_trial`."""

    def __post_init__(self) -> None:
        if self.evaluations is None and self.seconds is None:
            raise InputError("a budget needs evaluations, seconds or both")
        if self.evaluations is not None and self.evaluations < 0:
            raise InputError(f"a budget of {self.evaluations} evaluations is impossible; give 0 or more")
        if self.confirm < 0:
            raise InputError(f"a budget that confirms by {self.confirm} measurements is impossible; give 0 or more")
        if self.seconds is not None:
            if not (math.isfinite(self.seconds) and self.seconds > 0):
                raise InputError(f"a budget of {self.seconds} seconds is impossible; give more than 0")
            object.__setattr__(self, "seconds", float(self.seconds))

    def to_json(self) -> dict[str, Any]:
        """As a dict of JSON values."""
        return {"evaluations": self.evaluations, "seconds": self.seconds, **({"confirm": self.confirm} if self.confirm else {})}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Budget:
        """The inverse of `to_json`."""
        return cls(**data)


@dataclass(frozen=True)
class Trial:
    """Method + config + stage + problems + evaluator + budget + seed. Its content hash is its identity everywhere."""

    method: str
    """Name in the registry."""
    label: str
    """Row of the leaderboard, e.g. ``cpu-only``; not part of the identity."""
    config: FrozenDict
    """The method's whole configuration, defaults included, as nested JSON; ``methods.contract.registry.configure`` accepts it."""
    problems: tuple[ProblemSpec, ...]
    evaluator: EvaluatorSpec
    budget: Budget
    seed: int
    stage: str = "main"
    kind: TrialKind = "search"
    parent: str | None = None
    """Content hash of the trial whose policy (checkpoint) this one starts from."""
    resources: FrozenDict = field(default_factory=lambda: FrozenDict({"num_cpus": 1, "num_gpus": 0, "custom": {}}))
    """What Ray reserves for it: ``num_cpus``, ``num_gpus``, ``custom`` (named resources); not part of the identity."""
    batch: int = 64
    """Placements asked of the method in one ``propose``."""
    checkpoint_every: int = 1000
    """Evaluations between checkpoints; not part of the identity."""
    priority: int = 0
    """Higher is started, and measured for, before lower; not part of the identity."""

    def __post_init__(self) -> None:
        set_ = object.__setattr__
        set_(self, "config", freeze(self.config))
        set_(self, "resources", freeze(self.resources))
        set_(self, "problems", tuple(self.problems))
        if self.kind not in KINDS:
            raise InputError(f"unknown kind of stage {self.kind!r}{nearest(self.kind, KINDS)}")
        if not self.problems:
            raise InputError(f"trial {self.label!r} of stage {self.stage!r} has no problem")
        if self.batch < 1 or self.checkpoint_every < 1:
            raise InputError(f"batch {self.batch} and checkpoint_every {self.checkpoint_every} must be at least 1")

    @cached_property
    def content_hash(self) -> str:
        """sha256 of everything that determines the result (the parent included), equal on every machine."""
        return content_hash(
            [
                "trial-1", self.method, self.config, self.stage, self.kind, [p.content_hash for p in self.problems],
                self.evaluator.content_hash, self.budget.to_json(), self.seed, self.parent, self.batch,
            ]
        )  # fmt: skip

    @property
    def short(self) -> str:
        """The first 12 hex digits of the content hash, for people and folder names."""
        return self.content_hash[:12]

    @property
    def problem_label(self) -> str:
        """``graph@network``, or how many problems there are."""
        return self.problems[0].label if len(self.problems) == 1 else f"{len(self.problems)} problems"

    def to_json(self) -> dict[str, Any]:
        """As a dict of JSON values."""
        return {
            "method": self.method, "label": self.label, "config": self.config, "problems": [p.to_json() for p in self.problems],
            "evaluator": self.evaluator.to_json(), "budget": self.budget.to_json(), "seed": self.seed, "stage": self.stage,
            "kind": self.kind, "parent": self.parent, "resources": self.resources, "batch": self.batch,
            "checkpoint_every": self.checkpoint_every, "priority": self.priority,
        }  # fmt: skip

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Trial:
        """The inverse of `to_json`."""
        inner = {
            "problems": tuple(ProblemSpec.from_json(p) for p in data["problems"]),
            "evaluator": EvaluatorSpec.from_json(data["evaluator"]),
            "budget": Budget.from_json(data["budget"]),
        }
        return cls(**{**data, **inner})


class TrialTask(NamedTuple):
    """What a worker is handed: a trial, to be run to its end or to its first pause at or after ``until`` evaluations."""

    trial: Trial
    until: int | None = None
