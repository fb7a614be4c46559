"""Cost models from their description."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from envs.costs.calibrated import CalibratedCosts
from envs.costs.device_profiles import DeviceProfiles
from envs.costs.operation_times import OperationTimes
from envs.costs.profiled import ProfiledCosts
from envs.costs.roofline import RooflineCosts, merged_efficiency
from envs.costs.totals import TotalCosts
from envs.hosts.openvino.profiling import profile_model
from envs.problem.cost_model import CostModel, LinearCosts
from envs.problem.errors import InputError, nearest

_SPEC_KEYS = {
    "linear": (),
    "roofline": ("efficiency",),
    "profiled": (
        "model", "options", "table", "repeats", "threads", "precision", "reference_speed", "reference_memory_bandwidth", "efficiency",
        "devices",
    ),
    "calibrated": ("seconds",),
    "totals": ("seconds", "efficiency"),
}  # fmt: skip


def make_costs(spec: str | Mapping[str, Any], model: str | None = None) -> CostModel:
    """The cost model that a sweep or a file asks for.

    ``spec`` is ``"linear"``, ``"roofline"``, ``"profiled"`` or a mapping with ``kind`` and its settings:

    - roofline: ``efficiency`` (kind of device -> operation type -> share), laid over `EFFICIENCY`;
    - totals: ``seconds`` of a whole graph on each device alone, by graph and device (`envs.costs.totals`), and ``efficiency``;
    - calibrated: ``seconds`` on one device, a number or by graph name (`envs.costs.calibrated`);
    - profiled: ``table`` (a JSON file of measured times) or ``model`` (name or file to be profiled here, once) with ``options``,
      ``repeats``, ``threads``, ``precision``; ``reference_speed``, ``reference_memory_bandwidth``, ``efficiency``; or ``devices``,
      what to profile for each device of the network (``{threads: 1, precision: bf16}`` or ``{device: GPU.1}`` by OpenVINO's name).

    ``model`` is what a profiled spec means if it names neither.

    Raises:
        InputError: for an unknown kind or key, and values that make no sense.
    """
    settings = {"kind": spec} if isinstance(spec, str) else dict(spec) if isinstance(spec, Mapping) else {}
    kind = settings.pop("kind", None)
    if kind not in _SPEC_KEYS:
        raise InputError(f"unknown cost model {kind!r}{nearest(str(kind), _SPEC_KEYS)}")
    for key in settings:
        if key not in _SPEC_KEYS[kind]:
            known = f"; {kind} costs have no settings" if not _SPEC_KEYS[kind] else nearest(str(key), _SPEC_KEYS[kind])
            raise InputError(f"unknown key {key!r} of {kind} costs{known}")
    if kind == "linear":
        return LinearCosts()
    if kind == "calibrated":
        return CalibratedCosts(settings.get("seconds"))  # type: ignore[arg-type]
    roofline = RooflineCosts(merged_efficiency(settings.pop("efficiency", {})))
    if kind == "totals":
        return TotalCosts(settings.get("seconds"), roofline)  # type: ignore[arg-type]
    return roofline if kind == "roofline" else _profiled(settings, model, roofline)


def _profiled(settings: dict[str, Any], model: str | None, roofline: RooflineCosts) -> CostModel:

    if "devices" in settings:
        return _device_profiles(settings, model)
    reference = {key: settings.pop(key) for key in ("reference_speed", "reference_memory_bandwidth") if key in settings}
    table = settings.pop("table", None)
    if table is not None:
        if settings:
            raise InputError(
                f"profiled costs have both table and {next(iter(settings))!r}; a table is already measured, so give one of them"
            )
        return ProfiledCosts(OperationTimes.read(table), roofline=roofline, **reference)
    source = settings.pop("model", model)
    if source is None:
        raise InputError("profiled costs need a model (name or file) to measure, or a table measured before")
    options = settings.pop("options", {})
    if not isinstance(options, Mapping):
        raise InputError(f"options of profiled costs are {options!r}; they must map names to values, as {{length: 64}}")
    if misplaced := {"repeats", "threads", "precision"} & set(options):
        raise InputError(f"{min(misplaced)!r} of profiled costs is a setting of the profiling; write it beside options, not in them")
    for key in ("repeats", "threads"):
        if key in settings and (isinstance(settings[key], bool) or not isinstance(settings[key], int)):
            raise InputError(f"profiled costs have {key} = {settings[key]!r}; it must be a whole number")
    return ProfiledCosts(profile_model(source, **settings, **options), roofline=roofline, **reference)


def _device_profiles(settings: dict[str, Any], model: str | None) -> CostModel:
    """Every device of a network profiled by itself, here."""
    devices, source, options = settings.pop("devices"), settings.pop("model", model), settings.pop("options", {})
    if not isinstance(devices, Mapping) or not all(isinstance(row, Mapping) for row in devices.values()):
        raise InputError(f"devices of profiled costs are {devices!r}; they must map the network's devices to how each is profiled")
    if source is None:
        raise InputError("profiled costs need a model (name or file) to measure")
    if settings:
        raise InputError(f"profiled costs have both devices and {next(iter(settings))!r}; write that into each of the devices")
    for name, row in devices.items():
        for key in row:
            if key not in ("repeats", "threads", "precision", "device"):
                raise InputError(
                    f"unknown key {key!r} of profiled device {name!r}{nearest(str(key), ('repeats', 'threads', 'precision', 'device'))}"
                )
    return DeviceProfiles({str(name): profile_model(source, **row, **options) for name, row in devices.items()})
