"""From what `torch.export` gives to calls without side effects, with everything known beforehand computed. No nodes of graphs here."""

from __future__ import annotations

import operator
import warnings
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind

from envs.graphs.exported.recurrent import Lstm
from envs.graphs.openvino_capture import first_line
from envs.problem.errors import InputError

_RECURRENT = ("lstm", "gru", "rnn_tanh", "rnn_relu")
"""Operations over whole sequences, which are taken apart into their steps: layers can then work on different steps at a time."""
_HELD = (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR)


@dataclass(frozen=True)
class Calls:
    """A program in which nothing is changed in place.

    Raises:
        InputError: by `functional`, which makes it.
    """

    name: str
    program: ExportedProgram
    inputs: tuple[fx.Node, ...]
    """What the caller gives, tensors only, flat and in order."""
    constants: dict[fx.Node, Any]
    """Weights, buffers, and all that depends on them alone."""
    labels: dict[fx.Node, str]
    """Names of the weights and buffers in the module."""
    calls: tuple[fx.Node, ...]
    """What is left to compute, in order."""
    outputs: tuple[Any, ...]
    """Flat: nodes, or plain values."""


def functional(program: ExportedProgram, name: str) -> Calls:
    """The program as calls of ATen operations whose results nobody changes later.

    Raises:
        InputError: for dynamic shapes, random numbers, control flow that depends on data, and modules that change their own buffers.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        table = {op: rule for op, rule in torch.export.default_decompositions().items() if op._schema.name.split("::")[1] in _RECURRENT}
        try:
            whole = torch.ops.aten.lstm.input
            program = program.run_decompositions({**table, whole: Lstm(table[whole])})
        except Exception as error:  # whatever a decomposition raises
            raise InputError(f"program {name!r} cannot be taken apart into operations: {first_line(error)}") from None
    graph = program.graph
    for node in reversed(graph.nodes):
        if "_assert" in str(node.target) and not node.users:
            graph.erase_node(node)
    graph.eliminate_dead_code()
    _check(program, name)
    inputs, constants, labels = _entries(program, name)
    with torch.inference_mode():
        _fold(graph, constants)
    calls = tuple(n for n in graph.nodes if n.op == "call_function" and n not in constants)
    return Calls(name, program, inputs, constants, labels, calls, tuple(graph.output_node().args[0]))  # type: ignore[arg-type]


def _check(program: ExportedProgram, name: str) -> None:
    for spec in program.graph_signature.output_specs:
        if spec.kind != OutputKind.USER_OUTPUT:
            raise InputError(f"program {name!r} changes {spec.target!r} when it runs; return the new value instead, so that runs are alike")
    for node in program.graph.nodes:
        if node.op not in ("placeholder", "call_function", "output"):
            raise InputError(f"program {name!r} has control flow that depends on data ({node.name}), which cannot be placed; take it out")
        values = torch.utils._pytree.tree_leaves(node.meta.get("val"))
        sizes = [s for v in values for s in (v.shape if isinstance(v, Tensor) else [v])]
        if any(isinstance(s, torch.SymInt | torch.SymFloat | torch.SymBool) for s in sizes):
            raise InputError(
                f"program {name!r} has dynamic shapes ({node.name}: {' x '.join(map(str, sizes))}); "
                "give concrete ones, as --input-shape NAME=1,3,224,224"
            )
        if node.op == "call_function" and node.target is not operator.getitem:
            if not isinstance(node.target, torch._ops.OpOverload):
                raise InputError(f"program {name!r} calls {node.target}, which is no tensor operation that can be placed")
            if torch.Tag.nondeterministic_seeded in node.target.tags and not _without_dropout(node):
                raise InputError(f"program {name!r} draws random numbers ({node.target}); export it in evaluation mode")


def _without_dropout(node: fx.Node) -> bool:
    """Whether an operation that could draw random numbers does not, because it drops nothing out."""
    names = [a.name for a in node.target._schema.arguments]  # type: ignore[union-attr]
    given = {**dict(zip(names, node.args, strict=False)), **node.kwargs}
    given = {a.name: given.get(a.name, a.default_value) for a in node.target._schema.arguments}  # type: ignore[union-attr]
    return given.get("train") is False or given.get("dropout_p") == 0.0


def _entries(program: ExportedProgram, name: str) -> tuple[tuple[fx.Node, ...], dict[fx.Node, Any], dict[fx.Node, str]]:
    nodes = {n.name: n for n in program.graph.nodes if n.op == "placeholder"}
    inputs, constants, labels = [], {}, {}
    for spec in program.graph_signature.input_specs:
        node = nodes[spec.arg.name]
        if spec.kind == InputKind.USER_INPUT:
            if isinstance(node.meta.get("val"), Tensor):
                inputs.append(node)
            else:
                constants[node] = node.meta.get("val")
        elif spec.kind in _HELD and spec.target is not None:
            value = program.state_dict.get(spec.target, program.constants.get(spec.target))
            constants[node] = value.detach() if isinstance(value, Tensor) else value
            labels[node] = spec.target
        else:
            raise InputError(f"program {name!r} reads {spec.arg.name!r}, which is no tensor; give the module tensors only")
    return tuple(inputs), constants, labels


def _fold(graph: fx.Graph, constants: dict[fx.Node, Any]) -> None:
    """Compute what depends on constants alone: ranges, masks, views of weights."""
    for node in graph.nodes:
        if node.op == "call_function" and all(n in constants for n in node.all_input_nodes):
            args, kwargs = fx.node.map_arg((node.args, node.kwargs), lambda n: constants[n])
            constants[node] = node.target(*args, **kwargs)  # type: ignore[operator]
