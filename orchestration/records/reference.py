"""Reference pages as Markdown, made from the code: every key of a sweep, every evaluator, method and command."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import inspect
import io
import json
import re
import sys
import typing
from collections.abc import Callable, Iterator, Sequence, Sized
from typing import Any

from envs.hosts.openvino.devices import HostDevice
from methods.contract import registry
from methods.contract.validation import range_words
from orchestration.cli.main import make_parser
from orchestration.commands.methods import MethodInfo, describe, docstrings, shown, type_text
from orchestration.definition.schema import sweep_schema
from orchestration.rewards.kinds import EVALUATORS, FLAT, SERVED_REAL, SERVED_SIMULATED, WRAPPERS, Kind

Schema = dict[str, Any]
BAR = "\\|"
"""A bar inside a cell."""
SECTIONS = {
    "Problems": "problems", "GraphEntry": "A graph", "graph.synthetic": "synthetic, of a graph", "graph.enas": "enas",
    "graph.fusion": "fusion", "NetworkEntry": "A network", "network.synthetic": "synthetic, of a network", "network.changing": "changing",
    "method.random": "A row of methods", "Budget": "budget", "EvaluatorModel": "evaluator", "StageModel": "A stage", "On": "on",
    "Sample": "sample", "Search": "search", "Constraints": "constraints", "ParameterModel": "A setting to be searched",
    "SamplerModel": "sampler", "PrunerModel": "pruner", "Report": "report", "TableModel": "A table of the report", "Resources": "resources",
}  # fmt: skip
"""Parts of a sweep in the order of the page, by their names in the schema, and what the page calls them."""
SERVED = {
    "local": "Whether trials simulate in their own process instead of asking the reward service; the same results.",
    "host": "The named host or pool to ask, such as `dataflow:cpu2`; by default one on this machine.",
    "cache": "Whether a placement that was measured stands for later ones.",
    "measurement_noise": "Scale of log-normal noise on the whole measurement.",
    "relocation": "Runs of the pipeline a second, which share the cost of leaving the placement in force.",
    "cut_off": "Seconds after which a placement is given up as too slow.",
    "fail": "Share of measurements that fail as infrastructure does, to try recovery; results stay the same.",
}
"""Options that the evaluators' own classes do not declare."""
RESULTS = {"placeto": "giph", "rnn-placer": "hsdag", "hdp": "mars", **{name: name for name in ("giph", "doppler", "hsdag", "gdp", "mars")}}
"""The page of results on which a method that learns is found."""


def sweep_page() -> str:
    """Every key of a sweep with its type, default and meaning, from the schema."""
    schema = sweep_schema()
    lines = [
        "# Every key of a sweep",
        "",
        "Made from the schema that `placewright schema` prints; [Writing a sweep](../sweeps.md) explains.",
    ]
    lines += ["In any mapping, `include` names files whose keys are added.", "", "## The sweep", "", *_keys(schema)]
    for name, title in SECTIONS.items():
        part = schema["$defs"][name]
        lines += ["", f"## {title}", "", *_forms(part), *_keys(_whole(part))]
    return "\n".join(lines) + "\n"


def keys(schema: Schema) -> Iterator[tuple[str, str, Schema]]:
    """Part, key and schema of every key that the page shows."""
    for name in ("", *SECTIONS):
        part = schema["$defs"][name] if name else schema
        yield from ((name, key, s) for key, s in _whole(part).get("properties", {}).items() if key != "include")


def evaluators_page() -> str:
    """Every kind of evaluator with its options."""
    lines = ["# Evaluators", "", "Who scores placements: `evaluator: {kind: …, …}` in a sweep or a stage. Made from the code."]
    for kind in EVALUATORS.values():
        what = "Measures for real." if kind.real else "Simulates."
        said = " ".join((inspect.getdoc(kind.made) or "").split("\n\n")[0].split())
        lines += ["", f"## {kind.name}", "", f"{said} *{what}*", "", "| option | type | default | meaning |", "|---|---|---|---|"]
        lines += [_row(name, *rest) for name, *rest in options(kind)]
    lines += ["", "## A device of openvino", "", "Under `devices`, by the network's name: `cpu: CPU`, or a mapping.", ""]
    lines += ["| key | type | default | meaning |", "|---|---|---|---|", *(_row(name, *rest) for name, *rest in _fields(HostDevice))]
    return "\n".join(lines) + "\n"


def options(kind: Kind) -> Iterator[tuple[str, str, str, str]]:
    """Name, type, default and meaning of every option of an evaluator."""
    if inspect.isclass(kind.make) and dataclasses.is_dataclass(kind.make):
        yield from _fields(kind.make)
    if inspect.isclass(kind.around) and dataclasses.is_dataclass(kind.around):
        yield from ((name, kind, default.replace("required", "–"), meaning) for name, kind, default, meaning in _fields(kind.around))
    for name, wrapper in () if kind.real else WRAPPERS.items():
        yield name, "number or mapping", "–", SERVED.get(name) or " ".join((inspect.getdoc(wrapper) or "").split("\n\n")[0].split())
    for name in SERVED_REAL if kind.real else SERVED_SIMULATED:
        default = {"local": "false", "cache": "true", "host": "–"}[name]
        yield name, "text" if name == "host" else "bool", default, SERVED[name]


def _fields(make: Any, prefix: str = "") -> Iterator[tuple[str, str, str, str]]:
    hints, said = typing.get_type_hints(make), docstrings(make)
    for f in dataclasses.fields(make):
        hint = hints[f.name]
        if not f.init or f.name in ("inner",):
            continue
        if dataclasses.is_dataclass(hint) and isinstance(hint, type):
            yield from _fields(hint, prefix if hint in FLAT else f"{prefix}{f.name}.")
            continue
        default = f.default if f.default_factory is dataclasses.MISSING else f.default_factory()
        word = "required" if default is dataclasses.MISSING else _text(default)
        yield prefix + f.name, _plain(hint), word, said.get(f.name, "")


def _plain(hint: Any) -> str:
    """A type in words that a sweep's writer knows."""
    text = re.sub(r"\[.*", "", type_text(hint)) if "[" in str(hint) and "Mapping" in str(hint) else type_text(hint)
    for python, word in {"Mapping": "mapping", "Sequence": "list", "str": "text", "float": "number", "int": "integer"}.items():
        text = re.sub(rf"\b{python}\b", word, text)
    return text


def methods_page() -> str:
    """What can place: what it is and can do, every setting, what was changed, and where its results are."""
    lines = ["# Methods", "", "Made from the methods themselves; `placewright methods --help` says how to list them in a terminal."]
    return "\n".join([*lines, *(line for method in describe() for line in _method(method))]) + "\n"


def _method(method: MethodInfo) -> list[str]:
    lines = ["", f"## {method.name}", "", method.summary, "", f"*{method.abilities[0].upper()}{method.abilities[1:]}.*", ""]
    if method.settings:
        lines += ["| setting | type | default | meaning |", "|---|---|---|---|"]
        for s in method.settings:
            kind = " or ".join(f"`{shown(c)}`" for c in s.choices) if s.choices else f"{s.type} {_short(range_words(s.bounds))}".strip()
            lines.append(_row(s.name, kind, shown(s.default), s.help))
        lines.append("")
    if changed := differences(method.name):
        lines += ["Differences from the paper:", "", changed, ""]
    if page := RESULTS.get(method.name):
        lines += [f"Results: [{page}](../results/{page}.md).", ""]
    return lines


def _short(words: str) -> str:
    """Large powers of ten as a sweep may write them: `1e12`."""
    return re.sub(r"\b1(0{6,})\b", lambda zeros: f"1e{len(zeros[1])}", words)


def differences(name: str) -> str:
    """What a method's module says of its differences from the paper, as a Markdown list; empty if it says nothing."""
    text = inspect.getdoc(sys.modules[registry.method_class(name).__module__]) or ""
    found = re.search(r"^Differences from the paper[^\n]*:\n\n?(.*?)(?:\n\n(?![-\s])|\Z)", text, re.DOTALL | re.MULTILINE)
    return found[1].strip() if found else ""


def commands_page() -> str:
    """Every command with its options: what ``--help`` prints."""
    parser = make_parser()
    lines = ["# Commands", "", parser.description or "", ""]
    (subcommands,) = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
    for name, command in subcommands.choices.items():
        text = io.StringIO()
        with contextlib.redirect_stdout(text):
            command.print_help()
        lines += [f"## placewright {name}", "", "```text", text.getvalue().rstrip(), "```", ""]
    return "\n".join(lines)


PAGES: dict[str, Callable[[], str]] = {
    "reference/sweep.md": sweep_page, "reference/evaluators.md": evaluators_page,
    "reference/methods.md": methods_page, "reference/commands.md": commands_page,
}  # fmt: skip


def _keys(part: Schema) -> list[str]:
    rows = [
        _row(key, _type(s), _default(s), s.get("description") or _pointer(s)) for key, s in part["properties"].items() if key != "include"
    ]
    return ["| key | type | default | meaning |", "|---|---|---|---|", *rows]


def _row(name: str, kind: str, default: str, meaning: str) -> str:
    cells = (f"`{name}`", kind, default if default in ("–", "required") else f"`{default}`", meaning)
    return f"| {' | '.join(' '.join(cell.split()).replace('|', BAR).replace('``', '`') for cell in cells)} |"


def _whole(part: Schema) -> Schema:
    """The mapping among the forms in which a part may be written."""
    return next((s for s in part.get("anyOf", ()) if "properties" in s), part)


def _forms(part: Schema) -> list[str]:
    short = [_type(s) for s in part.get("anyOf", ()) if "properties" not in s and ("type" in s or "enum" in s) and s.get("type") != "null"]
    return [f"A mapping, or in short {' or '.join(short)}.", ""] if short else []


def _type(s: Schema) -> str:
    if "$ref" in s:
        name = s["$ref"].rpartition("/")[2]
        title = SECTIONS.get(name)
        return f"[{title}](#{_slug(title)})" if title else "mapping"
    if s.get("enum") == registry.names():
        return "[name of a method](methods.md)"
    if "enum" in s:
        return " or ".join(f"`{shown(v)}`" for v in s["enum"])
    if "anyOf" in s:
        return " or ".join(dict.fromkeys(word for p in s["anyOf"] if p.get("type") != "null" for word in _type(p).split(" or ")))
    if s.get("type") == "array":
        return f"list of {_type(s['items'])}" if "items" in s else "list"
    if s.get("type") == "object" and isinstance(s.get("additionalProperties"), dict):
        return f"mapping of {_type(s['additionalProperties'])}" if s["additionalProperties"].get("$ref") else "mapping"
    return _simple(s)


def _simple(s: Schema) -> str:
    words = {"string": "text", "integer": "integer", "number": "number", "boolean": "bool", "object": "mapping"}
    kinds: Sequence[str] = s["type"] if isinstance(s.get("type"), list) else [s.get("type", "text")]
    word = " or ".join(words.get(k, k) for k in kinds)
    if s.get("pattern", "").startswith("^[0-9]+\\.\\."):
        return "range"
    low = f" ≥ {s['minimum']:g}" if "minimum" in s and abs(s["minimum"]) < 1e6 else ""
    return word + low + (" > 0" if s.get("exclusiveMinimum") == 0 else "")


def _default(s: Schema) -> str:
    return "–" if s.get("default") in (None, [], {}) else _text(s["default"])


def _text(value: Any) -> str:
    """A default as a sweep would say it."""
    if value is None or (isinstance(value, Sized) and not len(value)):
        return "–"
    return shown(list(value) if isinstance(value, tuple | frozenset) else value)


def _pointer(s: Schema) -> str:
    return "As below." if "#/$defs/" in json.dumps(s) else ""


def _slug(title: str) -> str:
    return re.sub(r"[^\w\s-]", "", title).lower().replace(" ", "-")
