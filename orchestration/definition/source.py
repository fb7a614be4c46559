"""Reads sweep YAML into plain values that remember their lines, and merges ``include``d fragments.

Safe by construction: values are built here from the parsed nodes, tags are refused, names follow YAML 1.2 (``on`` and ``no``
are words, ``1e-4`` is a number), files are confined to the project. What the values mean does not belong here.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from orchestration.definition.issues import Issues, Mark

MAX_BYTES = 1 << 20
MAX_VALUES = 200_000
_STRING = "tag:yaml.org,2002:str"


class _Loader(yaml.SafeLoader):
    """Composes nodes only; scalars are resolved by the core schema of YAML 1.2."""

    yaml_implicit_resolvers: dict[Any, Any] = {}  # noqa: RUF012 (the library's own class attribute)


_SCALARS = (
    ("null", re.compile(r"^(?:~|null|Null|NULL|)$"), ["~", "n", "N", ""]),
    ("bool", re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$"), list("tTfF")),
    ("int", re.compile(r"^[-+]?[0-9][0-9_]*$"), list("-+0123456789")),
    (
        "float",
        re.compile(r"^(?:[-+]?(?:\.[0-9]+|[0-9][0-9_]*(?:\.[0-9_]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$"),
        list("-+.0123456789"),
    ),
)
for _name, _pattern, _first in _SCALARS:
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_name}", _pattern, _first)


class _Dumper(yaml.SafeDumper):
    """Quotes what either version of YAML would read as something other than a word."""


for _name, _pattern, _first in _SCALARS:
    _Dumper.add_implicit_resolver(f"tag:yaml.org,2002:{_name}", _pattern, _first)


@dataclass
class Node:
    """A value with the place it was written at. ``value`` is a dict of `Node`, a list of `Node`, or a scalar."""

    value: Any
    mark: Mark
    keys: dict[str, Mark] = field(default_factory=dict)
    """Where each key of a mapping is written."""

    def plain(self) -> Any:
        """The value without places."""
        if isinstance(self.value, dict):
            return {k: v.plain() for k, v in self.value.items()}
        return [v.plain() for v in self.value] if isinstance(self.value, list) else self.value


def write_yaml(plain: Any) -> str:
    """Plain values as YAML that `read_source` (and any reader of YAML 1.1) reads as the same."""
    return yaml.dump(plain, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120)


@dataclass(frozen=True)
class Source:
    """A sweep as read: its values, the folder its files are confined to, and the text of every file."""

    path: Path
    root: Path
    node: Node
    files: dict[str, str]
    """Text of the sweep and of every included fragment, by shown path."""


def read_source(path: Path, issues: Issues) -> Source | None:
    """The sweep at ``path`` with its fragments merged; None (and issues) if it cannot be read."""
    root = project_root(path)
    reader = _Reader(root, issues)
    node = reader.read(path, str(path), ())
    if node is None:
        return None
    if not isinstance(node.value, dict):
        issues.add(node.mark, "a sweep is a mapping with keys such as sweep, problems and methods; see docs/sweeps.md")
        return None
    return Source(path, root, node, reader.files)


def project_root(path: Path) -> Path:
    """The folder that a sweep may read from: the nearest ancestor with ``.git`` or ``pyproject.toml``, else its own folder."""
    folder = path.resolve().parent
    for candidate in (folder, *folder.parents):
        if (candidate / ".git").exists() or (candidate / "pyproject.toml").exists():
            return candidate
    return folder


def confined(name: str, base: Path, root: Path) -> Path | None:
    """``name`` relative to ``base`` with links resolved, or None if that leaves ``root``."""
    target = (base / name).resolve()
    return target if target.is_relative_to(root) else None


class _Reader:
    def __init__(self, root: Path, issues: Issues) -> None:
        self.root, self.issues = root, issues
        self.files: dict[str, str] = {}
        self.count = 0

    def read(self, path: Path, shown: str, chain: tuple[Path, ...]) -> Node | None:
        """One file with its fragments; ``chain`` is what includes it."""
        text = self._text(path, shown)
        if text is None:
            return None
        node = self._compose(text, shown)
        if node is None:
            return None
        self.files[shown] = text
        return self._include(node, path, (*chain, path.resolve()))

    def _text(self, path: Path, shown: str) -> str | None:
        try:
            if path.stat().st_size > MAX_BYTES:
                self.issues.add(Mark(shown, 0), f"is larger than {MAX_BYTES >> 20} MiB; a sweep is a text of some pages")
                return None
            return path.read_bytes().decode("utf-8")
        except UnicodeDecodeError:
            self.issues.add(Mark(shown, 0), "is not UTF-8 text; save it as UTF-8")
        except OSError as error:
            near = sorted(p.name for p in path.parent.glob("*.yaml"))[:8] if path.parent.is_dir() else []
            hint = f"; the folder has {', '.join(near)}" if near else "; check the path"
            self.issues.add(Mark(shown, 0), f"cannot be read ({error.strerror or error}){hint}")
        return None

    def _compose(self, text: str, shown: str) -> Node | None:
        try:
            for token in yaml.scan(text, Loader=yaml.SafeLoader):
                if isinstance(token, yaml.TagToken):
                    tag = "".join(part or "" for part in token.value)
                    self.issues.add(Mark(shown, token.start_mark.line + 1), f"tag {tag!r} is not allowed; write the plain value")
                    return None
            documents = list(yaml.compose_all(text, Loader=_Loader))
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            line = mark.line + 1 if mark else 0
            self.issues.add(
                Mark(shown, line), f"is not valid YAML: {error.problem or error.context}; check indentation, colons and quotes here"
            )
            return None
        except yaml.YAMLError as error:
            self.issues.add(Mark(shown, 0), f"is not valid YAML: {error}; save it as plain UTF-8 text")
            return None
        if not documents or documents[0] is None:
            self.issues.add(Mark(shown, 0), "is empty; see docs/sweeps.md for what a sweep holds")
            return None
        if len(documents) > 1:
            line = documents[1].start_mark.line + 1
            self.issues.add(Mark(shown, line), "a second document begins here; keep one sweep a file and remove '---'")
            return None
        return self._node(documents[0], shown, ())

    def _node(self, node: yaml.Node, shown: str, above: tuple[int, ...]) -> Node:
        mark = Mark(shown, node.start_mark.line + 1)
        self.count += 1
        if id(node) in above:
            self.issues.add(mark, "an alias contains itself; write the value out")
            return Node(None, mark)
        if self.count > MAX_VALUES:
            if self.count == MAX_VALUES + 1:
                self.issues.add(mark, f"more than {MAX_VALUES} values; aliases multiply, so write fewer of them")
            return Node(None, mark)
        above = (*above, id(node))
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, shown, mark, above)
        if isinstance(node, yaml.SequenceNode):
            return Node([self._node(v, shown, above) for v in node.value], mark)
        return Node(self._scalar(node, mark), mark)

    def _mapping(self, node: yaml.MappingNode, shown: str, mark: Mark, above: tuple[int, ...]) -> Node:
        result = Node({}, mark)
        for key_node, value_node in node.value:
            at = Mark(shown, key_node.start_mark.line + 1)
            if not isinstance(key_node, yaml.ScalarNode):
                self.issues.add(at, "a key must be a word, not a list or mapping; quote it if it is a word")
                continue
            key = key_node.value
            if key == "<<":
                self.issues.add(at, "merge keys ('<<') are not read; use include, or write the values out")
                continue
            if key in result.value:
                self.issues.add(at, f"key {key!r} is given twice (first in line {result.keys[key].line}); remove one")
                continue
            result.keys[key] = at
            result.value[key] = self._node(value_node, shown, above)
        return result

    def _scalar(self, node: yaml.Node, mark: Mark) -> Any:
        kind, text = node.tag.rpartition(":")[2], node.value
        if kind == "null":
            return None
        if kind == "bool":
            return text.lower() == "true"
        if kind == "int":
            return int(text)
        if kind == "float":
            value = float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))
            if math.isnan(value):
                self.issues.add(mark, "NaN is not a value that anything can use; write a number")
                return None
            return value
        return text

    def _include(self, node: Node, path: Path, chain: tuple[Path, ...]) -> Node:
        if isinstance(node.value, list):
            node.value = [self._include(v, path, chain) for v in node.value]
        if not isinstance(node.value, dict):
            return node
        wanted = node.value.pop("include", None)
        node.keys.pop("include", None)
        for key in list(node.value):
            node.value[key] = self._include(node.value[key], path, chain)
        if wanted is None:
            return node
        for item in wanted.value if isinstance(wanted.value, list) else [wanted]:
            fragment = self._fragment(item, path, chain)
            if fragment is not None:
                node = _merge(node, fragment)
        return node

    def _fragment(self, item: Node, path: Path, chain: tuple[Path, ...]) -> Node | None:
        if not isinstance(item.value, str):
            self.issues.add(item.mark, f"include needs the path of a file, not {item.value!r}; write include: fragments/graphs.yaml")
            return None
        target = confined(item.value, path.parent, self.root)
        if target is None:
            self.issues.add(item.mark, f"include {item.value!r} leaves the folder {self.root}; move the fragment into it")
            return None
        if target in chain:
            names = " -> ".join(p.name for p in (*chain[chain.index(target) :], target))
            self.issues.add(item.mark, f"includes form a cycle: {names}; remove one of them")
            return None
        if not target.is_file():
            near = sorted(p.name for p in target.parent.glob("*.yaml"))[:8] if target.parent.is_dir() else []
            hint = f"the folder has {', '.join(near)}" if near else f"there is no YAML file in {target.parent}"
            self.issues.add(item.mark, f"include {item.value!r} does not exist; {hint}")
            return None
        fragment = self.read(target, str(_relative(target)), chain)
        if fragment is not None and not isinstance(fragment.value, dict):
            self.issues.add(fragment.mark, "an included fragment must be a mapping; give its values keys")
            return None
        return fragment


def _relative(path: Path) -> Path:
    """``path`` as seen from here if it lies below, for messages."""
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path


def _merge(own: Node, fragment: Node) -> Node:
    """``own`` with the keys of ``fragment`` it lacks; mappings in both are merged in turn."""
    for key, value in fragment.value.items():
        mine = own.value.get(key)
        if mine is None:
            own.value[key], own.keys[key] = value, fragment.keys[key]
        elif isinstance(mine.value, dict) and isinstance(value.value, dict):
            _merge(mine, value)
    return own
