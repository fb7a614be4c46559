"""A network whose devices leave and are replaced by weaker ones (GiPH section 5.1, Figure 6). What is placed on it is decided elsewhere.

The paper gives: 20 devices at first, between 16 and 20 ever after, some removed at random and later replaced by devices of lower
capacity. Left open, and chosen here: a change removes or adds up to two devices at a time, whichever the limits allow; every
newcomer is ``decay`` times as fast and as well connected as the newcomer before it (devices that run out of battery). Devices
keep their names and their links; newcomers have names of their own. Each kind of hardware stays on some device.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

import numpy as np

from envs.network import DeviceNetwork
from envs.networks.synthetic import NetworkParameters, generate_network
from envs.randomness import check_ranges, seed_label, stream


@dataclass(frozen=True)
class ChangingParameters:
    """What `changing_network` needs.

    Raises:
        InputError: for a value out of range.
    """

    change: int = 0
    """Which network of the sequence: how many changes have happened."""
    max_devices: int = 20
    """Devices at first, and at most."""
    min_devices: int = 16
    at_once: int = 2
    """Most devices that leave or arrive in one change."""
    decay: float = 0.95
    """Speed and bandwidth of each newcomer relative to those of the one before, and 1 / delay."""
    mean_speed: float = 5.0
    mean_bandwidth: float = 100.0
    mean_delay: float = 10.0
    speed_heterogeneity: float = 0.4
    bandwidth_heterogeneity: float = 0.4
    hardware_types: int = 0
    support_probability: float = 0.2

    def __post_init__(self) -> None:
        check_ranges(
            self, change=(0, math.inf), min_devices=(1, math.inf), max_devices=(self.min_devices + 1, math.inf),
            at_once=(1, math.inf), decay=(1e-6, 1),
        )  # fmt: skip
        self.network()

    def network(self, devices: int | None = None) -> NetworkParameters:
        """The generator's parameters for ``devices`` (or all that there can be)."""
        shared = {f.name for f in dataclasses.fields(NetworkParameters)} & {f.name for f in dataclasses.fields(self)}
        return NetworkParameters(devices=devices or self.max_devices, **{key: getattr(self, key) for key in sorted(shared)})


def changing_network(parameters: ChangingParameters, seed: int | np.random.SeedSequence) -> DeviceNetwork:
    """The network after ``parameters.change`` changes; those with the same seed are the same sequence."""
    p = parameters
    rng = stream(seed, 10)
    present, known = list(range(p.max_devices)), p.max_devices
    for _ in range(p.change):
        room = p.max_devices - len(present)
        spare = len(present) - p.min_devices
        leave = spare > 0 and (room == 0 or rng.random() < 0.5)
        count = min(int(rng.integers(1, p.at_once + 1)), spare if leave else room)
        if leave:
            gone = set(rng.choice(len(present), count, replace=False).tolist())
            present = [d for k, d in enumerate(present) if k not in gone]
        else:
            present += range(known, known + count)
            known += count
    return _restricted(p, seed, present, known)


def _restricted(p: ChangingParameters, seed: int | np.random.SeedSequence, present: list[int], known: int) -> DeviceNetwork:
    """The devices of ``present`` of all ``known``; every newcomer is drawn from a seed of its own, so the others stay as they are."""
    first = generate_network(p.network(), seed)
    speed, names = [first.speed[d] if d < p.max_devices else 0.0 for d in range(known)], [f"d{k}" for k in range(known)]
    bandwidth, delay = np.full((2, known, known), np.inf)
    bandwidth[: p.max_devices, : p.max_devices], delay[: p.max_devices, : p.max_devices] = first.bandwidth, first.delay
    supports = [*first.supports]
    base = seed if isinstance(seed, np.random.SeedSequence) else np.random.SeedSequence(seed)
    for d in range(p.max_devices, known):
        own = np.random.SeedSequence(base.entropy, spawn_key=(*base.spawn_key, 11, d))
        # A network of this device and all before it; only this device's row of it is used.
        drawn, factor = generate_network(p.network(d + 1), own), p.decay ** (d - p.max_devices + 1)
        speed[d] = float(drawn.speed[d]) * factor
        bandwidth[d, :d] = bandwidth[:d, d] = drawn.bandwidth[d, :d] * factor
        delay[d, :d] = delay[:d, d] = drawn.delay[d, :d] / factor
        supports.append(drawn.supports[d])
    needed = frozenset().union(*(supports[d] for d in range(p.max_devices)))
    offered = [supports[d] for d in present]
    for kind in sorted(needed - frozenset().union(*offered)):
        k = int(stream(seed, 12).integers(len(present)))
        offered[k] = offered[k] | {kind}
    rows = np.array(present)
    return DeviceNetwork(
        names=tuple(names[d] for d in present),
        speed=np.array(speed)[rows],
        bandwidth=bandwidth[np.ix_(rows, rows)],
        delay=delay[np.ix_(rows, rows)],
        supports=tuple(offered),
        name=f"changing-{seed_label(seed)}-c{p.change}",
    )
