"""CPU time of every learner, and of what is compared with them, on a graph of its paper and with that sweep's settings: its own, learning
included, beside the simulator's."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import torch

from envs.problem.measurement import Measurements, Request, Wrapper
from orchestration.definition.sweep import load_sweep
from orchestration.rewards.evaluators import build_evaluator
from orchestration.specs.sources import build_problem
from orchestration.specs.trial import Trial
from orchestration.trials.run_trial import run_trial
from tests.bench.reference import references

LONG = 10.0
"""Seconds."""
SWEEPS = Path(__file__).parents[2] / "sweeps"


class Case(NamedTuple):
    """A row of the table."""

    sweep: str
    label: str
    """Of the method in that sweep."""
    graph: str
    evaluations: int
    stage: str = ""
    """Of the sweep; any if empty."""


CASES = (
    Case("doppler/table2", "doppler", "llama-block", 128, "simulated"),
    Case("doppler/table2", "placeto", "llama-block", 648),
    Case("doppler/table2", "local-search", "llama-block", 5000),
    Case("doppler/table2", "enumerative", "llama-block", 1),
    Case("doppler/table2", "critical-path", "llama-block", 50),
    Case("hsdag/table2", "hsdag", "bert-base", 100),
    Case("hsdag/table2", "hsdag-best", "bert-base", 100),
    Case("hsdag/table2", "placeto", "bert-base", 600),
    Case("hsdag/table2", "rnn", "bert-base", 20),
    Case("hsdag/table2", "local-search", "bert-base", 5000),
    Case("hsdag/table2", "local-search", "inception-v3", 5000),
    Case("hsdag/table2", "heft", "bert-base", 1),
    Case("hsdag/table2", "random", "bert-base", 5000),
    Case("mars/table2", "mars", "bert", 20, "search"),
    Case("gdp/table1", "gdp", "gnmt-2", 20),
    Case("gdp/table1", "hdp", "gnmt-2", 20),
    Case("gdp/table1", "metis", "gnmt-2", 20),
    Case("giph/fig4-single", "giph", "", 400, "train"),
    Case("giph/fig4-single", "giph-task-eft", "", 400, "train"),
    Case("giph/fig4-single", "placeto", "", 400, "train"),
    Case("benchmark/searches", "problem-space", "llama-block", 1000),
    Case("benchmark/searches", "foresight", "llama-block", 1000),
)


class Row(NamedTuple):
    """CPU seconds of a thousand evaluations."""

    name: str
    where: str
    own: float
    simulator: float


class _Timed(Wrapper):
    """Adds up what an evaluator takes."""

    def __init__(self, trial: Trial) -> None:
        self.inner, self.seconds = build_evaluator(trial.evaluator), 0.0

    def evaluate(self, problem, placements, seed=0, *, first=0, trace=False) -> Measurements:  # type: ignore[no-untyped-def]
        """As the inner one."""
        return self.inner.evaluate(problem, placements, seed, first=first, trace=trace)

    def evaluate_many(self, requests: Sequence[Request]) -> list[Measurements]:
        begin = time.process_time()
        found = self.inner.evaluate_many(requests)
        self.seconds += time.process_time() - begin
        return found


def rows(only: str = "") -> list[Row]:
    """One for every case whose sweep or method has ``only`` in its name."""
    torch.set_num_threads(1)
    found, trials = [], dict[str, list[Trial]]()
    for case in CASES:
        if only not in f"{case.sweep} {case.label}":
            continue
        if case.sweep not in trials:
            trials[case.sweep] = load_sweep(SWEEPS / f"{case.sweep}.yaml").expand()
        found.append(_measured(case, _trial(case, trials[case.sweep])))
        print(
            f"  {found[-1].name}, {found[-1].where}: {found[-1].own:.3f} s of its own, {found[-1].simulator:.3f} s simulating", flush=True
        )
    return found


def _trial(case: Case, trials: Sequence[Trial]) -> Trial:
    """The case's first trial, from no checkpoint and of so many evaluations."""
    for t in trials:
        graph = t.problems[0].label.split("@")[0]
        if t.label == case.label and (not case.graph or graph == case.graph) and t.stage == (case.stage or t.stage):
            budget = replace(t.budget, evaluations=case.evaluations, seconds=None)
            return replace(t, budget=budget, parent=None, kind="search")
    raise LookupError(f"{case.sweep} has no trial of {case.label} on {case.graph}")


def _measured(case: Case, trial: Trial) -> Row:
    """The second of two runs; of what takes `LONG` the first, in which loading compiled code counts for little."""
    for problem in trial.problems:
        build_problem(problem)
    for _ in range(2):
        evaluator = _Timed(trial)
        begin = time.process_time()
        count = run_trial(trial, evaluator).evaluations
        spent = time.process_time() - begin
        if spent > LONG:
            break
    many = len(trial.problems)
    where = f"{many} graphs" if many > 1 else trial.problems[0].label.split("@")[0]
    own, simulating = (1000 * x / max(count, 1) for x in (spent - evaluator.seconds, evaluator.seconds))
    return Row(case.label, f"{case.sweep}, {where}", own, simulating)


def table() -> list[str]:
    """Lines of markdown: seconds, and the method's own as multiples of the references."""
    base = references()
    named = [f"- {name}: {seconds * 1e3:.3g} ms" for name, seconds in base.items()]
    lines = [
        "CPU seconds of 1,000 evaluations on one core, learning and the runner included, at the settings of the named sweep.",
        "The last four columns divide the method's own time of one evaluation by what fixed work took in the same run:",
        "",
        *named,
        "",
        "| method | sweep, graph | own | simulator | own part | × loop | × SimPy | × NumPy | × torch |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows():
        ratios = " | ".join(f"{row.own / 1000 / seconds:.3g}" for seconds in base.values())
        share = row.own / (row.own + row.simulator)
        lines.append(f"| {row.name} | {row.where} | {row.own:.3g} | {row.simulator:.3g} | {share:.0%} | {ratios} |")
    return lines
