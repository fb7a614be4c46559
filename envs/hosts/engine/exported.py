"""Exported programs as code of the engine, and the inputs that they are measured with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.export import ExportedProgram
from torch.export.passes import move_to_device_pass

from envs.graphs.exported.graph import PlaceableProgram
from envs.hosts.engine.kernels import Kernel
from envs.problem.errors import InputError


class ExportedCode:
    """The fragments of a program that `torch.export` gave. See `envs.hosts.engine.program.Code`."""

    by_reference = True

    def __init__(self, program: PlaceableProgram, inputs: list[Tensor], archive: ExportedProgram | None = None) -> None:
        self.program, self.returned, self.operands = program, program.returned, program.operands
        self.given, self.values = inputs, program.leaf_values(inputs)
        self.archive = archive
        """The program before it was taken apart, if it is to be run whole too."""
        self._whole: dict[torch.device, Callable[..., Any]] = {}

    def whole(self, where: torch.device) -> Callable[..., Any]:
        """A function of flat inputs that runs the program as torch would itself, on one device."""
        if where not in self._whole:
            if self.archive is None:
                raise InputError(f"program {self.program.calls.name!r} was not kept whole")
            archive = self.archive if where.type == "cpu" else move_to_device_pass(self.archive, where)
            module, spec = archive.module(), archive.call_spec.in_spec

            def run(*flat: Tensor) -> Any:
                arguments, keywords = torch.utils._pytree.tree_unflatten(self.program.all_inputs(list(flat)), spec)
                return module(*arguments, **keywords)

            self._whole[where] = run
        return self._whole[where]

    def feed(self, inputs: list[Tensor]) -> list[int]:
        """Other inputs from now on; returns the nodes whose data has changed."""
        old, self.given, self.values = self.values, inputs, self.program.leaf_values(inputs)
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
