"""Which target the words of the command line mean."""

from __future__ import annotations

from collections.abc import Sequence

from envs.problem.errors import InputError
from orchestration.commands.machine.openvino_target import OpenVinoTarget
from orchestration.commands.machine.target import Target, input_shapes, memory_limits, sizes
from orchestration.commands.machine.torch_target import TorchTarget


def make_target(
    model: str, on: str, memory: Sequence[str] = (), shapes: Sequence[str] = (), options: Sequence[str] = (), instances: int = 1
) -> Target:
    """The model on the devices that ``on`` names.

    Raises:
        InputError: for everything that can be known to be wrong before anything is measured.
    """
    if on == "openvino":
        if memory:
            raise InputError("--memory is for torch's devices; OpenVINO's plugins manage their own")
        return OpenVinoTarget(model, input_shapes(shapes), sizes(options), instances)
    if instances != 1:
        raise InputError("--instances is for --on openvino; torch's devices are named one by one, as --on cpu:0,cpu:1")
    devices = [name.strip() for name in on.split(",") if name.strip()]
    return TorchTarget(model, devices, memory_limits(memory, devices), input_shapes(shapes), sizes(options))
