"""A sweep's values beside the models that declare them: reads one into the other, and says where in which file a value stands."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from envs.problem.errors import InputError
from methods.contract.validation import KEY, Location, Refusal, refusals, type_at
from orchestration.definition.issues import Issues, Mark
from orchestration.definition.source import Node

Model = TypeVar("Model", bound=BaseModel)
_MISSING = {"sweep": "unnamed", "problems": {}, "methods": {}, "graphs": {}}
"""What stands for a section that is missing, so that the rest can be read."""
_CALLED = {"": "the sweep", "search": "search", "budget": "budget", "resources": "resources", "report": "report", "problems": "problems"}
_ENTRIES = {
    "graphs": "graph", "networks": "network", "methods": "method label", "stages": "stage", "groups": "group", "space": "parameter",
    "evaluators": "evaluator", "custom": "resource",
}  # fmt: skip
"""What the keys of a mapping are called."""


def plain(node: Node) -> Any:
    """The value without places, lists as tuples."""
    if isinstance(node.value, dict):
        return {k: plain(v) for k, v in node.value.items()}
    return tuple(plain(v) for v in node.value) if isinstance(node.value, list) else node.value


class Document:
    """A tree of nodes with the errors found in it; places are named by paths such as ``("stages", "pretrain", "budget")``."""

    def __init__(self, node: Node, issues: Issues) -> None:
        self.node, self.issues = node, issues
        self.wrong: set[Location] = set()
        """Paths at which something was recorded."""

    def read(self, model: type[Model]) -> Model | None:
        """The whole document, with everything that is wrong recorded and left out; None if nothing can be read."""
        values, first = plain(self.node), True
        for _ in range(64):  # each round leaves something out
            try:
                return model.model_validate(values)
            except ValidationError as error:
                found = refusals(error, model, lambda location: self._name(model, location))
                if first:
                    for refusal, kind in zip(found, (e["type"] for e in error.errors(include_url=False)), strict=True):
                        self._record(refusal, kind)
                first = False
                for e in error.errors(include_url=False):
                    _leave_out(values, tuple(e["loc"]), e["type"])
        return None

    def _record(self, refusal: Refusal, kind: str) -> None:
        at = refusal.location[:-1] if refusal.location and refusal.location[-1] == KEY else refusal.location
        by_key = kind in ("extra_forbidden",) or at != refusal.location
        self.error(at, refusal.message, refusal.cure, key=by_key)

    def _name(self, model: Any, location: Location) -> str:
        """How a message calls what stands at a location."""
        return called(location, type_at(model, location))

    def error(self, path: Location, message: str, cure: str = "", key: bool = False) -> None:
        """Record an error at a value, or at its key."""
        self.wrong.add(path)
        self.issues.add(self.mark(path, key), message, cure)

    def attempt(self, path: Location, make: Any) -> Any:
        """``make()``, or None with its InputError recorded at ``path``."""
        try:
            return make()
        except InputError as error:
            self.error(path, error.message, error.cure)
            return None

    def broken(self, *path: str) -> set[str]:
        """The keys of the mapping at ``path`` under which something was recorded; all of them if it cannot be read."""
        depth = len(path)
        found = {str(p[depth]) for p in self.wrong if len(p) > depth and p[:depth] == path}
        node, _, _ = self._find(path)
        return found | set(node.keys) if path in self.wrong else found

    def has(self, *path: str) -> bool:
        """Whether a value is given there that is not null."""
        node: Node | None = self.node
        for key in path:
            node = node.value.get(key) if node is not None and isinstance(node.value, dict) else None
        return node is not None and node.value is not None

    def mark(self, path: Location, key: bool = False) -> Mark:
        """Where to point: a scalar itself, else its key, which is better than a value that may begin on the next line."""
        node, at_key, _ = self._find(path)
        return at_key if key or isinstance(node.value, dict | list) or node.value is None else node.mark

    def setting(self, base: Location, location: Location) -> Location:
        """The path of a setting below ``base``, written ``a.b: 1`` or ``a: {b: 1}``; ``base`` itself if it is not there."""
        node, path, rest = self._find(base)[0], base, tuple(map(str, location))
        while rest and isinstance(node.value, dict):
            taken = next((n for n in range(len(rest), 0, -1) if ".".join(rest[:n]) in node.value), None)
            if taken is None:
                break
            key = ".".join(rest[:taken])
            node, path, rest = node.value[key], (*path, key), rest[taken:]
        return path

    def file(self, path: Location) -> str:
        """The file in which a value was written."""
        return self._find(path)[0].mark.file

    def _find(self, path: Iterable[str | int]) -> tuple[Node, Mark, bool]:
        """The node at ``path``, the mark of its key, and whether it is there; the nearest above it if it is not.

        Words in lists are found by their value, so that ``("on", "graphs", "bert")`` leads to ``bert`` in ``on: [bert]``.
        """
        node, mark, found = self.node, self.node.mark, True
        for part in path:
            if isinstance(node.value, dict) and part in node.value:
                mark, node = node.keys.get(str(part), node.value[part].mark), node.value[part]
            elif isinstance(node.value, dict) and part in node.keys:
                mark = node.keys[str(part)]
            elif isinstance(node.value, list) and isinstance(part, int) and part < len(node.value):
                node = node.value[part]
                mark = node.mark
            elif isinstance(node.value, list) and (item := next((n for n in node.value if n.value == part), None)) is not None:
                node, mark = item, item.mark
            else:
                found = False
        return node, mark, found


def called(location: Location, hint: Any = None) -> str:
    """What a message calls a value: ``key 'bugdet' in the sweep``, ``stages.pretrain.budget.evaluations``, ``graph 'a/b'``."""
    if location and location[-1] == KEY:
        return f"{_ENTRIES.get(str(location[-3]), 'key')} {location[-2]!r}"
    if location and hint is None:
        return f"key {location[-1]!r} in {called(location[:-1], Any)}"
    if len(location) < 2:
        return _CALLED.get(str(location[0]) if location else "", str(location[0]) if location else "the sweep")
    if len(location) > 1 and location[-2] in _ENTRIES:
        return f"{_ENTRIES[str(location[-2])]} {location[-1]!r}"
    return path_text(location)


def path_text(location: Location) -> str:
    """A path as people write it: ``report.tables[0].bins``."""
    text = ""
    for part in location:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return text


def _leave_out(values: Any, location: Location, kind: str) -> None:
    """Take what is wrong out of ``values``: the value itself, or what it is required in."""
    if location and location[-1] == KEY:
        location = location[:-1]
    if kind == "missing":
        if location[-1] in _MISSING and len(location) <= 2:
            at = values
            for part in location[:-1]:
                at = at[part]
            at[location[-1]] = _MISSING[str(location[-1])]
            return
        location = location[:-1]
    holder, key, at = None, None, values
    for part in location:
        if not isinstance(at, Mapping) or part not in at:
            break
        holder, key, at = at, part, at[part]
    if isinstance(holder, dict):
        del holder[key]
