"""What a sweep may call by name: networks, models, and kinds of graphs with their settings. Nothing is built here but networks."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from envs.graphs import sharded
from envs.graphs.capture import model_names, resolve_options
from envs.networks import named
from orchestration.commands.methods import Setting, settings_of, shown
from orchestration.specs.sources import GENERATED, GRAPH_KINDS, NETWORK_KINDS, generator


@dataclass(frozen=True)
class Listed:
    """Something that has a name, or a kind of things that are described."""

    name: str
    about: str
    settings: tuple[Setting, ...] = ()
    """What may be said beside it."""
    detail: Mapping[str, Any] = field(default_factory=dict)


_ABOUT = {
    "named": "a network known by name", "model": "a model known by name; see placewright models",
    "sharded": "a graph of DOPPLER's by name, cut into shards", "problem": "a whole problem in one file: graph, network and costs",
}  # fmt: skip
_FILE = {"graph": "a graph in a file: .json, .stg, .onnx or .xml", "network": "a network in a .json file"}


def networks() -> list[Listed]:
    """Networks by name, then the kinds of networks that are described."""
    found = []
    for name in named.names():
        network = named.named_network(name)
        memory = [None if m == float("inf") else float(m) for m in network.memory.tolist()]
        about = ", ".join(f"{device} ({kind})" if kind != device else device for device, kind in _kinds(network))
        found.append(Listed(name, about, detail={"devices": list(network.names), "memory": memory}))
    return found + [_kind("network", kind) for kind in NETWORK_KINDS if kind != "named"]


def _kinds(network: Any) -> list[tuple[str, str]]:
    kinds = getattr(network, "kinds", None) or network.names
    return list(zip(network.names, (str(k) for k in kinds), strict=True))


def models() -> list[Listed]:
    """Models by name, with their options and defaults."""
    found = []
    for name in model_names():
        options = dict(resolve_options(name, {}))
        settings = tuple(Setting(key, type(value).__name__, (), {}, value, "") for key, value in options.items())
        found.append(Listed(name, "", settings))
    return found


def graphs() -> list[Listed]:
    """Kinds of graphs that a sweep may describe, with all that may be said of each."""
    return [_kind("graph", kind) for kind in GRAPH_KINDS]


def _kind(what: str, kind: str) -> Listed:
    if kind in GENERATED[what]:
        parameters, _ = generator(what, kind)
        return Listed(kind, (inspect.getdoc(parameters) or "").partition("\n")[0], tuple(settings_of(parameters)))
    if kind == "sharded":
        builders = {name: b.__code__.co_varnames[: b.__code__.co_argcount] for name, b in sharded.GRAPHS.items()}
        sizes = dict.fromkeys(["shards", *(key for keys in builders.values() for key in keys)])
        settings = tuple(Setting(key, "int", (), {}, None, "") for key in sizes)
        return Listed(kind, f"{_ABOUT[kind]}: {', '.join(builders)}", settings, {name: list(keys) for name, keys in builders.items()})
    return Listed(kind, _FILE[what] if kind == "file" else _ABOUT[kind])


def text(found: list[Listed]) -> str:
    """For the terminal: a line each, with its settings below it."""
    width = max(len(k.name) for k in found)
    lines = []
    for k in found:
        lines.append(f"{k.name:{width}}  {k.about}".rstrip())
        said = ", ".join(s.name if s.default is None else f"{s.name}={shown(s.default)}" for s in k.settings)
        indent = " " * (width + 2)
        lines += textwrap.wrap(said, 120, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False)
    return "\n".join(lines) + "\n"
