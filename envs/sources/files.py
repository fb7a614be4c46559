"""Problems, graphs, networks and placements as JSON, in and out; docs/format.md describes the format for people who write it.

Only the format lives here: what a graph, network or problem must satisfy is checked by those types, and model files of other
tools are captured in `envs.graphs`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from envs.costs.table import TableCosts
from envs.problem.cost_model import CostModel, LinearCosts
from envs.problem.errors import InputError
from envs.problem.graph import ComputationGraph
from envs.problem.json_checks import as_list, as_number, as_string, check_keys, device_index, hint, need, short, without_duplicates
from envs.problem.network import DeviceNetwork
from envs.problem.problem import Problem
from envs.sources.costs import make_costs
from envs.sources.file_sections import dump_graph_section, dump_network_section, graph_section, network_section

FORMAT = "placewright/1"
"""What the key ``format`` must say; a change that old files or old readers do not survive raises the number."""

_TOP = ("format", "graph", "network", "costs", "objective", "placements", "runs")


# --- files -----------------------------------------------------------------------------------------------------------


def load(path: str | Path) -> dict[str, Any]:
    """The JSON document in a file, with its ``format`` and top-level keys checked.

    Raises:
        InputError: naming the file, and line and column where the JSON itself is broken.
    """
    document = parse(path)
    with naming(path):
        return _top(document)


def read_text(path: str | Path) -> str:
    """The text of a file; InputError naming it if there is none."""
    try:
        return Path(path).read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise InputError(f"cannot read {path}: it is not UTF-8 text") from None
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from None
    except ValueError:
        raise InputError(f"cannot read {str(path)!r}: no file's name holds a NUL") from None


def parse(path: str | Path) -> Any:
    """What a JSON file holds, of any format; InputError naming the file, and line and column where the JSON itself is broken."""
    text = read_text(path)
    with naming(path):
        try:
            return json.loads(text, object_pairs_hook=without_duplicates)
        except json.JSONDecodeError as error:
            raise InputError(f"line {error.lineno}, column {error.colno}: this is not JSON: {error.msg}") from None
        except ValueError as error:
            if isinstance(error, InputError):
                raise
            raise InputError(f"a number in it has too many digits: {error}") from None
        except RecursionError:
            raise InputError("the JSON is nested too deeply to be a placewright file") from None


def save(document: Mapping[str, Any], path: str | Path) -> None:
    """Write a document made by a ``dump_`` function, one node, edge or device a line."""
    Path(path).write_text(_pretty(document) + "\n", encoding="utf-8")


def load_problem(path: str | Path, network: DeviceNetwork | None = None, costs: CostModel | None = None) -> Problem:
    """The problem in a file; ``network`` and ``costs`` replace those of the file, which may then lack them.

    Raises:
        InputError: naming the file and the node, edge, device or key at fault.
    """
    document = load(path)
    with naming(path):
        return read_problem(document, network, costs, Path(path).stem)


def load_graph(path: str | Path) -> ComputationGraph:
    """The graph in a file, which may be a whole problem; InputError if its nodes are bound to devices by name."""
    document = load(path)
    with naming(path):
        return read_graph(document, Path(path).stem)


def load_network(path: str | Path) -> DeviceNetwork:
    """The network in a file, which may be a whole problem."""
    document = load(path)
    with naming(path):
        return read_network(document, Path(path).stem)


def load_placements(source: str | Path | Mapping[str, Any] | Sequence[Any], problem: Problem) -> np.ndarray:
    """Placements of ``problem`` from a file, a document or a list of placements, int16[B, V].

    A placement that breaks a constraint is not an error here: scoring it gives the outcome ``INVALID``.

    Raises:
        InputError: for nodes or devices that the problem does not have, and nodes without a device.
    """
    if isinstance(source, str | Path):
        document = load(source)
        with naming(source):
            return _placements(need(document, "placements", "the file"), problem)
    return _placements(need(_top(source), "placements", "the document") if isinstance(source, Mapping) else source, problem)


@contextmanager
def naming(path: str | Path) -> Iterator[None]:
    """Puts the file's name before every complaint about its content."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


# --- documents to objects --------------------------------------------------------------------------------------------


def read_problem(
    document: Mapping[str, Any], network: DeviceNetwork | None = None, costs: CostModel | None = None, name: str = "graph"
) -> Problem:
    """The problem in a parsed document; see `load_problem`."""
    spec = document.get("costs", "linear")
    timed = costs is not None or (isinstance(spec, Mapping) and spec.get("kind") == "table")
    graph, rows = graph_section(need(document, "graph", "the problem"), name, timed)
    if network is None:
        network = network_section(need(document, "network", "the problem"), "network", timed)
    allowed = _allowed(graph, network, rows)
    objective = as_string(document.get("objective", "makespan"), "objective")
    if costs is None:
        feasible = Problem(graph, network, _Free(), allowed=allowed).feasible if timed else None
        costs = _costs(spec, graph, network, feasible)
    return Problem(graph, network, costs, objective, allowed)


def read_graph(document: Mapping[str, Any], name: str = "graph") -> ComputationGraph:
    """The graph in a parsed document; see `load_graph`."""
    graph, rows = graph_section(need(document, "graph", "the file"), name)
    if rows:
        node = graph.names[next(iter(rows))]
        raise InputError(f"node {node!r} lists devices, which a graph alone cannot keep; load the file as a problem with a network")
    return graph


def read_network(document: Mapping[str, Any], name: str = "network") -> DeviceNetwork:
    """The network in a parsed document; see `load_network`."""
    return network_section(need(document, "network", "the file"), name)


def _top(document: Any) -> dict[str, Any]:
    if not isinstance(document, dict):
        raise InputError(f'a placewright file is a JSON object that begins {{"format": "{FORMAT}", ...}}, not {short(document)}')
    if document.get("format") != FORMAT:
        given = f"its format is {document['format']!r}" if "format" in document else "it does not say its format"
        raise InputError(f'{given}; this version reads files that say "format": "{FORMAT}"')
    check_keys(document, _TOP, "the file")
    return document


def _allowed(graph: ComputationGraph, network: DeviceNetwork, rows: Mapping[int, list[str]]) -> np.ndarray | None:
    if not rows:
        return None
    position = {name: i for i, name in enumerate(network.names)}
    allowed = np.ones((graph.n_nodes, network.n_devices), dtype=bool)
    for node, devices in rows.items():
        where = f"node {graph.names[node]!r}"
        if not devices:
            raise InputError(f"{where}: devices is empty, so nothing can run it; list at least one or remove the key")
        allowed[node] = False
        allowed[node, [device_index(d, position, where) for d in devices]] = True
    return allowed


class _Free:
    """Costs of nothing: lets a problem work out which devices are feasible before its table of costs is read."""

    content_hash = "free"

    def compute_seconds(self, graph: ComputationGraph, network: DeviceNetwork) -> np.ndarray:
        return np.zeros((graph.n_nodes, network.n_devices))


def _costs(spec: Any, graph: ComputationGraph, network: DeviceNetwork, feasible: np.ndarray | None) -> CostModel:
    if isinstance(spec, dict) and spec.get("kind") == "table" and feasible is not None:
        check_keys(spec, ("kind", "seconds"), "costs")
        return _table(need(spec, "seconds", "costs"), graph, network, feasible)
    if spec == "table" or not isinstance(spec, str | dict) or (isinstance(spec, dict) and not isinstance(spec.get("kind"), str)):
        raise InputError(f'costs must be "linear" or an object with its kind, as {{"kind": "table", "seconds": ...}}, not {short(spec)}')
    return make_costs(spec)


def _table(spec: Any, graph: ComputationGraph, network: DeviceNetwork, feasible: np.ndarray) -> TableCosts:
    """A pair that is not feasible may be left out; it gets the operation's largest time, which nothing can use."""
    if not isinstance(spec, dict):
        raise InputError(f"costs: seconds must be an object of nodes, not {short(spec)}")
    check_keys(spec, graph.names, "costs: seconds")
    seconds = np.full((graph.n_nodes, network.n_devices), np.nan)
    position = {name: i for i, name in enumerate(network.names)}
    for v, node in enumerate(graph.names):
        row = need(spec, node, "costs: seconds")
        if not isinstance(row, dict):
            raise InputError(f"costs: seconds of node {node!r} must be an object of devices, not {short(row)}")
        for device, value in row.items():
            where = f"costs: seconds of node {node!r}"
            seconds[v, device_index(device, position, where)] = as_number(value, f"{where} on device {device!r}")
        lacking = np.flatnonzero(np.isnan(seconds[v]) & feasible[v])
        if lacking.size:
            raise InputError(f"costs: seconds of node {node!r} lack device {network.names[lacking[0]]!r}, which may run it")
    return TableCosts(graph.names, network.names, np.where(np.isnan(seconds), np.nanmax(seconds, axis=1, keepdims=True), seconds))


def _placements(spec: Any, problem: Problem) -> np.ndarray:
    names = problem.graph.names
    devices = {name: i for i, name in enumerate(problem.network.names)}
    nodes: dict[str, int] | None = None
    batch = np.empty((len(as_list(spec, "placements")), len(names)), dtype=np.int16)
    for i, placement in enumerate(spec):
        where = f"placement {i}"
        if isinstance(placement, dict):
            nodes = nodes or {name: j for j, name in enumerate(names)}
            unknown = next((node for node in placement if node not in nodes), None)
            if unknown is not None:
                raise InputError(f"{where} names node {unknown!r}, which graph {problem.graph.name!r} does not have{hint(unknown, nodes)}")
            row = [need(placement, node, where) for node in names]
        else:
            row = as_list(placement, where)
            if len(row) != len(names):
                raise InputError(f"{where} has {len(row)} devices; graph {problem.graph.name!r} has {len(names)} nodes")
        batch[i] = [device_index(device, devices, f"{where}, node {names[j]!r}") for j, device in enumerate(row)]
    return batch


# --- objects to documents --------------------------------------------------------------------------------------------


def dump_graph(graph: ComputationGraph) -> dict[str, Any]:
    """A document that `load_graph` turns back into an equal graph."""
    return {"format": FORMAT, "graph": dump_graph_section(graph, None, None)}


def dump_network(network: DeviceNetwork) -> dict[str, Any]:
    """A document that `load_network` turns back into an equal network."""
    return {"format": FORMAT, "network": dump_network_section(network)}


def dump_problem(problem: Problem, placements: np.ndarray | None = None) -> dict[str, Any]:
    """A document that `load_problem` turns back into a problem of the same content hash, with placements ``[B, V]`` if given.

    Cost models other than linear ones are written as the table of their times, so their content hash becomes a table's.
    """
    document: dict[str, Any] = {
        "format": FORMAT,
        "graph": dump_graph_section(problem.graph, problem.allowed, problem.network),
        "network": dump_network_section(problem.network),
        "costs": "linear" if isinstance(problem.costs, LinearCosts) else _dump_table(problem),
        "objective": problem.objective,
    }
    if placements is not None:
        document["placements"] = dump_placements(problem, placements)
    return document


def dump_placements(problem: Problem, placements: np.ndarray) -> list[dict[str, str]]:
    """Placements ``[B, V]`` as objects from node to device; InputError if they do not fit the problem."""
    p = np.asarray(placements)
    if p.ndim != 2 or p.shape[1] != problem.n_nodes or not ((p >= 0) & (p < problem.n_devices)).all():
        raise InputError(f"placements must be [B, {problem.n_nodes}] device indices below {problem.n_devices}; these have shape {p.shape}")
    devices = problem.network.names
    return [dict(zip(problem.graph.names, (devices[d] for d in row), strict=True)) for row in p.tolist()]


def _dump_table(problem: Problem) -> dict[str, Any]:
    devices = problem.network.names
    rows = problem.compute_seconds.tolist()
    return {"kind": "table", "seconds": {n: dict(zip(devices, row, strict=True)) for n, row in zip(problem.graph.names, rows, strict=True)}}


def _pretty(value: Any, indent: str = "") -> str:
    """JSON with every part on one line that fits 140 characters or holds only plain values."""
    line = json.dumps(value, allow_nan=False)
    if not isinstance(value, dict | list) or len(line) + len(indent) <= 140:
        return line
    inner = indent + " "
    if isinstance(value, dict):
        parts = [f"{json.dumps(k)}: {_pretty(v, inner)}" for k, v in value.items()]
        return "{\n" + ",\n".join(inner + p for p in parts) + f"\n{indent}}}"
    if not any(isinstance(v, dict | list) for v in value):
        return line
    return "[\n" + ",\n".join(inner + _pretty(v, inner) for v in value) + f"\n{indent}]"
