"""An OpenVINO model ready to be placed: its operations by node, inputs, and the results of the unplaced model. Runs nothing placed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from envs.graphs import openvino_capture
from envs.problem.graph import ComputationGraph
from envs.problem.op_arithmetic import executed, folded


@dataclass(frozen=True)
class Agreement:
    """How far outputs are from the unplaced model's (Table 4 of HSDAG), over all outputs together."""

    mse: float
    cosine: float
    l2: float
    """Euclidean distance over the elements of all outputs together."""
    relative: float
    """That distance over the norm of the right outputs."""


def agreement(found: Sequence[np.ndarray], right: Sequence[np.ndarray]) -> Agreement:
    """Compare the outputs of two runs on the same inputs; NaN where only one is NaN makes everything NaN."""
    a, b = (np.concatenate([np.ravel(x).astype(np.float64) for x in outputs]) for outputs in (found, right))
    same = np.isnan(a) & np.isnan(b)
    a, b = np.where(same, 0.0, a), np.where(same, 0.0, b)
    l2, norms = float(np.linalg.norm(a - b)), (float(np.linalg.norm(a)), float(np.linalg.norm(b)))
    product = norms[0] * norms[1]
    cosine = float(a @ b) / product if product > 0 else float(l2 == 0)
    return Agreement(float(np.mean((a - b) ** 2)), cosine, l2, l2 / norms[1] if norms[1] > 0 else l2)


class PreparedModel:
    """The model of a graph.

    Args:
        core: an ``openvino.Core``.
        path: its IR file.
        shapes: concrete input shapes (see `envs.graphs.openvino_capture.concrete`).
        graph: the graph, whose nodes are the layers of the file in order.
        seed: what float inputs are drawn from; whole-number inputs (tokens, masks) are ones.
    """

    def __init__(self, core: Any, path: Path, shapes: openvino_capture.InputShapes | None, graph: ComputationGraph, seed: int) -> None:
        self.core, self.graph = core, graph
        self.model = openvino_capture.read_model(path)
        openvino_capture.concrete(self.model, shapes, graph.name)
        layers, _, _ = openvino_capture.parse_ir(path)
        self.layers = [layer.name for layer in layers]
        self.kinds = np.asarray(graph.op_types)
        rng = np.random.default_rng(seed)
        self.inputs = [_input(p, rng) for p in self.model.get_parameters()]

    @cached_property
    def expected(self) -> list[np.ndarray]:
        """Outputs of the unplaced model in float32 on the CPU."""
        compiled = self.core.compile_model(self.model.clone(), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
        request = compiled.create_infer_request()
        request.infer(self.inputs)
        return [request.get_output_tensor(i).data.copy() for i in range(len(compiled.outputs))]

    @cached_property
    def runs(self) -> np.ndarray:
        """`executed` operations, bool[V]."""
        return executed(self.graph)

    def unsupported(self, device: str) -> np.ndarray:
        """Which operations a device's plugin says it cannot run, bool[V]; what is folded beforehand runs anywhere."""
        supported = set(self.core.query_model(self.model, device))
        return ~np.array([name in supported for name in self.layers]) & ~folded(self.graph)

    def settled(self, placement: np.ndarray) -> np.ndarray:
        """Where operations really run, int16[V]: weights and inputs of the model where they are read, if that is one device.

        A runtime puts them there whatever the placement says; results of the model stay with what computes them.
        """
        graph, device = self.graph, np.array(placement, dtype=np.int16)
        types = np.asarray(graph.op_types)
        source, target = graph.edges[:, 0], graph.edges[:, 1]
        last = types[target] == "Result"
        device[target[last]] = device[source[last]]
        follows = folded(graph) | (types == "Parameter")
        pointer, ids = graph.out_edges
        for node in graph.topological_order[::-1][follows[graph.topological_order[::-1]]].tolist():
            readers = device[target[ids[pointer[node] : pointer[node + 1]]]]
            if readers.size and (readers == readers[0]).all():
                device[node] = readers[0]
        return device


def _input(parameter: Any, rng: np.random.Generator) -> np.ndarray:
    shape, dtype = tuple(parameter.get_output_shape(0)), parameter.get_output_element_type(0).to_dtype()
    if np.issubdtype(dtype, np.floating):
        return rng.standard_normal(shape).astype(dtype)
    return np.ones(shape, dtype=dtype)
