"""A placed program as something to call: what ``placewright export`` leaves for torch, loaded and run in any process.

The folder holds ``program.pt2`` and ``placed.json`` (devices, and a device for every node). Nothing is measured here.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from envs.graphs.exported.graph import PlaceableProgram
from envs.graphs.exported.sources import load_program
from envs.hosts.engine.devices import inference, parse_devices
from envs.hosts.engine.executor import Executor
from envs.hosts.engine.exported import ExportedCode, example_inputs
from envs.hosts.engine.program import Program
from envs.problem.errors import InputError
from envs.problem.measurement import Outcome
from envs.problem.network import DeviceNetwork
from envs.problem.problem import Problem
from envs.simulators.work_conserving.discipline import Discipline

FORMAT = "placewright-placed/1"


class PlacedModule:
    """Calls the program with its operations where they were placed; arguments and result are the module's.

    Args:
        program: the ``.pt2`` file.
        devices: by name, as ``cpu:0`` or ``cuda:1``.
        placement: the device of every node that is no input, by the nodes' names.
        name: of the program.
        strategy: which of several ready operations runs first (`envs.simulators.work_conserving.discipline.Discipline`).

    Raises:
        InputError: for devices that this machine does not have, or a placement of another program.
    """

    def __init__(self, program: Path, devices: tuple[str, ...], placement: dict[str, str], name: str, strategy: str) -> None:
        placeable = PlaceableProgram.of(load_program(str(program))[0], name)
        graph = placeable.graph
        unknown = [n for n in placement if n not in graph.names] + [d for d in placement.values() if d not in devices]
        missing = [n for i, n in enumerate(graph.names) if n not in placement and placeable.operands[i]]
        if unknown or missing:
            raise InputError(
                f"the placement does not fit program {name!r}: it {'names' if unknown else 'lacks'} {(unknown or missing)[0]!r}"
            )
        self.placement = np.array([devices.index(placement.get(n, devices[0])) for n in graph.names], dtype=np.int16)
        self._executor = Executor(parse_devices(devices), Discipline(strategy), emulate_links=False)
        self._code = ExportedCode(placeable, example_inputs(placeable, 0))
        network = DeviceNetwork(devices, np.array(1.0), np.array(np.inf), np.array(0.0))
        self._program = Program(Problem(graph, network), self._executor.devices, self._code)
        self._placeable, self._spec = placeable, placeable.calls.program.call_spec

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """One inference; one at a time.

        Raises:
            InputError: for arguments of another structure or shape than the program was exported with.
            RuntimeError: whatever an operation raises.
        """
        flat, spec = torch.utils._pytree.tree_flatten((args, kwargs))
        tensors = [x for x in flat if isinstance(x, Tensor)]
        self._check(tensors, spec)
        with inference():
            self._program.forget(self._code.feed(tensors))
            run = self._executor.run(self._program, self.placement)
        if run.outcome != Outcome.OK:
            raise RuntimeError(run.note)
        results = {v: tuple(x.to("cpu") if isinstance(x, Tensor) else x for x in values) for v, values in run.outputs.items()}
        with inference():
            outputs = self._placeable.outputs(results, tensors)
        return torch.utils._pytree.tree_unflatten(outputs, self._spec.out_spec)

    def _check(self, tensors: list[Tensor], spec: Any) -> None:
        wanted = self._placeable.calls.inputs
        if spec != self._spec.in_spec or len(tensors) != len(wanted):
            raise InputError(
                f"the program takes {self._spec.in_spec.num_leaves} inputs in the structure that it was exported with, not these"
            )
        for given, node in zip(tensors, wanted, strict=True):
            like = node.meta["val"]
            if tuple(given.shape) != tuple(like.shape) or given.dtype != like.dtype:
                raise InputError(
                    f"input {node.name!r} is {given.dtype} of shape {tuple(given.shape)}; the program was placed for {like.dtype} of "
                    f"{tuple(like.shape)}"
                )

    def close(self) -> None:
        """End the threads that run its devices."""
        self._executor.close()


def load(folder: Path, about: Mapping[str, Any]) -> PlacedModule:
    """The callable of a folder that ``placewright export`` wrote for torch, for what its ``placed.json`` says."""
    return PlacedModule(folder / "program.pt2", tuple(about["devices"]), about["placement"], about["name"], about["strategy"])
