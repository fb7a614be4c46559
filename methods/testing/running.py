"""The loop that tests of methods run: propose, evaluate, update. No tests belong here."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from envs.problem.measurement import Evaluator
from envs.problem.problem import Problem
from envs.simulators.fifo.evaluator import Simulator
from methods.contract.method import Method
from methods.contract.registry import build, method_class


@dataclass
class Transcript:
    """What a method proposed and what came back, in order."""

    placements: list[np.ndarray] = field(default_factory=list)
    objective: list[float] = field(default_factory=list)

    @property
    def best(self) -> float:
        """The least objective that was measured; +inf without a valid placement."""
        return min(self.objective)


def make(name: str, problem: Problem, seed: int = 0, **config: Any) -> Method:
    """The method by that name for one problem, with its `Method.toy_config`."""
    return build(name, {**method_class(name).toy_config, **config}, [problem], seed)


def go(method: Method, budget: int, ask: int = 16, rounds: int | None = None, evaluator: Evaluator | None = None) -> Transcript:
    """Runs ``method`` until the budget, the rounds or its proposals end; checks what the contract says about `propose`."""
    run, simulator = Transcript(), evaluator or Simulator()
    while len(run.objective) < budget and rounds != 0:
        room = min(ask, budget - len(run.objective))
        proposals = method.propose(room)
        if not proposals:
            break
        assert sum(len(p.placements) for p in proposals) <= room
        results = []
        for p in proposals:
            assert p.placements.dtype == np.int16
            measured = simulator.evaluate(method.problems[p.problem], p.placements, 0, first=len(run.objective), trace=method.wants_trace)
            run.placements.extend(p.placements.copy())
            run.objective.extend(measured.objective.tolist())
            results.append(measured)
        method.update(results)
        rounds = None if rounds is None else rounds - 1
    return run
