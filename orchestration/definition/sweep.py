"""A whole sweep: `load_sweep` reads and checks the YAML, `Sweep.expand` gives its trials. Running them does not belong here."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from envs.problem.errors import InputError, nearest
from methods.contract import registry
from orchestration.definition.document import Document
from orchestration.definition.execution import ExecutionSettings
from orchestration.definition.expansion import Expander, Expansion, UnfittingStage, equal_trials
from orchestration.definition.issues import Issues, Mark, SweepErrors
from orchestration.definition.methods import MethodRow, read_methods
from orchestration.definition.models import StageModel, SweepModel
from orchestration.definition.problems import read_problems
from orchestration.definition.reports import check_report
from orchestration.definition.searches import SearchSpec
from orchestration.definition.source import Source, read_source, write_yaml
from orchestration.definition.stages import Shared, Stage, StageReader, read_evaluator, read_shared
from orchestration.rewards.evaluators import build_evaluator
from orchestration.specs.policies import Policy
from orchestration.specs.sources import build_problem, is_step_of_network, must_be_captured
from orchestration.specs.trial import EvaluatorSpec, FrozenDict, ProblemSpec, Trial, content_hash

ONLY_STAGE = "main"
"""Name of the stage of a sweep without ``stages``."""


@dataclass(frozen=True)
class Sweep:
    """A validated sweep: its stages, methods and problems, ready to be expanded into trials."""

    name: str
    path: Path
    text: str
    """The YAML as written."""
    resolved: str
    """The YAML with its fragments merged in, without comments."""
    stages: tuple[Stage, ...]
    """In order: each after those it starts from."""
    description: str = ""
    report: FrozenDict = field(default_factory=FrozenDict)
    """The ``report`` section, for the reports to read."""
    files: FrozenDict = field(default_factory=FrozenDict)
    """Text of the sweep and of every fragment it includes, by path."""
    problem_marks: Mapping[str, Mark] = field(default_factory=dict, compare=False, hash=False)
    """Where each graph and network is defined, by label, for messages."""
    settings: tuple[str, ...] = ()
    """Values that were changed when it was read."""
    whole: Sweep | None = field(default=None, compare=False, hash=False)
    """What this is a part of (see `only`); its other trials are reported, but not run."""

    @cached_property
    def content_hash(self) -> str:
        """sha256 of everything that the sweep will run; equal for texts that mean the same."""
        e = self.expansion()
        return content_hash(
            [[t.content_hash for t in (*e.trials, *e.waiting)], [s.content_hash for s in (*e.searches, *e.waiting_searches)]]
        )

    def expansion(self, winners: Mapping[str, Mapping[str, Any]] | None = None) -> Expansion:
        """Everything there is to run, given the winners of the searches that are over.

        Args:
            winners: settings of the best configuration by the search's content hash.
        """
        return Expander(self.stages, winners or {}).expand()

    def expand(self, winners: Mapping[str, Mapping[str, Any]] | None = None) -> list[Trial]:
        """All trials that are known, parents first, always in the same order; those of searches are not among them."""
        return list(self.expansion(winners).trials)

    def searches(self, winners: Mapping[str, Mapping[str, Any]] | None = None) -> list[SearchSpec]:
        """All searches that can begin as soon as the trials they start from are done."""
        return list(self.expansion(winners).searches)

    def only(self, names: Sequence[str]) -> Sweep:
        """The sweep with the named stages alone, and those that they start from or take their settings from.

        Raises:
            InputError: if there is no stage of a name.
        """
        known = {s.name: s for s in self.stages}
        for name in names:
            if name not in known:
                raise InputError(f"sweep {self.name!r} has no stage {name!r}{nearest(name, list(known))}")
        wanted = set(names)
        for stage in reversed(self.stages):
            if stage.name in wanted:
                wanted |= {s for s in (stage.source, stage.config_source) if s is not None}
        return replace(self, stages=tuple(s for s in self.stages if s.name in wanted), whole=self)

    @property
    def policies(self) -> list[Policy]:
        """What its stages start from that comes from elsewhere."""
        return [s.policy for s in self.stages if s.policy is not None]

    @property
    def problems(self) -> list[ProblemSpec]:
        """Every problem of every stage, once."""
        return list({p.label + p.content_hash: p for s in self.stages for p in s.problems}.values())

    def check_problems(self, leave: bool = False) -> None:
        """Builds every problem, and every method once a network, so that what cannot work is known before anything starts.

        Models are captured on the way, which takes seconds the first time and is cached on disk. Only training steps that have not been
        traced yet are left to the run, for that can take minutes; their options are checked without.

        Args:
            leave: leave to the run all named models that have not been captured yet, but for one where a network has no other graph.

        Raises:
            SweepErrors: naming each problem at the line of its graph, each method at the line of its label.
        """
        issues = Issues()
        built: dict[str, int] = {}
        left = self._left(leave)
        for spec in self.problems:
            if spec.content_hash in left:
                continue
            try:
                built[spec.content_hash] = build_problem(spec).n_nodes
            except InputError as error:
                mark = self.problem_marks.get(spec.graph_label, Mark(str(self.path), 0))
                issues.add(mark, f"problem {spec.label}: {error.message}", error.cure)
        for row, spec in self._pairs(built):
            try:
                registry.build(row.method, row.config, [build_problem(spec)], 0)
            except InputError as error:
                issues.add(row.mark, f"method {row.label!r} on {spec.label}: {error.message}", error.cure)
        self._check_evaluators(built, issues)
        issues.raise_any()

    def _left(self, models: bool) -> set[str]:
        """Problems, by content hash, that are not built before the run: their graphs have to be captured."""
        problems = self.problems
        missing = [p for p in problems if must_be_captured(p)]
        left = {p.content_hash for p in missing if is_step_of_network(p)}
        tried = {p.network_label for p in problems if p not in missing}
        for spec in missing if models else ():
            if "model" in spec.graph and spec.network_label in tried:
                left.add(spec.content_hash)
            tried.add(spec.network_label)
        return left

    def _check_evaluators(self, built: Mapping[str, int], issues: Issues) -> None:
        """Asks every stage's evaluator for the measurements of no placement on each network, so that nothing is started."""
        asked = {(s.shared.evaluator, p.network_label): (s, p) for s in self.stages for p in s.problems if p.content_hash in built}
        for stage, spec in asked.values():
            problem = build_problem(spec)
            try:
                build_evaluator(stage.shared.evaluator).evaluate(problem, np.empty((0, problem.n_nodes), dtype=np.int16))
            except InputError as error:
                issues.add(stage.mark, f"evaluator {stage.shared.evaluator.kind!r} on {spec.label}: {error.message}", error.cure)

    def _pairs(self, sizes: Mapping[str, int]) -> Iterator[tuple[MethodRow, ProblemSpec]]:
        """Every method with the smallest graph of every network it is used on (sizes by content hash of the problem)."""
        smallest: dict[tuple[str, FrozenDict, str], tuple[MethodRow, ProblemSpec]] = {}
        for stage in self.stages:
            for row, spec in itertools.product(stage.rows, stage.problems):
                key = (row.method, row.config, spec.network_label)
                size = sizes.get(spec.content_hash)
                if size is not None and (key not in smallest or size < sizes[smallest[key][1].content_hash]):
                    smallest[key] = (row, spec)
        yield from smallest.values()


def load_sweep(path: str | Path, settings: Sequence[str] = (), store: str | None = None) -> Sweep:
    """The sweep at ``path``, checked whole.

    Args:
        path: of its YAML file.
        settings: changes of single values, each as ``stages.train.budget=500``.
        store: URI of the MLflow store with models that stages start from; see `orchestration.specs.policies.read_policy`.

    Raises:
        SweepErrors: holding everything that is wrong, each with file and line.
    """
    path, issues = Path(path), Issues()
    source = read_source(path, issues, settings)
    if source is None or issues.found:
        raise SweepErrors(issues.found)
    sweep = _read(source, issues, store)
    issues.raise_any()
    sweep = None if sweep is None else replace(sweep, settings=tuple(settings))
    if sweep is None:  # cannot be: whatever makes it None is recorded
        raise InputError(f"{path} cannot be read")
    _check_expansion(sweep, issues)
    issues.raise_any()
    return sweep


def _read(source: Source, issues: Issues, store: str | None) -> Sweep | None:
    doc = Document(source.node, issues)
    model = doc.read(SweepModel)
    if model is None:
        return None
    problems = read_problems(doc, model.problems, source.root)
    methods = read_methods(doc, model.methods, model.ablations)
    evaluators: dict[str, EvaluatorSpec] = {}
    for name, given in model.evaluators.items():
        spec = read_evaluator(doc, ("evaluators", name), given, {})
        if spec is not None:
            evaluators[name] = spec
    shared = read_shared(doc, (), model, Shared((0,), None, EvaluatorSpec(), ExecutionSettings()), evaluators)
    reader = StageReader(doc, problems, methods, evaluators, shared, store)
    if model.stages is None and not doc.has("stages"):
        alone = {key: getattr(model, key) for key in ("on", "per", "search", "seeds", "budget", "evaluator")}
        only = reader.read(ONLY_STAGE, StageModel.model_construct(**alone), ())
        stages = [] if only is None else [only]
    else:
        for key in ("search", "on", "per"):
            if doc.has(key):
                doc.error((key,), f"key {key!r} belongs into a stage if there are stages", "move it into one of them", key=True)
        stages = reader.read_all(model.stages or {})
    if model.report is not None and not any(path[0:1] != ("report",) for path in doc.wrong):
        check_report(doc, model.report, stages, methods)
    if issues.found:
        return None
    marks = {e.label: e.mark for c in (problems.networks, problems.graphs) for e in c.entries.values()}
    plain = source.node.plain()
    return Sweep(
        model.sweep, source.path, source.files[str(source.path)], write_yaml(plain), tuple(stages), str(model.description or ""),
        FrozenDict(plain.get("report") or {}), FrozenDict(source.files), marks,
    )  # fmt: skip


def _check_expansion(sweep: Sweep, issues: Issues) -> None:
    """What only the trials show: checkpoints that do not exist, and trials that are the same."""
    marks = {s.name: s.mark for s in sweep.stages}
    try:
        expansion = sweep.expansion()
    except InputError as error:
        stage = error.stage if isinstance(error, UnfittingStage) else sweep.stages[-1]
        issues.add(stage.mark, error.message, error.cure)
        return
    twins = equal_trials([*expansion.trials, *expansion.waiting])
    if twins is not None:
        one, other = twins
        if one.label != other.label:
            row = next(r for s in sweep.stages for r in s.rows if r.label == other.label)
            issues.add(row.mark, f"methods {one.label!r} and {other.label!r} are the same in every setting", "change or remove one")
        else:
            mark = sweep.problem_marks.get(other.problems[0].graph_label, marks[other.stage])
            issues.add(mark, f"problems {one.problem_label} and {other.problem_label} are the same", "remove one")
