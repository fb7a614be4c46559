"""DNN graphs with profiled times, as published with "Efficient Algorithms for Device Placement of DNN Graph Operators" (NeurIPS 2020).

A file has ``maxFPGAs`` accelerators (whatever they are) of ``maxSizePerFPGA`` bytes each and ``maxCPUs`` CPU cores; of every node its
time on either in milliseconds, its bytes on an accelerator, whether an accelerator can run it, its colour (nodes of one colour share a
device) and whether it belongs to the backward pass; of every edge the time to move its producer's output between an accelerator and the
memory of the host. So an output goes from one accelerator to another in twice that time, and from one CPU core to another in none.

On other networks a node's work is its time on an accelerator, taken to be one of `ACCELERATOR` FLOP/s. Splits (of human experts, say) are
files that list the ids of each device's nodes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from envs.costs.table import TableCosts
from envs.problem.errors import InputError
from envs.problem.graph import ComputationGraph
from envs.problem.json_checks import as_list, as_number, need, short
from envs.problem.network import DeviceNetwork
from envs.problem.problem import Problem
from envs.sources.imported import Imported

UNIT = 1e-3
"""Seconds of the files' unit of time."""
ACCELERATOR = 1e12
"""FLOP/s that stand for an accelerator where work is asked for."""
COPIES = 1e9
"""Bytes a second between an accelerator and the host's memory, of a file whose edges do not give their sizes."""
CPU_ONLY = "cpu"
"""What a node requires that no accelerator supports."""
_MOST_DEVICES = 10_000
MOST_TIME = 1e15
"""Milliseconds of a node, some 30,000 years."""


def is_layers(document: Any) -> bool:
    """Whether a JSON document looks like a file of this format."""
    return isinstance(document, dict) and "format" not in document and "nodes" in document and any(k.startswith("max") for k in document)


def is_split(document: Any) -> bool:
    """Whether a JSON document looks like a split of such a graph."""
    return isinstance(document, dict) and "format" not in document and ("fpgas" in document or "cpus" in document)


def read_layers(document: Mapping[str, Any], name: str) -> Imported:
    """The whole problem; nodes are named by their ids.

    Args:
        document: the parsed file.
        name: what to call the graph.

    Raises:
        InputError: naming the node, edge or key at fault.
    """
    accelerators, cpus = (_whole(need(document, key, "the file"), key) for key in ("maxFPGAs", "maxCPUs"))
    if not 0 < accelerators + cpus <= _MOST_DEVICES:
        raise InputError(f"maxFPGAs is {accelerators} and maxCPUs {cpus}; together they must be 1 to {_MOST_DEVICES} devices")
    memory = as_number(need(document, "maxSizePerFPGA", "the file"), "maxSizePerFPGA")
    nodes = [_node(node, i) for i, node in enumerate(as_list(need(document, "nodes", "the file"), "nodes"))]
    if not nodes:
        raise InputError("the file has no nodes")
    ids: dict[int, int] = {}
    for i, node in enumerate(nodes):
        if ids.setdefault(node["id"], i) != i:
            raise InputError(f"two nodes have the id {node['id']}; ids must be unique")
    ends, costs, sizes = _edges(as_list(need(document, "edges", "the file"), "edges"), ids)
    known = (costs > 0) & (sizes > 0)
    with np.errstate(over="ignore"):
        rates = sizes[known] / costs[known]
    rate = float(np.median(rates[np.isfinite(rates)])) if np.isfinite(rates).any() else COPIES
    seconds = np.array([(node["fpga"], node["cpu"]) for node in nodes])
    graph = ComputationGraph(
        names=tuple(str(node["id"]) for node in nodes),
        op_types=tuple(node["op"] for node in nodes),
        flops=seconds[:, 0] * ACCELERATOR,
        output_bytes=np.zeros(len(nodes)),  # the bytes of a node are all that it holds, its output included
        edges=ends,
        edge_bytes=costs * rate,
        parameter_bytes=np.array([node["size"] for node in nodes]),
        hardware=tuple("" if node["supported"] else CPU_ONLY for node in nodes),
        colocation=_groups([node["colour"] for node in nodes]),
        backward=np.array([node["backward"] for node in nodes]),
        name=name,
        provenance="measured",
    )
    network = _network(accelerators, cpus, memory, rate, seconds.sum(axis=0))
    table = TableCosts(graph.names, network.names, seconds[:, [0] * accelerators + [1] * cpus])
    total = {"accelerator": float(seconds[:, 0].sum()), "cpu": float(seconds[:, 1].sum())}
    return Imported("dnn-partitioning", graph, total, network, table, "throughput")


def read_split(document: Mapping[str, Any], problem: Problem) -> np.ndarray:
    """The placement int16[V] of a split; nodes that it leaves out go where their co-location group goes.

    Raises:
        InputError: for a node that the problem does not have or that is given twice or not at all, and for too many devices.
    """
    position = {name: i for i, name in enumerate(problem.graph.names)}
    placement = np.full(problem.n_nodes, -1, dtype=np.int16)
    for key, host in (("fpgas", False), ("cpus", True)):
        devices = np.flatnonzero(problem.network.host == host)
        for k, part in enumerate(as_list(document.get(key, []), key)):
            members = as_list(need(part if isinstance(part, dict) else {}, "nodes", f"{key} {k}"), f"{key} {k}: nodes")
            if k >= len(devices) and members:
                raise InputError(f"the split uses {k + 1} {key}; problem {problem.name} has {len(devices)}")
            for node in members:
                i = position.get(str(node))
                if i is None:
                    raise InputError(f"{key} {k} lists node {short(node)}, which graph {problem.graph.name!r} does not have")
                if placement[i] >= 0:
                    raise InputError(f"node {node} is in two parts of the split")
                placement[i] = devices[k]
    group = np.full(problem.n_nodes, -1, dtype=np.int16)
    given = placement >= 0
    group[problem.leaders[given]] = placement[given]
    placement = np.where(given, placement, group[problem.leaders])
    missing = np.flatnonzero(placement < 0)
    if missing.size:
        raise InputError(f"the split leaves out node {problem.graph.names[missing[0]]!r} and all that shares its colour")
    return placement


def _node(node: Any, i: int) -> dict[str, Any]:
    if not isinstance(node, dict):
        raise InputError(f"node {i} must be an object, not {short(node)}")
    number = _whole(need(node, "id", f"node {i}"), f"node {i}: id")
    where = f"node {number}"
    colour = node.get("colorClass")
    return {
        "id": number,
        "op": _operation(node.get("name")),
        "supported": _flag(need(node, "supportedOnFpga", where), f"{where}: supportedOnFpga"),
        "backward": _flag(need(node, "isBackwardNode", where), f"{where}: isBackwardNode"),
        "cpu": _time(node, "cpuLatency", where),
        "fpga": _time(node, "fpgaLatency", where),
        "size": as_number(need(node, "size", where), f"{where}: size"),
        "colour": None if colour is None else _whole(colour, f"{where}: colorClass", negative=True),
    }


def _time(node: Mapping[str, Any], key: str, where: str) -> float:
    """Seconds, of which there may be so few that their work on an accelerator is a number."""
    value = as_number(need(node, key, where), f"{where}: {key}")
    if value > MOST_TIME:
        raise InputError(f"{where}: {key} is {value:g}; it must be at most {MOST_TIME:g} milliseconds")
    return value * UNIT


def _operation(name: Any) -> str:
    """The kind of operation that a node's name tells: ``MatMul`` of ``MatMul8``; ``task`` if it tells none."""
    found = re.match(r"[A-Za-z]+", name) if isinstance(name, str) else None
    return found.group() if found else "task"


def _edges(edges: list[Any], ids: Mapping[int, int]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Ends int32[E, 2], seconds and bytes float64[E] (0 where not given); an edge that is given twice counts once."""
    found: dict[tuple[int, int], tuple[float, float]] = {}
    paid: dict[int, float] = {}
    for i, edge in enumerate(edges):
        if not isinstance(edge, dict):
            raise InputError(f"edge {i} must be an object, not {short(edge)}")
        u, v = (_whole(need(edge, key, f"edge {i}"), f"edge {i}: {key}") for key in ("sourceId", "destId"))
        where = f"edge {u} -> {v}"
        for end in (u, v):
            if end not in ids:
                raise InputError(f"{where} names node {end}, which the file does not have")
        cost = as_number(need(edge, "cost", where), f"{where}: cost")
        if abs(paid.setdefault(u, cost) - cost) > 1e-6 * max(1.0, cost):
            raise InputError(f"{where} costs {cost:g}, another edge out of node {u} {paid[u]:g}; moving one output takes one time")
        size = as_number(edge["size"], f"{where}: size") if "size" in edge else 0.0
        found[ids[u], ids[v]] = (cost * UNIT, size)
    values = np.array(list(found.values()), dtype=np.float64).reshape(-1, 2)
    return np.array(list(found), dtype=np.int32).reshape(-1, 2), values[:, 0], values[:, 1]


def _network(accelerators: int, cpus: int, memory: float, rate: float, total: np.ndarray) -> DeviceNetwork:
    """Accelerators first; the host's memory is that of the CPU cores, which have no limit."""
    d = accelerators + cpus
    host = np.arange(d) >= accelerators
    bandwidth = np.full((d, d), rate)
    bandwidth[np.ix_(host, host)] = np.inf
    if cpus:
        bandwidth[np.ix_(~host, ~host)] = rate / 2
    slower = total[0] / total[1] if total.min() > 0 else 1.0
    return DeviceNetwork(
        names=(*(f"accelerator{k}" for k in range(accelerators)), *(f"cpu{k}" for k in range(cpus))),
        kinds=("accelerator",) * accelerators + ("cpu",) * cpus,
        speed=np.where(host, ACCELERATOR * slower, ACCELERATOR),
        bandwidth=bandwidth,
        delay=np.array(0.0),
        memory=np.where(host, np.inf, memory),
        supports=(frozenset(),) * accelerators + (frozenset({CPU_ONLY}),) * cpus,
        host=host,
        name="own",
    )


def _groups(colours: list[int | None]) -> np.ndarray:
    """Co-location groups, numbered by first appearance; a colour of one node is none."""
    number: dict[int, int] = {}
    alone = {c for c in colours if c is not None and colours.count(c) == 1}
    return np.array([-1 if c is None or c in alone else number.setdefault(c, len(number)) for c in colours])


def _whole(value: Any, where: str, negative: bool = False) -> int:
    if type(value) is float and value.is_integer():
        value = int(value)
    if type(value) is not int or (value < 0 and not negative) or abs(value) >= 2**63:
        raise InputError(f"{where} must be a whole number{'' if negative else ' from 0'} below 2^63, not {short(value)}")
    return value


def _flag(value: Any, where: str) -> bool:
    """True or false, or 1 or 0."""
    if not isinstance(value, bool) and (type(value) is not int or value not in (0, 1)):
        raise InputError(f"{where} must be true or false (or 1 or 0), not {short(value)}")
    return bool(value)
