"""A network whose devices leave and are replaced by weaker ones (GiPH section 5.1, Figure 6). What is placed on it is decided elsewhere.

The paper gives: 20 devices at first, between 16 and 20 ever after, some removed at random and later replaced by devices of lower
capacity. Left open, and chosen here: a change removes or adds up to two devices at a time, whichever the limits allow; a newcomer
takes the place of the device that has been gone longest, with its hardware, with ``decay`` of its speed and of the bandwidth of its
links, and with 1 / ``decay`` of their delay (the weaker end of a link counts). Devices keep their names and links; newcomers have
names of their own. Each kind of hardware stays on some device.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np

from envs.networks.synthetic import NetworkParameters, generate_network
from envs.problem.network import DeviceNetwork
from envs.problem.randomness import check_ranges, seed_label, stream
from envs.problem.ranges import MOST_DEVICES

MOST_CHANGES = 100_000


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
    """Fewest devices."""
    at_once: int = 2
    """Most devices that leave or arrive in one change."""
    decay: float = 0.7
    """Speed and bandwidth of a newcomer relative to those of the device it replaces, and 1 / delay."""
    mean_speed: float = 5.0
    """SP̄, mean speed at first, as of `generate_network`."""
    mean_bandwidth: float = 100.0
    """BW̄, mean bandwidth of a link."""
    mean_delay: float = 10.0
    """DL̄, mean delay of a link."""
    speed_heterogeneity: float = 0.4
    """ε_SP: speeds are uniform in SP̄ (1 ± ε_SP)."""
    bandwidth_heterogeneity: float = 0.4
    """ε_BW: bandwidths are uniform in BW̄ (1 ± ε_BW)."""
    hardware_types: int = 0
    """Types of hardware that tasks may require."""
    support_probability: float = 0.2
    """Probability that a device supports a type."""

    def __post_init__(self) -> None:
        check_ranges(
            self, change=(0, MOST_CHANGES), min_devices=(1, MOST_DEVICES), max_devices=(self.min_devices + 1, MOST_DEVICES),
            at_once=(1, MOST_DEVICES), decay=(1e-6, 1),
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
    present, gone, model = list(range(p.max_devices)), [], list(range(p.max_devices))
    for _ in range(p.change):
        room = p.max_devices - len(present)
        spare = len(present) - p.min_devices
        leave = spare > 0 and (room == 0 or rng.random() < 0.5)
        count = min(int(rng.integers(1, p.at_once + 1)), spare if leave else room)
        if leave:
            leaving = rng.choice(len(present), count, replace=False).tolist()
            gone += [present[k] for k in leaving]
            present = [d for k, d in enumerate(present) if k not in leaving]
        else:
            present += range(len(model), len(model) + count)
            model += gone[:count]
            gone = gone[count:]
    return _restricted(p, seed, present, model)


def _restricted(p: ChangingParameters, seed: int | np.random.SeedSequence, present: list[int], model: list[int]) -> DeviceNetwork:
    """The devices of ``present``, numbered in the order in which they first came; newcomer d replaces ``model[d]``."""
    first = generate_network(p.network(), seed)
    n = p.max_devices
    origin, factor = np.array(model), np.ones(len(model))  # which of the first devices each goes back to, and what is left of it
    for d in range(n, len(model)):
        origin[d], factor[d] = origin[model[d]], factor[model[d]] * p.decay
    rows = np.array(present)
    weakest = np.minimum.outer(factor[rows], factor[rows])
    bandwidth, delay = (m[np.ix_(origin[rows], origin[rows])] for m in (first.bandwidth, first.delay))
    offered = [first.supports[k] for k in origin[rows]]
    needed = frozenset().union(*first.supports)
    for kind in sorted(needed - frozenset().union(*offered)):
        k = int(stream(seed, 12).integers(len(present)))
        offered[k] = offered[k] | {kind}
    return DeviceNetwork(
        names=tuple(f"d{d}" for d in present),
        speed=first.speed[origin[rows]] * factor[rows],
        bandwidth=bandwidth * weakest,
        delay=delay / weakest,
        supports=tuple(offered),
        name=f"changing-{seed_label(seed)}-c{p.change}",
    )
