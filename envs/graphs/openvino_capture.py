"""OpenVINO IR to ComputationGraph: one node per ``<layer>``, one edge per ``<edge>``. Torch and caching do not belong here.

Structure is exactly that of the IR file; shapes come from the same model with its input shapes made concrete, which
(unlike ``Model.reshape``) folds nothing. Sizes:

- a Constant's tensor counts once, as ``parameter_bytes``; a weight stored in half precision and expanded by a Convert counts
  in float32, the precision it runs in;
- ``output_bytes`` are activations that somebody reads: zero for constants and everything computed from constants and shapes
  alone (`folded`);
- an edge carries the output ports that its consumer reads, each once.
"""

from __future__ import annotations

import logging
import re
import sys
import xml.etree.ElementTree as ET
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from google.protobuf.message import DecodeError

from envs.problem.errors import InputError, nearest
from envs.problem.graph import ComputationGraph
from envs.problem.op_arithmetic import Shape, folded, operation_flops

InputShapes = Mapping[str, Sequence[int]] | Sequence[Sequence[int]]

_AUTOMATIC = re.compile(r"[A-Z][A-Za-z0-9]*_\d+(_compressed)?")
"""Names that OpenVINO numbers by a counter of the process: they differ between runs."""

_XML_TYPES = {"Const": "Constant", "ReLU": "Relu"}
"""IR files spell some operation types differently from the operation sets."""


@dataclass(frozen=True)
class Layer:
    """One ``<layer>`` of an IR file."""

    number: int
    name: str
    type: str
    output_ports: tuple[str, ...]


def parse_ir(path: Path) -> tuple[list[Layer], list[tuple[int, int, int]], list[str]]:
    """Layers, edges ``(producer, its output index, consumer)`` as indices into the layers, and names that are the same every run.

    Raises:
        InputError: if the file is not OpenVINO IR.
    """
    try:
        root = ET.parse(path).getroot()
    except (ET.ParseError, UnicodeDecodeError) as error:
        raise InputError(f"{path} is not an OpenVINO IR file: its XML is malformed ({error}); save the model again") from None
    layers_tag, edges_tag = root.find("layers"), root.find("edges")
    if root.tag != "net" or layers_tag is None or edges_tag is None:
        raise InputError(f"{path} is not an OpenVINO IR file: it has no <net> with <layers> and <edges>; write it with openvino.save_model")
    layers, index, ports = [], {}, {}
    try:
        for i, tag in enumerate(layers_tag):
            outputs = tuple(port.attrib["id"] for port in tag.findall("output/port"))
            layers.append(Layer(i, tag.attrib["name"], tag.attrib["type"], outputs))
            index[tag.attrib["id"]] = i
            ports[i] = {port: k for k, port in enumerate(outputs)}
        edges = []
        for tag in edges_tag:
            producer = index[tag.attrib["from-layer"]]
            edges.append((producer, ports[producer][tag.attrib["from-port"]], index[tag.attrib["to-layer"]]))
    except KeyError as error:
        raise InputError(f"{path} is not a complete OpenVINO IR file: {error} is missing; save the model again") from None
    taken = {layer.name for layer in layers if not _AUTOMATIC.fullmatch(layer.name)}
    names: list[str] = []
    used: set[str] = set()
    for layer in layers:
        name = layer.name
        if _AUTOMATIC.fullmatch(name) or name in used:
            name = f"{_XML_TYPES.get(layer.type, layer.type)}#{layer.number}"
            while name in taken:
                name += "'"
        taken.add(name)
        used.add(name)
        names.append(name)
    return layers, edges, names


def import_openvino() -> Any:
    """The openvino package without its telemetry, which would report every conversion to Intel unasked."""
    sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]
    import openvino

    return openvino


def convert(source: Any, **options: Any) -> Any:
    """``openvino.convert_model``, logging restored: when it fails, it would leave this process logging nothing but errors."""
    openvino = import_openvino()
    root = logging.getLogger()
    level, filters = root.level, list(root.filters)
    try:
        return openvino.convert_model(source, **options)
    finally:
        root.setLevel(level)
        root.filters = filters


def read_model(path: Path) -> Any:
    """The ``openvino.Model`` of an IR file; InputError in one line if OpenVINO cannot read it."""
    openvino = import_openvino()

    try:
        return openvino.Core().read_model(path)
    except RuntimeError as error:
        missing = "" if path.with_suffix(".bin").exists() else f" (its weights {path.with_suffix('.bin').name} are not beside it)"
        raise InputError(f"OpenVINO cannot read {path}{missing}: {first_line(error)}") from None


def convert_onnx(path: Path) -> Any:
    """The ``openvino.Model`` of an ONNX file; InputError in one line if it is damaged or uses operators OpenVINO lacks."""
    import onnx

    try:
        graph = onnx.load(path, load_external_data=False).graph
    except (DecodeError, ValueError) as error:
        raise InputError(f"{path} is not an ONNX file ({first_line(error)}); export the model again") from None
    if not graph.node:
        raise InputError(f"{path} is not an ONNX model: its graph has no nodes; export the model again")
    _check_order(path, graph, set())
    try:
        return convert(path)
    except Exception as error:  # the frontends raise several unrelated types, some private
        raise InputError(f"OpenVINO cannot convert {path}: {first_line(error)}") from None


def _check_order(path: Path, graph: Any, around: set[str]) -> None:
    """Refuses what ONNX forbids and OpenVINO takes for another graph, with an input more: nodes that read what no node before them makes,
    as in a cycle. ``around`` are the names that the body of a loop or a branch sees outside itself."""
    there = around | {value.name for value in (*graph.input, *graph.initializer)} | {t.values.name for t in graph.sparse_initializer}
    for node in graph.node:
        unknown = next((name for name in node.input if name and name not in there), None)
        if unknown is not None:
            later = any(unknown in other.output for other in graph.node)
            why = "a node after it makes: in a cycle, or in a wrong order" if later else "nothing makes"
            raise InputError(
                f"{path} is not a valid ONNX model: node {node.name or node.op_type!r} reads {unknown!r}, which {why}; export it again"
            )
        for body in [body for a in node.attribute for body in (a.g, *a.graphs) if body.node]:
            _check_order(path, body, there)
        there |= set(node.output)


def external_files(path: Path) -> list[Path]:
    """Files beside an ONNX file that hold its weights, sorted."""
    import onnx

    try:
        tensors = onnx.load(path, load_external_data=False).graph.initializer
    except (DecodeError, ValueError):
        return []
    locations = {e.value for t in tensors if t.data_location == onnx.TensorProto.EXTERNAL for e in t.external_data if e.key == "location"}
    return sorted(p for p in (path.parent / name for name in locations) if p.is_file())


def first_line(error: Exception) -> str:
    """The most telling line of an OpenVINO error, whose first lines name its own source files; findings come last, each behind a dash."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if found := [line.removeprefix("-- ") for line in lines if line.startswith("-- ")]:
        return found[0][:300]
    telling = [line for line in lines if not line.startswith(("Exception from", "Check '")) and " failed at src/" not in line]
    return (telling or lines or [type(error).__name__])[0][:300]


def save_ir(model: Any, directory: Path) -> Path:
    """Write a model as IR with the default ``compress_to_fp16=True``, which decides the number of layers; returns the ``.xml``."""
    openvino = import_openvino()

    path = directory / "model.xml"
    openvino.save_model(model, path)
    return path


def concrete(model: Any, input_shapes: InputShapes | None, label: str) -> None:
    """Give every input of a model a concrete shape, in place, without changing its structure.

    ``input_shapes`` are by input name or in order. An input not given keeps its shape: a bounded dynamic dimension becomes
    its bound and a dynamic first dimension 1 (one sample).

    Raises:
        InputError: for an unknown input, shapes that do not fit, and other dynamic dimensions, naming the input.
    """
    openvino = import_openvino()

    parameters = model.get_parameters()
    named = {name: p for p in parameters for name in {p.get_friendly_name(), *p.output(0).get_names()}}
    given: dict[Any, tuple[int, ...]] = {}
    if isinstance(input_shapes, Mapping):
        for name, sizes in input_shapes.items():
            if name not in named:
                raise InputError(f"{label} has no input {name!r}{nearest(name, named)}")
            given[named[name].get_friendly_name()] = tuple(int(n) for n in sizes)
    elif input_shapes is not None:
        if len(input_shapes) != len(parameters):
            raise InputError(f"{label} has {len(parameters)} inputs ({', '.join(p.get_friendly_name() for p in parameters)}), "
                             f"but {len(input_shapes)} input shapes were given")  # fmt: skip
        given = {p.get_friendly_name(): tuple(int(n) for n in sizes) for p, sizes in zip(parameters, input_shapes, strict=True)}
    for p in parameters:
        own, name = p.get_partial_shape(), p.get_friendly_name()
        shape = given.get(name)
        if shape is None:
            shape = _default_shape(own, name, label)
        elif not own.compatible(openvino.PartialShape(list(shape))) or min(shape, default=1) < 1:
            raise InputError(f"input {name!r} of {label} has shape {own}; {list(shape)} does not fit it")
        p.set_partial_shape(openvino.PartialShape(list(shape)))
    try:
        model.validate_nodes_and_infer_types()
    except RuntimeError as error:
        shapes = ", ".join(f"{p.get_friendly_name()} {p.get_partial_shape()}" for p in parameters)
        raise InputError(f"{label} does not accept the input shapes {shapes}: {first_line(error)}") from None


def _default_shape(own: Any, name: str, label: str) -> tuple[int, ...]:
    cure = f"give a concrete one, as in input_shapes={{{name!r}: [1, 128]}}"
    if own.rank.is_dynamic:
        raise InputError(f"input {name!r} of {label} has an unknown number of dimensions; {cure}")
    sizes = []
    for i, dimension in enumerate(own):
        bound = dimension.get_max_length()
        if bound < 1 and i > 0:
            raise InputError(f"input {name!r} of {label} has the dynamic shape {own}; {cure}")
        sizes.append(bound if bound > 0 else 1)
    return tuple(sizes)


def _shape(partial: Any) -> Shape:
    """A concrete shape: bounded dynamic dimensions at their bound, others 1."""
    if partial.rank.is_dynamic:
        return ()
    return tuple(n if n >= 0 else 1 for n in (dimension.get_max_length() for dimension in partial))


def _bytes(port: Any) -> float:
    return float(-(-prod(_shape(port.get_partial_shape())) * port.get_element_type().bitwidth // 8))


def _bodies(op: Any) -> list[Any]:
    """The models inside a loop or a branch."""
    kind = op.get_type_name()
    if kind == "If":
        return [op.get_then_body(), op.get_else_body()]
    return [op.get_function()] if kind in ("Loop", "TensorIterator") else []


def _flops(op: Any) -> float:
    """FLOPs of an operation: of a loop its body's times the iterations that the model states, of a branch the dearer side's."""
    kind = op.get_type_name()
    if bodies := _bodies(op):
        times = 1 if kind == "If" else max(1, int(op.get_num_iterations()))
        return max(sum(_flops(inner) for inner in body.get_ops()) for body in bodies) * times
    inputs = [_shape(port.get_partial_shape()) for port in op.inputs()]
    outputs = [_shape(port.get_partial_shape()) for port in op.outputs()]
    attributes = op.get_attributes() if kind in ("MatMul", "Einsum", "MaxPool", "AvgPool") else {}
    return operation_flops(kind, inputs, outputs, attributes)


def graph_of_ir(
    path: Path, input_shapes: InputShapes | None = None, name: str = "graph", colocate_constants: bool = True
) -> ComputationGraph:
    """The computation graph of an IR file (see the module's docstring for what is counted).

    ``input_shapes`` make dynamic inputs concrete (`concrete`). ``colocate_constants`` puts every chain of constants that feeds
    exactly one operation into a co-location group with it.

    Raises:
        InputError: in one sentence, if the file cannot be read or the shapes do not fit.
    """
    layers, edges, names = parse_ir(path)
    model = read_model(path)
    concrete(model, input_shapes, name)
    ops = {op.get_friendly_name(): op for op in model.get_ops()}
    unknown = next((layer for layer in layers if layer.name not in ops), None)
    if unknown is not None or len(ops) != len(layers):
        what = f"layer {unknown.name!r} of type {unknown.type}" if unknown else "a layer"
        raise InputError(
            f"OpenVINO reads {path} differently from what it says ({what}); save the model again with this version of OpenVINO"
        )
    order = [ops[layer.name] for layer in layers]
    sizes = [[_bytes(port) for port in op.outputs()] for op in order]
    parameters = _parameter_bytes(order, sizes, edges)
    merged: dict[tuple[int, int], set[int]] = {}
    for producer, port, consumer in edges:
        merged.setdefault((producer, consumer), set()).add(port)
    graph = ComputationGraph(
        names=tuple(names),
        op_types=tuple(op.get_type_name() for op in order),
        flops=np.array([_flops(op) for op in order]),
        output_bytes=_read_bytes(sizes, edges),
        edges=np.array(list(merged), dtype=np.int32).reshape(-1, 2),
        edge_bytes=np.array([sum(sizes[producer][port] for port in ports) for (producer, _), ports in merged.items()]),
        parameter_bytes=parameters,
        output_shapes=tuple(_shape(op.output(0).get_partial_shape()) if op.get_output_size() else () for op in order),
        name=name,
    )
    fixed = folded(graph)
    groups = constant_groups(graph, fixed) if colocate_constants else graph.colocation
    return replace(graph, flops=np.where(fixed, 0.0, graph.flops), output_bytes=np.where(fixed, 0.0, graph.output_bytes), colocation=groups)


def _read_bytes(sizes: list[list[float]], edges: Sequence[tuple[int, int, int]]) -> np.ndarray:
    """Bytes of those outputs of each operation that somebody reads, float64[V] (a MaxPool's indices mostly are not)."""
    result = np.zeros(len(sizes))
    for producer, port in {(producer, port) for producer, port, _ in edges}:
        result[producer] += sizes[producer][port]
    return result


def _parameter_bytes(order: Sequence[Any], sizes: list[list[float]], edges: Sequence[tuple[int, int, int]]) -> np.ndarray:
    """Bytes of every Constant, float64[V]; compressed weights are set to the size they are expanded to, in ``sizes`` too.

    A loop or branch holds the weights inside its bodies itself.
    """
    consumers: dict[int, list[int]] = {}
    for producer, _, consumer in edges:
        consumers.setdefault(producer, []).append(consumer)
    result = np.zeros(len(order))
    for i, op in enumerate(order):
        inner = [constant for body in _bodies(op) for constant in body.get_ops() if constant.get_type_name() == "Constant"]
        result[i] = sum(_bytes(constant.output(0)) * (2 if _is_half(constant) else 1) for constant in inner)
        if op.get_type_name() != "Constant":
            continue
        users = consumers.get(i, [])
        if _is_half(op) and users and all(order[user].get_type_name() == "Convert" for user in users):
            sizes[i] = [max(sizes[user][0] for user in users)]
        result[i] = sizes[i][0]
    return result


def _is_half(op: Any) -> bool:
    return op.get_output_element_type(0).get_type_name() in ("f16", "bf16")


def constant_groups(graph: ComputationGraph, fixed: np.ndarray) -> np.ndarray:
    """Co-location groups, int32[V] (-1 for none): what is known before the run stays with its consumer if it has exactly one."""
    consumers = np.bincount(graph.edges[:, 0], minlength=graph.n_nodes)
    leader = np.arange(graph.n_nodes)
    only = fixed & (consumers == 1)
    joins = only[graph.edges[:, 0]]
    leader[graph.edges[joins, 0]] = graph.edges[joins, 1]
    while (leader[leader] != leader).any():
        leader = leader[leader]
    inside = np.bincount(leader, minlength=graph.n_nodes)[leader] > 1
    groups = np.full(graph.n_nodes, -1, dtype=np.int32)
    groups[inside] = np.unique(leader[inside], return_inverse=True)[1]
    return groups
