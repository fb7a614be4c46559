"""Features of gpNet nodes (GiPH Appendix B.7): work, speed, compute time, start-time potential. No networks belong here."""

from __future__ import annotations

from typing import Literal

import numba
import numpy as np

from methods.common.gpnet import GpNets

Potential = Literal["none", "inputs", "queue"]
"""Start-time potential: left out; when the inputs are there; or when also the tasks ahead in the device's queue are done."""


def node_features(
    nets: GpNets, start: np.ndarray, finish: np.ndarray, potential: Potential = "inputs", *, rescale: bool = True
) -> np.ndarray:
    """Scaled features of every option, float32[N, 4], or [N, 3] without potential.

    The start-time potential of option (v, d) is the earliest time at which v could start on d, given when its parents
    finish in the present schedule, less the actual start of v; so it is negative where v would start earlier.

    Args:
        nets: the states.
        start: actual start of every task under its state's placement, seconds, float64[sum of V].
        finish: actual finish, seconds.
        potential: what the earliest start waits for.
        rescale: map the potentials of each state to [-1, 1]; otherwise use the layout's scale.
    """
    raw = np.empty((nets.n_options, 4))
    _raw(nets.layout, nets.states, nets.placement, nets.device, start, finish, potential == "queue", raw)
    of = nets.states.problem
    options = np.diff(nets.states.option_at)
    features = (raw - np.repeat(nets.layout.node_shift[of], options, axis=0)) * np.repeat(nets.layout.node_scale[of], options, axis=0)
    if potential == "none":
        return features[:, :3].astype(np.float32)
    if rescale:
        begin = nets.states.option_at[:-1]
        low, high = np.minimum.reduceat(raw[:, 3], begin), np.maximum.reduceat(raw[:, 3], begin)
        scale = np.divide(2.0, high - low, out=np.zeros_like(low), where=high > low)
        features[:, 3] = (raw[:, 3] - np.repeat((low + high) / 2, options)) * np.repeat(scale, options)
    return features.astype(np.float32)


def out_edge_means(nets: GpNets) -> np.ndarray:
    """Mean features of the gpNet edges that leave each option, float32[N, 4]; 0 where none does (GiPH-NE, Appendix B.6)."""
    source, _, slot = nets.edges()
    count = np.maximum(np.bincount(source, minlength=nets.n_options), 1)
    sums = [np.bincount(source, weights=column, minlength=nets.n_options) for column in nets.edge_features[slot].T]
    return (np.stack(sums, axis=1) / count[:, None]).astype(np.float32)


@numba.njit(cache=True, nogil=True)
def _arrival(layout, g, task, on, to_task, placement, finish):
    """When all inputs of a task would be on device ``on``."""
    first, n_devices = layout.link_ptr[g], layout.device_ptr[g + 1] - layout.device_ptr[g]
    latest = 0.0
    for k in range(layout.in_ptr[task], layout.in_ptr[task + 1]):
        edge = layout.in_edges[k]
        parent = to_task + layout.edges[edge, 0]
        link = first + placement[parent] * n_devices + on
        latest = max(latest, finish[parent] + (layout.delay[link] + layout.edge_bytes[edge] * layout.seconds_per_byte[link]))
    return latest


@numba.njit(cache=True, nogil=True)
def _by_device(placement, first, count, n_devices):
    """CSR of the tasks on each device of one state."""
    pointer = np.zeros(n_devices + 2, dtype=np.int64)
    for task in range(first, first + count):
        pointer[placement[task] + 2] += 1
    pointer = np.cumsum(pointer)
    members = np.empty(count, dtype=np.int64)
    for task in range(first, first + count):
        members[pointer[placement[task] + 1]] = task
        pointer[placement[task] + 1] += 1
    return pointer, members


@numba.njit(cache=True, nogil=True)
def _raw(layout, states, placement, device, start, finish, queue, out):
    for s in range(len(states.problem)):
        g = states.problem[s]
        first, n_tasks = layout.task_ptr[g], layout.task_ptr[g + 1] - layout.task_ptr[g]
        to_task = states.task_at[s] - first
        to_option = states.option_at[s] - layout.option_ptr[first]
        n_devices = layout.device_ptr[g + 1] - layout.device_ptr[g]
        ready = np.empty(n_tasks)
        pointer, members = _by_device(placement, to_task + first, n_tasks, n_devices)
        for t in range(n_tasks):
            at = to_task + first + t
            ready[t] = min(start[at], _arrival(layout, g, first + t, placement[at], to_task, placement, finish))
        for task in range(first, first + n_tasks):
            leader = layout.leader[task]
            for option in range(to_option + layout.option_ptr[task], to_option + layout.option_ptr[task + 1]):
                on = device[option]
                arrival = _arrival(layout, g, task, on, to_task, placement, finish)
                begin = arrival
                if queue:
                    for m in range(pointer[on], pointer[on + 1]):
                        ahead = members[m]
                        waits = ready[ahead - to_task - first] <= arrival and layout.leader[ahead - to_task] != leader
                        if waits and finish[ahead] > begin:
                            begin = finish[ahead]
                out[option, 0] = layout.work[task]
                out[option, 1] = layout.speed[layout.device_ptr[g] + on]
                out[option, 2] = layout.compute[layout.compute_ptr[task] + on]
                out[option, 3] = begin - start[to_task + task]
