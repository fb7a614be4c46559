"""Wrong versions of a module, each by one small change of its syntax tree. What runs them is `tests.mutation.__main__`."""

from __future__ import annotations

import ast
import collections
from collections.abc import Callable, Iterator
from types import CodeType
from typing import Any, NamedTuple

SWAPPED: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Is: ast.IsNot,
    ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult, ast.Mod: ast.Mult, ast.Pow: ast.Mult, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd, ast.BitXor: ast.BitAnd,
    ast.LShift: ast.RShift, ast.RShift: ast.LShift, ast.And: ast.Or, ast.Or: ast.And, ast.Break: ast.Continue, ast.Continue: ast.Break,
}  # fmt: skip
"""What each operator and jump becomes."""
SKIPPED = (ast.Raise, ast.JoinedStr, ast.Import, ast.ImportFrom)
"""Nothing is changed inside these: wordings are read by people."""


class Mutant(NamedTuple):
    """One wrong version."""

    where: str
    """Function or class, as in ``Table.read``."""
    was: str
    became: str
    """The changed statement; its first line for compound ones."""
    code: CodeType

    @property
    def name(self) -> str:
        """Its identity; it does not depend on lines above it."""
        return f"{self.where}: {self.was} => {self.became}"


class Change(NamedTuple):
    """A change and how to take it back."""

    apply: Callable[[], None]
    revert: Callable[[], None]


def _put(owner: Any, field: str, new: Any) -> Change:
    old = getattr(owner, field)
    return Change(lambda: setattr(owner, field, new), lambda: setattr(owner, field, old))


def _put_at(items: list[Any], i: int, new: Any) -> Change:
    old = items[i]
    return Change(lambda: items.__setitem__(i, new), lambda: items.__setitem__(i, old))


def _changes(node: ast.AST) -> Iterator[Change]:
    """The wrong versions of one node itself, not of what it contains."""
    if isinstance(node, ast.Compare):
        for i, operator in enumerate(node.ops):
            yield _put_at(node.ops, i, SWAPPED[type(operator)]())
    elif isinstance(node, ast.BinOp | ast.AugAssign | ast.BoolOp) and type(node.op) in SWAPPED:
        yield _put(node, "op", SWAPPED[type(node.op)]())
    elif isinstance(node, ast.Constant):
        if isinstance(node.value, bool):
            yield _put(node, "value", not node.value)
        elif isinstance(node.value, int | float):
            yield _put(node, "value", node.value + 1)
        elif isinstance(node.value, str):
            yield _put(node, "value", f"{node.value}?")
    elif isinstance(node, ast.Return) and node.value is not None and not _is_none(node.value):
        yield _put(node, "value", ast.Constant(None))
    if isinstance(node, ast.If | ast.IfExp):
        yield _put(node, "test", ast.UnaryOp(ast.Not(), node.test))
    for field, value in ast.iter_fields(node):
        if isinstance(value, ast.UnaryOp) and isinstance(value.op, ast.Not | ast.USub | ast.Invert):
            yield _put(node, field, value.operand)
        if field in ("body", "orelse", "finalbody") and isinstance(value, list):
            for i, statement in enumerate(value):
                if isinstance(statement, ast.AugAssign) or (
                    isinstance(statement, ast.Expr) and not isinstance(statement.value, ast.Constant)
                ):
                    yield _put_at(value, i, ast.Pass())
                elif isinstance(statement, ast.Break | ast.Continue):
                    yield _put_at(value, i, SWAPPED[type(statement)]())


def _is_none(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _parts(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes directly inside one that are worth changing: no annotations, docstrings or messages."""
    for field, value in ast.iter_fields(node):
        if field in ("annotation", "returns", "decorator_list", "bases", "type_comment"):
            continue
        for inner in value if isinstance(value, list) else [value]:
            text = isinstance(inner, ast.Expr) and isinstance(inner.value, ast.Constant)
            if isinstance(inner, ast.AST) and not text and not isinstance(inner, SKIPPED):
                yield inner


def mutants(source: str, path: str) -> list[Mutant]:
    """All wrong versions of a module, in the order of its text."""
    tree = ast.parse(source)
    found: list[Mutant] = []
    seen: collections.Counter[str] = collections.Counter()

    def visit(node: ast.AST, where: str, statement: ast.AST) -> None:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            where = f"{where}.{node.name}" if where else node.name
        if isinstance(node, ast.stmt):
            statement = node
        for change in _changes(node):
            before = ast.unparse(statement)
            change.apply()
            after = ast.unparse(ast.fix_missing_locations(statement))
            pairs = [(a.strip(), b.strip()) for a, b in zip(before.splitlines(), after.splitlines(), strict=False) if a != b]
            was, became = pairs[0] if pairs else (before.splitlines()[-1].strip(), "nothing")
            key = f"{where}: {was} => {became}"
            seen[key] += 1
            found.append(Mutant(where or "module", was, became + (f" ({seen[key]})" if seen[key] > 1 else ""), compile(tree, path, "exec")))
            change.revert()
        for inner in _parts(node):
            visit(inner, where, statement)

    visit(tree, "", tree)
    return found
