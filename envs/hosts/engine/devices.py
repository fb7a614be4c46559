"""Real devices: CPU cores and CUDA devices, as places where one worker thread runs kernels. Scheduling is not decided here."""

from __future__ import annotations

import ctypes
import os
import re
import threading
from contextlib import AbstractContextManager, suppress
from typing import Any

import torch
from torch import Tensor

from envs.problem.errors import InputError

_PR_SET_TIMERSLACK = 29


class RealDevice:
    """Where kernels of one device run. Methods are called in the device's worker thread unless they say otherwise."""

    name: str
    torch_device: torch.device

    def bind(self) -> None:
        """Tie the calling thread to the device, once."""

    def wait(self) -> None:
        """Return when everything this thread launched on the device has ended."""


_TASKS = "/proc/self/task"
_SPREADING = threading.Lock()


class CpuDevice(RealDevice):
    """One core, or a group of cores that each kernel uses together: a thread pinned to them, with as many threads of torch."""

    def __init__(self, name: str, cores: frozenset[int]) -> None:
        self.name, self.cores, self.torch_device = name, cores, torch.device("cpu")

    def bind(self) -> None:
        """Keep the calling thread to these cores, with as many threads of torch's."""
        if hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, self.cores)  # of this thread, not of the process
        # What is set holds for this thread alone, once torch has asked for its default here (which is what any thread set last).
        torch.get_num_threads()
        torch.set_num_threads(len(self.cores))
        if len(self.cores) > 1 and os.path.isdir(_TASKS):
            self._spread()

    def _spread(self) -> None:
        """Give each of the threads that share this one's kernels a core: left to themselves two of them may long be on the same."""
        with _SPREADING:
            before = set(os.listdir(_TASKS))
            torch.ones(1 << 18).add_(1.0)  # large enough for all of them, which start here
            known = {str(t.native_id) for t in threading.enumerate()}
            workers = sorted(int(t) for t in set(os.listdir(_TASKS)) - before - known)
            for thread, core in zip((0, *workers), sorted(self.cores), strict=False):
                os.sched_setaffinity(thread, {core})


class CudaDevice(RealDevice):
    """One CUDA device. Its thread has its own stream, and waits for each kernel, so that the end of an operation is known."""

    def __init__(self, name: str, index: int) -> None:
        self.name, self.index, self.torch_device = name, index, torch.device("cuda", index)
        self.stream: torch.cuda.Stream | None = None

    def bind(self) -> None:
        """Give the calling thread this device, and a stream of its own."""
        torch.cuda.set_device(self.index)
        self.stream = torch.cuda.Stream(self.index)
        torch.cuda.set_stream(self.stream)

    def wait(self) -> None:
        """Return when everything on the stream has ended."""
        if self.stream is not None:
            self.stream.synchronize()


def parse_devices(names: tuple[str, ...]) -> tuple[RealDevice, ...]:
    """``cpu:0``, ``cpu:0-3``, ``cpu:0+2`` (cores) or ``cuda:0``, one a device of the network; several may share a core.

    Raises:
        InputError: for a name of another form, or a core or CUDA device that this machine does not offer.
    """
    return tuple(_parse(name) for name in names)


def _parse(name: str) -> RealDevice:
    kind, _, rest = name.partition(":")
    if kind == "cuda" and rest.isdigit():
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if int(rest) >= count:
            raise InputError(f"device {name!r} is not there; this machine has {count} CUDA devices")
        return CudaDevice(name, int(rest))
    if kind != "cpu" or not re.fullmatch(r"\d+(-\d+)?(\+\d+(-\d+)?)*", rest):
        raise InputError(f"device {name!r} is not of the form cpu:0, cpu:0-3, cpu:0+2 or cuda:0")
    cores: set[int] = set()
    for part in rest.split("+"):
        low, _, high = part.partition("-")
        cores.update(range(int(low), int(high or low) + 1))
    offered = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set(range(os.cpu_count() or 1))
    if missing := sorted(cores - offered):
        raise InputError(f"device {name!r} names core {missing[0]}; this process may use cores {', '.join(map(str, sorted(offered)))}")
    return CpuDevice(name, frozenset(cores))


def rivals(devices: tuple[RealDevice, ...]) -> list[list[int]]:
    """For each device those that share some of its cores, but not all: they take turns, as `Discipline.processors` says."""
    cores = [d.cores if isinstance(d, CpuDevice) else frozenset() for d in devices]
    return [[j for j, b in enumerate(cores) if a & b and a != b] for a in cores]


def processors(devices: tuple[RealDevice, ...]) -> tuple[tuple[int, ...], ...]:
    """`Discipline.processors` of real devices: the numbers of their cores, and numbers from -1 downwards for CUDA devices."""
    return tuple(tuple(sorted(d.cores)) if isinstance(d, CpuDevice) else (-1 - i,) for i, d in enumerate(devices))


def copy_to(x: Tensor | tuple[Any, ...], device: RealDevice) -> Tensor | tuple[Any, ...]:
    """A real copy of ``x`` on ``device``, finished when this returns; called in a link's thread."""
    if isinstance(x, tuple):
        return tuple(copy_to(part, device) if isinstance(part, Tensor | tuple) else part for part in x)
    if device.torch_device.type == "cpu" and x.device.type == "cpu":
        return x.clone()
    copied = x.to(device.torch_device, non_blocking=True, copy=True)
    for place in {x.device, device.torch_device}:
        if place.type == "cuda":
            torch.cuda.current_stream(place).synchronize()
    return copied


def precise_sleep() -> None:
    """Let the calling thread's sleeps end within a microsecond or so of their time, where the kernel allows (Linux)."""
    with suppress(OSError, AttributeError):  # elsewhere sleeps stay as coarse as they are
        ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, 1)


def inference() -> AbstractContextManager[None]:
    """No autograd bookkeeping in the calling thread."""
    return torch.inference_mode()
