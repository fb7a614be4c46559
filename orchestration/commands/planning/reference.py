"""Reference rates: what every method took on one machine, for plans where nothing was measured yet. Measured anew, and written into the
package, by ``make rates``. Rates of runs that people made themselves are `orchestration.commands.planning.rates`."""

from __future__ import annotations

import argparse
import json
import math
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from pathlib import Path

from envs.hosts.processor import processor
from methods.contract import registry
from orchestration.rewards.evaluators import EVALUATORS, build_evaluator
from orchestration.specs.canonical import FrozenDict
from orchestration.specs.results import TrialResult
from orchestration.specs.sources import build_problem, graph_source, network_source
from orchestration.specs.trial import Budget, EvaluatorSpec, ProblemSpec, Trial
from orchestration.trials.run_trial import run_trial

PATH = Path(__file__).with_name("reference_rates.json")
OPERATIONS = (20, 80, 320)
"""Sizes of the graphs that are measured on."""
NETWORK = "cpu-gpu-4"
EVALUATIONS = 1000
SECONDS = 30.0
"""A method is measured for so many evaluations, or until it has taken so long; CP-SAT ends of itself in less."""


@dataclass(frozen=True)
class Reference:
    """Seconds an evaluation on graphs of several sizes."""

    measured_on: str
    """Machine, day and versions, for people."""
    operations: tuple[int, ...]
    """The sizes, rising."""
    learner: Mapping[str, Sequence[float]] = field(default_factory=dict)
    """Of every method with its default settings, one number a size."""
    evaluator: Mapping[str, Sequence[float]] = field(default_factory=dict)
    """Of every kind of evaluator that simulates."""
    ends: Mapping[str, float] = field(default_factory=dict)
    """Evaluations after which methods ended that nobody can say that of beforehand (`Method.wanted_evaluations`)."""

    def rate(self, kind: str, name: str, operations: float | None) -> float | None:
        """Seconds of the ``learner`` or ``evaluator`` of a name for one evaluation on a graph of a size.

        Between the sizes, and beyond them, along straight lines of logarithms; an unknown size counts as the largest. None for what was
        not measured.
        """
        values = getattr(self, kind).get(name)
        if not values:
            return None
        x, y = [math.log(n) for n in self.operations], [math.log(v) for v in values]
        at = x[-1] if operations is None else math.log(max(operations, 1.0))
        k = next((k for k in range(1, len(x) - 1) if at <= x[k]), len(x) - 1)
        return math.exp(y[k - 1] + (at - x[k - 1]) * (y[k] - y[k - 1]) / (x[k] - x[k - 1]))


@cache
def shipped() -> Reference:
    """The reference rates that come with the package."""
    data = json.loads(PATH.read_text(encoding="utf-8"))
    return Reference(**{**data, "operations": tuple(data["operations"])})


def measure(methods: Sequence[str], seconds: float = SECONDS) -> Reference:
    """Reference rates of this machine, of some methods; prints each as soon as it is known."""
    learner: dict[str, list[float]] = {}
    ends: dict[str, list[int]] = {}
    for name in methods:
        for operations in OPERATIONS:
            result = _measured(name, operations, seconds)
            learner.setdefault(name, []).append(_rounded(result.learner_seconds / result.evaluations))
            if _ends_by_chance(name) and result.evaluations < EVALUATIONS and result.wall_seconds < seconds:
                ends.setdefault(name, []).append(result.evaluations)
            print(f"{name} on {operations} operations: {learner[name][-1]:.3g} s an evaluation, {result.evaluations} of them", flush=True)
    evaluator = {
        kind: [_rounded(r.evaluation_seconds / r.evaluations) for r in (_measured("random", n, seconds, kind) for n in OPERATIONS)]
        for kind, entry in sorted(EVALUATORS.items())
        if not entry.real
    }
    often = {name: round(sum(n) / len(n), 1) for name, n in ends.items()}
    machine = f"{processor()}, {os.cpu_count()} cores, {time.strftime('%Y-%m-%d')}, default settings"
    return Reference(machine, OPERATIONS, learner, evaluator, often)


def _ends_by_chance(method: str) -> bool:
    """Whether nothing but a run tells after how many evaluations it ends."""
    problems = [build_problem(_problem(OPERATIONS[0]))]
    return registry.method_class(method).wanted_evaluations(registry.configure(method, {}), lambda: problems) is None


def _measured(method: str, operations: int, seconds: float, kind: str = "simulator") -> TrialResult:
    """A trial of the method, after a first one that pays for all start-up."""
    spec = EvaluatorSpec(kind, FrozenDict({"local": True}))
    trial = Trial(method, method, FrozenDict({}), (_problem(operations),), spec, Budget(EVALUATIONS, seconds), 0)
    run_trial(replace(trial, budget=Budget(20, 1.0)), build_evaluator(spec))
    return run_trial(trial, build_evaluator(spec))


def _problem(operations: int) -> ProblemSpec:
    parameters = {"tasks": operations, "shape": 0.2, "mean_compute": 5e9, "mean_bytes": 4e6}
    here = Path()
    graph = graph_source({"synthetic": parameters, "seed": 0}, here, here)
    return ProblemSpec(graph, network_source({"named": NETWORK}, here, here), FrozenDict({"kind": "linear"}))


def _rounded(value: float) -> float:
    return float(f"{max(value, 1e-9):.3g}")


def main() -> None:
    """``python -m orchestration.commands.planning.reference``: measure every method of the package and write `PATH`."""
    parser = argparse.ArgumentParser(description="measure the reference rates that plans fall back on")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="longest time for a method and a size (30)")
    parser.add_argument("--output", type=Path, default=PATH, metavar="FILE", help="where they are written; the package by default")
    args = parser.parse_args()
    found = measure(sorted(registry.modules()), args.seconds)
    args.output.write_text(json.dumps(asdict(found), indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
