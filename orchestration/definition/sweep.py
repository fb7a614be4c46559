"""A whole sweep: `load_sweep` reads and checks the YAML, `Sweep.expand` gives its trials. Running them does not belong here."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from envs.problem.errors import InputError, nearest
from methods.contract import registry
from orchestration.definition.execution import EXECUTION_KEYS, Execution
from orchestration.definition.expansion import Expander, Expansion, equal_trials
from orchestration.definition.issues import Issues, Mark, SweepErrors
from orchestration.definition.methods import MethodRow, MethodTable, read_methods
from orchestration.definition.problems import ProblemTable, read_problems
from orchestration.definition.reports import read_report
from orchestration.definition.searches import SearchSpec
from orchestration.definition.source import Node, Source, read_source, write_yaml
from orchestration.definition.stages import Shared, Stage, StageReader, read_evaluator, read_shared
from orchestration.definition.view import View, with_cure
from orchestration.specs.sources import build_problem, must_be_traced
from orchestration.specs.trial import EvaluatorSpec, FrozenDict, ProblemSpec, Trial, content_hash

_STAGE_KEYS = ("on", "per")
"""Keys that a sweep without ``stages`` may give at its top."""
_KEYS = (
    "sweep", "description", "problems", "methods", "ablations", "seeds", "budget", "evaluator", "evaluators", "stages", "search",
    "report", *EXECUTION_KEYS, *_STAGE_KEYS,
)  # fmt: skip
ONLY_STAGE = "main"
"""Name of the stage of a sweep without ``stages``."""


@dataclass(frozen=True)
class Sweep:
    """A validated sweep."""

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
    def problems(self) -> list[ProblemSpec]:
        """Every problem of every stage, once."""
        return list({p.label + p.content_hash: p for s in self.stages for p in s.problems}.values())

    def check_problems(self) -> None:
        """Builds every problem, and every method once a network, so that what cannot work is known before anything starts.

        Models are captured on the way, which takes seconds the first time and is cached on disk. Only training steps that have not been
        traced yet are left to the run, for that can take minutes; their options are checked without.

        Raises:
            SweepErrors: naming each problem at the line of its graph, each method at the line of its label.
        """
        issues = Issues()
        built: dict[str, int] = {}
        for spec in self.problems:
            if must_be_traced(spec):
                continue
            try:
                built[spec.content_hash] = build_problem(spec).n_nodes
            except InputError as error:
                mark = self.problem_marks.get(spec.graph_label, Mark(str(self.path), 0))
                issues.add(mark, with_cure(f"problem {spec.label}: {error}", "change the graph, the network or the costs"))
        for row, spec in self._pairs(built):
            try:
                registry.build(row.method, row.config, [build_problem(spec)], 0)
            except InputError as error:
                issues.add(row.mark, with_cure(f"method {row.label!r} on {spec.label}: {error}", "change its settings"))
        issues.raise_any()

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


def load_sweep(path: str | Path) -> Sweep:
    """The sweep at ``path``, checked whole.

    Raises:
        SweepErrors: holding everything that is wrong, each with file and line.
    """
    path, issues = Path(path), Issues()
    source = read_source(path, issues)
    if source is None or issues.found:
        raise SweepErrors(issues.found)
    sweep = _read(source, issues)
    issues.raise_any()
    if sweep is None:  # cannot be: whatever makes it None is recorded
        raise InputError(f"{path} cannot be read")
    _check_expansion(sweep, issues)
    issues.raise_any()
    return sweep


def _read(source: Source, issues: Issues) -> Sweep | None:
    top = View(source.node, "", issues)
    top.mapping(_KEYS, "the sweep", required=("sweep", "problems", "methods"))
    name_view, description, report = top.child("sweep"), top.child("description"), top.child("report")
    name = None if name_view is None else name_view.name("sweep")
    problems_view, methods_view = top.child("problems"), top.child("methods")
    problems = ProblemTable(source.root) if problems_view is None else read_problems(problems_view, source.root, issues)
    methods = MethodTable() if methods_view is None else read_methods(methods_view, top.child("ablations"), issues)
    evaluators = _evaluators(top.child("evaluators"))
    shared = read_shared(top, Shared((0,), None, EvaluatorSpec(), Execution()), evaluators)
    reader = StageReader(problems, methods, evaluators, issues, shared)
    stages = reader.read_all(_stages(top, source))
    if report is not None:
        read_report(report, stages, methods)
    if name is None or issues.found:
        return None
    marks = {e.label: e.mark for c in (problems.networks, problems.graphs) for e in c.entries.values()}
    return Sweep(
        name, source.path, source.files[str(source.path)], write_yaml(source.node.plain()), tuple(stages),
        "" if description is None else str(description.plain() or ""),
        FrozenDict(report.plain() or {}) if report is not None else FrozenDict(),
        FrozenDict(source.files), marks,
    )  # fmt: skip


def _stages(top: View, source: Source) -> View:
    """The ``stages`` section, or one made of the sweep's own keys."""
    given = top.child("stages")
    if given is not None and given.value is not None:
        for key in ("search", *_STAGE_KEYS):
            child = top.child(key)
            if child is not None:
                top.issues.add(child.key_mark, f"key {key!r} belongs into a stage if there are stages; move it into one of them")
        return given
    keys = [k for k in ("search", *_STAGE_KEYS) if k in top.value]
    node = Node({k: top.value[k] for k in keys}, top.key_mark, {k: source.node.keys[k] for k in keys})
    return View(Node({ONLY_STAGE: node}, top.key_mark, {ONLY_STAGE: top.key_mark}), "", top.issues)


def _evaluators(section: View | None) -> dict[str, EvaluatorSpec]:
    if section is None or section.value is None or not section.mapping(None, "evaluators"):
        return {}
    found = {}
    for name, view in section.children():
        if view.check_name(name, "evaluator", view.key_mark):
            spec = read_evaluator(view, {})
            if spec is not None:
                found[name] = spec
    return found


def _check_expansion(sweep: Sweep, issues: Issues) -> None:
    """What only the trials show: checkpoints that do not exist, and trials that are the same."""
    marks = {s.name: s.mark for s in sweep.stages}
    try:
        expansion = sweep.expansion()
    except InputError as error:
        text = str(error)
        stage = next((s for s in sweep.stages if f"stage {s.name!r} " in text[: len(s.name) + 10]), sweep.stages[-1])
        issues.add(stage.mark, text)
        return
    twins = equal_trials([*expansion.trials, *expansion.waiting])
    if twins is not None:
        one, other = twins
        if one.label != other.label:
            row = next(r for s in sweep.stages for r in s.rows if r.label == other.label)
            issues.add(row.mark, f"methods {one.label!r} and {other.label!r} are the same in every setting; change or remove one")
        else:
            mark = sweep.problem_marks.get(other.problems[0].graph_label, marks[other.stage])
            issues.add(mark, f"problems {one.problem_label} and {other.problem_label} are the same; remove one")
