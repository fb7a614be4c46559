"""The GPU servers of the DOPPLER paper (section 7.1, Appendix I). Published figures, and nothing measured by us.

Speeds are half-precision peaks times the share at which the paper's ChainMM (6e12 FLOPs of products) runs on one device:
13.6 of 18.7 TFLOP/s on a P100 (439.9 ms) and 72 of 125 TFLOP/s on a V100 (83.5 ms). Absolute times of a graph come from its
one-device time (`ONE_DEVICE`) by `envs.costs_calibrated.CalibratedCosts`; speeds and bandwidths here only set how its
operations compare. Links are not described in the paper, beyond a PCIe bus: P100s are taken to be on PCIe 3.0 x16 (12 GB/s of
15.8), of which a simulation of them should make one bus (`envs.work_conserving.Discipline`, ``sharing="bus"``). Of all kinds of
sharing and bandwidths from 0.75 to 20 GB/s that is what comes closest to the paper's times of its two heuristics on four graphs
(enumerative and critical path, Table 2): root mean square error of log time 0.38, against 0.66 for the next kind. V100s are on
NVLink 2 (22 of 25 GB/s a link and direction) with each GPU linked to all others of its mesh of four and to its counterpart
in the other mesh; other pairs go through the counterpart, at half the bandwidth and twice the delay.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from envs.network import DeviceNetwork

ONE_DEVICE: Mapping[str, Mapping[str, float]] = {
    "p100": {"chainmm": 0.4399, "ffnn": 0.1485, "llama-block": 0.4628, "llama-layer": 0.4832},
    "v100": {"chainmm": 0.0835, "ffnn": 0.0514, "llama-block": 0.1544, "llama-layer": 0.1050},
}
"""Seconds on one device, by kind and graph (Tables 2 and 9, "1 GPU")."""


def p100(memory: float = 16e9, name: str = "p100-4") -> DeviceNetwork:
    """Four P100 on PCIe with ``memory`` bytes each."""
    return DeviceNetwork(
        names=tuple(f"gpu{i}" for i in range(4)), speed=np.full(4, 13.6e12), bandwidth=np.full((4, 4), 12e9), delay=np.full((4, 4), 1e-5),
        memory=np.full(4, memory), power=np.full(4, 250.0), idle_power=np.full(4, 30.0),
        memory_bandwidth=np.full(4, 550e9), launch_overhead=np.full(4, 5e-6), kinds=("p100",) * 4, name=name,
    )  # fmt: skip


def p100_8gb() -> DeviceNetwork:
    """The same restricted to 8 GB (Appendix I.1)."""
    return p100(8e9, "p100-4-8gb")


def v100() -> DeviceNetwork:
    """Eight V100 of 32 GB in two fully linked meshes of four, with four links between them (Appendix I.2)."""
    i, j = np.indices((8, 8))
    direct = (i // 4 == j // 4) | (i % 4 == j % 4)
    return DeviceNetwork(
        names=tuple(f"gpu{i}" for i in range(8)), speed=np.full(8, 72e12), bandwidth=np.where(direct, 22e9, 11e9),
        delay=np.where(direct, 5e-6, 1e-5), memory=np.full(8, 32e9), power=np.full(8, 300.0), idle_power=np.full(8, 40.0),
        memory_bandwidth=np.full(8, 720e9), launch_overhead=np.full(8, 4e-6), kinds=("v100",) * 8, name="v100-8",
    )  # fmt: skip


NETWORKS = {"p100-4": p100, "p100-4-8gb": p100_8gb, "v100-8": v100}
