"""A placement of a program as accelerate's ``device_map``: a device for whole modules. What no such map can say is refused.

accelerate moves what a module of the map reads to the module's device. Operations between the modules of the map run where their operands
are, so the map expresses a placement only if that is where they were placed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from torch import fx

from envs.graphs.exported.graph import PlaceableProgram
from envs.problem.errors import InputError


def device_map(program: PlaceableProgram, placement: Mapping[str, str]) -> dict[str, int | str]:
    """Modules by their names to ``cpu`` or the number of a CUDA device; as few of them as can be.

    Args:
        program: the program that was placed.
        placement: the device of every node that is no input, by the nodes' names.

    Raises:
        InputError: if a layer is divided, an operation between layers reads from two devices, or the CPU's cores are told apart.
    """
    where = {n: placement[f.name] for f in program.fragments.list for n in f.calls if program.fragments.home.get(n) is not None}
    _one_cpu(set(where.values()))
    weights = list(program.calls.program.state_dict)
    modules = _Modules(where, weights)
    chosen: dict[str, str] = {}
    modules.choose("", chosen)
    _check_between(program, where, chosen)
    return {name: "cpu" if device.startswith("cpu") else int(device.partition(":")[2]) for name, device in chosen.items()}


def _one_cpu(devices: Iterable[str]) -> None:
    cpus = sorted(d for d in devices if d.startswith("cpu"))
    if len(cpus) > 1:
        raise InputError(
            f"accelerate knows the CPU as one device, so it cannot express a placement on {' and '.join(cpus)}; "
            "place on CUDA devices and one group of cores"
        )


def _module(node: fx.Node) -> str:
    """The name of the innermost module that a call belongs to; empty for the program's own."""
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    return str(stack[-1][0]).partition("@")[0] if stack else ""


def _within(name: str, module: str) -> bool:
    return not module or name == module or name.startswith(f"{module}.")


class _Modules:
    """The modules of a program with the devices of what they compute."""

    def __init__(self, where: Mapping[fx.Node, str], weights: list[str]) -> None:
        self.devices: dict[str, dict[str, None]] = {}
        for node, device in where.items():
            self.devices.setdefault(_module(node), {})[device] = None
        self.owners = {w.rpartition(".")[0] for w in weights}
        self.names = {name for name in (*self.devices, *self.owners) if name}
        self.first = next(iter(where.values()))

    def choose(self, module: str, chosen: dict[str, str]) -> None:
        """Add ``module`` to the map if it is on one device, otherwise the modules in it."""
        found = {d: None for name, devices in self.devices.items() if _within(name, module) for d in devices}
        if len(found) < 2:
            chosen[module] = next(iter(found), self.first)  # nothing runs in it: anywhere
            return
        prefix = f"{module}." if module else ""
        inner = sorted({prefix + n.removeprefix(prefix).partition(".")[0] for n in self.names if n != module and _within(n, module)})
        devices = " and ".join(sorted(found))
        if not inner:
            raise InputError(f"layer {module!r} is divided between {devices}, and accelerate moves layers whole; keep it on one device")
        if module in self.owners:
            raise InputError(
                f"module {module!r} has weights of its own and is divided between {devices}, which accelerate cannot express; "
                "keep it on one device"
            )
        for name in inner:
            self.choose(name, chosen)


def _check_between(program: PlaceableProgram, where: Mapping[fx.Node, str], chosen: Mapping[str, str]) -> None:
    """Follow where accelerate would run each call."""
    real: dict[fx.Node, str | None] = {}
    for node in program.calls.calls:
        module = _module(node)
        held = next((device for name, device in chosen.items() if _within(module, name)), None)
        if held is None:
            sources = {d for n in node.all_input_nodes if (d := real.get(n)) is not None}
            if len(sources) > 1:
                raise InputError(
                    f"operation {node.name!r} between the layers reads from {' and '.join(sorted(sources))}, which accelerate does not "
                    "bring together; place it and what it reads on one device, or in one module"
                )
            held = next(iter(sources), where.get(node))
            if node in where and held != where[node]:
                raise InputError(
                    f"operation {node.name!r} between the layers would run on {held}, where what it reads is, and is placed on "
                    f"{where[node]}; place it on {held}"
                )
        real[node] = held


def described(found: Mapping[str, Any]) -> str:
    """The map in a few words, for people."""
    devices = sorted({str(d) for d in found.values()})
    return f"{len(found)} modules on {', '.join(devices)}"
