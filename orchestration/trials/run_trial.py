"""One trial: propose, evaluate, update, record. Ray, MLflow and sweeps do not belong here; this loop is the specification
of a trial's result, wherever it runs."""

from __future__ import annotations

import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from envs.hosts.processor import processor
from envs.problem.errors import InputError
from envs.problem.measurement import Evaluator, Measurements, Outcome, Request
from envs.problem.problem import Problem
from methods.contract.method import Method, Proposal
from methods.contract.registry import build, method_class
from orchestration.rewards.evaluators import InfrastructureError
from orchestration.rewards.retry import measure
from orchestration.specs.layout import CHECKPOINT, POLICY
from orchestration.specs.policies import describe_policy
from orchestration.specs.results import CurvePoint, ProblemResult, Trace, TrialResult
from orchestration.specs.sources import build_problem
from orchestration.specs.state_files import load_latest, save_state
from orchestration.specs.trial import Trial, content_hash
from orchestration.trials.clock import working_seconds
from orchestration.trials.memory import keep_freed_memory
from orchestration.trials.progress import ProblemProgress, Progress

CHECKPOINT_SECONDS = 60.0
"""A learner is saved at least this often, however few evaluations that is."""


class Recorder(Protocol):
    """Told how a running trial gets on."""

    def progress(self, state: Progress) -> None:
        """Called after every update; may look, must not change."""
        ...

    def saved(self, path: Path) -> None:
        """Called when a checkpoint was written to ``path``."""
        ...


class Silent:
    """A recorder for trials that nobody watches."""

    def progress(self, state: Progress) -> None:
        """Nothing to do."""

    def saved(self, path: Path) -> None:
        """Nothing to do."""


def run_trial(
    trial: Trial,
    evaluator: Evaluator,
    recorder: Recorder | None = None,
    *,
    checkpoint_dir: Path | None = None,
    parent_policy: Mapping[str, Any] | None = None,
    until: int | None = None,
    sweep: str = "",
) -> TrialResult:
    """Run one trial to its end (or, paused, to the first update at or after ``until`` evaluations).

    The result depends on the trial (and its parent's policy) alone if the evaluator is a simulator and the budget counts
    evaluations. With a ``checkpoint_dir`` the trial goes on from the checkpoint found there, leaves one there as it runs,
    and writes ``policy.safetensors`` if its method learned something that transfers.

    Raises:
        InfrastructureError: if measurements keep failing for reasons that are not the placement's.
        Exception: whatever the method raises; `failed` makes a record of it.
    """
    return _Run(trial, evaluator, recorder or Silent(), checkpoint_dir, parent_policy).run(until, sweep)


def failed(trial: Trial, error: BaseException, sweep: str = "", started_at: float = 0.0) -> TrialResult:
    """The record of a trial that ended with ``error``."""
    text = "".join(traceback.format_exception(error))
    infrastructure = isinstance(error, InfrastructureError)
    return replace(_labels(trial, sweep), status="failed", infrastructure=infrastructure, traceback=text[-20_000:], started_at=started_at)


def evaluations(state: Mapping[str, Any]) -> int:
    """How far the trial had come that left the checkpoint with this state."""
    return int(state["runner"]["evaluations"])


def method_seed(trial: Trial) -> np.random.SeedSequence:
    """The seed of the trial's method: its seed, method and problems. Configurations and budgets share their random numbers."""
    return np.random.SeedSequence(_entropy(trial), spawn_key=(0,))


def evaluation_seed(trial: Trial) -> int:
    """The seed of the trial's measurements, below 2^63."""
    return int(np.random.SeedSequence(_entropy(trial), spawn_key=(1,)).generate_state(1, np.uint64)[0] >> np.uint64(1))


def _entropy(trial: Trial) -> list[int]:
    """The trial's seed comes first: searches to be compared take their first placements from it alone (`first_placement`)."""
    digest = content_hash([trial.method, trial.kind, [p.content_hash for p in trial.problems]])
    return [trial.seed, *(int(digest[i : i + 8], 16) for i in range(0, 32, 8))]


class _Run:
    """The state of one call of `run_trial`."""

    def __init__(
        self, trial: Trial, evaluator: Evaluator, recorder: Recorder, folder: Path | None, policy: Mapping[str, Any] | None
    ) -> None:
        self.trial, self.evaluator, self.recorder, self.folder = trial, evaluator, recorder, folder
        self.problems: list[Problem] = [build_problem(p) for p in trial.problems]
        # Imports and problems are there once a process, so their time is nobody's.
        many = method_class(trial.method).many_problems or trial.kind != "zero-shot"
        self.begin = working_seconds()
        self.method: Method = build(trial.method, trial.config, self.problems if many else self.problems[:1], method_seed(trial))
        one_thread()
        self.seed = evaluation_seed(trial)
        self.progress = Progress([ProblemProgress() for _ in self.problems], started_at=time.time())
        self.saved_at = (0, time.perf_counter())
        self.traces: list[Trace | None] = [None for _ in self.problems]
        if not self._resume() and trial.parent is not None:
            if not policy:
                raise InputError(f"trial {trial.short} starts from trial {trial.parent[:12]}, which left no policy to start from")
            self.method.load_policy(dict(policy))
        self.before = self.progress.wall_seconds

    def run(self, until: int | None, sweep: str) -> TrialResult:
        if self.trial.kind == "pretrain" and not self.progress.pretrained:
            begin = working_seconds()
            self.progress.report.update(self.method.pretrain(self.problems))
            self.progress.learner_seconds += working_seconds() - begin
            self.progress.pretrained = True
            self._save()
        status = self._place() if self.trial.kind == "zero-shot" else self._search(until)
        if status == "finished" and self.trial.budget.confirm and self.trial.kind != "pretrain":
            self._confirm()
        self.progress.wall_seconds = self._wall()
        if status == "paused":
            if self.saved_at[0] != self.progress.evaluations:
                self._save()
            return self._result(status, sweep)
        self.progress.report.update({key: float(value) for key, value in self.method.report().items()})
        if self.evaluator.lease_seconds is not None and self.evaluator.traces and self.trial.kind != "pretrain":
            self._trace_best()
        if self.folder is not None:
            policy = self.method.policy()
            if policy:
                self._keep_policy(self.folder / POLICY, policy, sweep)
        return self._result(status, sweep)

    def _wall(self) -> float:
        return self.before + working_seconds() - self.begin

    def _room(self) -> int:
        """How many placements may be asked for now; 0 ends the trial."""
        budget, spent = self.trial.budget, self.progress.evaluations
        room = self.trial.batch
        if budget.evaluations is not None:
            room = min(room, budget.evaluations - spent)
        if budget.seconds is not None:
            used = self._wall() - self.progress.queue_seconds  # waiting for hardware that others have is no use of the budget
            left = budget.seconds - used
            if left <= 0:
                return 0
            if spent:
                room = min(room, max(1, int(left * spent / max(used, 1e-9))))
        return room

    def _search(self, until: int | None) -> str:
        while (room := self._room()) > 0:
            if until is not None and self.progress.evaluations >= until:
                return "paused"
            begin = working_seconds()
            proposals = self.method.propose(room)
            self.progress.learner_seconds += working_seconds() - begin
            if not proposals:
                break
            results = self._measure(proposals, room, self.method.wants_trace)
            begin = working_seconds()
            self.method.update(results)
            self.progress.learner_seconds += working_seconds() - begin
            self.progress.wall_seconds = self._wall()
            self.recorder.progress(self.progress)
            spent = self.progress.evaluations
            if spent - self.saved_at[0] >= self.trial.checkpoint_every or time.perf_counter() - self.saved_at[1] > CHECKPOINT_SECONDS:
                self._save()
        return "finished"

    def _confirm(self) -> None:
        """Measure the best placements of each problem and its first one again, in turn, and keep the one with the least median.

        Where measurements vary, the least of many is the luckiest: a placement that is mediocre when measured once more. The first may be
        what the search was given to start from, as by the trial that it goes on from, which should not be lost to luck. They are asked for
        with traces, since what is known of a placement is not measured again otherwise.
        """
        for i, problem in enumerate(self.progress.problems):
            contenders = problem.finalists()
            if not len(contenders):
                continue
            before, count = self.progress.evaluations, len(contenders)
            rounds = []
            for r in range(max(1, self.trial.budget.confirm // count)):
                rounds += self._measure([Proposal(i, np.roll(contenders, -(r % count), axis=0))], count, trace=True)
            problem.choose(rounds, before)

    def _place(self) -> str:
        """Zero-shot: one placement a problem, measured once; that is the whole budget."""
        for i, problem in enumerate(self.problems):
            if self.progress.problems[i].evaluations:
                continue
            begin = working_seconds()
            placement = np.asarray(self.method.place(problem), dtype=np.int16)[None, :]
            self.progress.learner_seconds += working_seconds() - begin
            self._measure([Proposal(i, placement)], 1, trace=False)
            self.progress.wall_seconds = self._wall()
            self.recorder.progress(self.progress)
        return "finished"

    def _measure(self, proposals: Sequence[Proposal], room: int, trace: bool) -> list[Measurements]:
        """The measurements of all proposals, in order; every placement is counted once, however often it had to be asked for."""
        total = sum(len(p.placements) for p in proposals)
        if total > room:
            raise ValueError(f"method {self.trial.method!r} proposed {total} placements when asked for at most {room}")
        if any(not 0 <= p.problem < len(self.problems) for p in proposals):
            raise ValueError(f"method {self.trial.method!r} proposed for a problem it was not given; it has {len(self.problems)}")
        requests, first = [], self.progress.evaluations
        for p in proposals:
            requests.append(Request(self.problems[p.problem], p.placements, self.seed, first, trace))
            first += len(p.placements)
        begin, waited = working_seconds(), self.evaluator.queue_seconds
        results = measure(self.evaluator, requests)
        queued = self.evaluator.queue_seconds - waited
        self.progress.queue_seconds += queued
        self.progress.evaluation_seconds += max(0.0, working_seconds() - begin - queued)
        wall = self._wall()
        for proposal, m in zip(proposals, results, strict=True):
            self.progress.problems[proposal.problem].add(m, self.progress.evaluations, wall)
            if self.trial.budget.confirm:
                self.progress.problems[proposal.problem].contend(m)
            self.progress.evaluations += len(m)
            self.progress.compile_seconds += 0.0 if m.compile_seconds is None else float(m.compile_seconds.sum())
            self.progress.outcomes += np.bincount(m.outcome, minlength=len(Outcome))
        return results

    def _trace_best(self) -> None:
        """Measure each best placement once more for its timeline. It is no evaluation: nothing of the result depends on it."""
        first = self.progress.evaluations
        found = [(i, p.placement) for i, p in enumerate(self.progress.problems) if p.placement is not None]
        requests = [Request(self.problems[i], placement[None, :], self.seed, first, trace=True) for i, placement in found]
        try:
            for (i, _), m in zip(found, self.evaluator.evaluate_many(requests), strict=True):
                self.traces[i] = Trace.of(m)
        except InfrastructureError:
            pass  # the report draws a simulated plan then, and says so

    def _keep_policy(self, path: Path, policy: Mapping[str, Any], sweep: str) -> None:
        """Other trials need it, so a full disk is no fault of this trial but fails it for now."""
        try:
            describe_policy(path.parent, self.trial, sweep)
            save_state(path, policy)
        except OSError as error:
            raise InfrastructureError(f"policy {path} cannot be written ({error.strerror})") from error

    def _save(self) -> None:
        """Leave a checkpoint. Nobody needs it but a trial that is stopped, so a full disk costs no more than a note."""
        if self.folder is not None:
            self.progress.wall_seconds = self._wall()
            path = self.folder / CHECKPOINT
            try:
                save_state(path, {"runner": self.progress.state(), "method": self.method.state()}, keep_previous=True)
                self.recorder.saved(path)
            except OSError as error:
                note = f"checkpoint {path} could not be written ({error.strerror})"
                self.progress.notes += [note] if note not in self.progress.notes else []
        self.saved_at = (self.progress.evaluations, time.perf_counter())

    def _resume(self) -> bool:
        """Go on from the checkpoint in the folder, if there is a sound one."""
        if self.folder is None:
            return False
        state, notes = load_latest(self.folder / CHECKPOINT)
        self.progress.notes += notes
        if state is None:
            return False  # from the beginning the result is the same, only later
        self.method.restore(state["method"])
        self.progress = Progress.restored(state["runner"])
        self.progress.notes += notes
        self.progress.resumed += 1
        self.saved_at = (self.progress.evaluations, time.perf_counter())
        return True

    def _result(self, status: str, sweep: str) -> TrialResult:
        p = self.progress
        outcomes = {Outcome(i).name: int(n) for i, n in enumerate(p.outcomes) if n}
        problems = tuple(
            replace(_problem_result(base, one, p.evaluations, p.wall_seconds, self.seed), trace=trace)
            for base, one, trace in zip(problem_labels(self.trial, self.problems), p.problems, self.traces, strict=True)
        )
        return replace(
            _labels(self.trial, sweep), status=status, problems=problems, evaluations=p.evaluations, outcomes=outcomes,
            learner_seconds=p.learner_seconds, evaluation_seconds=p.evaluation_seconds, compile_seconds=p.compile_seconds,
            queue_seconds=p.queue_seconds, wall_seconds=p.wall_seconds, started_at=p.started_at, report=finite(p.report), resumed=p.resumed,
            notes=tuple(p.notes),
        )  # fmt: skip


def one_thread() -> None:
    """Keep torch to one thread: sums in another order would give other bits, and trials run side by side anyway."""
    torch = sys.modules.get("torch")
    if torch is None:
        return
    keep_freed_memory()
    if torch.get_num_threads() != 1:
        torch.set_num_threads(1)


def finite(numbers: Mapping[str, float]) -> dict[str, float]:
    """Those of ``numbers`` that JSON can hold."""
    return {key: float(value) for key, value in numbers.items() if np.isfinite(value)}


def _labels(trial: Trial, sweep: str) -> TrialResult:
    return TrialResult(
        trial.content_hash, "finished", sweep=sweep, stage=trial.stage, method=trial.label, method_name=trial.method,
        kind=trial.kind, seed=trial.seed, processor=processor(),
    )  # fmt: skip


def problem_labels(trial: Trial, problems: Sequence[Problem]) -> list[ProblemResult]:
    """Empty results that name the trial's problems."""
    return [
        ProblemResult(spec.label, spec.graph_label, spec.network_label, problem.content_hash, problem.objective)
        for spec, problem in zip(trial.problems, problems, strict=True)
    ]


def _problem_result(base: ProblemResult, one: ProblemProgress, evaluations: int, wall: float, seed: int) -> ProblemResult:
    found = one.placement is not None
    curve = list(one.curve)
    if found and curve[-1].evaluations < evaluations:
        curve.append(CurvePoint(evaluations, one.objective, wall, one.evaluations))
    return replace(
        base, objective=one.objective if found else None, seconds=one.seconds if found else None, outcome=Outcome(one.outcome).name,
        placement=None if one.placement is None else tuple(one.placement.tolist()), evaluations=one.evaluations,
        best_evaluation=one.best_evaluation, seed=seed, first=one.first, protocol=one.protocol, host=one.host, deviation=one.deviation,
        proposed=tuple(one.proposed),
        curve=tuple(curve),
    )  # fmt: skip
