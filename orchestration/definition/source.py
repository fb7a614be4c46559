"""Reads sweep YAML into plain values that remember their places, and merges ``include``d fragments.

Safe by construction: values are built here from the events of the parser, one after another, so that tags, too many or too deeply nested
values and too many fragments are refused before they cost anything; files are confined to the project. YAML is that of version 1.2 (``on``
and ``no`` are words, ``1e-4`` is a number). What the values mean does not belong here.
"""

from __future__ import annotations

import io
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML, events
from ruamel.yaml.error import MarkedYAMLError, YAMLError, YAMLWarning
from ruamel.yaml.nodes import ScalarNode

from envs.problem.errors import suggestion
from orchestration.definition.issues import Issues, Mark

MAX_BYTES = 256 << 10
MAX_VALUES = 40_000
MAX_DEPTH = 40
MAX_DIGITS = 18
MAX_FRAGMENTS = 200
MAX_CHAIN = 16
"""Fragments that include one another."""


class _Refused(Exception):
    """Ends the reading of a file, or of all of them; what is wrong is recorded."""


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


def _inner(node: Node) -> dict[str, Node]:
    """What stands in a mapping by key, or in a list by number."""
    if isinstance(node.value, list):
        return {str(i): one for i, one in enumerate(node.value)}
    return node.value if isinstance(node.value, dict) else {}


def write_yaml(plain: Any) -> str:
    """Plain values as YAML that `read_source` reads as the same."""
    yaml, text = YAML(typ="safe", pure=True), io.StringIO()
    yaml.default_flow_style, yaml.width, yaml.sort_base_mapping_type_on_output = False, 120, False  # type: ignore[assignment]
    yaml.dump(plain, text)
    return text.getvalue()


@dataclass(frozen=True)
class Source:
    """A sweep as read: its values, the folder its files are confined to, and the text of every file."""

    path: Path
    root: Path
    node: Node
    files: dict[str, str]
    """Text of the sweep and of every included fragment, by shown path."""


def read_source(path: Path, issues: Issues, settings: Sequence[str] = ()) -> Source | None:
    """The sweep at ``path`` with its fragments merged; None (and issues) if it cannot be read.

    Args:
        path: of the file.
        issues: takes what is wrong.
        settings: changes of values, each ``stages.train.budget=500``; all but the last key must be there.
    """
    root = project_root(path)
    reader = _Reader(root, issues)
    try:
        node = reader.read(path, str(path), ())
        if not isinstance(node.value, dict):
            raise reader.refuse(node.mark, "a sweep is a mapping with keys such as sweep, problems and methods", "see docs/sweeps.md")
        for setting in settings:
            reader.change(node, setting)
    except _Refused:
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
    """``name`` relative to ``base`` with links resolved, or None if that leaves ``root`` or is no name of a file."""
    try:
        target = (base / name).resolve()
    except (ValueError, OSError):  # a NUL in the name, or a loop of links
        return None
    return target if target.is_relative_to(root) else None


class _Reader:
    """Reads files one inside another; what is too much ends all of it by `_Refused`."""

    def __init__(self, root: Path, issues: Issues) -> None:
        self.root, self.issues = root, issues
        self.files: dict[str, str] = {}
        self.values = self.fragments = 0

    def read(self, path: Path, shown: str, chain: tuple[Path, ...]) -> Node:
        """One file with its fragments; ``chain`` is what includes it."""
        text = self._text(path, shown)
        node = self._parse(text, shown)
        self.files[shown] = text
        return self._include(node, path, (*chain, path.resolve()))

    def refuse(self, mark: Mark, message: str, cure: str) -> _Refused:
        """Record what cannot be read on from."""
        self.issues.add(mark, message, cure)
        return _Refused()

    def change(self, node: Node, setting: str) -> None:
        """Set one value below ``node``; anything wrong ends the reading."""
        names, equals, text = setting.partition("=")
        mark, keys = Mark(f"--set {setting}"), names.split(".")
        if not equals or not all(keys):
            raise self.refuse(mark, "is not KEY=VALUE", "write for example --set stages.train.budget=500")
        for depth, key in enumerate(keys[:-1]):
            at, inner = ".".join(keys[: depth + 1]), _inner(node)
            if key not in inner:
                raise self.refuse(mark, f"the sweep has no {at!r}", suggestion(key, inner) if inner else "set what stands above it")
            node = inner[key]
        if node.value is None:
            node.value = {}
        made = self._parse(text, str(mark.file)) if text.strip() else Node(None, mark)
        if isinstance(node.value, dict):
            node.value[keys[-1]], node.keys[keys[-1]] = made, mark
        elif keys[-1] in (inner := _inner(node)):
            node.value[list(inner).index(keys[-1])] = made
        else:
            raise self.refuse(mark, f"{'.'.join(keys[:-1])!r} is no mapping that could have {keys[-1]!r}", "set it as a whole")

    def _text(self, path: Path, shown: str) -> str:
        try:
            if path.stat().st_size > MAX_BYTES:
                raise self.refuse(
                    Mark(shown), f"is larger than {MAX_BYTES >> 10} KiB", "a sweep is a text of some pages, so split or shorten it"
                )
            return path.read_bytes().decode("utf-8-sig")
        except UnicodeDecodeError:
            raise self.refuse(Mark(shown), "is not UTF-8 text", "save it as UTF-8") from None
        except (OSError, ValueError) as error:
            near = sorted(p.name for p in path.parent.glob("*.yaml"))[:8] if path.parent.is_dir() else []
            hint = f"the folder has {', '.join(near)}" if near else "check the path"
            raise self.refuse(Mark(shown), f"cannot be read ({getattr(error, 'strerror', None) or error})", hint) from None

    def _parse(self, text: str, shown: str) -> Node:
        yaml = YAML(typ="safe", pure=True)
        try:
            node = _Document(self, yaml, shown).build(yaml.parse(io.StringIO(text)))
        except (MarkedYAMLError, YAMLWarning) as error:
            mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
            problem = getattr(error, "problem", None) or getattr(error, "context", None) or str(error)
            at = Mark(shown, mark.line + 1, mark.column + 1) if mark else Mark(shown)
            raise self.refuse(at, f"is not valid YAML: {problem}", "check indentation, colons and quotes here") from None
        except (YAMLError, ValueError, IndexError, AttributeError, NotImplementedError) as error:
            raise self.refuse(Mark(shown), f"is not valid YAML: {error}", "save it as plain UTF-8 text") from None
        if node is None:
            raise self.refuse(Mark(shown), "is empty", "see docs/sweeps.md for what a sweep holds")
        return node

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
        add, mark = self.issues.add, item.mark
        if not isinstance(item.value, str):
            add(mark, f"include needs the path of a file, not {item.value!r}", "write include: fragments/graphs.yaml")
            return None
        target = confined(item.value, path.parent, self.root)
        if target is None:
            add(mark, f"include {item.value!r} leaves the folder {self.root}", "move the fragment into it")
            return None
        if target in chain:
            names = " -> ".join(p.name for p in (*chain[chain.index(target) :], target))
            add(mark, f"includes form a cycle: {names}", "remove one of them")
            return None
        if not target.is_file():
            near = sorted(p.name for p in target.parent.glob("*.yaml"))[:8] if target.parent.is_dir() else []
            hint = f"the folder has {', '.join(near)}" if near else f"there is no YAML file in {target.parent}"
            add(mark, f"include {item.value!r} does not exist", hint)
            return None
        self.fragments += 1
        if self.fragments > MAX_FRAGMENTS:
            raise self.refuse(mark, f"more than {MAX_FRAGMENTS} fragments are included", "include each once, from the sweep itself")
        if len(chain) > MAX_CHAIN:
            raise self.refuse(mark, f"fragments include one another more than {MAX_CHAIN} deep", "include them from the sweep itself")
        try:
            fragment = self.read(target, str(_relative(target)), chain)
        except RecursionError:  # the caller's own stack was nearly full
            raise self.refuse(mark, "fragments are nested too deeply", "include them from the sweep itself") from None
        if not isinstance(fragment.value, dict):
            add(fragment.mark, "an included fragment must be a mapping", "give its values keys")
            return None
        return fragment


@dataclass
class _Open:
    """A mapping or list whose end has not come yet."""

    node: Node
    key: str | None = None
    dropped: bool = False
    """Whether the value of the key that stands now is not kept, because the key is wrong."""


class _Document:
    """Builds the nodes of one file from the parser's events, without recursion."""

    def __init__(self, reader: _Reader, yaml: YAML, shown: str) -> None:
        self.reader, self.yaml, self.shown = reader, yaml, shown
        self.open: list[_Open] = []
        self.anchors: dict[str, Node] = {}
        self.root: Node | None = None

    def build(self, found: Iterator[Any]) -> Node | None:
        """The document's value; None if there is none."""
        documents = 0
        for event in found:
            if isinstance(event, events.DocumentStartEvent):
                documents += 1
                if documents > 1:
                    raise self._refuse(event, "a second document begins here", "keep one sweep a file and remove '---'")
            elif isinstance(event, events.MappingEndEvent | events.SequenceEndEvent):
                self.open.pop()
            elif isinstance(event, events.NodeEvent):
                self._node(event)
        # A file of comments alone is a document of one empty scalar, or none.
        return None if self.root is None or self.root.value is None else self.root

    def _refuse(self, event: Any, message: str, cure: str) -> _Refused:
        return self.reader.refuse(self._mark(event), message, cure)

    def _mark(self, event: Any) -> Mark:
        return Mark(self.shown, event.start_mark.line + 1, event.start_mark.column + 1)

    def _node(self, event: Any) -> None:
        mark = self._mark(event)
        if getattr(event, "tag", None) is not None and not isinstance(event, events.AliasEvent):
            raise self._refuse(event, f"tag {str(event.tag).replace('tag:yaml.org,2002:', '!!')!r} is not allowed", "write the plain value")
        self._count(mark)
        waits_for_key = bool(self.open) and isinstance(self.open[-1].node.value, dict) and self.open[-1].key is None
        if isinstance(event, events.AliasEvent):
            node = self._alias(event, mark)
        elif isinstance(event, events.ScalarEvent):
            node = Node(event.value if waits_for_key else self._scalar(event, mark), mark)
        else:
            node = Node({} if isinstance(event, events.MappingStartEvent) else [], mark)
        if event.anchor and not isinstance(event, events.AliasEvent):
            self.anchors[event.anchor] = node
        if waits_for_key:
            self._key(node)
        else:
            self._place(node)
        if isinstance(event, events.MappingStartEvent | events.SequenceStartEvent):
            self.open.append(_Open(node))
            if len(self.open) > MAX_DEPTH:
                raise self._refuse(event, f"values are nested more than {MAX_DEPTH} deep", "close the brackets, or write it flatter")

    def _count(self, mark: Mark, more: int = 1) -> None:
        self.reader.values += more
        if self.reader.values > MAX_VALUES:
            raise self.reader.refuse(
                mark, f"there are more than {MAX_VALUES} values", "aliases multiply, so write fewer of them, or use ranges such as 0..9"
            )

    def _key(self, node: Node) -> None:
        at, top = self.reader.issues, self.open[-1]
        top.key, top.dropped = "", True
        if isinstance(node.value, dict | list):
            at.add(node.mark, "a key must be a word, not a list or mapping", "quote it if it is a word")
        elif node.value == "<<":
            at.add(node.mark, "merge keys ('<<') are not read", "use include, or write the values out")
        elif str(node.value) in top.node.value:
            line = top.node.keys[str(node.value)].line
            at.add(node.mark, f"key {node.value!r} is given twice (first in line {line})", "remove one")
        else:
            top.key, top.dropped = str(node.value), False
            top.node.keys[top.key] = node.mark

    def _place(self, node: Node) -> None:
        if not self.open:
            self.root = node
            return
        top = self.open[-1]
        if isinstance(top.node.value, list):
            top.node.value.append(node)
        else:
            if not top.dropped:
                top.node.value[str(top.key)] = node
            top.key = None

    def _alias(self, event: Any, mark: Mark) -> Node:
        target = self.anchors.get(event.anchor)
        if target is None:
            raise self._refuse(event, f"alias {event.anchor!r} names nothing before it", "write the value out")
        if any(o.node is target for o in self.open):
            self.reader.issues.add(mark, "an alias contains itself", "write the value out")
            return Node(None, mark)
        return self._copy(target, mark)

    def _copy(self, node: Node, mark: Mark) -> Node:
        """The node once more, for merging changes nodes in place."""
        self._count(mark)
        value = node.value
        if isinstance(value, dict):
            value = {k: self._copy(v, mark) for k, v in value.items()}
        elif isinstance(value, list):
            value = [self._copy(v, mark) for v in value]
        return Node(value, node.mark, dict(node.keys))

    def _scalar(self, event: Any, mark: Mark) -> Any:
        text = event.value
        try:
            tag = self.yaml.resolver.resolve(ScalarNode, text, event.implicit)
        except KeyError as error:  # the scanner has read a directive already, maybe one further down
            version = ".".join(map(str, error.args[0]))
            raise self._refuse(event, f"YAML {version} is not known", "remove the line that begins with %YAML") from None
        kind = str(tag).rpartition(":")[2]
        if kind == "null":
            return None
        if kind == "bool":
            return text.lower() == "true"
        if (kind in ("int", "float") and len(text) > 2 * MAX_DIGITS) or (
            kind == "int" and len(text.replace("_", "").lstrip("+-")) > MAX_DIGITS
        ):
            self.reader.issues.add(
                mark, f"{text[:12]}… has {len(text)} digits", f"numbers here have at most {MAX_DIGITS}; write fewer, or quote a word"
            )
            return None
        if kind == "int":
            return int(text.replace("_", ""), 0 if text.lstrip("+-")[:2] in ("0x", "0o", "0b") else 10)
        if kind == "float":
            value = float(text.lower().replace("_", "").replace(".inf", "inf").replace(".nan", "nan"))
            if math.isnan(value):
                self.reader.issues.add(mark, "NaN is not a value that anything can use", "write a number")
                return None
            return value
        return text


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
