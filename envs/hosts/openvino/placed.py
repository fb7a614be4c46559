"""A placed OpenVINO model as something to call: what ``placewright export`` leaves for OpenVINO, loaded and run in any process.

The folder holds ``model.xml`` with its ``model.bin`` and ``placed.json`` (devices, and a device for every layer). Pieces on different
devices overlap, which HETERO does not do; ``hetero.py`` in the folder runs the same affinities by HETERO alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from envs.graphs import openvino_capture
from envs.hosts.openvino.devices import parse_devices, register
from envs.hosts.openvino.execution import Overlapped
from envs.hosts.openvino.model import PreparedModel
from envs.problem.errors import InputError


class PlacedModel:
    """Calls the model with its layers where they were placed.

    Args:
        path: the IR file.
        devices: what stands for each name (`envs.hosts.openvino.devices.parse_devices`).
        placement: the device of every layer, by the layers' names.
        shapes: concrete input shapes, where the model's are dynamic.
        name: of the model.

    Raises:
        InputError: for devices that this machine does not have, a placement of another model, or one that does not compile.
    """

    def __init__(self, path: Path, devices: Mapping[str, Any], placement: Mapping[str, str], shapes: Any, name: str) -> None:
        core, known = openvino_capture.import_openvino().Core(), parse_devices(devices)
        graph = openvino_capture.graph_of_ir(path, shapes, name)
        unknown = [n for n in placement if n not in graph.names] + [d for d in placement.values() if d not in known]
        missing = [n for n in graph.names if n not in placement]
        if unknown or missing:
            raise InputError(f"the placement does not fit model {name!r}: it {'names' if unknown else 'lacks'} {(unknown or missing)[0]!r}")
        prepared = PreparedModel(core, path, shapes, graph, 0)
        where = np.array([list(known).index(placement[n]) for n in graph.names], dtype=np.int16)
        self.inputs = [
            (p.get_friendly_name(), tuple(x.shape), x.dtype) for p, x in zip(prepared.model.get_parameters(), prepared.inputs, strict=True)
        ]
        """Name, shape and type of each input, in order."""
        try:
            self._executable = Overlapped(prepared, prepared.settled(where), register(core, known))
        except RuntimeError as error:
            raise InputError(f"the placement of {name!r} does not compile here: {openvino_capture.first_line(error)}") from None

    def __call__(self, *inputs: np.ndarray) -> list[np.ndarray]:
        """One inference: the model's inputs in order, its outputs in order.

        Raises:
            InputError: for inputs of another number or shape.
        """
        if len(inputs) != len(self.inputs):
            raise InputError(f"the model takes {len(self.inputs)} inputs ({', '.join(n for n, _, _ in self.inputs)}), not {len(inputs)}")
        for given, (name, shape, _) in zip(inputs, self.inputs, strict=True):
            if np.shape(given) != shape:
                raise InputError(f"input {name!r} has shape {np.shape(given)}; the model was placed for {shape}")
        self._executable.feed([np.asarray(x, dtype=t) for x, (_, _, t) in zip(inputs, self.inputs, strict=True)])
        self._executable.run()
        return self._executable.outputs()

    def close(self) -> None:
        """End the threads that run its pieces."""
        self._executable.close()


def load(folder: Path, about: Mapping[str, Any]) -> PlacedModel:
    """The callable of a folder that ``placewright export`` wrote for OpenVINO, for what its ``placed.json`` says."""
    return PlacedModel(folder / "model.xml", about["devices"], about["placement"], about["input_shapes"], about["name"])
