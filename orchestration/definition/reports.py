"""The ``report`` section: which tables are asked for, of which stages and methods. Making them belongs to ``orchestration/report``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from envs.problem.errors import nearest
from orchestration.definition.view import View
from orchestration.specs.report_keys import KEYS, SHAPES

if TYPE_CHECKING:
    from orchestration.definition.methods import MethodTable
    from orchestration.definition.stages import Stage

_KEYS = ("baseline", "tables")


def read_report(section: View, stages: Sequence[Stage], methods: MethodTable) -> None:
    """Records everything that is wrong with the section. Names are looked up only if the rest of the sweep is free of errors."""
    clean = not section.issues.found
    if section.value is None or not section.mapping(_KEYS, "report"):
        return
    baseline, tables = section.child("baseline"), section.child("tables")
    entries = [e for e in ([] if tables is None else tables.items()) if _read_table(e)]
    if clean:
        for view in [baseline, *(e.child(key) for e in entries for key in ("baseline", "base"))]:
            if view is not None and view.value is not None:
                _method(view, methods, view.path.rpartition(".")[2])
        for entry in entries:
            _read_names(entry, {s.name: s for s in stages}, methods)


def _read_table(entry: View) -> bool:
    """Whether it is a mapping; records unknown keys and shapes and values of the wrong kind."""
    if not entry.mapping(KEYS, "a table of the report", required=("shape",)):
        return False
    shape, bins = entry.child("shape"), entry.child("bins")
    if shape is not None:
        shape.choice(SHAPES, "shape of a table")
    if bins is not None and bins.value is not None:
        bins.integer(1)
    for key in ("paper", "columns"):
        child = entry.child(key)
        if child is not None and child.value is not None:
            child.mapping(None, key)
    for key in ("title", "note"):
        child = entry.child(key)
        if child is not None and isinstance(child.value, dict | list):
            child.string()
    return True


def _read_names(entry: View, stages: Mapping[str, Stage], methods: MethodTable) -> None:
    given, on, columns = (entry.child(key) for key in ("methods", "stages", "columns"))
    for item in [] if given is None else given.items():
        _method(item, methods, "method")
    for item in [] if on is None else on.items():
        _stage(item, stages)
    for _, column in columns.children() if columns is not None and columns.is_mapping else ():
        for item in column.items():
            _stage(item, stages)


def _method(view: View, methods: MethodTable, what: str) -> None:
    name = view.string()
    if name is None or name in methods.rows:
        return
    if name in methods.groups:
        view.error(f"{what} {name!r} of the report stands for several methods; name one, such as {methods.groups[name][0]!r}")
    else:
        view.error(f"{what} {name!r} of the report is no method of this sweep{nearest(name, methods.rows)}")


def _stage(view: View, stages: Mapping[str, Stage]) -> None:
    name = view.string()
    if name is None:
        return
    if name not in stages:
        view.error(f"the report names stage {name!r}, which this sweep has not{nearest(name, stages)}")
    elif stages[name].kind == "pretrain":
        view.error(f"the report names stage {name!r}, which trains and places nothing; name a stage that starts from it")
