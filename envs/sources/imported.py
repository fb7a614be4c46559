"""What is read from another tool's file, whatever its format. How formats are read does not belong here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from envs.problem.cost_model import CostModel
from envs.problem.graph import ComputationGraph
from envs.problem.network import DeviceNetwork


@dataclass(frozen=True)
class Imported:
    """A graph, and as much of a problem as the file tells."""

    format: str
    """Name and version of the format."""
    graph: ComputationGraph
    seconds: Mapping[str, float]
    """Sum of all operations' seconds as the file gives them, by what they ran on; empty if the file knows work only."""
    network: DeviceNetwork | None
    """The devices of the file, if it has any."""
    costs: CostModel
    """Of the graph on that network."""
    objective: str = "makespan"
    """What the file is about."""
