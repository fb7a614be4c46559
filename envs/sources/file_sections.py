"""The graph and network sections of a placewright file, in and out; `envs.sources.files` puts them together."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from envs.problem.errors import InputError
from envs.problem.graph import ComputationGraph
from envs.problem.json_checks import (
    as_limit,
    as_list,
    as_number,
    as_object,
    as_string,
    as_strings,
    check_keys,
    device_index,
    hint,
    need,
    short,
)
from envs.problem.network import DeviceNetwork

_GRAPH = ("name", "provenance", "nodes", "edges")
_NODE = (
    "name", "op", "flops", "work", "output_bytes", "output_shape", "parameter_bytes", "hardware", "colocate", "meta_op", "layer",
    "backward", "devices",
)  # fmt: skip
_EDGE = ("from", "to", "bytes")
_NETWORK = ("name", "devices", "links", "live_memory")
_DEVICE_NUMBERS = {
    # key: (value if not given, whether null means unlimited)
    "speed": (1.0, False),
    "memory": (math.inf, True),
    "power": (0.0, False),
    "idle_power": (0.0, False),
    "memory_bandwidth": (math.inf, True),
    "launch_overhead": (0.0, False),
}
_DEVICE = ("name", "kind", "supports", "host", *_DEVICE_NUMBERS)
_LINK_NUMBERS = {"bandwidth": math.inf, "delay": 0.0, "energy_per_byte": 0.0}
"""Keys of links and the value on the diagonal."""
_LINKS = (*_LINK_NUMBERS, "overrides")
_OVERRIDE = ("from", "to", "one_way", *_LINK_NUMBERS)
_KEYS_NODE, _KEYS_EDGE = frozenset(_NODE), frozenset(_EDGE)


def graph_section(spec: Any, name: str, timed: bool = False) -> tuple[ComputationGraph, dict[int, list[str]]]:
    """The graph, and the devices listed by each node that lists any; without ``timed`` every node must give its work."""
    spec = as_object(spec, _GRAPH, "graph")
    name = as_string(spec.get("name", name), "graph: name")
    nodes = as_list(need(spec, "nodes", "graph"), "graph: nodes")
    columns = [_node(node, i, timed) for i, node in enumerate(nodes)]
    fields = zip(*columns, strict=True) if columns else ((),) * 12
    names, ops, flops, output, shapes, parameters, hardware, colocate, meta_op, layer, backward, devices = fields
    given = as_list(spec.get("edges", []), "graph: edges")
    # Edges of a graph without nodes, or with two of one name, would be blamed for it: leave the complaint to the graph.
    edges, edge_bytes = _edges(given if 0 < len(names) == len(set(names)) else [], names, output, name)
    graph = ComputationGraph(
        names=names, op_types=ops, flops=np.array(flops), output_bytes=np.array(output), edges=edges, edge_bytes=np.array(edge_bytes),
        parameter_bytes=np.array(parameters), output_shapes=shapes, hardware=hardware, colocation=_labels(colocate, names, "colocate"),
        meta_op=_labels(meta_op, names, "meta_op"), layer=np.array(layer), backward=np.array(backward), name=name,
        provenance=as_string(spec.get("provenance", "made up"), "graph: provenance"),
    )  # fmt: skip
    return graph, {i: row for i, row in enumerate(devices) if row is not None}


def _node(node: Any, i: int, timed: bool) -> tuple[Any, ...]:
    where = f"node {i}"
    if not isinstance(node, dict):
        raise InputError(f"{where} must be an object, not {short(node)}")
    name = as_string(need(node, "name", where), f"{where}: name")
    where = f"node {name!r}"
    if not node.keys() <= _KEYS_NODE:
        check_keys(node, _NODE, where)
    if "flops" in node and "work" in node:
        raise InputError(f"{where} gives both flops and work, which are two names of one value; remove one")
    work = node.get("flops", node.get("work"))
    if work is None and not timed:
        raise InputError(f"{where} lacks flops (or work); write 0 for an operation that takes no time")
    shape = as_list(node.get("output_shape", []), f"{where}: output_shape")
    if not all(type(d) is int and d >= 0 for d in shape):
        raise InputError(f"{where}: output_shape must be a list of whole numbers, not {short(shape)}")
    layer = node.get("layer", -1)
    if "layer" in node and not (type(layer) is int and 0 <= layer < 2**31):
        raise InputError(f"{where}: layer must be a whole number from 0, not {short(layer)}")
    return (
        name,
        as_string(node.get("op", "task"), f"{where}: op"),
        0.0 if work is None else as_number(work, f"{where}: flops"),
        as_number(node.get("output_bytes", 0.0), f"{where}: output_bytes"),
        tuple(shape),
        as_number(node.get("parameter_bytes", 0.0), f"{where}: parameter_bytes"),
        as_string(node.get("hardware") or "", f"{where}: hardware"),
        node.get("colocate"),
        node.get("meta_op"),
        layer,
        _flag(node, "backward", where),
        as_strings(node["devices"], f"{where}: devices") if "devices" in node else None,
    )


def _flag(given: dict[str, Any], key: str, where: str) -> bool:
    value = given.get(key, False)
    if not isinstance(value, bool):
        raise InputError(f"{where}: {key} must be true or false, not {short(value)}")
    return value


def _edges(edges: list[Any], names: Sequence[str], output: Sequence[float], graph: str) -> tuple[np.ndarray, list[float]]:
    position = {name: i for i, name in enumerate(names)}
    pairs, sizes = [], []
    for i, edge in enumerate(edges):
        where = f"edge {i}"
        if isinstance(edge, dict):
            if not edge.keys() <= _KEYS_EDGE:
                check_keys(edge, _EDGE, where)
            ends, size = (need(edge, "from", where), need(edge, "to", where)), edge.get("bytes")
        elif isinstance(edge, list) and len(edge) in (2, 3):
            ends, size = (edge[0], edge[1]), edge[2] if len(edge) == 3 else None
        else:
            raise InputError(f'{where} must be {{"from": a, "to": b, "bytes": n}} or [a, b, n], not {short(edge)}')
        for end in ends:
            if not isinstance(end, str) or end not in position:
                raise InputError(
                    f"{where} ({short(ends[0])} -> {short(ends[1])}) names node {short(end)}, "
                    f"which graph {graph!r} does not have{hint(end, position)}"
                )
        u, v = position[ends[0]], position[ends[1]]
        pairs.append((u, v))
        sizes.append(output[u] if size is None else as_number(size, f"edge {ends[0]!r} -> {ends[1]!r}: bytes"))
    return np.array(pairs, dtype=np.int32).reshape(-1, 2), sizes


def _labels(values: Sequence[Any], names: Sequence[str], key: str) -> np.ndarray:
    """Group numbers of labels: whole numbers as they are, or strings numbered by first appearance; -1 for none."""
    numbers: dict[str, int] = {}
    kinds = set()
    result = []
    for name, value in zip(names, values, strict=True):
        if value is None:
            result.append(-1)
            continue
        if not (isinstance(value, str) or (type(value) is int and 0 <= value < 2**31)):
            raise InputError(f"node {name!r}: {key} must be a label (a string, or a whole number from 0), not {short(value)}")
        kinds.add(type(value))
        if len(kinds) == 2:
            others = "numbers" if isinstance(value, str) else "strings"
            raise InputError(f"node {name!r}: {key} is {value!r}, but other nodes use {others}; use one kind")
        result.append(value if isinstance(value, int) else numbers.setdefault(value, len(numbers)))
    return np.array(result, dtype=np.int32)


def network_section(spec: Any, name: str, timed: bool = False) -> DeviceNetwork:
    """The network; without ``timed`` every device must give its speed."""
    spec = as_object(spec, _NETWORK, "network")
    name = as_string(spec.get("name", name), "network: name")
    columns: dict[str, list[Any]] = {key: [] for key in _DEVICE}
    for i, given in enumerate(as_list(need(spec, "devices", "network"), "network: devices")):
        where = f"device {i}"
        if not isinstance(given, dict):
            raise InputError(f"{where} must be an object, not {short(given)}")
        device = as_string(need(given, "name", where), f"{where}: name")
        where = f"device {device!r}"
        check_keys(given, _DEVICE, where)
        if not timed:
            need(given, "speed", where)
        columns["name"].append(device)
        columns["kind"].append(as_string(given.get("kind", "device"), f"{where}: kind"))
        columns["host"].append(_flag(given, "host", where))
        columns["supports"].append(frozenset(as_strings(given.get("supports", []), f"{where}: supports")))
        for key, (default, unlimited) in _DEVICE_NUMBERS.items():
            columns[key].append(as_limit(given[key], f"{where}: {key}", unlimited) if key in given else default)
    live = _flag(spec, "live_memory", "network")
    names = columns["name"]
    links = _links(spec.get("links", {}), names)
    return DeviceNetwork(
        names=tuple(names), kinds=tuple(columns["kind"]), supports=tuple(columns["supports"]), name=name, live_memory=live,
        host=np.array(columns["host"], dtype=bool), **{key: np.array(columns[key]) for key in _DEVICE_NUMBERS}, **links,
    )  # fmt: skip


def _links(spec: Any, names: Sequence[str]) -> dict[str, Any]:
    spec = as_object(spec, _LINKS, "links")
    if len(names) > 1 and "bandwidth" not in spec:
        raise InputError("links lack bandwidth, bytes/s; give a number, a matrix, or null for unlimited")
    values = {}
    for key, own in _LINK_NUMBERS.items():
        given, unlimited = spec.get(key), key == "bandwidth"
        if isinstance(given, list):
            rows = [as_list(row, f"links: row {i} of {key}") for i, row in enumerate(given)]
            if len(rows) != len(names) or any(len(row) != len(names) for row in rows):
                raise InputError(f"links: {key} must be one number or a matrix of {len(names)} rows of {len(names)} numbers, one a device")
            matrix = [
                [own if i == j else as_limit(x, f"link {names[i]!r} -> {names[j]!r}: {key}", unlimited) for j, x in enumerate(row)]
                for i, row in enumerate(rows)
            ]
        else:
            matrix = [[as_limit(given, f"links: {key}", unlimited) if key in spec else own] * len(names) for _ in names]
        values[key] = np.array(matrix, dtype=np.float64).reshape(len(names), len(names))
    _override(values, as_list(spec.get("overrides", []), "links: overrides"), names)
    return {"bandwidth": values["bandwidth"], "delay": values["delay"], "link_energy": values["energy_per_byte"]}


def _override(values: dict[str, np.ndarray], overrides: list[Any], names: Sequence[str]) -> None:
    position = {name: i for i, name in enumerate(names)}
    seen: set[tuple[int, int]] = set()
    for i, override in enumerate(overrides):
        where = f"link override {i}"
        given = as_object(override, _OVERRIDE, where)
        a, b = (device_index(need(given, end, where), position, where) for end in ("from", "to"))
        where = f"link {names[a]!r} -> {names[b]!r}"
        if a == b:
            raise InputError(f"{where} is a device's link to itself, which is always free; remove it")
        one_way = _flag(given, "one_way", where)
        for pair in [(a, b)] if one_way else [(a, b), (b, a)]:
            if pair in seen:
                link = f"link {names[pair[0]]!r} -> {names[pair[1]]!r}"
                raise InputError(f"{link} is overridden twice; keep one (each covers both ways unless one_way is true)")
            seen.add(pair)
            for key in _LINK_NUMBERS:
                if key in given:
                    values[key][pair] = as_limit(given[key], f"{where}: {key}", key == "bandwidth")


def dump_graph_section(graph: ComputationGraph, allowed: np.ndarray | None, network: DeviceNetwork | None) -> dict[str, Any]:
    """The section that `graph_section` turns back into an equal graph, with the devices that ``allowed`` bool[V, D] lists."""
    nodes = []
    listed = np.zeros(graph.n_nodes, dtype=bool) if allowed is None else np.logical_not(allowed.all(axis=1))
    # A mask that allows everything is written at the first node, so that the problem keeps its content hash.
    listed[0] |= allowed is not None and not listed.any()
    columns = ("flops", "output_bytes", "parameter_bytes", "colocation", "meta_op", "layer")
    numbers = zip(*(getattr(graph, k).tolist() for k in columns), strict=True)
    for i, (flops, output, parameters, group, meta, layer) in enumerate(numbers):
        node: dict[str, Any] = {"name": graph.names[i], "op": graph.op_types[i], "flops": flops, "output_bytes": output}
        extra = {
            "output_shape": list(graph.output_shapes[i]), "parameter_bytes": parameters, "hardware": graph.hardware[i],
            "colocate": group if group >= 0 else "", "meta_op": meta if meta >= 0 else "",
            "layer": layer if layer >= 0 else "",
        }  # fmt: skip
        node.update((k, v) for k, v in extra.items() if v not in ("", []) and (k != "parameter_bytes" or v))
        if graph.backward[i]:
            node["backward"] = True
        if allowed is not None and network is not None and listed[i]:
            node["devices"] = [network.names[d] for d in np.flatnonzero(allowed[i])]
        nodes.append(node)
    names = graph.names
    edges = [[names[u], names[v], size] for (u, v), size in zip(graph.edges.tolist(), graph.edge_bytes.tolist(), strict=True)]
    origin = {} if graph.provenance == "made up" else {"provenance": graph.provenance}
    return {"name": graph.name, **origin, "nodes": nodes, "edges": edges}


def dump_network_section(network: DeviceNetwork) -> dict[str, Any]:
    """The section that `network_section` turns back into an equal network."""
    devices = []
    for i, name in enumerate(network.names):
        device: dict[str, Any] = {"name": name, "kind": network.kinds[i]}
        for key, (default, _) in _DEVICE_NUMBERS.items():
            value = float(getattr(network, key)[i])
            if value != default or key == "speed":
                device[key] = value
        if network.supports[i]:
            device["supports"] = sorted(network.supports[i])
        if network.host[i]:
            device["host"] = True
        devices.append(device)
    links: dict[str, Any] = {}
    away = ~np.eye(network.n_devices, dtype=bool)
    for key, field in (("bandwidth", "bandwidth"), ("delay", "delay"), ("energy_per_byte", "link_energy")):
        matrix = getattr(network, field)
        values = np.unique(matrix[away])
        same = values.size <= 1
        flat = values.tolist() or [_LINK_NUMBERS[key]]
        links[key] = _finite(flat[0]) if same else [[_finite(x) for x in row] for row in matrix.tolist()]
    live = {"live_memory": True} if network.live_memory else {}
    return {"name": network.name, "devices": devices, "links": links, **live}


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
