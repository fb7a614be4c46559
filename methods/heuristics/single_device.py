"""Everything on one device: "CPU only", "GPU only".

Operations that the device may not run go to their fastest feasible device, whole co-location groups at a time; what does not
fit its memory goes elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from envs.problem.problem import Problem
from methods.contract.fixed_list import FixedList
from methods.placing.one_go import single_device


@dataclass(frozen=True)
class SingleDeviceConfig:
    """Which device takes everything."""

    device: str | None = None
    """Name of the device; None tries every device in the network's order."""


class SingleDevice(FixedList):
    """One placement, or one per device; InputError for a device that the network does not have."""

    Config = SingleDeviceConfig
    seeded = False

    def __init__(self, *args: object) -> None:
        super().__init__(*args)
        name = self.config.device
        self._devices = range(self.problem.n_devices) if name is None else [self.problem.network.index(name)]

    @classmethod
    def wanted_evaluations(cls, config: Any, problems: Callable[[], Sequence[Problem]]) -> int | None:
        return 1 if config.device is not None else problems()[0].n_devices

    def placement(self, index: int) -> np.ndarray:
        return single_device(self.problem, self._devices[index])
