"""Exported programs as code of the engine, and the inputs that they are measured with."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from envs.graphs.exported.graph import PlaceableProgram
from envs.hosts.engine.kernels import Kernel


class ExportedCode:
    """The fragments of a program that `torch.export` gave. See `envs.hosts.engine.program.Code`."""

    by_reference = True

    def __init__(self, program: PlaceableProgram, inputs: list[Tensor]) -> None:
        self.program, self.returned, self.operands = program, program.returned, program.operands
        self.values = program.leaf_values(inputs)

    def feed(self, inputs: list[Tensor]) -> list[int]:
        """Other inputs from now on; returns the nodes whose data has changed."""
        old, self.values = self.values, self.program.leaf_values(inputs)
        return [i for i, (a, b) in enumerate(zip(old, self.values, strict=True)) if a is not b]

    def kernel(self, node: int, where: torch.device) -> Kernel:
        """See `envs.hosts.engine.program.Code`."""
        return self.program.kernel(node, where)

    def leaf(self, node: int) -> Tensor:
        """See `envs.hosts.engine.program.Code`."""
        return self.values[node]


def example_inputs(program: PlaceableProgram, seed: int) -> list[Tensor]:
    """Inputs to measure with: numbers are drawn from ``seed``, or of the example that the program was exported with if they are whole."""
    given = program.calls.program.example_inputs
    flat = [x for x in torch.utils._pytree.tree_leaves(given) if isinstance(x, Tensor)] if given is not None else []
    made = []
    for i, node in enumerate(program.calls.inputs):
        like = node.meta["val"]
        if like.is_floating_point():
            generator = torch.Generator().manual_seed(int(np.random.SeedSequence((seed, i)).generate_state(1)[0]))
            made.append(torch.randn(tuple(like.shape), generator=generator).to(like.dtype))
        elif len(flat) == len(program.calls.inputs):
            made.append(flat[i])
        else:
            made.append(torch.ones(tuple(like.shape), dtype=like.dtype))
    return made
