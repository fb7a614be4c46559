"""A cost model given as a table: seconds of every operation on every device, by name. How tables are measured is not known here."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from envs.problem.errors import InputError
from envs.problem.graph import ComputationGraph, digest, frozen
from envs.problem.network import DeviceNetwork


@dataclass(frozen=True, eq=False)
class TableCosts:
    """Times looked up by the names of operation and device.

    Raises:
        InputError: for a wrong shape; when used, for a name that the table lacks. Negative and NaN times are reported
            by the `Problem` that uses the table.
    """

    nodes: tuple[str, ...]
    """Names of the operations, V, in the order of the rows of ``seconds``."""
    devices: tuple[str, ...]
    """Names of the devices, D, in the order of the columns of ``seconds``."""
    seconds: np.ndarray
    """Seconds of each operation on each device, float64[V, D]."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "seconds", frozen(self.seconds, np.float64))
        shape = (len(self.nodes), len(self.devices))
        if self.seconds.shape != shape:
            raise InputError(f"table of costs has shape {self.seconds.shape}; {shape[0]} nodes and {shape[1]} devices need {shape}")

    @cached_property
    def content_hash(self) -> str:
        """sha256 of names and times."""
        return digest("table", self.nodes, self.devices, self.seconds)

    def compute_seconds(self, graph: ComputationGraph, network: DeviceNetwork) -> np.ndarray:
        """The table's times in the order of ``graph`` and ``network``, float64[V, D]."""
        if self.nodes == graph.names and self.devices == network.names:
            return self.seconds
        rows = _positions("node", graph.names, self.nodes)
        return self.seconds[np.ix_(rows, _positions("device", network.names, self.devices))]


def _positions(what: str, wanted: tuple[str, ...], given: tuple[str, ...]) -> list[int]:
    position = {name: i for i, name in enumerate(given)}
    missing = next((name for name in wanted if name not in position), None)
    if missing is not None:
        raise InputError(f"table of costs has no {what} {missing!r}; add its times")
    return [position[name] for name in wanted]
