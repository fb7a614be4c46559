"""How trials run, not what they compute: resources, placements a request, checkpoints, priority; for the sweep, a stage or a method."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from orchestration.definition.view import View
from orchestration.specs.trial import FrozenDict

EXECUTION_KEYS = ("resources", "propose", "checkpoint_every", "priority")
"""``propose`` is how many placements are asked of a method at once; many methods have a setting ``batch`` of their own."""
LEAST_PRIORITY = -1_000_000
_RESOURCES = ("cpu", "gpu", "custom")


@dataclass(frozen=True)
class Execution:
    """What is not None was given; the method's own word beats the stage's, which beats the sweep's."""

    resources: FrozenDict | None = None
    propose: int | None = None
    checkpoint_every: int | None = None
    priority: int | None = None

    def over(self, other: Execution) -> Execution:
        """This where it says something, else ``other``."""
        return Execution(
            self.resources if self.resources is not None else other.resources,
            self.propose if self.propose is not None else other.propose,
            self.checkpoint_every if self.checkpoint_every is not None else other.checkpoint_every,
            self.priority if self.priority is not None else other.priority,
        )

    def arguments(self) -> dict[str, Any]:
        """What to pass to `Trial`, whose defaults hold for the rest."""
        given = {
            "resources": self.resources, "batch": self.propose, "checkpoint_every": self.checkpoint_every, "priority": self.priority,
        }  # fmt: skip
        return {k: v for k, v in given.items() if v is not None}


def read_execution(view: View) -> Execution:
    """The execution keys of a mapping."""
    resources, propose, every, priority = (view.child(k) for k in EXECUTION_KEYS)
    return Execution(
        None if resources is None else _resources(resources),
        None if propose is None else propose.integer(1),
        None if every is None else every.integer(1),
        None if priority is None else priority.integer(LEAST_PRIORITY),
    )


def _resources(view: View) -> FrozenDict | None:
    if not view.mapping(_RESOURCES, "resources"):
        return None
    values: dict[str, Any] = {"num_cpus": 1, "num_gpus": 0, "custom": {}}
    for key, name in (("cpu", "num_cpus"), ("gpu", "num_gpus")):
        child = view.child(key)
        number = None if child is None else child.number()
        if child is not None and number is not None:
            values[name] = int(number) if number.is_integer() else number
            if number > 1 and not number.is_integer():
                child.error(f"{child.path} is {number:g}; shares above 1 must be whole for Ray, so round it")
    custom = view.child("custom")
    if custom is not None and custom.mapping(None, "resources.custom"):
        for name, amount in custom.children():
            number = amount.number(0, exclusive=True)
            if number is not None and amount.check_name(name, "resource", amount.key_mark):
                values["custom"][name] = number
    return FrozenDict(values)
