"""How trials run, as opposed to what they compute: resources, batch, checkpoints; given for the sweep, a stage or a method."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from orchestration.definition.view import View
from orchestration.trial import FrozenDict

EXECUTION_KEYS = ("resources", "batch", "checkpoint_every")
_RESOURCES = ("cpu", "gpu", "custom")


@dataclass(frozen=True)
class Execution:
    """What is not None was given; the method's own word beats the stage's, which beats the sweep's."""

    resources: FrozenDict | None = None
    batch: int | None = None
    checkpoint_every: int | None = None

    def over(self, other: Execution) -> Execution:
        """This where it says something, else ``other``."""
        return Execution(
            self.resources if self.resources is not None else other.resources,
            self.batch if self.batch is not None else other.batch,
            self.checkpoint_every if self.checkpoint_every is not None else other.checkpoint_every,
        )

    def arguments(self) -> dict[str, Any]:
        """What to pass to `Trial`, whose defaults hold for the rest."""
        return {k: v for k in EXECUTION_KEYS if (v := getattr(self, k)) is not None}


def read_execution(view: View) -> Execution:
    """The execution keys of a mapping."""
    resources, batch, every = (view.child(k) for k in EXECUTION_KEYS)
    return Execution(
        None if resources is None else _resources(resources),
        None if batch is None else batch.integer(1),
        None if every is None else every.integer(1),
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
