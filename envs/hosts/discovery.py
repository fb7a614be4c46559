"""What this machine offers to place models on: cores, NUMA nodes, CUDA devices, OpenVINO's devices. Nothing is placed here."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from envs.graphs.openvino_capture import import_openvino
from envs.hosts.engine.devices import copy_to, parse_devices
from envs.hosts.processor import model_name
from envs.problem.errors import InputError
from envs.problem.network import DeviceNetwork

_OPENVINO_PROPERTIES = ("FULL_DEVICE_NAME", "OPTIMIZATION_CAPABILITIES", "DEVICE_TYPE", "RANGE_FOR_STREAMS", "GPU_DEVICE_TOTAL_MEM_SIZE")


@dataclass(frozen=True)
class Offered:
    """A device, by the name that ``--on`` takes."""

    name: str
    runtime: str
    """``torch`` or ``openvino``."""
    kind: str
    """``cpu``, ``cuda``, ``gpu``, ``npu``."""
    text: str
    memory: float = float("inf")
    """Bytes; infinite where nothing is known."""
    properties: tuple[tuple[str, Any], ...] = ()


def discover() -> list[Offered]:
    """Everything found here: cores, all of them together, NUMA nodes if there are several, CUDA and OpenVINO's devices."""
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else list(range(os.cpu_count() or 1))
    model, memory = model_name(), _memory()
    found = [Offered(f"cpu:{core}", "torch", "cpu", f"core {core} of {model}", memory) for core in cores]
    if len(cores) > 1:
        found.append(Offered(f"cpu:{ranges(cores)}", "torch", "cpu", f"all {len(cores)} cores together", memory))
    nodes = _numa_nodes(cores)
    if len(nodes) > 1:
        found += [
            Offered(f"cpu:{ranges(own)}", "torch", "cpu", f"NUMA node {node}: {len(own)} cores", memory) for node, own in nodes.items()
        ]
    return found + _cuda() + _openvino()


def ranges(cores: Sequence[int]) -> str:
    """Cores as a device's name has them: ``0-3+6``."""
    parts: list[list[int]] = []
    for core in cores:
        if parts and core == parts[-1][-1] + 1:
            parts[-1].append(core)
        else:
            parts.append([core])
    return "+".join(str(p[0]) if len(p) == 1 else f"{p[0]}-{p[-1]}" for p in parts)


def _memory() -> float:
    with suppress(OSError, ValueError, AttributeError):
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    return float("inf")


def _numa_nodes(cores: Sequence[int]) -> dict[int, list[int]]:
    """Usable cores of each NUMA node."""
    nodes: dict[int, list[int]] = {}
    for path in sorted(Path("/sys/devices/system/node").glob("node[0-9]*/cpulist")):
        listed: list[int] = []
        for part in path.read_text().strip().split(","):
            low, _, high = part.partition("-")
            listed += range(int(low), int(high or low) + 1) if low else []
        if own := [c for c in listed if c in cores]:
            nodes[int(path.parent.name[4:])] = own
    return nodes


def _torch() -> Any:
    """PyTorch, which takes seconds to import: a listing without it should not wait."""
    import torch

    return torch


def _cuda() -> list[Offered]:
    torch = _torch()

    if not torch.cuda.is_available():
        return []
    found = []
    for i in range(torch.cuda.device_count()):
        about = torch.cuda.get_device_properties(i)
        more = (("compute_capability", f"{about.major}.{about.minor}"), ("multiprocessors", about.multi_processor_count))
        found.append(Offered(f"cuda:{i}", "torch", "cuda", about.name, float(about.total_memory), more))
    return found


def _openvino() -> list[Offered]:
    core = import_openvino().Core()
    found = []
    for name in core.available_devices:
        known = {}
        for key in _OPENVINO_PROPERTIES:
            with suppress(RuntimeError):
                known[key] = core.get_property(name, key)
        memory = float(known.get("GPU_DEVICE_TOTAL_MEM_SIZE", float("inf")))
        kind = name.partition(".")[0].lower()
        plain = tuple((k, v if isinstance(v, int | float | str) else str(v)) for k, v in known.items())
        found.append(Offered(f"openvino:{name}", "openvino", kind, str(known.get("FULL_DEVICE_NAME", name)), memory, plain))
    return found


def network(devices: Sequence[Offered], name: str = "this-machine", seconds: float = 0.2) -> DeviceNetwork:
    """A network of torch devices with measured speeds: products of matrices for ``seconds`` each, and copies between them.

    How fast each operation of a model runs is what ``placewright calibrate`` finds; this is enough for rooflines.

    Raises:
        InputError: if there is no device of torch's among them.
    """
    own = [d for d in devices if d.runtime == "torch"]
    if not own:
        raise InputError("a network file needs at least one device of torch's; OpenVINO's are calibrated with a model")
    real = parse_devices(tuple(d.name for d in own))
    speed = np.array([_in_thread(_speed, d, seconds) for d in real])
    bandwidth = np.array([[np.inf if i == j else _in_thread(_copy_rate, a, b) for j, b in enumerate(real)] for i, a in enumerate(real)])
    memory = np.array([d.memory for d in own])
    return DeviceNetwork(tuple(d.name for d in own), speed, bandwidth, np.array(1e-5), memory, kinds=tuple(d.kind for d in own), name=name)


def _in_thread(work: Any, device: Any, *arguments: Any) -> float:
    """In a thread of its own, which is then bound to the device."""
    with ThreadPoolExecutor(1, initializer=device.bind) as pool:
        return float(pool.submit(work, device, *arguments).result())


def _speed(device: Any, seconds: float) -> float:
    torch = _torch()

    x = torch.ones(512, 512, device=device.torch_device)
    x @ x
    device.wait()
    rates, end = [], time.perf_counter() + seconds
    while time.perf_counter() < end:
        begin = time.perf_counter()
        x @ x
        device.wait()
        rates.append(2 * 512**3 / (time.perf_counter() - begin))
    return float(np.median(rates))


def _copy_rate(source: Any, target: Any) -> float:
    torch = _torch()

    x = torch.ones(4 << 20, dtype=torch.uint8, device=source.torch_device)
    rates = []
    for _ in range(6):
        begin = time.perf_counter()
        copy_to(x, target)
        rates.append(x.numel() / (time.perf_counter() - begin))
    return float(np.median(rates[1:]))
