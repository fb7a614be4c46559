"""The ``methods`` and ``ablations`` sections: rows of the leaderboard with their whole configuration.

A configuration is resolved once, here: defaults of the method's Config dataclass, then the row's settings, then those of an
ablation, a stage or a search. Which trials use a row does not belong here.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from envs.problem.errors import InputError, suggestion
from methods.contract import registry
from methods.contract.config import SettingsError
from methods.contract.method import Method
from methods.contract.validation import NAME_CURE, Location, shown
from orchestration.definition.document import Document
from orchestration.definition.execution import ExecutionSettings, read_execution
from orchestration.definition.issues import Mark
from orchestration.definition.models import MethodEntry
from orchestration.definition.values import NAME, whole_numbers
from orchestration.specs.trial import FrozenDict

if TYPE_CHECKING:
    from methods.contract.method import Method

MAX_VARIANTS = 10_000


@dataclass(frozen=True)
class MethodRow:
    """A method with its whole configuration under the name that the leaderboard shows."""

    label: str
    method: str
    config: FrozenDict
    execution: ExecutionSettings
    mark: Mark

    def with_settings(self, settings: Mapping[str, Any]) -> MethodRow:
        """This row with further settings; InputError if the method does not know them."""
        return dataclasses.replace(self, config=override(self.method, self.config, settings))

    @property
    def cls(self) -> type[Method]:
        """The class of the method, imported when it is first asked for."""
        return registry.method_class(self.method)

    @property
    def learns(self) -> bool:
        """Whether it can start from another trial's checkpoint."""
        return _overrides(self.cls, "load_policy")

    @property
    def places(self) -> bool:
        """Whether it has zero-shot placement."""
        return _overrides(self.cls, "place")


@dataclass
class MethodTable:
    """All rows in order, and the names that stand for several of them (a row with ``vary``, an ablation study)."""

    rows: dict[str, MethodRow] = field(default_factory=dict)
    groups: dict[str, tuple[str, ...]] = field(default_factory=dict)
    broken: set[str] = field(default_factory=set)
    """Labels whose definition is wrong; that is recorded once, where they are defined."""

    def is_broken(self, label: str) -> bool:
        """Whether ``label``, or the row it is a variant of, could not be read."""
        return not self.rows or label.partition("/")[0] in self.broken

    def select(self, doc: Document, path: Location, names: Sequence[str] | None) -> list[MethodRow]:
        """The rows that labels and groups name; all of them for None. Unknown names are recorded below ``path``."""
        if names is None:
            return list(self.rows.values())
        chosen: dict[str, MethodRow] = {}
        for name in names:
            if name in self.rows:
                chosen[name] = self.rows[name]
            elif name in self.groups:
                chosen.update((label, self.rows[label]) for label in self.groups[name])
            elif not self.is_broken(name):
                doc.error((*path, name), f"unknown method label {name!r}", suggestion(name, [*self.rows, *self.groups]))
        return list(chosen.values())


def _overrides(cls: type, name: str) -> bool:
    return getattr(cls, name) is not getattr(Method, name)


def flatten(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings with dotted keys: ``{"a": {"b": 1}}`` as ``{"a.b": 1}``."""
    flat: dict[str, Any] = {}
    for key, value in settings.items():
        if isinstance(value, Mapping) and value:
            flat.update(flatten(value, f"{prefix}{key}."))
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def override(method: str, config: Mapping[str, Any], settings: Mapping[str, Any]) -> FrozenDict:
    """The whole configuration ``config`` with some ``settings`` changed (nested or dotted), checked by the method itself.

    Raises:
        InputError: for an unknown setting or a value that the method refuses.
    """
    made = registry.configure(method, {**config, **flatten(settings)})
    # Through JSON, so that a configuration is the same whether it comes from a file, a study or another process.
    return FrozenDict(json.loads(json.dumps(dataclasses.asdict(made))))


def checked(doc: Document, path: Location, row: MethodRow, settings: Mapping[str, Any] | None) -> MethodRow | None:
    """``row`` with settings written at ``path``; every setting that is refused is recorded at its own place."""
    try:
        return row.with_settings(settings or {})
    except SettingsError as error:
        for refusal in error.found:
            at = doc.setting(path, refusal.location)
            if at == path:  # the settings do not fit together: those that are refused by themselves, or else all of them
                single = [key for key in flatten(settings or {}) if _refuses(row, {key: flatten(settings or {})[key]})]
                for key in single or [""]:
                    place = doc.setting(path, tuple(key.split(".")))
                    doc.error(place, f"method {row.method!r}: {refusal.message}", refusal.cure)
            else:
                doc.error(at, f"method {row.method!r}: {refusal.message}", refusal.cure)
    except ValueError as error:
        doc.error(path, f"method {row.method!r}: {error}", "change its settings")
    return None


def _refuses(row: MethodRow, settings: Mapping[str, Any]) -> bool:
    try:
        row.with_settings(settings)
    except ValueError:
        return True
    return False


def read_methods(doc: Document, entries: Mapping[str, MethodEntry], ablations: Sequence[Mapping[str, Any]]) -> MethodTable:
    """The rows of ``methods`` and of ``ablations``."""
    table = MethodTable()
    for label, entry in entries.items():
        if not _read_row(doc, table, label, entry):
            table.broken.add(label)
    table.broken |= doc.broken("methods")
    if not table.rows and not table.broken and doc.has("methods") and ("methods",) not in doc.wrong:
        doc.error(("methods",), "methods are empty", "add at least one, such as heft:")
    for i, study in enumerate(ablations):
        _read_ablations(doc, ("ablations", i), table, study)
    return table


def _read_row(doc: Document, table: MethodTable, label: str, entry: MethodEntry) -> bool:
    """Adds the row (or rows, with ``vary``); False if something is wrong (recorded)."""
    path: Location = ("methods", label)
    method = entry.method or label
    at = (*path, "method") if entry.method else path
    try:
        registry.method_class(method)
    except InputError as error:
        doc.error(at, error.message, error.cure)
        return False
    except ImportError as error:
        doc.error(at, f"method {method!r} cannot be loaded ({error})", "install what it needs")
        return False
    row: MethodRow | None = MethodRow(label, method, override(method, {}, {}), read_execution(entry), doc.mark(path, key=True))
    for place, settings in ((path, entry.__pydantic_extra__), ((*path, "config"), entry.config)):
        row = None if row is None else checked(doc, place, row, settings)
    if row is None:
        return False
    if entry.vary is None:
        table.rows[label] = row
        return True
    table.groups[label] = tuple(_varied(doc, (*path, "vary"), table, row, entry.vary))
    return bool(table.groups[label])


def _varied(doc: Document, path: Location, table: MethodTable, row: MethodRow, vary: Mapping[str, Any]) -> Iterator[str]:
    for suffix, settings in variants(doc, path, "vary", vary):
        label = f"{row.label}/{suffix}"
        made = checked(doc, path, row, settings)
        if made is None:
            return
        table.rows[label] = dataclasses.replace(made, label=label)
        yield label


def variants(doc: Document, path: Location, what: str, vary: Mapping[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """Every combination of ``{key: [values]}`` with a name such as ``steps=3,rate=0.1``; the last key turns fastest."""
    axes: list[list[tuple[str, Any]]] = []
    for key, values in vary.items():
        ranged = isinstance(values, str) and ".." in values
        options = doc.attempt((*path, key), lambda given=values: whole_numbers(given)) if ranged else values
        if not isinstance(options, tuple) or not options:
            if not ranged:
                doc.error((*path, key), f"{what}.{key} needs a list of values to try, not {shown(options)}", "write [first, second]")
            return []
        if len({repr(p) for p in options}) != len(options):
            doc.error((*path, key), f"{what}.{key} holds a value twice", "remove one")
            return []
        axes.append([(key, p) for p in options])
    total = math.prod(map(len, axes))
    if total > MAX_VARIANTS:
        doc.error(path, f"{what} gives {total} combinations, more than {MAX_VARIANTS}", "use a search for so many")
        return []
    return [(",".join(f"{k}={_short(v)}" for k, v in combination), dict(combination)) for combination in itertools.product(*axes)]


def _short(value: Any) -> str:
    return json.dumps(value).replace('"', "").replace(" ", "") if not isinstance(value, str) else value


def _read_ablations(doc: Document, path: Location, table: MethodTable, study: Mapping[str, Any]) -> None:
    base = study.get("base")
    if not isinstance(base, str):
        doc.error((*path, "base") if "base" in study else path, "ablations lack 'base'", "name the method label that they change")
        return
    if base not in table.rows:
        table.broken.update(k for k in study if k != "base")
        if not table.is_broken(base):
            doc.error((*path, "base"), f"unknown base {base!r}", suggestion(base, table.rows))
        return
    for label, settings in study.items():
        at = (*path, label)
        if label == "base":
            continue
        table.broken.add(label)
        if not re.match(NAME, label):
            doc.error(at, f"ablation {label!r} is no proper name", NAME_CURE, key=True)
        elif label in table.rows or label in table.groups:
            doc.error(at, f"method label {label!r} is used twice", "rename one", key=True)
        elif not isinstance(settings, Mapping) or not settings:
            doc.error(at, f"ablation {label!r} changes nothing", "give it settings, such as {features.output_shape: false}", key=True)
        elif (row := checked(doc, at, table.rows[base], settings)) is not None:
            table.rows[label] = dataclasses.replace(row, label=label, mark=doc.mark(at, key=True))
            table.broken.discard(label)
