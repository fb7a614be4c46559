"""The computation graph of an exported program, and how its nodes read each other. The program itself is in `fragments`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor, fx
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind

from envs.graphs.exported.fragments import Fragments, Kernel, compiled, size_of
from envs.graphs.exported.functional import Calls, functional
from envs.graphs.training_capture import bytes_of
from envs.problem.graph import ComputationGraph


@dataclass(frozen=True, eq=False)
class PlaceableProgram:
    """A program whose nodes can run anywhere: first its leaves (inputs, and weights that several fragments read), then the fragments."""

    calls: Calls
    fragments: Fragments

    @classmethod
    def of(cls, program: ExportedProgram, name: str) -> PlaceableProgram:
        """Take ``program`` apart.

        Raises:
            InputError: see `envs.graphs.exported.functional.functional`.
        """
        calls = functional(program, name)
        return cls(calls, Fragments(calls))

    @cached_property
    def leaves(self) -> list[fx.Node]:
        """Inputs that are read, then weights that more than one fragment reads; those are in memory once a device, not once a reader."""
        readers: dict[fx.Node, int] = {}
        for fragment in self.fragments.list:
            for n in (*fragment.inputs, *fragment.constants):
                readers[n] = readers.get(n, 0) + 1
        shared = [n for n, count in readers.items() if count > 1 and isinstance(self.calls.constants.get(n), Tensor)]
        return [n for n in self.calls.inputs if n in readers] + shared

    @cached_property
    def shared(self) -> frozenset[fx.Node]:
        """Weights that are leaves."""
        return frozenset(n for n in self.leaves if n in self.calls.constants)

    @cached_property
    def graph(self) -> ComputationGraph:
        """Op types are ATen's (``aten.convolution`` for a fragment that begins with one), sizes those of what others read."""
        leaves, fragments = self.leaves, self.fragments.list
        first = len(leaves)
        position = {n: i for i, n in enumerate(leaves)}
        edges, carried = [], []
        for i, fragment in enumerate(fragments):
            for u in self._leaves_of(i):
                edges.append((position[u], first + i))
                carried.append(self._leaf_bytes(u))
            for producer, nodes in fragment.reads.items():
                edges.append((first + producer, first + i))
                carried.append(size_of(nodes))
        taken = {n.name for n in self.calls.inputs} | {f.name for f in fragments}
        labels = [n.name if self.calls.labels.get(n, n.name) in taken else self.calls.labels.get(n, n.name) for n in leaves]
        names = labels + [f.name for f in fragments]
        shapes = [tuple(self._leaf(n).shape) for n in leaves] + [_shape(f.results or f.calls[-1:]) for f in fragments]
        own = [sum(bytes_of(self.calls.constants[n]) for n in f.constants if n not in self.shared) for f in fragments]
        types = ["Constant" if n in self.shared else "Parameter" for n in leaves] + [f.kind for f in fragments]
        return ComputationGraph(
            names=tuple(names), op_types=tuple(types),
            flops=np.array([0.0] * first + [f.flops for f in fragments]),
            output_bytes=np.array([self._leaf_bytes(n) for n in leaves] + [size_of(f.results) for f in fragments]),
            edges=np.array(edges, dtype=np.int64).reshape(-1, 2), edge_bytes=np.array(carried, dtype=np.float64),
            parameter_bytes=np.array([0.0] * first + own), output_shapes=tuple(shapes), name=self.calls.name,
        )  # fmt: skip

    def _leaf(self, node: fx.Node) -> Tensor:
        return self.calls.constants[node] if node in self.shared else node.meta["val"]

    def _leaf_bytes(self, node: fx.Node) -> float:
        return bytes_of(self._leaf(node))

    def _leaves_of(self, fragment: int) -> list[fx.Node]:
        f = self.fragments.list[fragment]
        return [*f.inputs, *(n for n in f.constants if n in self.shared)]

    @cached_property
    def operands(self) -> list[list[int]]:
        """The nodes that each node reads, in the order in which its kernel takes them."""
        position, first = {n: i for i, n in enumerate(self.leaves)}, len(self.leaves)
        read = [[*(position[n] for n in self._leaves_of(i)), *(first + p for p in f.reads)] for i, f in enumerate(self.fragments.list)]
        return [[] for _ in range(first)] + read

    def kernel(self, node: int, where: torch.device) -> Kernel:
        """What computes a node that is no leaf, from tensors on one device; the node's own weights are moved there once."""
        return compiled(self.fragments.list[node - len(self.leaves)], self.calls.constants, self.shared, where)

    def all_inputs(self, tensors: list[Tensor]) -> list[Any]:
        """Everything that the program takes, flat: ``tensors``, and elsewhere the values that it was exported with."""
        given = iter(tensors)
        specs = (s for s in self.calls.program.graph_signature.input_specs if s.kind == InputKind.USER_INPUT)
        nodes = {n.name: n for n in self.calls.program.graph.nodes if n.op == "placeholder"}
        return [self.calls.constants[n] if (n := nodes.get(s.arg.name)) in self.calls.constants else next(given) for s in specs]

    def leaf_values(self, inputs: list[Tensor]) -> list[Tensor]:
        """The data of all leaves for flat ``inputs``, as `torch.export` orders them."""
        given = dict(zip(self.calls.inputs, inputs, strict=True))
        return [self.calls.constants[n] if n in self.shared else given[n] for n in self.leaves]

    @property
    def returned(self) -> list[int]:
        """The nodes whose results the program returns."""
        first, home = len(self.leaves), self.fragments.home
        return sorted({first + home[v] for v in self.calls.outputs if isinstance(v, fx.Node) and v in home})

    def outputs(self, results: dict[int, tuple[Any, ...]], inputs: list[Tensor]) -> list[Any]:
        """The program's outputs, flat, from the results of `returned`."""
        first, home = len(self.leaves), self.fragments.home
        known = {**self.calls.constants, **dict(zip(self.calls.inputs, inputs, strict=True))}

        def value(node: fx.Node) -> Any:
            if node in home:
                return results[first + home[node]][node.meta["position"]]
            if node not in known:  # a view of an input
                args, kwargs = fx.node.map_arg((node.args, node.kwargs), value)
                known[node] = node.target(*args, **kwargs)  # type: ignore[operator]
            return known[node]

        return [value(v) if isinstance(v, fx.Node) else v for v in self.calls.outputs]


def _shape(nodes: list[fx.Node]) -> tuple[int, ...]:
    values = torch.utils._pytree.tree_leaves([n.meta.get("val") for n in nodes])
    return next((tuple(v.shape) for v in values if isinstance(v, Tensor)), ())
