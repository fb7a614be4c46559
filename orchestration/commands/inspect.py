"""What a file or a known model holds, in numbers: before it is placed, nothing is measured or searched here."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from envs.graphs.capture import SUFFIXES, capture
from envs.problem.errors import InputError
from envs.problem.graph import ComputationGraph
from envs.problem.network import DeviceNetwork
from envs.problem.problem import Problem
from envs.sources import files
from envs.sources.importing import load_foreign
from orchestration.specs.sources import DOCUMENTS


@dataclass(frozen=True)
class Contents:
    """Of a graph, and of the devices that come with it if any do."""

    format: str
    name: str
    provenance: str
    content_hash: str
    nodes: int
    edges: int
    work: float
    """FLOPs (or the file's own units) of all operations."""
    seconds: float | None
    """Of all operations as the file gives them (on the accelerator, if it tells several kinds apart); None if it knows work only."""
    seconds_by_device: Mapping[str, float]
    """The same by every kind of device, or by every device of a whole problem."""
    bytes: float
    """On all edges."""
    output_bytes: float
    parameter_bytes: float
    entries: int
    """Operations that read nothing."""
    exits: int
    """Operations that nothing reads."""
    levels: int
    """Operations on the longest path."""
    backward: int
    """Operations of the backward pass."""
    groups: int
    """Co-location groups."""
    operations: Mapping[str, int]
    """Number of operations of each type, most first."""
    devices: tuple[str, ...]
    objective: str | None = None
    placements: int = 0
    file_nodes: int | None = None
    """Nodes of an ONNX file, before constants are folded and operators are split."""


def inspect(source: str) -> Contents:
    """What ``source`` holds: a file of any format that can be placed, or the name of a known model.

    Raises:
        InputError: naming the file and what is wrong in it, or the nearest known name.
    """
    path = Path(source)
    if path.suffix in DOCUMENTS:
        return _document(path)
    if path.suffix in SUFFIXES:
        graph = capture(path)
        return _contents("ONNX" if path.suffix == ".onnx" else "OpenVINO IR", graph, file_nodes=_onnx_nodes(path))
    if path.exists():
        raise InputError(f"{source} is nothing that can be read; known endings are {', '.join((*DOCUMENTS, *SUFFIXES))}")
    return _contents("known model", capture(source))


def _document(path: Path) -> Contents:
    found = load_foreign(path)
    if found is not None:
        return _contents(found.format, found.graph, found.seconds, found.network, found.objective if found.network else None)
    document = files.load(path)
    if "graph" not in document:
        raise InputError(f"{path}: the file holds no graph; a network by itself has nothing to place")
    if "network" not in document:
        return _contents(files.FORMAT, files.load_graph(path))
    problem = files.load_problem(path)
    seconds = dict(zip(problem.network.names, _total(problem).tolist(), strict=True))
    rows = len(files.load_placements(path, problem)) if "placements" in document else 0
    return _contents(files.FORMAT, problem.graph, seconds, problem.network, problem.objective, rows)


def _total(problem: Problem) -> np.ndarray:
    """Seconds of all operations on each device, whether it may run them all or not, float64[D]."""
    return problem.compute_seconds.sum(axis=0)


def _onnx_nodes(path: Path) -> int | None:
    if path.suffix != ".onnx":
        return None

    return len(onnx.load(path, load_external_data=False).graph.node)


def _contents(
    kind: str,
    graph: ComputationGraph,
    seconds: Mapping[str, float] | None = None,
    network: DeviceNetwork | None = None,
    objective: str | None = None,
    placements: int = 0,
    file_nodes: int | None = None,
) -> Contents:
    readers, inputs = (np.bincount(graph.edges[:, end], minlength=graph.n_nodes) for end in (0, 1))
    seconds = seconds or {}
    return Contents(
        format=kind,
        name=graph.name,
        provenance=graph.provenance,
        content_hash=graph.content_hash,
        nodes=graph.n_nodes,
        edges=graph.n_edges,
        work=float(graph.flops.sum()),
        seconds=next(iter(seconds.values()), None),
        seconds_by_device=dict(seconds),
        bytes=float(graph.edge_bytes.sum()),
        output_bytes=float(graph.output_bytes.sum()),
        parameter_bytes=float(graph.parameter_bytes.sum()),
        entries=int((inputs == 0).sum()),
        exits=int((readers == 0).sum()),
        levels=int(graph.levels.max()) + 1,
        backward=int(graph.backward.sum()),
        groups=len(np.unique(graph.colocation[graph.colocation >= 0])),
        operations=dict(Counter(graph.op_types).most_common()),
        devices=network.names if network is not None else (),
        objective=objective,
        placements=placements,
        file_nodes=file_nodes,
    )


def to_json(contents: Contents) -> dict[str, Any]:
    """For programs: the fields of `Contents` by name, times in seconds."""
    return dataclasses.asdict(contents)


def text(contents: Contents) -> str:
    """For people, a line a fact."""
    c = contents
    kinds = ", ".join(f"{n} {kind}" for kind, n in list(c.operations.items())[:8]) + (", …" if len(c.operations) > 8 else "")
    facts = [
        ("format", c.format),
        ("provenance", c.provenance),
        ("nodes", f"{c.nodes:,} ({c.entries:,} without input, {c.exits:,} unread, {c.levels:,} levels)"),
        ("edges", f"{c.edges:,}"),
        ("operations", kinds),
        ("work", f"{c.work:.6g}"),
        ("bytes", f"{c.bytes:,.0f} on edges, {c.output_bytes:,.0f} of outputs, {c.parameter_bytes:,.0f} kept"),
    ]
    if c.file_nodes is not None:
        facts.insert(3, ("in the file", f"{c.file_nodes:,} ONNX nodes"))
    if c.backward:
        facts.append(("backward", f"{c.backward:,} nodes"))
    if c.groups:
        facts.append(("co-located", f"{c.groups:,} groups"))
    facts += [("seconds", f"{value:.6g} on {device}") for device, value in c.seconds_by_device.items()]
    if c.devices:
        facts.append(("devices", f"{len(c.devices)}: {', '.join(c.devices[:8])}{', …' if len(c.devices) > 8 else ''}"))
    if c.objective:
        facts.append(("objective", c.objective))
    if c.placements:
        facts.append(("placements", f"{c.placements:,}"))
    return "".join(f"{line}\n" for line in (c.name, *(f"  {key:<12}{value}" for key, value in facts)))
