"""Random device networks: the parametric generator of GiPH, Appendix B.2. Graphs are made elsewhere.

Where the paper leaves a choice open: links are symmetric unless asked otherwise, and a type of hardware that no device came to
support, which would make tasks infeasible, is given to one device at random.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from envs.problem.network import DeviceNetwork
from envs.problem.randomness import check_ranges, seed_label, stream
from envs.problem.ranges import LEAST, MOST, MOST_DEVICES, Devices


@dataclass(frozen=True)
class NetworkParameters:
    """What `generate_network` needs; symbols are those of Appendix B.2.

    Raises:
        InputError: for a value out of range.
    """

    devices: Devices = 20
    """m, the number of devices."""
    mean_speed: float = 5.0
    """SP̄, mean speed, FLOP/s (or free work units a second)."""
    mean_bandwidth: float = 100.0
    """BW̄, mean bandwidth of a link, bytes/s."""
    mean_delay: float = 10.0
    """DL̄, mean delay of a link, seconds; delays are uniform in [0, 2 DL̄]."""
    speed_heterogeneity: float = 0.4
    """ε_SP, 0 to below 1: speeds are uniform in SP̄ (1 ± ε_SP)."""
    bandwidth_heterogeneity: float = 0.4
    """ε_BW, 0 to below 1: bandwidths are uniform in BW̄ (1 ± ε_BW)."""
    hardware_types: int = 0
    """Types of hardware ``hw0``, ``hw1``, … that tasks may require."""
    support_probability: float = 0.2
    """Probability that a device supports a type; raises the number of feasible devices of each task."""
    symmetric: bool = True
    """Whether both directions of a link are alike."""

    def __post_init__(self) -> None:
        below_one = math.nextafter(1, 0)
        check_ranges(
            self,
            devices=(1, MOST_DEVICES), mean_speed=(LEAST, MOST), mean_bandwidth=(LEAST, MOST), mean_delay=(0, MOST),
            speed_heterogeneity=(0, below_one), bandwidth_heterogeneity=(0, below_one), hardware_types=(0, 1024),
            support_probability=(0, 1),
        )  # fmt: skip


def generate_network(parameters: NetworkParameters, seed: int | np.random.SeedSequence) -> DeviceNetwork:
    """A random network; speeds, bandwidths, delays and hardware come from separate streams of ``seed``."""
    p, m = parameters, parameters.devices
    speed = p.mean_speed * (1 + p.speed_heterogeneity * stream(seed, 0).uniform(-1, 1, m))
    bandwidth = p.mean_bandwidth * (1 + p.bandwidth_heterogeneity * _links(m, p.symmetric, stream(seed, 1)))
    delay = p.mean_delay * (1 + _links(m, p.symmetric, stream(seed, 2)))
    rng = stream(seed, 3)
    offers = rng.random((m, p.hardware_types)) < p.support_probability
    home = rng.integers(0, m, p.hardware_types)
    lost = np.flatnonzero(~offers.any(axis=0))
    offers[home[lost], lost] = True
    return DeviceNetwork(
        names=tuple(f"d{k}" for k in range(m)),
        speed=speed,
        bandwidth=bandwidth,
        delay=delay,
        supports=tuple(frozenset(f"hw{k}" for k in np.flatnonzero(row)) for row in offers),
        name=f"synthetic-{m}-s{seed_label(seed)}",
    )


def _links(m: int, symmetric: bool, rng: np.random.Generator) -> np.ndarray:
    """Uniform values in [-1, 1) for every link, float64[m, m]."""
    values = rng.uniform(-1, 1, (m, m))
    return np.triu(values, 1) + np.triu(values, 1).T if symmetric else values
