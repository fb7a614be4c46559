"""The ``methods`` and ``ablations`` sections: rows of the leaderboard with their whole configuration.

A configuration is resolved once, here: defaults of the method's Config dataclass, then the row's settings, then those of an
ablation, a stage or a search. Which trials use a row does not belong here.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from envs.problem.errors import InputError, nearest
from methods.contract import registry
from orchestration.definition.execution import EXECUTION_KEYS, Execution, read_execution
from orchestration.definition.issues import Issues, Mark
from orchestration.definition.view import View, with_cure
from orchestration.specs.trial import FrozenDict

if TYPE_CHECKING:
    from methods.contract.method import Method

_RESERVED = ("method", "config", "vary", *EXECUTION_KEYS)
MAX_VARIANTS = 10_000


@dataclass(frozen=True)
class MethodRow:
    """A method with its whole configuration under the name that the leaderboard shows."""

    label: str
    method: str
    config: FrozenDict
    execution: Execution
    mark: Mark

    def with_settings(self, settings: Mapping[str, Any]) -> MethodRow:
        """This row with further settings; InputError if the method does not know them."""
        return dataclasses.replace(self, config=override(self.method, self.config, settings))

    @property
    def cls(self) -> type[Method]:
        """The method's class."""
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

    def select(self, view: View | None) -> list[MethodRow]:
        """The rows that a list of labels and groups names; all of them for None. Unknown names are recorded."""
        if view is None:
            return list(self.rows.values())
        chosen: dict[str, MethodRow] = {}
        for item in view.items():
            name = item.string()
            if name in self.rows:
                chosen[name] = self.rows[name]
            elif name in self.groups:
                chosen.update((label, self.rows[label]) for label in self.groups[name])
            elif name is not None and not self.is_broken(name):
                item.error(f"unknown method label {name!r}{nearest(name, [*self.rows, *self.groups])}")
        return list(chosen.values())


def _overrides(cls: type, name: str) -> bool:
    from methods.contract.method import Method

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


def checked(row: MethodRow, settings: View | None, skip: tuple[str, ...] = ()) -> MethodRow | None:
    """``row`` with the settings of a mapping; every setting that is refused is recorded at its own line."""
    if settings is None or settings.value is None:
        return row
    if not settings.mapping(None, settings.path):
        return None
    values = {k: v.plain() for k, v in settings.children() if k not in skip}
    try:
        return row.with_settings(values)
    except ValueError as error:
        _record(row.method, row.config, {k: v for k, v in settings.children() if k not in skip}, settings, error)
        return None


def _record(method: str, config: Mapping[str, Any], settings: Mapping[str, View], whole: View, error: ValueError) -> None:
    """Records each setting that is refused by itself at its own line, or else that they do not fit together."""
    single = False
    for key, view in settings.items():
        for inner, at in _leaves(key, view):
            try:
                override(method, config, {inner: at.plain()})
            except ValueError as one:
                at.error(with_cure(f"method {method!r}: {one}"))
                single = True
    if not single:
        whole.error(with_cure(f"method {method!r}: {error}"))


def _leaves(key: str, view: View) -> Iterator[tuple[str, View]]:
    if view.is_mapping and view.value:
        for inner, child in view.children():
            yield from _leaves(f"{key}.{inner}", child)
    else:
        yield key, view


def read_methods(section: View, ablations: View | None, issues: Issues) -> MethodTable:
    """The rows of ``methods`` (a mapping from label to settings, or a list of names) and of ``ablations``."""
    table = MethodTable()
    if isinstance(section.value, list):
        for item in section.items():
            name = item.name("method")
            if name is not None and not _taken(table, name, item) and not _read_row(table, name, item, bare=True):
                table.broken.add(name)
    elif section.mapping(None, "methods"):
        for label, entry in section.children():
            if not (entry.check_name(label, "method label", entry.key_mark) and _read_row(table, label, entry, bare=False)):
                table.broken.add(label)
    if not table.rows and not table.broken and (section.is_mapping or isinstance(section.value, list)):
        section.error("methods are empty; add at least one, such as heft:")
    for study in ablations.items() if ablations is not None else []:
        _read_ablations(table, study)
    return table


def _taken(table: MethodTable, label: str, view: View) -> bool:
    if label in table.rows or label in table.groups:
        view.issues.add(view.key_mark, f"method label {label!r} is used twice; rename one")
        return True
    return False


def _known_method(name: str, view: View) -> bool:
    try:
        registry.method_class(name)
    except InputError as error:
        view.error(str(error))
    except ImportError as error:
        view.error(f"method {name!r} cannot be loaded ({error}); install what it needs")
    else:
        return True
    return False


def _read_row(table: MethodTable, label: str, entry: View, bare: bool) -> bool:
    """Adds the row (or rows, with ``vary``); False if something is wrong (recorded)."""
    settings = None if bare or entry.value is None else entry
    if settings is not None and not settings.mapping(None, f"method {label!r}"):
        return False
    named = None if settings is None else settings.child("method")
    method = label if named is None else named.string()
    if method is None or not _known_method(method, named or entry):
        return False
    execution = read_execution(settings) if settings is not None else Execution()
    row: MethodRow | None = MethodRow(label, method, override(method, {}, {}), execution, entry.key_mark)
    if row is not None and settings is not None:
        row = checked(row, settings, _RESERVED)
    if row is not None and settings is not None:
        row = checked(row, settings.child("config"))
    if row is None:
        return False
    vary = settings.child("vary") if settings is not None else None
    if vary is None or vary.value is None:
        table.rows[label] = row
        return True
    table.groups[label] = tuple(_varied(table, row, vary))
    return bool(table.groups[label])


def _varied(table: MethodTable, row: MethodRow, vary: View) -> Iterator[str]:
    for suffix, settings in variants(vary, "vary"):
        label = f"{row.label}/{suffix}"
        try:
            table.rows[label] = dataclasses.replace(row.with_settings(settings), label=label)
        except ValueError as error:
            vary.error(with_cure(f"method {row.method!r}: {error}"))
            return
        yield label


def variants(view: View, what: str, known: Callable[[str], bool] | None = None) -> list[tuple[str, dict[str, Any]]]:
    """Every combination of ``{key: [values]}`` with a name such as ``steps=3,rate=0.1``; the last key turns fastest."""
    if not view.mapping(None, what):
        return []
    axes: list[list[tuple[str, Any]]] = []
    for key, values in view.children():
        if known is not None and not known(key):
            continue
        options = values.integers(f"values of {key}") if isinstance(values.value, str) and ".." in values.value else None
        plain = options if options is not None else values.plain()
        if not isinstance(plain, list) or not plain:
            values.error(f"{what}.{key} needs a list of values to try, not {plain!r}; write [first, second]")
            return []
        if len({repr(p) for p in plain}) != len(plain):
            values.error(f"{what}.{key} holds a value twice; remove one")
            return []
        axes.append([(key, p) for p in plain])
    total = 1
    for axis in axes:
        total *= len(axis)
    if total > MAX_VARIANTS:
        view.error(f"{what} gives {total} combinations, more than {MAX_VARIANTS}; use a search for so many")
        return []
    return [(",".join(f"{k}={_short(v)}" for k, v in combination), dict(combination)) for combination in itertools.product(*axes)]


def _short(value: Any) -> str:
    return json.dumps(value).replace('"', "").replace(" ", "") if not isinstance(value, str) else value


def _read_ablations(table: MethodTable, study: View) -> None:
    if not study.mapping(None, "ablations"):
        return
    base_view = study.child("base")
    if base_view is None:
        study.error("ablations lack 'base'; name the method label that they change")
        return
    base = base_view.string()
    if base is None:
        return
    if base not in table.rows:
        table.broken.update(k for k in study.value if k != "base")
        if table.is_broken(base):
            return
        base_view.error(f"unknown base {base!r}{nearest(base, table.rows)}")
        return
    for label, settings in study.children():
        if label == "base" or not settings.check_name(label, "ablation", settings.key_mark) or _taken(table, label, settings):
            continue
        if not settings.is_mapping or not settings.value:
            settings.error(f"ablation {label!r} changes nothing; give it settings, such as {{features.output_shape: false}}")
            table.broken.add(label)
            continue
        row = checked(table.rows[base], settings)
        if row is None:
            table.broken.add(label)
        else:
            table.rows[label] = dataclasses.replace(row, label=label, mark=settings.key_mark)
