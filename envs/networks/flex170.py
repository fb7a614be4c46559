"""The machine of the HSDAG paper (section 3.2): i9-12900K, UHD Graphics 770, Data Center GPU Flex 170. Described, never measured by us.

Speeds and memories are data-sheet figures: 8 performance cores with AVX2 at 4.9 GHz and 8 efficient ones at 3.7 GHz give 1.7 TFLOP/s
in float32, dual-channel DDR5-4800 77 GB/s; UHD 770 has 256 lanes at 1.55 GHz in the same memory; Flex 170 has 16.4 TFLOP/s and
576 GB/s. Its PCIe 4.0 x16 copies 25 GB/s. Delays and launch overheads are of the order that OpenVINO's subgraph boundaries and
kernels usually cost. How fast a model is on one device comes from the paper's times (`ONE_DEVICE`) by
`envs.costs.totals.TotalCosts`, so a result on this network is simulated and calibrated, not a measurement of that machine.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from envs.problem.network import DeviceNetwork

ONE_DEVICE: Mapping[str, Mapping[str, float]] = {
    "inception-v3": {"cpu": 0.0128, "gpu": 0.0120},
    "resnet-50": {"cpu": 0.0160, "gpu": 0.00781},
    "bert-base": {"cpu": 0.00638, "gpu": 0.00277},
}
"""Seconds of CPU-only and GPU-only (Table 2).

The paper does not say how many tokens BERT was given. Its times fit few: at 128 tokens they would need 3.5 TFLOP/s of the CPU, while
reading the weights once takes about as long as its CPU time. Sweeps use 16 tokens.
"""


def i9_flex170() -> DeviceNetwork:
    """The two devices that HSDAG places on: ``cpu`` and ``gpu`` (the Flex 170)."""
    return DeviceNetwork(
        names=("cpu", "gpu"), speed=np.array([1.7e12, 16.4e12]), bandwidth=np.full((2, 2), 25e9), delay=np.full((2, 2), 1e-5),
        memory=np.array([64e9, 16e9]), memory_bandwidth=np.array([70e9, 500e9]), launch_overhead=np.array([1e-6, 5e-6]),
        power=np.array([241.0, 150.0]), idle_power=np.array([20.0, 30.0]), link_energy=np.full((2, 2), 1.6e-10), kinds=("cpu", "gpu"),
        name="i9-flex170",
    )  # fmt: skip


def i9_uhd770_flex170() -> DeviceNetwork:
    """All three: the ``igpu`` shares the CPU's memory. The paper leaves it out as always slower and gives no time for it."""
    bandwidth, delay = np.full((3, 3), 25e9), np.full((3, 3), 1e-5)
    bandwidth[0, 1] = bandwidth[1, 0] = 40e9
    delay[0, 1] = delay[1, 0] = 5e-6
    return DeviceNetwork(
        names=("cpu", "igpu", "gpu"), speed=np.array([1.7e12, 0.8e12, 16.4e12]), bandwidth=bandwidth, delay=delay,
        memory=np.array([64e9, 32e9, 16e9]), memory_bandwidth=np.array([70e9, 60e9, 500e9]), launch_overhead=np.array([1e-6, 5e-6, 5e-6]),
        power=np.array([241.0, 15.0, 150.0]), idle_power=np.array([20.0, 1.0, 30.0]), link_energy=np.full((3, 3), 1.6e-10),
        kinds=("cpu", "gpu", "gpu"), name="i9-uhd770-flex170",
    )  # fmt: skip


NETWORKS = {"i9-flex170": i9_flex170, "i9-uhd770-flex170": i9_uhd770_flex170}
