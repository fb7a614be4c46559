"""Finding a sweep's directory and reading it for a report. Nothing is computed or written here but the cache of bounds."""

from __future__ import annotations

import json
from collections.abc import Collection as AnyCollection
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from envs.problem.errors import InputError, nearest
from envs.simulators.bounds import lower_bound
from envs.simulators.work_conserving.discipline import with_free_inputs
from orchestration.analysis.notes import reason
from orchestration.analysis.runs import Collection, collect
from orchestration.analysis.source import ScoredBy, source_of
from orchestration.definition.issues import Issues
from orchestration.definition.source import read_source
from orchestration.folder.definition_copy import saved_definition, saved_definition_hash
from orchestration.folder.ledger import entries
from orchestration.folder.mirror import refresh
from orchestration.specs.files import safe_name
from orchestration.specs.layout import HOME, LEDGER
from orchestration.specs.results import TrialResult
from orchestration.specs.sources import build_problem
from orchestration.specs.trial import ProblemSpec, Trial

BOUNDS = "bounds.json"
COUNTED = "counted.json"
"""Which trials belong to the definition that ran last; the ledger also keeps those of earlier versions of it."""


@dataclass(frozen=True)
class SweepRecord:
    """What a report needs of one sweep's directory."""

    folder: Path
    name: str
    collection: Collection
    specs: dict[str, ProblemSpec]
    """Description of each problem, by problem hash."""
    kinds: Mapping[str, str] = field(default_factory=dict)
    """Kind of every stage (`orchestration.specs.trial.KINDS`)."""
    ended: Mapping[str, tuple[Trial, TrialResult]] = field(default_factory=dict)
    """Every trial that counts, by content hash."""
    baseline: str | None = None
    """The ``baseline`` of the definition's ``report`` section."""
    description: str = ""
    """What the definition says of itself."""
    notes: tuple[str, ...] = ()
    """What could not be had, a sentence each."""

    @property
    def known_baseline(self) -> str | None:
        """The definition's baseline, unless none of its trials has ended."""
        return self.baseline if self.baseline in {r.method for r in self.collection.runs} else None


def sweep_folder(sweep: str, home: Path = HOME, *, started: bool = True) -> Path:
    """The directory of a sweep given by name, by directory or by its YAML file.

    Args:
        sweep: one of these.
        home: the folder with the directories of all sweeps.
        started: whether it must have one; if not, a sweep's file says where it will be.

    Raises:
        InputError: naming the nearest sweep that has run, if this one has not.
    """
    path = Path(sweep)
    if (path / LEDGER).is_file():
        return path
    is_file = path.suffix in (".yaml", ".yml")
    name = _yaml_name(path) if is_file else sweep
    refresh(home, name)
    ran = sorted(p.parent.name for p in home.glob(f"*/{LEDGER}")) if home.is_dir() else []
    if name in ran or (is_file and not started):
        return home / safe_name(name)
    hint = nearest(name, ran) if ran else f"; no sweep has run in {home}/ yet, so start one with `placewright run`"
    raise InputError(f"no sweep {name!r} has left results here{hint}")


def _yaml_name(path: Path) -> str:
    """The ``sweep`` key of a definition; the rest of it is not checked, since it has run already."""
    issues = Issues()
    source = read_source(path, issues)
    if source is None:
        raise InputError(f"cannot read sweep {issues.found[0]}")
    name = source.node.plain().get("sweep")
    if not isinstance(name, str):
        raise InputError(f"{path} has no key 'sweep' with the sweep's name; is it a sweep definition?")
    return name


def load_sweep_record(folder: Path, trials: AnyCollection[str] | None = None) -> SweepRecord:
    """Everything that ended in a sweep's directory, with lower bounds.

    Args:
        trials: content hashes of the trials that count; None for those of the definition as it last ran to its end, or all if
            it has been changed since.

    Raises:
        InputError: if nothing has run there.
    """
    trials = remembered(folder) if trials is None else set(trials)
    ended = [(t, r) for t, r in entries(folder) if trials is None or r.trial in trials]
    if not ended:
        raise InputError(f"no trial of {folder} has ended yet; let the sweep run on and try again")
    results = [r for _, r in ended]
    specs = _specs(ended)
    sources = {r.trial: source_of(t.evaluator) for t, r in ended}
    bounds, notes = _bounds(folder, results, sources, specs)
    definition = saved_definition(folder)
    section, description = definition.get("report"), definition.get("description")
    baseline = section.get("baseline") if isinstance(section, dict) else None
    name = next((r.sweep for r in results if r.sweep), folder.name)
    kinds = {r.stage: r.kind for r in results}
    known = {r.trial: (t, r) for t, r in ended}
    record = SweepRecord(
        folder,
        name,
        collect(results, bounds, sources, {key for key, spec in specs.items() if "synthetic" in spec.graph}),
        specs,
        kinds,
        known,
        baseline if isinstance(baseline, str) else None,
        description if isinstance(description, str) else "",
        notes,
    )
    if record.baseline != record.known_baseline:
        record = replace(record, notes=(*notes, f"the baseline {baseline!r} has no result, so the leader stands in for it"))
    return record


def remember(folder: Path, trials: AnyCollection[str]) -> list[Path]:
    """Keep which trials count, for reports made later; the file written."""
    content = {"definition": saved_definition_hash(folder), "trials": sorted(trials)}
    (folder / COUNTED).write_text(json.dumps(content), encoding="utf-8")
    return [folder / COUNTED]


def remembered(folder: Path) -> set[str] | None:
    """What `remember` kept, unless the definition has been changed since."""
    try:
        content = json.loads((folder / COUNTED).read_text(encoding="utf-8"))
        return set(content["trials"]) if content["definition"] == saved_definition_hash(folder) else None
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _specs(ended: Iterable[tuple[Trial, TrialResult]]) -> dict[str, ProblemSpec]:
    return {p.problem_hash: spec for t, r in ended for spec, p in zip(t.problems, r.problems, strict=False) if p.problem_hash}


def _bounds(
    folder: Path, results: Iterable[TrialResult], sources: Mapping[str, ScoredBy], specs: Mapping[str, ProblemSpec]
) -> tuple[dict[tuple[str, bool], float], tuple[str, ...]]:
    """Lower bounds by problem hash and whether inputs are free, kept beside the ledger because they can take longer than the
    report itself; and why one is missing."""
    exact = [(p.problem_hash, sources[r.trial].free_inputs) for r in results if sources[r.trial].exact for p in r.problems if p.evaluations]
    needed = sorted(set(exact))
    path = folder / BOUNDS
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
        bounds = {need: float(kept[_bound_name(*need)]) for need in needed if _bound_name(*need) in kept}
    except (OSError, ValueError, TypeError, AttributeError):
        bounds = {}
    missing, notes = [need for need in needed if need not in bounds], []
    for key, free in missing:
        try:
            problem = build_problem(specs[key])
            bounds[key, free] = lower_bound(with_free_inputs(problem) if free else problem)
        except Exception as error:
            notes.append(f"no lower bound for {specs[key].label}: {reason(error)}")
    if missing:
        try:
            path.write_text(json.dumps({_bound_name(*need): b for need, b in bounds.items()}, sort_keys=True), encoding="utf-8")
        except OSError as error:
            notes.append(f"the bounds are not kept for the next report: {reason(error)}")
    return bounds, tuple(notes)


def _bound_name(problem_hash: str, free_inputs: bool) -> str:
    return f"{problem_hash} inputs free" if free_inputs else problem_hash
