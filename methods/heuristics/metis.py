"""METIS: graph partitioning balanced by work, cut by bytes (Karypis and Kumar 1998), through pymetis.

One part a device, its target weight the device's share of the total throughput. METIS sees an undirected graph and no time, so
it is tried with several seeds and orders of the devices: the first run takes the network's order, later ones a random one.
Infeasible devices and overflowing memories are repaired: see `methods.placing.one_go.partition`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from envs.problem.errors import InputError
from envs.problem.problem import Problem
from envs.problem.ranges import Count
from methods.contract.fixed_list import FixedList
from methods.placing.one_go import partition


@dataclass(frozen=True)
class MetisConfig:
    """How often to partition."""

    runs: Count = 16
    """Partitions to try, each with its own seed and order of devices."""

    def __post_init__(self) -> None:
        if self.runs < 1:
            raise InputError(f"setting 'runs' is {self.runs}; metis needs at least one run")


class Metis(FixedList):
    """``runs`` partitions, the first in the network's order of devices, later ones in random orders."""

    Config = MetisConfig

    @classmethod
    def wanted_evaluations(cls, config: Any, problems: Callable[[], Sequence[Problem]]) -> int | None:
        return int(config.runs)

    def placement(self, index: int) -> np.ndarray:
        rng, d = self.random(index), self.problem.n_devices
        devices = np.arange(d) if index == 0 else rng.permutation(d)
        return partition(self.problem, devices, int(rng.integers(2**31)))
