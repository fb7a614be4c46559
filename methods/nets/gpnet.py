"""gpNet: one graph for a task graph, a network and a placement (GiPH section 4.2.1, Appendix B.1). No learning belongs here.

A gpNet node is an *option* (task, device) for every feasible device; the option of the current placement is the task's *pivot*.
An edge joins options of neighbouring tasks of which at least one is a pivot. So a task edge (i, j) always makes
``|O_i| + |O_j| - 1`` gpNet edges, whatever the placement: the pivot of i to every option of j, and every option of i to the
pivot of j. Their features live in a fixed block of ``|O_j| + |O_i|`` slots (the pivot-pivot edge stands in both parts), so
that relocating a task rewrites the blocks of its own task edges in place and nothing else.

`Layout` holds what placements do not change, for many problems in one disjoint union; `GpNets` holds the gpNets of many
*states*, each a placement of one of these problems (the same problem may occur often). Everything is flat arrays, read and
written by compiled loops.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numba
import numpy as np

from envs.problem.problem import Problem

EDGE_FEATURES = 4
"""Bytes, seconds per byte (1 / bandwidth), delay, communication time (Appendix B.7)."""


class Layout(NamedTuple):
    """The parts of G problems that no placement changes. Tasks, edges, options and slots are numbered through the union."""

    task_ptr: np.ndarray
    """Where each problem's tasks begin, int64[G + 1]."""
    order: np.ndarray
    """Tasks of each problem in turn, parents before children, int64[V]."""
    edge_ptr: np.ndarray
    """Where each problem's task edges begin, int64[G + 1]."""
    edges: np.ndarray
    """Producer and consumer task, int64[E, 2]."""
    in_ptr: np.ndarray
    in_edges: np.ndarray
    """CSR of the task edges into each task, int64[V + 1] and int64[E]."""
    out_ptr: np.ndarray
    out_edges: np.ndarray
    """CSR of the task edges out of each task, int64[V + 1] and int64[E]."""
    option_ptr: np.ndarray
    """Where each task's options begin, int64[V + 1]."""
    option_device: np.ndarray
    """Device of each option, int64[N]; -1 where a task has one option, its current device."""
    slot_ptr: np.ndarray
    """Where each task edge's feature slots begin, int64[E + 1]."""
    leader: np.ndarray
    """First task of each task's co-location group, int64[V]; the group moves as one."""
    edge_bytes: np.ndarray
    """float64[E]."""
    work: np.ndarray
    """float64[V]."""
    compute_ptr: np.ndarray
    """Where each task's row of compute seconds begins, int64[V]."""
    compute: np.ndarray
    """Compute seconds, a row of that problem's devices for each task, float64."""
    device_ptr: np.ndarray
    """Where each problem's devices begin in ``speed``, int64[G + 1]."""
    speed: np.ndarray
    """float64."""
    link_ptr: np.ndarray
    """Where each problem's [D, D] tables of links begin, int64[G]; problems on the same network share them."""
    delay: np.ndarray
    """Seconds, float64."""
    seconds_per_byte: np.ndarray
    """float64."""
    edge_shift: np.ndarray
    edge_scale: np.ndarray
    """Edge features are ``(raw - shift) * scale``, float64[G, 4]."""
    edge_unit: np.ndarray
    """What an edge feature is measured in before, on the scale of `logged`, float64[G, 4]; 0 leaves it as it is."""
    node_shift: np.ndarray
    node_scale: np.ndarray
    """Node features are ``(raw - shift) * scale``, float64[G, 4]."""
    time_unit: np.ndarray
    """The same as ``edge_unit`` for start-time potentials and what ``paths`` adds, float64[G]."""


class States(NamedTuple):
    """Which gpNets there are and where each one's tasks, options and slots begin in the stacked arrays."""

    problem: np.ndarray
    """Index of each state's problem in the layout, int64[S]."""
    task_at: np.ndarray
    option_at: np.ndarray
    slot_at: np.ndarray
    """int64[S + 1] each."""


def make_layout(problems: Sequence[Problem], *, single: bool = False, scaling: str = "range") -> Layout:
    """The layout of ``problems``.

    Args:
        problems: the problems of the union.
        single: give every task one option, its current device; gpNet then is the task graph itself under the placement.
        scaling: ``range`` maps each feature of a problem to [-1, 1] over all it can be under any placement; ``unit`` divides
            all times by the problem's mean compute time, and other features by their mean, so that times add up; ``log`` is
            ``range`` of logarithms where values span decades: 1 / bandwidth, communication time, potentials.
    """
    tasks = _offsets([p.n_nodes for p in problems])
    edges = _offsets([p.graph.n_edges for p in problems])
    networks = {p.network.content_hash: p.network for p in problems}
    link_at = dict(zip(networks, _offsets([n.n_devices**2 for n in networks.values()])[:-1], strict=True))
    options = [np.ones(p.n_nodes, dtype=np.int64) if single else p.feasible.sum(axis=1) for p in problems]
    option_ptr = _offsets(np.concatenate(options))
    ends = np.concatenate([p.graph.edges + t for p, t in zip(problems, tasks, strict=False)]).astype(np.int64).reshape(-1, 2)
    counts = np.diff(option_ptr)
    in_, out = [_stack_csr([getattr(p.graph, key) for p in problems], edges) for key in ("in_edges", "out_edges")]
    units = [_units(p) if scaling == "log" else (np.zeros(EDGE_FEATURES), 0.0) for p in problems]
    edge_unit, time_unit = np.stack([u for u, _ in units]), np.array([t for _, t in units])
    edge_scaling, node_scaling = zip(*[_scaling(p, scaling, u) for p, u in zip(problems, edge_unit, strict=True)], strict=True)
    return Layout(
        task_ptr=tasks,
        order=np.concatenate([p.graph.topological_order + t for p, t in zip(problems, tasks, strict=False)]),
        edge_ptr=edges,
        edges=ends,
        in_ptr=in_[0],
        in_edges=in_[1],
        out_ptr=out[0],
        out_edges=out[1],
        option_ptr=option_ptr,
        option_device=np.full(option_ptr[-1], -1) if single else np.concatenate([np.nonzero(p.feasible)[1] for p in problems]),
        slot_ptr=_offsets(counts[ends[:, 0]] + counts[ends[:, 1]]),
        leader=np.concatenate([p.leaders + t for p, t in zip(problems, tasks, strict=False)]),
        edge_bytes=np.concatenate([p.graph.edge_bytes for p in problems]),
        work=np.concatenate([p.graph.flops for p in problems]),
        compute_ptr=_offsets(np.concatenate([np.full(p.n_nodes, p.n_devices) for p in problems]))[:-1],
        compute=np.concatenate([p.compute_seconds.ravel() for p in problems]),
        device_ptr=_offsets([p.n_devices for p in problems]),
        speed=np.concatenate([p.network.speed for p in problems]),
        link_ptr=np.array([link_at[p.network.content_hash] for p in problems], dtype=np.int64),
        delay=np.concatenate([n.delay.ravel() for n in networks.values()]),
        seconds_per_byte=np.concatenate([n.seconds_per_byte.ravel() for n in networks.values()]),
        edge_shift=np.stack([s for s, _ in edge_scaling]),
        edge_scale=np.stack([s for _, s in edge_scaling]),
        edge_unit=edge_unit,
        node_shift=np.stack([s for s, _ in node_scaling]),
        node_scale=np.stack([s for _, s in node_scaling]),
        time_unit=time_unit,
    )


def _offsets(lengths: Sequence[int] | np.ndarray) -> np.ndarray:
    """Where consecutive pieces of these lengths begin, and where the last one ends."""
    offsets = np.zeros(len(lengths) + 1, dtype=np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def _stack_csr(parts: list[tuple[np.ndarray, np.ndarray]], edges: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    pointers = [pointer[:-1] + e for (pointer, _), e in zip(parts, edges, strict=False)]
    return np.concatenate([*pointers, edges[-1:]]), np.concatenate([ids + e for (_, ids), e in zip(parts, edges, strict=False)])


def logged(values: np.ndarray, unit: np.ndarray) -> np.ndarray:
    """``sign(x) log(1 + |x| / unit)``, which is even in size over decades and defined at and below 0; ``values`` where the unit is 0."""
    size = np.divide(np.abs(values), unit, out=np.zeros(np.broadcast_shapes(values.shape, np.shape(unit))), where=np.asarray(unit) > 0)
    return np.where(np.asarray(unit) > 0, np.sign(values) * np.log1p(size), values)


def _units(problem: Problem) -> tuple[np.ndarray, float]:
    """``edge_unit`` [4] and ``time_unit`` of a problem: its fastest link, and its shortest computation that takes any time."""
    times, links = problem.compute_seconds[problem.feasible], problem.network.seconds_per_byte
    time, link = (float(x[x > 0].min(initial=np.inf)) for x in (times, links))
    time, link = (x if np.isfinite(x) else 0.0 for x in (time, link))
    return np.array([0.0, link, 0.0, time]), time


def _scaling(problem: Problem, scaling: str, edge_unit: np.ndarray) -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """(shift, scale) of the four edge features and of work, speed, compute time and start-time potential."""
    graph, net = problem.graph, problem.network
    times = problem.compute_seconds[problem.feasible]
    transfer = net.delay + net.seconds_per_byte * graph.edge_bytes.max(initial=0.0)
    edge = [graph.edge_bytes if graph.n_edges else np.zeros(1), net.seconds_per_byte, net.delay, transfer]
    node = [graph.flops, net.speed, times]
    if scaling == "unit":
        unit = times.mean() or 1.0
        links = net.seconds_per_byte.mean() or 1.0
        edge_scale = np.array([1.0 / (edge[0].mean() or 1.0), 1.0 / links, 1.0 / unit, 1.0 / unit])
        node_scale = np.array([1.0 / (graph.flops.mean() or 1.0), 1.0 / net.speed.mean(), 1.0 / unit, 1.0 / unit])
        return (np.zeros(4), edge_scale), (np.zeros(4), node_scale)
    return _range([logged(x, u) for x, u in zip(edge, edge_unit, strict=True)]), _range([*node, np.zeros(1)])


def _range(values: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """The affine map of each feature's range to [-1, 1]; a constant feature becomes 0."""
    low, high = np.array([v.min() for v in values]), np.array([v.max() for v in values])
    width = high - low
    return np.where(width > 0, (low + high) / 2, low), np.divide(2.0, width, out=np.zeros_like(width), where=width > 0)


class GpNets:
    """The gpNets of S states over one layout.

    Args:
        layout: the problems.
        problem: which problem each state places, int[S].
        placements: the states' placements one after another, int[sum of V].
    """

    def __init__(self, layout: Layout, problem: np.ndarray, placements: np.ndarray) -> None:
        problem = np.asarray(problem, dtype=np.int64)
        tasks = np.diff(layout.task_ptr)[problem]
        options = np.diff(layout.option_ptr[layout.task_ptr])[problem]
        slots = np.diff(layout.slot_ptr[layout.edge_ptr])[problem]
        self.layout = layout
        self.states = States(problem, _offsets(tasks), _offsets(options), _offsets(slots))
        self.placement = np.array(placements, dtype=np.int64)
        self.device = np.empty(self.states.option_at[-1], dtype=np.int64)
        """Device of every option, int64[N]."""
        self.pivot = np.empty(len(self.placement), dtype=np.int64)
        """The option that every task is on, int64[sum of V]."""
        self.edge_features = np.empty((self.states.slot_at[-1], EDGE_FEATURES), dtype=np.float32)
        """Scaled features of every slot, float32[slots, 4]."""
        _build(layout, self.states, self.placement, self.device, self.pivot, self.edge_features)

    def relocate(self, states: np.ndarray, tasks: np.ndarray, devices: np.ndarray) -> None:
        """Move one task (with its co-location group) of each of ``states`` to a device: only edges around it are rewritten.

        Args:
            states: which states move, int[M], each at most once.
            tasks: the task of each, counted within its problem, int[M].
            devices: where each goes, int[M]; must be feasible.
        """
        _relocate(
            self.layout, self.states, np.asarray(states, dtype=np.int64), np.asarray(tasks, dtype=np.int64),
            np.asarray(devices, dtype=np.int64), self.placement, self.device, self.pivot, self.edge_features,
        )  # fmt: skip

    @property
    def n_options(self) -> int:
        """N, the number of gpNet nodes of all states together."""
        return len(self.device)

    def option_tasks(self) -> np.ndarray:
        """The task of every option, counted through the stacked states, int64[N]."""
        return np.repeat(np.arange(len(self.placement)), self._per_state(np.diff(self.layout.option_ptr), self.layout.task_ptr))

    def _per_state(self, values: np.ndarray, pointer: np.ndarray) -> np.ndarray:
        """Per-task or per-edge ``values`` of the layout repeated for the states."""
        return np.concatenate([values[pointer[g] : pointer[g + 1]] for g in self.states.problem])

    def edges(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Every gpNet edge once: options it leaves and enters, int64[E_H] each, and its slot, int64[E_H]."""
        layout, states = self.layout, self.states
        n_edges = np.diff(layout.edge_ptr)[states.problem]
        shift = np.repeat(states.task_at[:-1] - layout.task_ptr[states.problem], n_edges)
        ends = self._per_state(layout.edges, layout.edge_ptr) + shift[:, None]
        first = np.concatenate([[0], np.cumsum(self._per_state(np.diff(layout.option_ptr), layout.task_ptr))])
        count = np.diff(first)
        into, out_of = count[ends[:, 1]], count[ends[:, 0]]
        slot = np.arange(len(self.edge_features))
        edge = np.repeat(np.arange(len(ends)), into + out_of)
        place = slot - _offsets(into + out_of)[edge]
        entering = place < into[edge]
        source = np.where(entering, self.pivot[ends[edge, 0]], first[ends[edge, 0]] + place - into[edge])
        target = np.where(entering, first[ends[edge, 1]] + place, self.pivot[ends[edge, 1]])
        once = entering | (source != self.pivot[ends[edge, 0]])
        return source[once], target[once], slot[once]


@numba.njit(cache=True, nogil=True)
def _logged(value, unit):
    """`logged` of a value that is not negative."""
    return np.log1p(value / unit) if unit > 0.0 else value


@numba.njit(cache=True, nogil=True)
def _write_edge(layout, states, s, edge, placement, device, pivot, features):
    """Write the block of one task edge of state s."""
    g = states.problem[s]
    i, j = layout.edges[edge, 0], layout.edges[edge, 1]
    to_task = states.task_at[s] - layout.task_ptr[g]
    to_option = states.option_at[s] - layout.option_ptr[layout.task_ptr[g]]
    slot = states.slot_at[s] + layout.slot_ptr[edge] - layout.slot_ptr[layout.edge_ptr[g]]
    n_devices = layout.device_ptr[g + 1] - layout.device_ptr[g]
    n_i = layout.option_ptr[i + 1] - layout.option_ptr[i]
    n_j = layout.option_ptr[j + 1] - layout.option_ptr[j]
    nbytes = layout.edge_bytes[edge]
    scaled_bytes = np.float32((nbytes - layout.edge_shift[g, 0]) * layout.edge_scale[g, 0])
    for q in range(n_j + n_i):
        if q < n_j:
            link = placement[to_task + i] * n_devices + device[to_option + layout.option_ptr[j] + q]
        else:
            link = device[to_option + layout.option_ptr[i] + q - n_j] * n_devices + placement[to_task + j]
        link += layout.link_ptr[g]
        per_byte, delay = layout.seconds_per_byte[link], layout.delay[link]
        row = features[slot + q]
        row[0] = scaled_bytes
        row[1] = (_logged(per_byte, layout.edge_unit[g, 1]) - layout.edge_shift[g, 1]) * layout.edge_scale[g, 1]
        row[2] = (delay - layout.edge_shift[g, 2]) * layout.edge_scale[g, 2]
        row[3] = (_logged(delay + nbytes * per_byte, layout.edge_unit[g, 3]) - layout.edge_shift[g, 3]) * layout.edge_scale[g, 3]


@numba.njit(cache=True, nogil=True)
def _settle(layout, states, s, task, placement, device, pivot):
    """Point the task's pivot at the option of its device."""
    g = states.problem[s]
    at = states.task_at[s] - layout.task_ptr[g] + task
    to_option = states.option_at[s] - layout.option_ptr[layout.task_ptr[g]]
    for option in range(layout.option_ptr[task], layout.option_ptr[task + 1]):
        if layout.option_device[option] < 0:
            device[to_option + option] = placement[at]
        if device[to_option + option] == placement[at]:
            pivot[at] = to_option + option


@numba.njit(cache=True, nogil=True)
def _build(layout, states, placement, device, pivot, features):
    for s in range(len(states.problem)):
        g = states.problem[s]
        first = layout.task_ptr[g]
        to_option = states.option_at[s] - layout.option_ptr[first]
        for option in range(layout.option_ptr[first], layout.option_ptr[layout.task_ptr[g + 1]]):
            device[to_option + option] = layout.option_device[option]
        for task in range(first, layout.task_ptr[g + 1]):
            _settle(layout, states, s, task, placement, device, pivot)
        for edge in range(layout.edge_ptr[g], layout.edge_ptr[g + 1]):
            _write_edge(layout, states, s, edge, placement, device, pivot, features)


@numba.njit(cache=True, nogil=True)
def _relocate(layout, states, moved, tasks, devices, placement, device, pivot, features):
    for m in range(len(moved)):
        s = moved[m]
        g = states.problem[s]
        first = layout.task_ptr[g]
        leader = layout.leader[first + tasks[m]]
        for task in range(leader, layout.task_ptr[g + 1]):
            if layout.leader[task] == leader:
                placement[states.task_at[s] + task - first] = devices[m]
                _settle(layout, states, s, task, placement, device, pivot)
        for task in range(leader, layout.task_ptr[g + 1]):
            if layout.leader[task] != leader:
                continue
            for k in range(layout.in_ptr[task], layout.in_ptr[task + 1]):
                _write_edge(layout, states, s, layout.in_edges[k], placement, device, pivot, features)
            for k in range(layout.out_ptr[task], layout.out_ptr[task + 1]):
                _write_edge(layout, states, s, layout.out_edges[k], placement, device, pivot, features)
