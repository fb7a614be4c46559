"""Devices of an OpenVINO host: what the toolkit finds, and instances of its CPU plugin with properties of their own.

OpenVINO is not started here; `register` is called where it runs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from envs.graphs.openvino_capture import first_line, import_openvino
from envs.problem.errors import InputError, nearest

PRECISIONS = ("f32", "bf16", "f16")


@dataclass(frozen=True)
class HostDevice:
    """What stands for one device of a network.

    A device with any setting is an instance of the CPU plugin of its own if it is ``CPU``, so that several can differ;
    other plugins have one instance a device, whose properties are set.
    """

    device: str = "CPU"
    """``CPU``, ``GPU``, ``GPU.1``, ``NPU``, … as `openvino.Core.available_devices` names it."""
    threads: int | None = None
    """Inference threads (CPU plugin). HETERO forgets them in a model that it splits."""
    precision: str | None = None
    """Inference precision, one of `PRECISIONS`; None leaves it to the plugin, which may take half precision by itself."""
    pin: bool | None = None
    """Whether the plugin pins its threads to cores. It cannot be told which: every pinned instance begins with the first core, so
    instances that are to work at the same time need ``pin: false``."""
    refuses: frozenset[str] = frozenset()
    """Operation types that it must not be given, in addition to those its plugin does not support."""
    properties: tuple[tuple[str, Any], ...] = ()
    """Further properties of the plugin as (name, value), handed to OpenVINO as they are."""

    @property
    def is_instance(self) -> bool:
        """Whether it is registered under a name of its own."""
        return self.device == "CPU" and bool(self.settings)

    @property
    def settings(self) -> dict[str, Any]:
        """The settings under OpenVINO's names; a CPU with any of its own runs one stream, so that a measurement is of one inference."""
        named = {"INFERENCE_NUM_THREADS": self.threads, "INFERENCE_PRECISION_HINT": self.precision, "ENABLE_CPU_PINNING": self.pin}
        own = {key: value for key, value in named.items() if value is not None}
        return {**({"NUM_STREAMS": 1} if own and self.device == "CPU" else {}), **own, **dict(self.properties)}

    @property
    def text(self) -> str:
        """For protocols and reports, e.g. ``CPU(threads=1 precision=bf16)``."""
        given = [f"{key}={getattr(self, key)}" for key in ("threads", "precision", "pin") if getattr(self, key) is not None]
        given += [f"{key}={value}" for key, value in self.properties]
        given += [f"refuses={'+'.join(sorted(self.refuses))}"] if self.refuses else []
        return f"{self.device}({' '.join(given)})" if given else self.device


def parse_devices(given: Mapping[str, Any]) -> dict[str, HostDevice]:
    """Devices of a network and what stands for each: OpenVINO's name of one, or a mapping with ``device`` and settings.

    Raises:
        InputError: for unknown settings, impossible values, or one device of a machine standing for two.
    """
    if not isinstance(given, Mapping) or not given:
        raise InputError(f"devices are {given!r}; they must map the network's devices to OpenVINO's, as {{gpu: GPU.1}}")
    devices = {str(name): _parse(str(name), value) for name, value in given.items()}
    taken: dict[str, str] = {}
    for name, device in devices.items():
        if not device.is_instance:
            if device.device in taken:
                both = f"{taken[device.device]!r} and {name!r}"
                raise InputError(f"devices {both} are both {device.device}; only CPU instances with settings may be several")
            taken[device.device] = name
    return devices


def _parse(name: str, value: Any) -> HostDevice:
    if isinstance(value, HostDevice):
        return value
    settings = {"device": value} if isinstance(value, str) else dict(value) if isinstance(value, Mapping) else {}
    known = [f.name for f in fields(HostDevice)]
    for key in settings:
        if key not in known:
            raise InputError(f"device {name!r} has an unknown setting {key!r}{nearest(str(key), known)}")
    plugin, threads, precision = settings.get("device", "CPU" if settings else None), settings.get("threads"), settings.get("precision")
    if not isinstance(plugin, str) or not re.fullmatch(r"[A-Z]+(\.\d+)?", plugin):
        raise InputError(f"device {name!r} stands for {plugin!r}; it must be one of OpenVINO's, such as CPU, GPU.1 or NPU")
    if threads is not None and (isinstance(threads, bool) or not isinstance(threads, int) or threads < 1):
        raise InputError(f"device {name!r} has threads = {threads!r}; it must be a whole number from 1")
    if precision is not None and precision not in PRECISIONS:
        raise InputError(f"device {name!r} has the precision {precision!r}; it must be one of {', '.join(PRECISIONS)}")
    refuses, properties = settings.get("refuses", ()), settings.get("properties", {})
    if isinstance(refuses, str) or not all(isinstance(t, str) for t in refuses):
        raise InputError(f"device {name!r} refuses {refuses!r}; it must be a list of operation types, as [Softmax]")
    if not isinstance(properties, Mapping):
        raise InputError(f"properties of device {name!r} are {properties!r}; they must map OpenVINO's property names to values")
    pin = settings.get("pin")
    if not (pin is None or isinstance(pin, bool)):
        raise InputError(f"device {name!r} has pin = {pin!r}; it must be true or false")
    return HostDevice(plugin, threads, precision, pin, frozenset(refuses), tuple(sorted(properties.items())))


def register(core: Any, devices: Mapping[str, HostDevice]) -> list[str]:
    """Make the devices known to an ``openvino.Core``; returns OpenVINO's name of each, in order.

    Raises:
        InputError: for a device that this machine does not have, or a property that it refuses.
    """
    library = Path(import_openvino().__file__).parent / "libs" / "libopenvino_intel_cpu_plugin.so"
    available = list(core.available_devices)
    names = []
    for i, (name, device) in enumerate(devices.items()):
        if device.device not in available and f"{device.device}.0" not in available:
            raise InputError(f"device {name!r} is {device.device}, which OpenVINO does not find here; it finds {', '.join(available)}")
        target = f"CPU_{i}" if device.is_instance else device.device
        try:
            if device.is_instance:
                core.register_plugin(str(library), target)  # a name must contain that of the plugin
            if device.settings:
                core.set_property(target, device.settings)
            if device.precision is not None:
                _check_precision(core, target, name, device.precision)
        except RuntimeError as error:
            raise InputError(f"device {name!r} ({device.text}) cannot be set up: {first_line(error)}") from None
        names.append(target)
    return names


def _check_precision(core: Any, target: str, name: str, precision: str) -> None:
    offered = {"FP32": "f32", "BF16": "bf16", "FP16": "f16"}
    has = [offered[c] for c in core.get_property(target, "OPTIMIZATION_CAPABILITIES") if c in offered]
    if precision not in has:
        raise InputError(f"device {name!r} asks for {precision}, which {target} does not run in hardware; it offers {', '.join(has)}")
