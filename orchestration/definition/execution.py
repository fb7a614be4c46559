"""How trials run, not what they compute: resources, placements a request, checkpoints, priority; for the sweep, a stage or a method."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from orchestration.definition.models import ExecutionKeys, Resources
from orchestration.specs.trial import FrozenDict


@dataclass(frozen=True)
class ExecutionSettings:
    """What is not None was given; the method's own word beats the stage's, which beats the sweep's."""

    resources: FrozenDict | None = None
    propose: int | None = None
    checkpoint_every: int | None = None
    priority: int | None = None

    def over(self, other: ExecutionSettings) -> ExecutionSettings:
        """This where it says something, else ``other``."""
        return ExecutionSettings(*(getattr(other if getattr(self, f.name) is None else self, f.name) for f in fields(self)))

    def arguments(self) -> dict[str, Any]:
        """What to pass to `Trial`, whose defaults hold for the rest."""
        given = {
            "resources": self.resources, "batch": self.propose, "checkpoint_every": self.checkpoint_every, "priority": self.priority,
        }  # fmt: skip
        return {k: v for k, v in given.items() if v is not None}


def read_execution(keys: ExecutionKeys) -> ExecutionSettings:
    """The execution keys of a section."""
    resources = None if keys.resources is None else _resources(keys.resources)
    return ExecutionSettings(resources, keys.propose, keys.checkpoint_every, keys.priority)


def _resources(given: Resources) -> FrozenDict:
    cpus, gpus = (int(n) if n.is_integer() else n for n in (given.cpu, given.gpu))
    return FrozenDict({"num_cpus": cpus, "num_gpus": gpus, "custom": given.custom})
