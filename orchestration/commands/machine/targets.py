"""Which target the words of the command line mean."""

from __future__ import annotations

from collections.abc import Sequence

from orchestration.commands.machine.target import Target, input_shapes, memory_limits, sizes
from orchestration.commands.machine.torch_target import TorchTarget


def make_target(
    model: str, on: str, memory: Sequence[str] = (), shapes: Sequence[str] = (), options: Sequence[str] = (), instances: int = 1
) -> Target:
    """The model on the devices that ``on`` names.

    Raises:
        InputError: for everything that can be known to be wrong before anything is measured.
    """
    devices = [name.strip() for name in on.split(",") if name.strip()]
    return TorchTarget(model, devices, memory_limits(memory, devices), input_shapes(shapes), sizes(options))
