"""The device network: frozen arrays of devices and links. No graphs and no costs of operations belong here."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from envs.problem.errors import InputError
from envs.problem.graph import digest, frozen
from envs.problem.ranges import LEAST, MOST

_RANGES = {
    "speed": (LEAST, MOST), "memory_bandwidth": (LEAST, np.inf), "memory": (0.0, np.inf), "power": (0.0, MOST), "idle_power": (0.0, MOST),
    "launch_overhead": (0.0, MOST), "bandwidth": (LEAST, np.inf), "delay": (0.0, MOST), "link_energy": (0.0, MOST),
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class DeviceNetwork:
    """Devices and the links between every pair of them.

    Scalars are accepted for any per-device or per-link array and repeated. Per-device arrays have length D; link arrays
    are ``[sender, receiver]`` of shape [D, D], their diagonal (data that stays on a device) is forced to be free.

    Raises:
        InputError: naming the device or link, for wrong lengths, duplicate names, speeds or bandwidths that are not
            positive, and negative or NaN values.
    """

    names: tuple[str, ...]
    speed: np.ndarray
    """Compute speed, FLOP/s (or free work units a second), float64[D]."""
    bandwidth: np.ndarray
    """Link bandwidth, bytes/s, float64[D, D]; infinite on the diagonal."""
    delay: np.ndarray
    """Start-up delay of a transfer, seconds, float64[D, D]; zero on the diagonal. Paid for empty transfers too."""
    memory: np.ndarray = np.inf  # type: ignore[assignment]
    """Memory, bytes, float64[D]."""
    power: np.ndarray = 0.0  # type: ignore[assignment]
    """Power drawn while computing, watts, float64[D]."""
    idle_power: np.ndarray = 0.0  # type: ignore[assignment]
    """Power drawn while not computing, watts, float64[D]."""
    link_energy: np.ndarray = 0.0  # type: ignore[assignment]
    """Energy of moving data over a link, joules/byte, float64[D, D]; zero on the diagonal."""
    memory_bandwidth: np.ndarray = np.inf  # type: ignore[assignment]
    """Bandwidth of the device's own memory (for the roofline cost model), bytes/s, float64[D]."""
    launch_overhead: np.ndarray = 0.0  # type: ignore[assignment]
    """Fixed time to start any operation (for the roofline and profiled cost models), seconds, float64[D]."""
    kinds: tuple[str, ...] = None  # type: ignore[assignment]
    """Kind of each device (``"cpu"``, ``"gpu"``, …), for per-kind efficiencies; ``"device"`` if not given."""
    supports: tuple[frozenset[str], ...] = None  # type: ignore[assignment]
    """Hardware that each device offers to operations that require it; empty sets if not given."""
    name: str = field(default="network")
    live_memory: bool = False
    """Whether devices free an output once it has been read; otherwise they hold all outputs of their operations to the end."""
    host: np.ndarray = False  # type: ignore[assignment]
    """Devices in whose memory all transfers begin and end, bool[D]; it matters to the throughput alone. A transfer to or from one of them
    keeps the other end busy, and one between two others goes through that memory: half its time keeps the sender busy, half the receiver.
    Without any (the default) a transfer keeps both its ends busy all the time."""

    def __post_init__(self) -> None:
        set_ = object.__setattr__
        set_(self, "names", tuple(str(x) for x in self.names))
        d = len(self.names)
        if d == 0:
            raise InputError(f"network {self.name!r} has no devices; a placement needs at least one")
        if d > np.iinfo(np.int16).max:
            raise InputError(f"network {self.name!r} has {d} devices; placements are int16, so at most 32767 are possible")
        for key in ("speed", "memory", "power", "idle_power", "memory_bandwidth", "launch_overhead"):
            set_(self, key, self._array(key, (d,)))
        for key, own in (("bandwidth", np.inf), ("delay", 0.0), ("link_energy", 0.0)):
            links = self._array(key, (d, d)).copy()
            np.fill_diagonal(links, own)
            set_(self, key, frozen(links, np.float64))
        set_(self, "host", frozen(np.broadcast_to(np.asarray(self.host, dtype=bool), (d,)), np.bool_))
        set_(self, "kinds", ("device",) * d if self.kinds is None else tuple(self.kinds))
        set_(self, "supports", (frozenset(),) * d if self.supports is None else tuple(frozenset(s) for s in self.supports))
        self._check()

    def _array(self, key: str, shape: tuple[int, ...]) -> np.ndarray:
        value = np.asarray(getattr(self, key), dtype=np.float64)
        if value.ndim == 0:
            value = np.full(shape, value)
        if value.shape != shape:
            raise InputError(f"network {self.name!r} has {len(self.names)} devices, so {key} must have shape {shape}, not {value.shape}")
        return frozen(value, np.float64)

    def _check(self) -> None:
        d = len(self.names)
        if len(set(self.names)) != d:
            twice = next(x for x in self.names if self.names.count(x) > 1)
            raise InputError(f"network {self.name!r} has two devices named {twice!r}; names must be unique")
        for key in ("kinds", "supports"):
            if len(getattr(self, key)) != d:
                raise InputError(f"network {self.name!r} has {d} devices but {len(getattr(self, key))} values of {key}")
        for key, (low, high) in _RANGES.items():
            value = getattr(self, key)
            bad = np.argwhere(~((value >= low) & (value <= high)))
            if len(bad):
                where = " -> ".join(repr(self.names[i]) for i in bad[0])
                what = "device" if value.ndim == 1 else "link"
                rule = f"at least {low:g}" if high == np.inf else f"a number from {low:g} to {high:g}"
                raise InputError(f"{what} {where} of network {self.name!r} has {key} = {value[tuple(bad[0])]}; it must be {rule}")

    @property
    def n_devices(self) -> int:
        """D, the number of devices."""
        return len(self.names)

    def index(self, name: str) -> int:
        """The index of the device called ``name``; InputError with the list of names if there is none."""
        try:
            return self.names.index(name)
        except ValueError:
            raise InputError(f"network {self.name!r} has no device {name!r}; it has {', '.join(self.names)}") from None

    @cached_property
    def seconds_per_byte(self) -> np.ndarray:
        """1 / bandwidth, float64[D, D]; zero on the diagonal."""
        return frozen(1.0 / self.bandwidth, np.float64)

    @cached_property
    def content_hash(self) -> str:
        """sha256 of everything but the network's own name."""
        arrays = [
            getattr(self, key)
            for key in (
                "speed",
                "bandwidth",
                "delay",
                "memory",
                "power",
                "idle_power",
                "link_energy",
                "memory_bandwidth",
                "launch_overhead",
            )
        ]
        return digest(
            self.names, self.kinds, tuple(tuple(sorted(s)) for s in self.supports), *arrays, *(("live",) if self.live_memory else ()),
            *(("host", self.host) if self.host.any() else ()),
        )  # fmt: skip

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DeviceNetwork) and self.name == other.name and self.content_hash == other.content_hash

    def __hash__(self) -> int:
        return hash(self.content_hash)

    def __repr__(self) -> str:
        return f"DeviceNetwork({self.name!r}, {self.n_devices} devices)"
