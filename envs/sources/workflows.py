"""Workflows in WfCommons' WfFormat: tasks that really ran, with their runtimes, files and machines. Placing is not known here.

Schema 1.5 keeps what a task is (``workflow.specification``) apart from how it ran (``workflow.execution``); 1.4 and older keep both in
``workflow.tasks`` and name some keys otherwise (``jobs``, ``runtime``, ``size``, ``cores``). All of them are read.

A task's work is its runtime times the clock of the machine that ran it, in cycles, so that a device of that many cycles a second takes the
runtime that was measured; 1 GHz where nothing is said. An edge carries the files that the parent writes and the child reads. Memory,
energy and numbers of cores are not used: a task's memory is free again when it ends.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from envs.problem.cost_model import LinearCosts
from envs.problem.errors import InputError
from envs.problem.graph import ComputationGraph
from envs.problem.json_checks import as_list, as_number, as_string, need, short
from envs.problem.network import DeviceNetwork
from envs.sources.imported import Imported

CLOCK = 1e9
"""Cycles a second of a machine that does not say."""
LINKS = 1.25e8
"""Bytes a second between machines, about which the format says nothing: 1 Gbit/s."""


def is_workflow(document: Any) -> bool:
    """Whether a JSON document looks like a WfFormat file."""
    return isinstance(document, dict) and "workflow" in document and "format" not in document


def read_workflow(document: Mapping[str, Any], name: str) -> Imported:
    """The graph of a workflow, and its machines as a network (a device each, links of `LINKS`).

    Args:
        document: the parsed file.
        name: what to call the graph.

    Raises:
        InputError: naming the task, file or key at fault.
    """
    version = as_string(document.get("schemaVersion", "unknown"), "schemaVersion")
    if version != "unknown" and version.split(".")[0] != "1":
        raise InputError(f"schemaVersion is {version!r}; files of WfFormat 1.5 and earlier ones of version 1 are read")
    workflow = _object(need(document, "workflow", "the file"), "workflow")
    if "specification" in workflow:
        specification = _object(workflow["specification"], "workflow.specification")
        execution = _object(workflow.get("execution", {}), "workflow.execution")
        tasks = _by_key(need(specification, "tasks", "workflow.specification"), "task", ("id",))
        ran = _by_key(need(execution, "tasks", "workflow.execution"), "executed task", ("id",))
        unknown = next((task for task in ran if task not in tasks), None)
        if unknown is not None:
            raise InputError(f"executed task {unknown!r} is not among the tasks of workflow.specification")
        sizes = _sizes(as_list(specification.get("files", []), "workflow.specification.files"))
        machines = as_list(execution.get("machines", []), "workflow.execution.machines")
    else:
        tasks = ran = _by_key(need(workflow, "tasks" if "tasks" in workflow else "jobs", "workflow"), "task", ("id", "name"))
        sizes, machines = {}, as_list(workflow.get("machines", []), "workflow.machines")
    if not tasks:
        raise InputError("the workflow has no tasks")
    clocks = _clocks(machines)
    graph, seconds = _graph(name, tasks, ran, sizes, clocks)
    network = None
    if clocks:
        network = DeviceNetwork(tuple(clocks), np.array(list(clocks.values())), LINKS, 0.0, kinds=("cpu",) * len(clocks), name="own")  # type: ignore[arg-type]
    return Imported(f"WfFormat {version}", graph, {"machine": seconds}, network, LinearCosts())


def _graph(
    name: str, tasks: Mapping[str, Any], ran: Mapping[str, Any], sizes: dict[str, float], clocks: Mapping[str, float]
) -> tuple[ComputationGraph, float]:
    files = {task: _files(task, given, sizes) for task, given in tasks.items()}
    seconds = np.array([_runtime(task, ran) for task in tasks])
    position = {task: i for i, task in enumerate(tasks)}
    pairs = _edges(tasks)
    shared = [sum(sizes[f] for f in files[u][1] & files[v][0]) for u, v in pairs]
    graph = ComputationGraph(
        names=tuple(tasks),
        op_types=tuple(_kind(task, given) for task, given in tasks.items()),
        flops=seconds * np.array([_clock(ran[task], clocks) for task in tasks]),
        output_bytes=np.array([sum(sizes[f] for f in files[task][1]) for task in tasks], dtype=np.float64),
        edges=np.array([(position[u], position[v]) for u, v in pairs], dtype=np.int32).reshape(-1, 2),
        edge_bytes=np.array(shared, dtype=np.float64),
        name=name,
        provenance="measured",
    )
    return graph, float(seconds.sum())


def _object(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InputError(f"{where} must be an object, not {short(value)}")
    return value


def _by_key(values: Any, what: str, keys: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Tasks by what identifies them, the first of ``keys`` that a task has: ``id``, or in files before 1.5 ``name``."""
    found: dict[str, dict[str, Any]] = {}
    for i, value in enumerate(as_list(values, f"list of {what}s")):
        given = _object(value, f"{what} {i}")
        own = next((key for key in keys if key in given), keys[-1])
        key = as_string(need(given, own, f"{what} {i}"), f"{what} {i}: {own}")
        if key in found:
            raise InputError(f"two {what}s have the id {key!r}; ids must be unique")
        found[key] = given
    return found


def _sizes(files: Sequence[Any]) -> dict[str, float]:
    sizes: dict[str, float] = {}
    for i, value in enumerate(files):
        given = _object(value, f"file {i}")
        key = as_string(need(given, "id", f"file {i}"), f"file {i}: id")
        size = as_number(need(given, "sizeInBytes", f"file {key!r}"), f"file {key!r}: sizeInBytes")
        if sizes.setdefault(key, size) != size:
            raise InputError(f"file {key!r} is given twice, with {sizes[key]:g} and with {size:g} bytes; ids must be unique")
    return sizes


def _files(task: str, given: Mapping[str, Any], sizes: dict[str, float]) -> tuple[set[str], set[str]]:
    """What a task reads and what it writes; sizes that stand beside the names (1.4) are added to ``sizes``."""
    read, written = (
        {as_string(f, f"task {task!r}: {key}") for f in as_list(given.get(key, []), f"task {task!r}: {key}")}
        for key in ("inputFiles", "outputFiles")
    )
    for i, value in enumerate(as_list(given.get("files", []), f"task {task!r}: files")):
        where = f"task {task!r}: file {i}"
        file = _object(value, where)
        name = as_string(file["name"] if "name" in file else need(file, "id", where), f"{where}: name")
        link = need(file, "link", where)
        if link not in ("input", "output"):
            raise InputError(f'{where}: link is {short(link)}; it must be "input" or "output"')
        (read if link == "input" else written).add(name)
        key = "sizeInBytes" if "sizeInBytes" in file else "size"
        sizes[name] = max(sizes.get(name, 0.0), as_number(need(file, key, where), f"{where}: {key}"))
    unknown = next((f for f in sorted(read | written) if f not in sizes), None)
    if unknown is not None:
        raise InputError(f"task {task!r} names file {unknown!r}, whose size is not given; add it to workflow.specification.files")
    return read, written


def _runtime(task: str, ran: Mapping[str, Any]) -> float:
    if task not in ran:
        raise InputError(f"task {task!r} has no runtime: workflow.execution.tasks lacks it")
    key = "runtime" if "runtime" in ran[task] and "runtimeInSeconds" not in ran[task] else "runtimeInSeconds"
    return as_number(need(ran[task], key, f"executed task {task!r}"), f"task {task!r}: {key}")


def _edges(tasks: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Pairs of parent and child, by the child's order; either of the two may name the other, by its id or (older files) its name."""
    by_name = {given["name"]: task for task, given in tasks.items() if isinstance(given.get("name"), str)}
    found: dict[tuple[str, str], None] = {}
    for task, given in tasks.items():
        for key in ("parents", "children"):
            for other in as_list(given.get(key, []), f"task {task!r}: {key}"):
                known = (other if other in tasks else by_name.get(other)) if isinstance(other, str) else None
                if known is None:
                    raise InputError(f"task {task!r} has {short(other)} among its {key}, which is no task of the workflow")
                found[(known, task) if key == "parents" else (task, known)] = None
    place = {task: i for i, task in enumerate(tasks)}
    return sorted(found, key=lambda edge: (place[edge[0]], place[edge[1]]))


def _kind(task: str, given: Mapping[str, Any]) -> str:
    """The kind of a task: its name without what only numbers it."""
    name = given.get("name")
    text = name if isinstance(name, str) and name else task
    return text.rstrip("0123456789").rstrip("_-. ") or "task"


def _clocks(machines: Sequence[Any]) -> dict[str, float]:
    """Cycles a second of each machine by its name; a machine that is listed twice counts once."""
    found: dict[str, float | None] = {}
    for i, value in enumerate(machines):
        machine = _object(value, f"machine {i}")
        name = as_string(need(machine, "nodeName", f"machine {i}"), f"machine {i}: nodeName")
        cpu = _object(machine.get("cpu", {}), f"machine {name!r}: cpu")
        key = "speedInMHz" if "speedInMHz" in cpu else "speed"
        clock = as_number(cpu[key], f"machine {name!r}: {key}") * 1e6 if key in cpu else None
        if clock == 0:
            raise InputError(f"machine {name!r} has a speed of 0 MHz; it must be positive")
        found.setdefault(name, clock)
    known = [clock for clock in found.values() if clock is not None]
    return {name: (sum(known) / len(known) if known else CLOCK) if clock is None else clock for name, clock in found.items()}


def _clock(given: Mapping[str, Any], clocks: Mapping[str, float]) -> float:
    """Cycles a second of the machine that ran a task; of the machines' mean, or `CLOCK`, if it does not say."""
    names = given.get("machines", given.get("machine", []))
    for name in [names] if isinstance(names, str) else names if isinstance(names, list) else []:
        if isinstance(name, str) and name in clocks:
            return clocks[name]
    return sum(clocks.values()) / len(clocks) if clocks else CLOCK
