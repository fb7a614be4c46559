"""Times of a model's operations measured here by OpenVINO's profiling. Scaling them to other devices is a cost model's.

A table is measured once and kept on disk; it is content of the problems that use it, so their results can be replayed.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from envs.costs.operation_times import OperationTimes, graph_signature
from envs.graphs import capture, openvino_capture, store
from envs.hosts.processor import model_name
from envs.problem.errors import InputError
from envs.problem.graph import ComputationGraph
from envs.problem.op_arithmetic import bytes_moved, free

if TYPE_CHECKING:
    import torch

PRECISIONS = ("f32", "bf16", "f16")


def profile_model(
    source: str | Path | torch.nn.Module,
    *,
    repeats: int = 20,
    threads: int = 1,
    precision: str = "f32",
    device: str = "CPU",
    example_inputs: Any = None,
    input_shapes: openvino_capture.InputShapes | None = None,
    fresh: bool = False,
    **options: Any,
) -> OperationTimes:
    """Measure every operation of a model (`capture.capture`'s sources) on this CPU: the median of ``repeats`` inferences.

    Another ``device`` of this machine goes by OpenVINO's name, such as ``GPU.1``; ``threads`` are the CPU's. The table is taken from the
    disk cache if this model was measured with these settings on this kind of CPU before, unless it is to be ``fresh``. Where OpenVINO
    fuses operations, their common time is divided by an estimate of each one's work (see `_shares`).

    Raises:
        InputError: for impossible settings and whatever ``capture`` refuses.
    """
    if repeats < 1 or threads < 1:
        raise InputError(f"profiling needs at least one repeat and one thread, not repeats={repeats}, threads={threads}")
    if precision not in PRECISIONS:
        raise InputError(f"profiling precision is {precision!r}; it must be one of {', '.join(PRECISIONS)}")
    model = capture.resolve(source, example_inputs, input_shapes, options)
    key = None
    if model.key is not None:
        where = () if device == "CPU" else (device,)
        key = "profile-" + store.graph_key(*model.key, model_name(), repeats, threads, precision, *where)
        if not fresh and (found := _load(key)) is not None:
            return found
    with capture.written_ir(model) as path:
        graph = openvino_capture.graph_of_ir(path, model.shapes, model.name)
        seconds, toolkit = _measure(path, model.shapes, graph, repeats, threads, precision, device)
    about = {
        "model": model.name,
        "cpu": model_name(),
        "device": device,
        "threads": threads,
        "precision": precision,
        "repeats": repeats,
        "openvino": toolkit,
    }
    table = OperationTimes(graph.names, seconds, graph_signature(graph), tuple((k, str(v)) for k, v in about.items()))
    if key is not None:
        written = {"names": table.names, "signature": table.signature, "about": table.about, "content_hash": table.content_hash}
        store.save(key, {"seconds": table.seconds}, written)
    return table


def fused(
    core: Any, path: Path, shapes: openvino_capture.InputShapes | None, graph: ComputationGraph, device: str = "CPU"
) -> list[set[int]]:
    """Sets of layers of an IR file that a device's plugin compiles into one operation, by the compiled model's own graph."""
    model = openvino_capture.read_model(path)
    openvino_capture.concrete(model, shapes, graph.name)
    try:
        operations = core.compile_model(model, device).get_runtime_model().get_ops()
    except RuntimeError as error:
        raise InputError(f"OpenVINO cannot compile {graph.name!r} on {device}: {openvino_capture.first_line(error)}") from None
    layers, _, _ = openvino_capture.parse_ir(path)
    position, idle = {layer.name: i for i, layer in enumerate(layers)}, free(graph)
    found = {op.get_friendly_name(): [position[n] for n in _originals(op) if n in position] for op in operations}
    sets = [{i for i in members if not idle[i]} for members in _members(graph, idle, found).values()]
    return [s for s in sets if len(s) > 1]


def _load(key: str) -> OperationTimes | None:
    found = store.load(key)
    if found is None:
        return None
    try:
        table = OperationTimes(tuple(found[1]["names"]), found[0]["seconds"], found[1]["signature"], tuple(found[1]["about"]))
        return table if table.content_hash == found[1]["content_hash"] else None
    except (KeyError, TypeError, ValueError):
        return None


def _measure(
    path: Path,
    shapes: openvino_capture.InputShapes | None,
    graph: ComputationGraph,
    repeats: int,
    threads: int,
    precision: str,
    device: str,
) -> tuple[np.ndarray, str]:
    """Median seconds of every layer of an IR file, float64[V], and OpenVINO's version."""
    openvino = openvino_capture.import_openvino()
    model = openvino_capture.read_model(path)
    openvino_capture.concrete(model, shapes, graph.name)
    settings = {"PERF_COUNT": True, "INFERENCE_PRECISION_HINT": precision, "NUM_STREAMS": 1}
    if device == "CPU":
        settings["INFERENCE_NUM_THREADS"] = threads
    where = "this CPU" if device == "CPU" else device
    try:
        compiled = openvino.Core().compile_model(model, device, settings)
        inputs = [np.ones(tuple(port.shape), dtype=port.get_element_type().to_dtype()) for port in compiled.inputs]
        request = compiled.create_infer_request()
        request.infer(inputs)  # the first inference allocates and is not counted
        samples: list[dict[str, float]] = []
        for _ in range(repeats):
            request.infer(inputs)
            samples.append({node.node_name: node.real_time.total_seconds() for node in request.profiling_info})
        runtime = {op.get_friendly_name(): _originals(op) for op in compiled.get_runtime_model().get_ops()}
    except RuntimeError as error:
        raise InputError(f"OpenVINO cannot run {graph.name!r} on {where}: {openvino_capture.first_line(error)}") from None
    medians = {name: float(np.median([sample.get(name, 0.0) for sample in samples])) for name in samples[0]}
    layers, _, _ = openvino_capture.parse_ir(path)
    return _shares(graph, {layer.name: i for i, layer in enumerate(layers)}, medians, runtime), str(openvino.get_version())


def _originals(op: Any) -> list[str]:
    """The layers that a node of the runtime graph came from."""
    value = op.get_rt_info()["originalLayersNames"]
    return [name for name in str(getattr(value, "value", value)).split(",") if name]


def _shares(
    graph: ComputationGraph, position: Mapping[str, int], medians: Mapping[str, float], runtime: Mapping[str, list[str]]
) -> np.ndarray:
    """Divide the time of runtime nodes among the layers they came from, float64[V].

    Fused layers share in proportion to ``max(FLOPs, 10 x bytes moved)`` (ten FLOPs a byte is a usual machine balance). A
    change of memory layout between layers A and B is named ``A___B`` and counts for B. What belongs to no layer is spread in
    proportion to everything else, so that the total is what was measured.
    """
    idle = free(graph)
    work = np.maximum(graph.flops, 10.0 * bytes_moved(graph)) + 1.0
    members = _members(graph, idle, {name: [position[n] for n in runtime.get(name, []) if n in position] for name in medians})
    seconds, homeless = np.zeros(graph.n_nodes), 0.0
    for name, time in medians.items():
        owners = members[name] or [position[n] for n in reversed(name.split("___")) if n in position][:1]
        owners = [i for i in owners if not idle[i]] or owners
        if not owners:
            homeless += time
            continue
        seconds[owners] += time * work[owners] / work[owners].sum()
    total = seconds.sum()
    return seconds * (1.0 + homeless / total) if total > 0 else seconds


def _members(graph: ComputationGraph, idle: np.ndarray, members: dict[str, list[int]]) -> dict[str, list[int]]:
    """Layers of each runtime node, completed by layers that none claims: those join their consumer's.

    OpenVINO forgets the MatMul when it makes one FullyConnected of a MatMul and the Add behind it.
    """
    claimed: dict[int, list[str]] = {}
    for name, layers in members.items():
        for layer in layers:
            claimed.setdefault(layer, []).append(name)
    pointer, ids = graph.out_edges
    complete = {name: list(layers) for name, layers in members.items()}
    for layer in graph.topological_order[::-1].tolist():
        if layer in claimed or idle[layer]:
            continue
        consumers = graph.edges[ids[pointer[layer] : pointer[layer + 1]], 1].tolist()
        claimed[layer] = next((claimed[c] for c in consumers if claimed.get(c)), [])
        for name in claimed[layer]:
            complete[name].append(layer)
    return complete
