"""Features of gpNet nodes (GiPH Appendix B.7): work, speed, compute time, start-time potential. No networks belong here."""

from __future__ import annotations

from typing import Literal

import numba
import numpy as np

from methods.nets.gpnet import GpNets, logged

Potential = Literal["none", "inputs", "queue"]
"""Start-time potential: left out; when the inputs are there; or when also the tasks ahead in the device's queue are done."""


PATH_FEATURES = 3


def feature_count(potential: Potential, paths: bool) -> int:
    """Number of columns of `node_features`."""
    return 3 + (potential != "none") + (PATH_FEATURES if paths else 0)


def node_features(
    nets: GpNets, start: np.ndarray, finish: np.ndarray, potential: Potential = "inputs", *, paths: bool = False, rescale: bool = True
) -> np.ndarray:
    """Scaled features of every option, float32[N, F]: work, speed, compute time, start-time potential, and what ``paths`` adds.

    The start-time potential of option (v, d) is the earliest time at which v could start on d, given when its parents
    finish in the present schedule, less the actual start of v; so it is negative where v would start earlier.

    Args:
        nets: the states.
        start: actual start of every task under its state's placement, seconds, float64[sum of V].
        finish: actual finish, seconds.
        potential: what the earliest start waits for; ``none`` leaves the column out.
        paths: add how much earlier v would finish on d than it does, how late v may finish now without
            delaying the makespan, and how late it would be on d for its children as they are placed, seconds each.
        rescale: map the potentials and times of ``paths`` of each state to [-1, 1]; otherwise use the layout's scale.
    """
    raw = np.empty((nets.n_options, 4 + (PATH_FEATURES if paths else 0)))
    arrays = (nets.layout, nets.states, nets.placement, nets.device, start, finish)
    _own_features(*arrays, potential == "queue", raw)
    if paths:
        _path_features(*arrays, raw)
    options = np.diff(nets.states.option_at)
    if (unit := nets.layout.time_unit[nets.states.problem]).any():
        raw[:, 3:] = logged(raw[:, 3:], np.repeat(unit, options)[:, None])
    shift, scale = nets.layout.node_shift[nets.states.problem], nets.layout.node_scale[nets.states.problem]
    more = [(0, 0)] if not paths else [(0, PATH_FEATURES)]
    shift, scale = np.pad(shift, [(0, 0), *more], mode="edge"), np.pad(scale, [(0, 0), *more], mode="edge")
    if rescale:
        begin = nets.states.option_at[:-1]
        low, high = np.minimum.reduceat(raw[:, 3:], begin), np.maximum.reduceat(raw[:, 3:], begin)
        shift[:, 3:], scale[:, 3:] = (low + high) / 2, np.divide(2.0, high - low, out=np.zeros_like(low), where=high > low)
    features = (raw - np.repeat(shift, options, axis=0)) * np.repeat(scale, options, axis=0)
    return np.delete(features, 3, axis=1).astype(np.float32) if potential == "none" else features.astype(np.float32)


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
def _own_features(layout, states, placement, device, start, finish, queue, out):
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


@numba.njit(cache=True, nogil=True)
def _latest_starts(layout, g, to_task, placement, start, finish):
    """When each task of one state must start at the latest to keep the makespan, its device's order and the others' devices."""
    first, n_tasks = layout.task_ptr[g], layout.task_ptr[g + 1] - layout.task_ptr[g]
    n_devices = layout.device_ptr[g + 1] - layout.device_ptr[g]
    order = layout.order[first : first + n_tasks]
    makespan = finish[to_task + first : to_task + first + n_tasks].max()
    latest, after = np.empty(n_tasks), np.full(n_devices, makespan)
    for position in np.argsort(start[to_task + order], kind="mergesort")[::-1]:  # ties in topological order
        task = order[position]
        on = placement[to_task + task]
        end = after[on]
        for k in range(layout.out_ptr[task], layout.out_ptr[task + 1]):
            edge = layout.out_edges[k]
            child = layout.edges[edge, 1]
            link = layout.link_ptr[g] + on * n_devices + placement[to_task + child]
            end = min(end, latest[child - first] - (layout.delay[link] + layout.edge_bytes[edge] * layout.seconds_per_byte[link]))
        latest[task - first] = end - (finish[to_task + task] - start[to_task + task])
        after[on] = latest[task - first]
    return latest, makespan


@numba.njit(cache=True, nogil=True)
def _path_features(layout, states, placement, device, start, finish, out):
    for s in range(len(states.problem)):
        g = states.problem[s]
        first = layout.task_ptr[g]
        to_task, to_option = states.task_at[s] - first, states.option_at[s] - layout.option_ptr[first]
        n_devices = layout.device_ptr[g + 1] - layout.device_ptr[g]
        latest, makespan = _latest_starts(layout, g, to_task, placement, start, finish)
        for task in range(first, layout.task_ptr[g + 1]):
            at = to_task + task
            for option in range(to_option + layout.option_ptr[task], to_option + layout.option_ptr[task + 1]):
                end = start[at] + out[option, 3] + out[option, 2]
                late = end - makespan
                for k in range(layout.out_ptr[task], layout.out_ptr[task + 1]):
                    edge = layout.out_edges[k]
                    child = layout.edges[edge, 1]
                    link = layout.link_ptr[g] + device[option] * n_devices + placement[to_task + child]
                    transfer = layout.delay[link] + layout.edge_bytes[edge] * layout.seconds_per_byte[link]
                    late = max(late, end + transfer - latest[child - first])
                out[option, 4] = end - finish[at]
                out[option, 5] = latest[task - first] - start[at]
                out[option, 6] = late
