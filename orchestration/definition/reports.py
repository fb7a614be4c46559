"""The ``report`` section: whether its stages and methods exist. Making the tables belongs to ``orchestration/report``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from envs.problem.errors import suggestion
from methods.contract.validation import Location
from orchestration.definition.document import Document
from orchestration.definition.models import Report

if TYPE_CHECKING:
    from orchestration.definition.methods import MethodTable
    from orchestration.definition.stages import Stage


def check_report(doc: Document, report: Report, stages: Sequence[Stage], methods: MethodTable) -> None:
    """Records every method and stage that is named and is not there; only for a sweep that is otherwise free of errors."""
    known = {s.name: s for s in stages}
    _method(doc, ("report", "baseline"), report.baseline, methods)
    for i, table in enumerate(report.tables):
        path: Location = ("report", "tables", i)
        for key in ("baseline", "base"):
            _method(doc, (*path, key), getattr(table, key), methods)
        for name in table.methods or ():
            _method(doc, (*path, "methods", name), name, methods, "method")
        for name in table.stages or ():
            _stage(doc, (*path, "stages", name), name, known)
        for column, names in (table.columns or {}).items():
            for name in names:
                _stage(doc, (*path, "columns", column, name), name, known)


def _method(doc: Document, path: Location, name: str | None, methods: MethodTable, what: str = "") -> None:
    if name is None or name in methods.rows:
        return
    what = what or str(path[-1])
    if name in methods.groups:
        doc.error(path, f"{what} {name!r} of the report stands for several methods", f"name one, such as {methods.groups[name][0]!r}")
    else:
        doc.error(path, f"{what} {name!r} of the report is no method of this sweep", suggestion(name, methods.rows))


def _stage(doc: Document, path: Location, name: str, stages: Mapping[str, Stage]) -> None:
    if name not in stages:
        doc.error(path, f"the report names stage {name!r}, which this sweep has not", suggestion(name, stages))
    elif stages[name].kind == "pretrain":
        doc.error(path, f"the report names stage {name!r}, which trains and places nothing", "name a stage that starts from it")
