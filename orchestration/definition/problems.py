"""The ``problems`` section: labelled graphs and networks, groups of them, and the selections that stages make.

What a source means (which models, parameters and files there are) is `orchestration.specs.sources`' business.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from envs.problem.errors import nearest
from envs.problem.problem import OBJECTIVES
from orchestration.definition.issues import Issues, Mark
from orchestration.definition.methods import variants
from orchestration.definition.source import confined
from orchestration.definition.view import View
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

_KEYS = ("graphs", "networks", "groups", "costs", "objective")
_ON_KEYS = ("graphs", "networks", "costs", "objective", "sample")


@dataclass(frozen=True)
class Entry:
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
    entries: dict[str, Entry] = field(default_factory=dict)
    groups: dict[str, tuple[str, ...]] = field(default_factory=dict)
    broken: set[str] = field(default_factory=set)
    """Labels whose definition is wrong; that is recorded once, where they are defined."""

    def labels(self, item: View, name: str) -> tuple[str, ...]:
        """What ``name`` stands for: a label, a group or a pattern such as ``layered/*``; unknown names are recorded."""
        if name in self.entries:
            return (name,)
        if name in self.groups:
            return self.groups[name]
        if name.partition("/")[0] in self.broken or not self.entries:
            return ()  # recorded where it should have been defined
        if any(c in name for c in "*?["):
            found = tuple(fnmatch.filter(self.entries, name))
            if found or self.broken:
                return found
            item.error(f"pattern {name!r} matches no {self.what}; there are {', '.join(list(self.entries)[:8])}")
        else:
            item.error(f"unknown {self.what} {name!r}{nearest(name, [*self.entries, *self.groups])}")
        return ()

    def select(self, view: View | None) -> list[Entry]:
        """The entries that a name or a list of names stands for, each once; all of them for None."""
        if view is None or view.value is None:
            return list(self.entries.values())
        chosen: dict[str, Entry] = {}
        for item in view.items():
            name = item.string()
            if name is not None:
                chosen.update((label, self.entries[label]) for label in self.labels(item, name))
        return list(chosen.values())


@dataclass
class ProblemTable:
    """All graphs and networks of a sweep."""

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

    def select(self, on: View | None) -> Selection:
        """The problems that ``on`` (a name, a list, or a mapping with graphs, networks, costs, objective, sample) asks for."""
        if on is None or on.value is None:
            return Selection(self.cross(self.graphs.select(None), self.networks.select(None)))
        if not on.is_mapping:
            return Selection(self.cross(self.graphs.select(on), self.networks.select(None)))
        if not on.mapping(_ON_KEYS, on.path):
            return Selection([])
        graphs, networks = self.graphs.select(on.child("graphs")), self.networks.select(on.child("networks"))
        costs, objective = _costs(on.child("costs"), self.root), _objective(on.child("objective"))
        return Selection(_sampled(self.cross(graphs, networks, costs, objective), on.child("sample"), self.complete))

    def cross(
        self, graphs: Iterable[Entry], networks: Iterable[Entry], costs: FrozenDict | None = None, objective: str | None = None
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


@dataclass(frozen=True)
class Selection:
    """Problems in order."""

    problems: list[ProblemSpec]

    @property
    def graphs(self) -> list[str]:
        """Labels of the graphs, each once, in order."""
        return list(dict.fromkeys(p.graph_label for p in self.problems))


def _own(graph: Entry) -> Entry:
    return Entry(own_network_name(graph.source), FrozenDict({"own": True}), graph.mark)


def _default_costs(source: Mapping[str, Any]) -> dict[str, str]:
    """Real operations have bytes and kinds, so a roofline fits; synthetic and hand-written graphs have work and speed only."""
    if "file" in source and source["file"].endswith(DOCUMENTS):
        return {"kind": "own"}
    return {"kind": "linear" if any(kind in source for kind in LINEAR) else "roofline"}


def _costs(view: View | None, root: Path) -> FrozenDict | None:
    if view is None or view.value is None:
        return None
    return view.attempt(lambda: costs_source(view.plain(), Path(view.node.mark.file).parent, root))


def _objective(view: View | None) -> str | None:
    return None if view is None or view.value is None else view.choice(OBJECTIVES, "objective")


def _sampled(problems: list[ProblemSpec], view: View | None, complete: bool) -> list[ProblemSpec]:
    """``sample: 500`` or ``{count: 500, seed: 1}``: that many of the problems, drawn without replacement, in their order."""
    if view is None or view.value is None:
        return problems
    count_view: View | None = view
    seed: int | None = 0
    if view.is_mapping:
        view.mapping(("count", "seed"), "sample", required=("count",))
        count_view, seed_view = view.child("count"), view.child("seed")
        seed = 0 if seed_view is None else seed_view.integer()
    count = None if count_view is None else count_view.integer(1)
    if count is None or seed is None:
        return problems
    if count > len(problems):
        if complete:
            view.error(f"sample asks for {count} of {len(problems)} problems; ask for fewer")
        return problems
    import numpy as np

    chosen = np.random.default_rng(np.random.SeedSequence(seed)).choice(len(problems), count, replace=False)
    return [problems[i] for i in sorted(chosen)]


def read_problems(section: View, root: Path, issues: Issues) -> ProblemTable:
    """The whole section, with everything that is wrong in it recorded."""
    table = ProblemTable(root)
    if not section.mapping(_KEYS, "problems", required=("graphs",)):
        return table
    table.costs, table.objective = _costs(section.child("costs"), root), _objective(section.child("objective"))
    graphs, networks = section.child("graphs"), section.child("networks")
    if graphs is not None:
        _read_entries(graphs, table.graphs, GRAPH_KINDS, _plain_graph, graph_source, root)
    if networks is not None:
        _read_entries(networks, table.networks, NETWORK_KINDS, _plain_network, network_source, root)
    elif graphs is not None and not all(any(kind in e.source for kind in WHOLE) for e in table.graphs.entries.values()):
        section.error("problems lack 'networks'; add one, such as networks: {desktop: cpu-gpu-4}")
    groups = section.child("groups")
    if groups is not None and groups.mapping(None, "groups"):
        _read_groups(groups, table)
    return table


def _plain_graph(text: str) -> dict[str, Any]:
    return {"file": text} if Path(text).suffix in (*DOCUMENTS, ".onnx", ".xml") else {"model": text}


def _plain_network(text: str) -> dict[str, Any]:
    return {"file": text} if Path(text).suffix == ".json" else {"named": text}


Resolve = Callable[[Mapping[str, Any], Path, Path], FrozenDict]


def _read_entries(
    section: View, catalogue: Catalogue, kinds: tuple[str, ...], plain: Callable[[str], dict[str, Any]], resolve: Resolve, root: Path
) -> None:
    what = catalogue.what
    if not section.is_mapping:
        for item in section.items():
            name = item.string()
            if name is not None and not (
                item.check_name(Path(name).stem, what, item.mark) and _add(catalogue, Path(name).stem, item, plain(name), resolve, root)
            ):
                catalogue.broken.add(Path(name).stem)
    else:
        for label, entry in section.children():
            before = len(section.issues.found)
            if entry.check_name(label, what, entry.key_mark):
                _read_entry(label, entry, catalogue, kinds, plain, resolve, root)
            if len(section.issues.found) > before:
                catalogue.broken.add(label)
    if not section.value:
        section.error(f"{what}s are empty; add at least one")


def _read_entry(
    label: str,
    entry: View,
    catalogue: Catalogue,
    kinds: tuple[str, ...],
    plain: Callable[[str], dict[str, Any]],
    resolve: Resolve,
    root: Path,
) -> None:
    if entry.value is None or isinstance(entry.value, str):
        _add(catalogue, label, entry, plain(entry.value or label), resolve, root)
        return
    what = f"{catalogue.what} {label!r}"
    if not entry.mapping(None, what):
        return
    given = [k for k in kinds if k in entry.value]
    if len(given) != 1:
        written = f"has {' and '.join(given)}" if given else f"says none of {', '.join(kinds)}"
        close = "" if given else next((nearest(k, kinds) for k in entry.value if "did you mean" in nearest(k, kinds)), "")
        entry.error(f"{what} {written}; say where it comes from by exactly one{close.replace(';', ',', 1)}")
        return
    costs = _costs(entry.child("costs"), root)
    settings = {k: v.plain() for k, v in entry.children() if k not in ("seeds", "vary", "costs")}
    seeds_view, vary = entry.child("seeds"), entry.child("vary")
    seeds = [None] if seeds_view is None else [*seeds_view.integers(f"seeds of {what}")]
    combinations = [("", {})] if vary is None else variants(vary, f"{what}.vary")
    if seeds_view is None and vary is None:
        _add(catalogue, label, entry, settings, resolve, root, costs)
        return
    members = []
    for suffix, varied in combinations:
        for seed in seeds:
            name = f"{label}/{suffix}{',' if suffix and seed is not None else ''}{'' if seed is None else seed}"
            full = _vary(settings, given[0], varied) | ({} if seed is None else {"seed": seed})
            if not _add(catalogue, name, entry, full, resolve, root, costs):
                return
            members.append(name)
    catalogue.groups[label] = tuple(members)


def _vary(settings: dict[str, Any], kind: str, varied: Mapping[str, Any]) -> dict[str, Any]:
    """Settings with varied parameters put where the kind takes them: inside its mapping, or beside it."""
    inner = settings[kind]
    return {**settings, kind: {**inner, **varied}} if isinstance(inner, Mapping) else {**settings, **varied}


def _add(
    catalogue: Catalogue, label: str, view: View, settings: Mapping[str, Any], resolve: Resolve, root: Path, costs: FrozenDict | None = None
) -> bool:
    if label in catalogue.entries or label in catalogue.groups:
        view.error(f"{catalogue.what} {label!r} is given twice; rename one")
        return False
    base = Path(view.node.mark.file).parent
    for key in ("file", "problem"):
        name = settings.get(key)
        if isinstance(name, str) and confined(name, base, root) is None:
            view.error(f"{catalogue.what} {label!r}: file {name!r} leaves the folder {root}; move it there")
            return False
    source = view.attempt(lambda: resolve(settings, base, root))
    if source is None:
        return False
    catalogue.entries[label] = Entry(label, source, view.key_mark, costs)
    return True


def _read_groups(section: View, table: ProblemTable) -> None:
    """Named groups of graphs or of networks; a group may name other groups."""
    pending = dict(section.children())
    for name, group in pending.items():
        catalogue = table.networks if _is_network_group(group, table) else table.graphs
        if name in catalogue.groups or name in catalogue.entries:
            section.issues.add(group.key_mark, f"group {name!r} has the name of a {catalogue.what}; rename it")
            continue
        if group.check_name(name, "group", group.key_mark):
            catalogue.groups[name] = tuple(_members(name, group, pending, catalogue, (name,)))


def _is_network_group(group: View, table: ProblemTable) -> bool:
    names = [i.value for i in group.items() if isinstance(i.value, str)]
    return (
        bool(names) and names[0] not in table.graphs.entries and (names[0] in table.networks.entries or names[0] in table.networks.groups)
    )


def _members(name: str, group: View, pending: Mapping[str, View], catalogue: Catalogue, above: tuple[str, ...]) -> list[str]:
    members: dict[str, None] = {}
    if not group.items():
        group.error(f"group {name!r} is empty; list what belongs to it")
    for item in group.items():
        text = item.string()
        if text is None:
            continue
        if text in above:
            item.error(f"groups form a cycle: {' -> '.join((*above, text))}; remove one of them")
        elif text in pending and text not in catalogue.groups and text not in catalogue.entries:
            members.update(dict.fromkeys(_members(text, pending[text], pending, catalogue, (*above, text))))
        else:
            members.update(dict.fromkeys(catalogue.labels(item, text)))
    return list(members)
