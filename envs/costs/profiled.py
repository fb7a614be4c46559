"""Costs from a table of measured operations, scaled to devices that were not measured."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from envs.costs.operation_times import graph_signature
from envs.costs.roofline import RooflineCosts
from envs.problem.errors import InputError
from envs.problem.graph import ComputationGraph, digest
from envs.problem.network import DeviceNetwork

if TYPE_CHECKING:
    from envs.costs.operation_times import OperationTimes


@dataclass(frozen=True)
class ProfiledCosts:
    """Times measured on one CPU, scaled to each device by the ratio of roofline times, plus the device's launch overhead.

    ``seconds[v, d] = measured[v] x roofline[v, d] / roofline[v, measured CPU] + launch overhead[d]``: arithmetic scales with
    speed x efficiency, memory-bound work with memory bandwidth. What took no measurable time costs nothing anywhere.

    Raises:
        InputError: if the table was measured on another graph than the one to be costed.
    """

    times: OperationTimes
    reference_speed: float | None = None
    """Peak FLOP/s of the measured CPU; None takes the speed at which its roofline arithmetic takes as long as was measured."""
    reference_memory_bandwidth: float = 1.5e10
    """Memory bandwidth of the measured CPU (one thread), bytes/s."""
    reference_kind: str = "cpu"
    roofline: RooflineCosts = field(default_factory=RooflineCosts)

    def __post_init__(self) -> None:
        for key in ("reference_speed", "reference_memory_bandwidth"):
            value = getattr(self, key)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf")):
                raise InputError(f"profiled costs have {key} = {value!r}; it must be a positive number")

    @cached_property
    def content_hash(self) -> str:
        """sha256 of the measured table, the reference device and the efficiencies."""
        reference = (self.reference_speed, self.reference_memory_bandwidth, self.reference_kind)
        return digest("profiled", self.times.content_hash, *reference, self.roofline.content_hash)

    def reference(self, graph: ComputationGraph) -> DeviceNetwork:
        """The measured CPU as a network of one device."""
        speed = self.reference_speed
        if speed is None:
            total = float(self.times.seconds.sum())
            needed = float((graph.flops / self.roofline.efficiencies(graph.op_types, (self.reference_kind,))[:, 0]).sum())
            speed = needed / total if total > 0 and needed > 0 else 1e11
        return DeviceNetwork(
            names=("measured",),
            speed=np.array([speed]),
            bandwidth=np.array([[np.inf]]),
            delay=np.zeros((1, 1)),
            memory_bandwidth=np.array([self.reference_memory_bandwidth]),
            kinds=(self.reference_kind,),
            name="measured",
        )

    def compute_seconds(self, graph: ComputationGraph, network: DeviceNetwork) -> np.ndarray:

        if graph_signature(graph) != self.times.signature:
            measured = dict(self.times.about).get("model", "another model")
            raise InputError(
                f"the operation times were measured on {measured!r} ({len(self.times.names)} operations), not on graph {graph.name!r} "
                f"({graph.n_nodes} operations) with its shapes; profile that one"
            )
        reference = self.reference(graph)
        here = self.roofline.busy_seconds(graph, reference)
        there = self.roofline.busy_seconds(graph, network)
        plain = np.broadcast_to(reference.speed[0] / network.speed[None, :], there.shape)
        ratio = np.divide(there, here, out=plain.copy(), where=here > 0)
        seconds = self.times.seconds[:, None]
        return np.where(seconds > 0, seconds * ratio + network.launch_overhead[None, :], 0.0)
