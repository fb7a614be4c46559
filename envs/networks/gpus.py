"""The GPU servers of the DOPPLER paper (section 7.1, Appendix I). Published figures, and nothing measured by us.

Speeds are half-precision peaks times the share at which the paper's ChainMM (6e12 FLOPs of products) runs on one device:
13.6 of 18.7 TFLOP/s on a P100 (439.9 ms) and 72 of 125 TFLOP/s on a V100 (83.5 ms). Absolute times of a graph come from its
one-device time (`ONE_DEVICE`) by `envs.costs.calibrated.CalibratedCosts`; speeds and bandwidths here only set how its
operations compare. Links are not described in the paper, beyond a PCIe bus: P100s are taken to be on PCIe 3.0 x16 (12 GB/s of
15.8), of which a simulation of them should make one bus (`envs.simulators.work_conserving.discipline.Discipline`, ``sharing="bus"``).
Of all kinds of sharing and bandwidths from 0.75 to 20 GB/s that is what comes closest to the paper's times of its two heuristics
on four graphs (enumerative and critical path, Table 2): root mean square error of log time 0.38, against 0.66 for the next kind.
V100s are on NVLink 2 (22 of 25 GB/s a link and direction) with each GPU linked to all others of its mesh of four and to its counterpart
in the other mesh; other pairs go through the counterpart, at half the bandwidth and twice the delay.
Outputs are freed after their last reader.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import numpy as np

from envs.problem.network import DeviceNetwork

LAUNCH = 3.3e-5
"""Seconds from one operation to the next on a P100 under TensorFlow 1.12; see `hosted_p100`."""
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
        memory_bandwidth=np.full(4, 550e9), launch_overhead=np.full(4, 5e-6), kinds=("p100",) * 4, name=name, live_memory=True,
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
        memory_bandwidth=np.full(8, 720e9), launch_overhead=np.full(8, 4e-6), kinds=("v100",) * 8, name="v100-8", live_memory=True,
    )  # fmt: skip


def hosted_p100(gpus: int) -> DeviceNetwork:
    """The machine of GDP and Mars: ``gpus`` P100 of 12 GB on PCIe 3.0 and, last, the host's CPU, with memory that is freed.

    Mars: four P100 of 12 GB and two E5-2650 v4 with 125 GB (section 4.2); GDP: one Broadwell CPU and up to eight P100, whose memory it
    does not say (section 4.1). GPUs have their data sheet's 9.3 TFLOP/s (float32) and 80 % of 549 GB/s; the CPU 24 cores x 2.2 GHz x 32
    FLOPs and 80 % of four channels a socket. Inputs come from the CPU (operations that require hardware ``cpu``); everything else may
    run there. Copies take 20 microseconds (TensorFlow's send and receive) and 12 GB/s, do not share the bus, and run beside computation.

    Two numbers are fitted to Mars. LAUNCH makes a training step of Inception-V3 at batch 1 take 0.071 s on one GPU: 1,888 operations and
    9 ms of work. Of 12 GB outputs and weights get 7.3, for BERT, which needs about 24 GB there, needs 14.6 GB by our count: TensorFlow
    allocates in larger pieces, and with workspaces that a graph does not show.
    """
    d = gpus + 1
    gpu = [True] * gpus + [False]

    def pick(fast: float, host: float) -> np.ndarray:
        return np.where(gpu, fast, host)

    return DeviceNetwork(
        names=(*(f"gpu{i}" for i in range(gpus)), "cpu"), speed=pick(9.3e12, 1.69e12), bandwidth=np.full((d, d), 12e9),
        delay=np.full((d, d), 2e-5), memory=pick(7.3e9, 125e9), power=pick(250.0, 210.0), idle_power=pick(30.0, 60.0),
        memory_bandwidth=pick(440e9, 120e9), launch_overhead=pick(LAUNCH, LAUNCH / 2), kinds=("gpu",) * gpus + ("cpu",),
        supports=(frozenset(),) * gpus + (frozenset({"cpu"}),), name=f"p100-host-{gpus}", live_memory=True,
    )  # fmt: skip


NETWORKS: Mapping[str, Callable[[], DeviceNetwork]] = {
    **{f"p100-host-{n}": partial(hosted_p100, n) for n in (1, 2, 4, 8)},
    "p100-4": p100,
    "p100-4-8gb": p100_8gb,
    "v100-8": v100,
}
