"""Device networks known by name: descriptions of machines. Random networks and networks in files do not belong here.

The numbers are rounded data-sheet figures of the class of hardware named, not measurements: peak float32 FLOP/s without
tensor cores (the precision graphs are captured in), memory and its bandwidth, board power. Launch overheads (time from one
operation to the next on the same device) and link delays (driver, synchronisation, DMA start) are of the order usually
reported; they differ more between runtimes than between devices. Link bandwidths are what copies reach, about 80 % of the
bus. Energy on links counts roughly 20 pJ a bit over PCIe and 5 pJ a bit within one memory.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from envs.networks import flex170, gpus
from envs.problem.errors import InputError, nearest
from envs.problem.network import DeviceNetwork

GIGA = 1e9
MICRO = 1e-6


def cpu_gpu_4() -> DeviceNetwork:
    """A desktop with four devices, none of which is best at everything.

    - ``cpu``: 8 cores with AVX2 at 4 GHz (8 x 4e9 x 32 FLOPs = 1.0 TFLOP/s), dual-channel DDR5, starts operations fastest;
    - ``igpu``: integrated graphics of the RDNA 3 / Xe class in the CPU's memory: 2.7 TFLOP/s, cheap copies to and from the CPU;
    - ``gpu``: an entry-level discrete card (RTX 3050 class): 9 TFLOP/s, 8 GB of fast memory (224 GB/s);
    - ``npu``: an inference card with matrix units: 8 TFLOP/s, which dense products use well and element-wise work hardly, 16 GB
      of slower memory (120 GB/s), operations queued ahead and so started quickly.

    Both cards are on PCIe 4.0 x16 and copy directly between each other. With roofline costs the discrete GPU is the best single
    device for ResNet-50 and the NPU, narrowly, for Inception-V3 and BERT-base; using several gains little on ResNet-50 (a
    chain) and about a third on Inception-V3 (branches).
    """
    names = ("cpu", "igpu", "gpu", "npu")
    return _symmetric(
        "cpu-gpu-4",
        names,
        same_memory=("cpu", "igpu"),
        speed=np.array([1.0, 2.7, 9.0, 8.0]) * 1e12,
        memory=np.array([32.0, 16.0, 8.0, 16.0]) * GIGA,
        memory_bandwidth=np.array([70.0, 60.0, 224.0, 120.0]) * GIGA,
        launch_overhead=np.array([1.0, 6.0, 5.0, 2.0]) * MICRO,
        power=np.array([88.0, 35.0, 130.0, 60.0]),
        idle_power=np.array([15.0, 2.0, 9.0, 8.0]),
        kinds=("cpu", "gpu", "gpu", "npu"),
    )


def cpu_gpu_2() -> DeviceNetwork:
    """The two-device machine of most placement papers: the ``cpu`` and the discrete ``gpu`` of ``cpu-gpu-4``."""
    return _part("cpu-gpu-2", cpu_gpu_4(), ("cpu", "gpu"))


def _symmetric(name: str, names: tuple[str, ...], same_memory: tuple[str, str], **arrays: object) -> DeviceNetwork:
    """Devices on PCIe 4.0 x16 (25 GB/s, 5 microseconds), but two that share a memory (40 GB/s, 4 microseconds)."""
    d = len(names)
    bandwidth, delay, energy = np.full((d, d), 25.0 * GIGA), np.full((d, d), 5.0 * MICRO), np.full((d, d), 1.6e-10)
    a, b = (names.index(device) for device in same_memory)
    for pair in ((a, b), (b, a)):
        bandwidth[pair], delay[pair], energy[pair] = 40.0 * GIGA, 4.0 * MICRO, 4e-11
    return DeviceNetwork(names=names, bandwidth=bandwidth, delay=delay, link_energy=energy, name=name, **arrays)  # type: ignore[arg-type]


def _part(name: str, network: DeviceNetwork, devices: tuple[str, ...]) -> DeviceNetwork:
    keep = np.array([network.index(device) for device in devices])
    pairs = np.ix_(keep, keep)
    per_device = ("speed", "memory", "power", "idle_power", "memory_bandwidth", "launch_overhead")
    return DeviceNetwork(
        names=devices,
        bandwidth=network.bandwidth[pairs],
        delay=network.delay[pairs],
        link_energy=network.link_energy[pairs],
        kinds=tuple(network.kinds[i] for i in keep),
        supports=tuple(network.supports[i] for i in keep),
        name=name,
        **{key: getattr(network, key)[keep] for key in per_device},
    )


_NETWORKS: dict[str, Callable[[], DeviceNetwork]] = {"cpu-gpu-2": cpu_gpu_2, "cpu-gpu-4": cpu_gpu_4, **gpus.NETWORKS, **flex170.NETWORKS}


def names() -> list[str]:
    """The known networks, sorted."""
    return sorted(_NETWORKS)


def named_network(name: str) -> DeviceNetwork:
    """The network called ``name``; InputError with the nearest name if there is none."""
    build = _NETWORKS.get(name) if isinstance(name, str) else None
    if build is None:
        raise InputError(f"unknown network {name!r}{nearest(str(name), _NETWORKS)}")
    return build()
