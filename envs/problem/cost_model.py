"""Cost models: how long each operation takes on each device. Communication (delay + bytes / bandwidth) is the network's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np

from envs.problem.errors import InputError, nearest
from envs.problem.graph import ComputationGraph, digest
from envs.problem.network import DeviceNetwork
from envs.problem.op_arithmetic import bytes_moved, free

if TYPE_CHECKING:
    from envs.hosts.openvino.profiling import OperationTimes


@runtime_checkable
class CostModel(Protocol):
    """Turns a graph and a network into seconds."""

    @property
    def content_hash(self) -> str:
        """Identity of the model and all its parameters."""
        ...

    def compute_seconds(self, graph: ComputationGraph, network: DeviceNetwork) -> np.ndarray:
        """Expected seconds of every operation on every device, float64[V, D], finite and not negative."""
        ...


@dataclass(frozen=True)
class LinearCosts:
    """Work / speed (GiPH equation 2)."""

    @property
    def content_hash(self) -> str:
        return "linear"

    def compute_seconds(self, graph: ComputationGraph, network: DeviceNetwork) -> np.ndarray:
        return graph.flops[:, None] / network.speed[None, :]


EFFICIENCY: Mapping[str, Mapping[str, float]] = {
    "cpu": {"Convolution": 0.7, "GroupConvolution": 0.3, "MatMul": 0.75, "ScaledDotProductAttention": 0.6, "*": 0.15},
    "gpu": {"Convolution": 0.6, "GroupConvolution": 0.12, "MatMul": 0.65, "ScaledDotProductAttention": 0.45, "*": 0.1},
    "npu": {"Convolution": 0.8, "GroupConvolution": 0.5, "MatMul": 0.8, "ScaledDotProductAttention": 0.25, "*": 0.02},
    "*": {"Convolution": 0.6, "GroupConvolution": 0.2, "MatMul": 0.65, "ScaledDotProductAttention": 0.45, "*": 0.1},
}
"""Share of a device's peak FLOP/s that an operation type reaches, by kind of device; ``"*"`` is everything not named.

Operations of torch (``aten.mm``) have the share of their `FAMILIES`, unless they are named themselves. Rounded from what libraries of
the three kinds are usually seen to reach at batch sizes near one: dense products well, grouped convolutions badly (little reuse),
element-wise work hardly at all on an NPU's narrow vector units.
"""


FAMILIES: Mapping[str, str] = {
    **dict.fromkeys(("aten.mm", "aten.addmm", "aten.bmm", "aten.baddbmm"), "MatMul"),
    **dict.fromkeys(("aten.convolution", "aten.convolution_backward"), "Convolution"),
}
"""The operation type that an operation of a captured torch step is like."""


@dataclass(frozen=True)
class RooflineCosts:
    """``max(FLOPs / (speed x efficiency), bytes moved / memory bandwidth) + launch overhead``.

    Bytes moved are an operation's inputs, weights and output (`envs.problem.op_arithmetic.bytes_moved`). Inputs, weights and outputs of
    the model, views, and what a compiler evaluates beforehand (`envs.problem.op_arithmetic.free`) cost nothing.

    Raises:
        InputError: for an efficiency outside (0, 1].
    """

    efficiency: Mapping[str, Mapping[str, float]] = field(default_factory=lambda: EFFICIENCY, hash=False)
    """By kind of device, then by operation type; ``"*"`` stands for any."""

    def __post_init__(self) -> None:
        for kind, row in self.efficiency.items():
            for op_type, value in row.items():
                if not isinstance(value, int | float) or not 0 < value <= 1:
                    raise InputError(f"efficiency of {op_type!r} on {kind!r} is {value!r}; it must be above 0 and at most 1")

    @cached_property
    def content_hash(self) -> str:
        """sha256 of the efficiencies."""
        return digest("roofline", tuple((kind, op, float(row[op])) for kind, row in sorted(self.efficiency.items()) for op in sorted(row)))

    def efficiencies(self, op_types: tuple[str, ...], kinds: tuple[str, ...]) -> np.ndarray:
        """Share of the peak for every operation on every device, float64[V, D]: (kind, type), (kind, *), (*, type), (*, *), else 1."""
        types, rows = np.unique(np.asarray(op_types), return_inverse=True)
        table = np.array([[self._efficiency(str(op), kind) for kind in kinds] for op in types])
        return table[rows]

    def _efficiency(self, op_type: str, kind: str) -> float:
        for row in (self.efficiency.get(kind, {}), self.efficiency.get("*", {})):
            for key in (op_type, FAMILIES.get(op_type, "*"), "*"):
                if key in row:
                    return float(row[key])
        return 1.0

    def busy_seconds(self, graph: ComputationGraph, network: DeviceNetwork) -> np.ndarray:
        """Seconds without launch overhead, float64[V, D]."""
        arithmetic = graph.flops[:, None] / (network.speed[None, :] * self.efficiencies(graph.op_types, network.kinds))
        memory = bytes_moved(graph)[:, None] / network.memory_bandwidth[None, :]
        return np.where(free(graph)[:, None], 0.0, np.maximum(arithmetic, memory))

    def compute_seconds(self, graph: ComputationGraph, network: DeviceNetwork) -> np.ndarray:
        return self.busy_seconds(graph, network) + np.where(free(graph)[:, None], 0.0, network.launch_overhead[None, :])


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
        from envs.hosts.openvino.profiling import graph_signature

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
        from envs.costs.calibrated import CalibratedCosts

        return CalibratedCosts(settings.get("seconds"))  # type: ignore[arg-type]
    roofline = RooflineCosts(_efficiency(settings.pop("efficiency", {})))
    if kind == "totals":
        from envs.costs.totals import TotalCosts

        return TotalCosts(settings.get("seconds"), roofline)  # type: ignore[arg-type]
    return roofline if kind == "roofline" else _profiled(settings, model, roofline)


def _efficiency(given: Any) -> Mapping[str, Mapping[str, float]]:
    """The default table with a spec's rows laid over it."""
    if not isinstance(given, Mapping) or not all(isinstance(row, Mapping) for row in given.values()):
        raise InputError(f"efficiency is {given!r}; it must map kinds of device to operation types to shares, as {{gpu: {{MatMul: 0.5}}}}")
    return {kind: {**EFFICIENCY.get(kind, {}), **given.get(kind, {})} for kind in sorted({*EFFICIENCY, *given})}


def _profiled(settings: dict[str, Any], model: str | None, roofline: RooflineCosts) -> CostModel:
    from envs.hosts.openvino.profiling import OperationTimes, profile_model

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
    from envs.costs.device_profiles import DeviceProfiles
    from envs.hosts.openvino.profiling import profile_model

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
