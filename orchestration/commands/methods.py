"""What methods there are and what can be set, read from their source text. Importing or running them does not belong here.

Importing all methods would load torch, which takes seconds; a list should not.
"""

from __future__ import annotations

import ast
import textwrap
from dataclasses import dataclass
from pathlib import Path

from methods.contract import registry


@dataclass(frozen=True)
class Setting:
    """One field of a method's config."""

    name: str
    type: str
    default: str
    help: str
    """What its docstring says, on one line."""


@dataclass(frozen=True)
class MethodInfo:
    """One method."""

    name: str
    summary: str
    """First line of its module's docstring."""
    settings: tuple[Setting, ...]


def describe(name: str | None = None) -> list[MethodInfo]:
    """All methods by name, or the one called ``name``; InputError with the nearest name if there is none."""

    return [_read(n, registry.source_file(n)) for n in ([name] if name else registry.names())]


def _read(name: str, path: Path) -> MethodInfo:
    tree = ast.parse(path.read_text(encoding="utf-8"), str(path))
    docstring = ast.get_docstring(tree) or ""
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    config = next((c for node in classes.values() if (c := _config(node)) in classes), None)
    return MethodInfo(name, docstring.partition("\n")[0], tuple(_settings(classes, config)) if config else ())


def _config(node: ast.ClassDef) -> str | None:
    """The name that a method's class gives its ``Config``."""
    for statement in node.body:
        target = statement.targets[0] if isinstance(statement, ast.Assign) else getattr(statement, "target", None)
        value = getattr(statement, "value", None)
        if isinstance(target, ast.Name) and target.id == "Config" and isinstance(value, ast.Name):
            return value.id
    return None


def _settings(classes: dict[str, ast.ClassDef], config: str, prefix: str = "") -> list[Setting]:
    """The fields of a config dataclass; those of a nested one with dotted names."""
    found, body = [], classes[config].body
    for statement, after in zip(body, [*body[1:], None], strict=True):
        if not isinstance(statement, ast.AnnAssign) or not isinstance(statement.target, ast.Name):
            continue
        kind = ast.unparse(statement.annotation).strip("'\"")
        if kind.startswith("ClassVar"):
            continue
        if kind in classes:
            found += _settings(classes, kind, f"{prefix}{statement.target.id}.")
            continue
        said = after.value.value if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant) else ""
        default = ast.unparse(statement.value) if statement.value else "required"
        found.append(Setting(prefix + statement.target.id, kind, default, " ".join(str(said).split())))
    return found


def text(found: list[MethodInfo], whole: bool = False) -> str:
    """The list for a terminal; ``whole`` adds what each setting means."""
    lines, width = [], max(len(m.name) for m in found)
    for m in found:
        lines.append(f"{m.name:<{width}}  {m.summary}")
        indent = " " * (width + 2)
        if whole:
            for s in m.settings:
                lines.append(f"{indent}{s.name}: {s.type} = {s.default}")
                lines += textwrap.wrap(s.help, 110, initial_indent=indent + "    ", subsequent_indent=indent + "    ")
        elif m.settings:
            settings = ", ".join(f"{s.name}={s.default}" for s in m.settings)
            lines += textwrap.wrap(settings, 120, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False)
    return "\n".join(lines) + "\n"
