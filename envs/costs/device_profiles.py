"""A cost model from measurement alone: the times of every operation on each device, as that device's own profile gives them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from envs.costs.operation_times import graph_signature
from envs.problem.errors import InputError
from envs.problem.graph import ComputationGraph, digest
from envs.problem.network import DeviceNetwork

if TYPE_CHECKING:
    from envs.costs.operation_times import OperationTimes


@dataclass(frozen=True)
class DeviceProfiles:
    """One table of operation times (`envs.hosts.openvino.profiling.profile_model`) for each device of a network.

    Raises:
        InputError: without a table; when used, for a device without one, or a table of another graph.
    """

    times: Mapping[str, OperationTimes] = field(hash=False)
    """Measured times of operations, seconds, by the name of the device that they were measured on."""

    def __post_init__(self) -> None:
        if not self.times:
            raise InputError("device profiles are empty; give one for each device of the network")

    @cached_property
    def content_hash(self) -> str:
        """sha256 of all tables."""
        return digest("device-profiles", tuple((name, self.times[name].content_hash) for name in sorted(self.times)))

    def compute_seconds(self, graph: ComputationGraph, network: DeviceNetwork) -> np.ndarray:
        """Seconds of every operation on every device, float64[V, D]."""
        missing = [name for name in network.names if name not in self.times]
        if missing:
            raise InputError(f"device {missing[0]!r} of network {network.name!r} has no profile; there are {', '.join(sorted(self.times))}")
        signature = graph_signature(graph)
        for name in network.names:
            if self.times[name].signature != signature:
                measured = dict(self.times[name].about).get("model", "another model")
                raise InputError(
                    f"the profile of device {name!r} was measured on {measured!r}, not on graph {graph.name!r} with its shapes"
                )
        return np.stack([self.times[name].seconds for name in network.names], axis=1)
