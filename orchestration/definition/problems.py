"""The ``problems`` section: labelled graphs and networks, groups of them, and the selections that stages make.

What a source means (which models, parameters and files there are) is `orchestration.specs.sources`' business.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from envs.problem.errors import InputError, suggestion
from methods.contract.config import SettingsError
from methods.contract.validation import Location
from orchestration.definition.document import Document
from orchestration.definition.issues import Mark
from orchestration.definition.methods import variants
from orchestration.definition.models import GraphEntry, NetworkEntry, On, Problems, Sample
from orchestration.definition.source import confined
from orchestration.specs.sources import (
    DOCUMENTS,
    GRAPH_KINDS,
    LINEAR,
    NETWORK_KINDS,
    WHOLE,
    costs_source,
    graph_source,
    network_source,
    own_network_name,
)
from orchestration.specs.trial import FrozenDict, ProblemSpec


@dataclass(frozen=True)
class Labelled:
    """A labelled graph or network."""

    label: str
    source: FrozenDict
    mark: Mark
    costs: FrozenDict | None = None
    """Cost model of this graph, if it has one of its own."""


@dataclass
class Catalogue:
    """Labelled things in order, and names that stand for several of them."""

    what: str
    entries: dict[str, Labelled] = field(default_factory=dict)
    groups: dict[str, tuple[str, ...]] = field(default_factory=dict)
    broken: set[str] = field(default_factory=set)
    """Labels whose definition is wrong; that is recorded once, where they are defined."""

    def labels(self, doc: Document, path: Location, name: str) -> tuple[str, ...]:
        """What ``name`` stands for: a label, a group or a pattern such as ``layered/*``; unknown names are recorded below ``path``."""
        if name in self.entries:
            return (name,)
        if name in self.groups:
            return self.groups[name]
        if name.partition("/")[0] in self.broken or not self.entries:
            return ()  # recorded where it should have been defined
        if any(c in name for c in "*?["):
            found = tuple(fnmatch.filter(self.entries, name))
            if not found and not self.broken:
                doc.error((*path, name), f"pattern {name!r} matches no {self.what}", f"there are {', '.join(list(self.entries)[:8])}")
            return found
        doc.error((*path, name), f"unknown {self.what} {name!r}", suggestion(name, [*self.entries, *self.groups]))
        return ()

    def select(self, doc: Document, path: Location, names: Sequence[str] | None) -> list[Labelled]:
        """The entries that names stand for, each once; all of them for None."""
        if names is None:
            return list(self.entries.values())
        found = dict.fromkeys(label for name in names for label in self.labels(doc, path, name))
        return [self.entries[label] for label in found]


@dataclass
class ProblemTable:
    """All graphs and networks of a sweep."""

    doc: Document
    root: Path
    """The folder that files are confined to."""
    graphs: Catalogue = field(default_factory=lambda: Catalogue("graph"))
    networks: Catalogue = field(default_factory=lambda: Catalogue("network"))
    costs: FrozenDict | None = None
    objective: str | None = None

    @property
    def complete(self) -> bool:
        """Whether everything in it was defined without an error."""
        return bool(self.graphs.entries) and not (self.graphs.broken or self.networks.broken)

    def select(self, path: Location, on: On | None) -> list[ProblemSpec]:
        """The problems that the ``on`` at ``path`` asks for; all of them for None."""
        on = on or On()
        graphs, networks = (
            catalogue.select(self.doc, (*path, key), getattr(on, key))
            for key, catalogue in (("graphs", self.graphs), ("networks", self.networks))
        )
        problems = self.cross(graphs, networks, _costs(self, (*path, "costs"), on.costs), on.objective)
        return problems if on.sample is None else self._sampled(problems, (*path, "sample"), on.sample)

    def cross(
        self, graphs: Iterable[Labelled], networks: Iterable[Labelled], costs: FrozenDict | None = None, objective: str | None = None
    ) -> list[ProblemSpec]:
        """Every graph on every network; a graph whose file is a whole problem stays on its own."""
        networks = list(networks)
        made = []
        for graph in graphs:
            own = any(kind in graph.source for kind in WHOLE)
            for network in [_own(graph)] if own else networks:
                model = costs or graph.costs or self.costs or FrozenDict({"kind": "own"} if own else _default_costs(graph.source))
                goal = objective or self.objective or ("own" if own else "makespan")
                made.append(ProblemSpec(graph.source, network.source, model, goal, graph.label, network.label))
        return made

    def _sampled(self, problems: list[ProblemSpec], path: Location, sample: Sample) -> list[ProblemSpec]:
        """That many of the problems, drawn without replacement, in their order."""
        if sample.count > len(problems):
            if self.complete:
                self.doc.error(path, f"sample asks for {sample.count} of {len(problems)} problems", "ask for fewer")
            return problems

        chosen = np.random.default_rng(np.random.SeedSequence(sample.seed)).choice(len(problems), sample.count, replace=False)
        return [problems[i] for i in sorted(chosen)]


def _own(graph: Labelled) -> Labelled:
    return Labelled(own_network_name(graph.source), FrozenDict({"own": True}), graph.mark)


def _default_costs(source: Mapping[str, Any]) -> dict[str, str]:
    """Real operations have bytes and kinds, so a roofline fits; synthetic and hand-written graphs have work and speed only."""
    if "file" in source and source["file"].endswith(DOCUMENTS):
        return {"kind": "own"}
    return {"kind": "linear" if any(kind in source for kind in LINEAR) else "roofline"}


def _costs(table: ProblemTable, path: Location, value: Any) -> FrozenDict | None:
    if value is None:
        return None
    made: FrozenDict | None = table.doc.attempt(path, lambda: costs_source(value, Path(table.doc.file(path)).parent, table.root))
    return made


def read_problems(doc: Document, problems: Problems, root: Path) -> ProblemTable:
    """The whole section, with everything that is wrong in it recorded."""
    table = ProblemTable(doc, root)
    table.costs, table.objective = _costs(table, ("problems", "costs"), problems.costs), problems.objective
    for key, entries, catalogue in (("graphs", problems.graphs, table.graphs), ("networks", problems.networks, table.networks)):
        for label, entry in (entries or {}).items():
            _read_entry(table, ("problems", key, label), catalogue, entry)
        catalogue.broken |= doc.broken("problems", key)
        if not catalogue.entries and not catalogue.broken and doc.has("problems", key):
            doc.error(("problems", key), f"{catalogue.what}s are empty", "add at least one")
    crossed = [e for e in table.graphs.entries.values() if not any(kind in e.source for kind in WHOLE)]
    if crossed and not doc.has("problems", "networks"):
        doc.error(("problems",), "problems lack 'networks'", "add one, such as networks: {desktop: cpu-gpu-4}")
    _read_groups(table, problems.groups)
    return table


def _read_entry(table: ProblemTable, path: Location, catalogue: Catalogue, entry: GraphEntry | NetworkEntry) -> None:
    """Adds the entry, or every one of the group that it makes."""
    doc, label, what = table.doc, str(path[-1]), f"{catalogue.what} {path[-1]!r}"
    kinds, resolve = (GRAPH_KINDS, graph_source) if catalogue is table.graphs else (NETWORK_KINDS, network_source)
    given = [k for k in kinds if k in entry.model_fields_set]
    if len(given) != 1:
        if given or path not in doc.wrong:
            written = f"has {' and '.join(given)}" if given else f"says none of {', '.join(kinds)}"
            close = next((c for k in entry.model_extra or {} if (c := suggestion(k, kinds)).startswith("did you mean")), "")
            doc.error(path, f"{what} {written}", f"say where it comes from by exactly one{close and f' ({close})'}")
        return
    settings = {k: getattr(entry, k) for k in given} | (entry.model_extra or {})
    for key in ("model", "named"):
        if settings.get(key, "") is None:
            settings[key] = label
    costs = _costs(table, (*path, "costs"), entry.costs)
    seeds: Sequence[int | None] = entry.seeds or (None,)
    combinations = [("", {})] if entry.vary is None else variants(doc, (*path, "vary"), f"{what}.vary", entry.vary)
    members = []
    for suffix, varied in combinations:
        for seed in seeds:
            parts = [p for p in (suffix, "" if seed is None else str(seed)) if p]
            name = f"{label}/{','.join(parts)}" if parts else label
            full = _vary(settings, given[0], varied) | ({} if seed is None else {"seed": seed})
            source = _resolved(table, path, what, full, resolve)
            if source is None:
                return
            catalogue.entries[name] = Labelled(name, source, doc.mark(path, key=True), costs)
            members.append(name)
    if members != [label]:
        catalogue.groups[label] = tuple(members)


def _vary(settings: dict[str, Any], kind: str, varied: Mapping[str, Any]) -> dict[str, Any]:
    """Settings with varied parameters put where the kind takes them: inside its mapping, or beside it."""
    inner = settings[kind]
    return {**settings, kind: {**inner, **varied}} if isinstance(inner, Mapping) else {**settings, **varied}


Resolve = Callable[[Mapping[str, Any], Path, Path], FrozenDict]


def _resolved(table: ProblemTable, path: Location, what: str, settings: Mapping[str, Any], resolve: Resolve) -> FrozenDict | None:
    base = Path(table.doc.file(path)).parent
    for key in ("file", "problem"):
        name = settings.get(key)
        if isinstance(name, str) and confined(name, base, table.root) is None:
            table.doc.error(path, f"{what}: file {name!r} leaves the folder {table.root}", "move it there")
            return None
    try:
        return resolve(settings, base, table.root)
    except SettingsError as error:
        kind = next(k for k in settings if isinstance(settings[k], Mapping))
        for refusal in error.found:
            table.doc.error(table.doc.setting((*path, kind), refusal.location), f"{what}: {refusal.message}", refusal.cure)
    except InputError as error:
        table.doc.error(path, f"{what}: {error.message}", error.cure)
    return None


def _read_groups(table: ProblemTable, groups: Mapping[str, Sequence[str]]) -> None:
    """Named groups of graphs or of networks; a group may name other groups."""
    for name, given in groups.items():
        catalogue = table.networks if _is_network_group(given, table) else table.graphs
        if name in catalogue.groups or name in catalogue.entries:
            table.doc.error(("problems", "groups", name), f"group {name!r} has the name of a {catalogue.what}", "rename it", key=True)
        else:
            catalogue.groups[name] = tuple(_members(table, groups, catalogue, (name,)))


def _is_network_group(names: Sequence[str], table: ProblemTable) -> bool:
    first = names[0] if names else ""
    return first not in table.graphs.entries and (first in table.networks.entries or first in table.networks.groups)


def _members(table: ProblemTable, groups: Mapping[str, Sequence[str]], catalogue: Catalogue, above: tuple[str, ...]) -> list[str]:
    name, members = above[-1], dict[str, None]()
    path: Location = ("problems", "groups", name)
    if not groups[name]:
        table.doc.error(path, f"group {name!r} is empty", "list what belongs to it")
    for text in groups[name]:
        if text in above:
            table.doc.error((*path, text), f"groups form a cycle: {' -> '.join((*above, text))}", "remove one of them")
        elif text in groups and text not in catalogue.groups and text not in catalogue.entries:
            members.update(dict.fromkeys(_members(table, groups, catalogue, (*above, text))))
        else:
            members.update(dict.fromkeys(catalogue.labels(table.doc, path, text)))
    return list(members)
