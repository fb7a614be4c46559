"""Placements made in one go without a schedule: one device, blocks of levels, graph partitions. No search belongs here.

All of them respect required hardware, co-location and, where possible, memory (see `methods.placing.constraints`).
"""

from __future__ import annotations

import numpy as np

from envs.problem.problem import Problem
from methods.placing.constraints import make_feasible, unit_of, units
from methods.placing.list_scheduling import followers, mean_costs
from methods.placing.metis import part_graph

METIS_TOTAL = 100_000_000
"""METIS takes 32-bit integer weights; work and bytes are scaled so that each adds up to about this."""


def single_device(problem: Problem, device: int) -> np.ndarray:
    """Everything on one device, int16[V]; units that it may not run on their fastest feasible device, what overflows it elsewhere."""
    return make_feasible(problem, np.full((1, problem.n_nodes), device, dtype=np.int16))[0]


def throughput_shares(problem: Problem) -> np.ndarray:
    """The part of the work each device should get so that all end together, float64[D]: in proportion to 1 / its seconds for all of it."""
    total = problem.compute_seconds.sum(axis=0)
    rate = 1.0 / total if (total > 0).all() else np.ones(problem.n_devices)
    return rate / rate.sum()


def level_blocks(problem: Problem) -> np.ndarray:
    """Contiguous blocks of topological levels, one block a device in the network's order, int16[V].

    The work of a node is its mean seconds over feasible devices. Level l goes to the first device k for which the shares of
    devices 0..k reach the work of all earlier levels plus half of level l, as a part of all work. A co-location group goes where its
    first node goes that is not one of its `methods.placing.list_scheduling.followers`.
    """
    levels = problem.graph.levels
    work = mean_costs(problem)[0]
    per_level = np.bincount(levels, weights=work if work.sum() > 0 else None)
    middle = (np.cumsum(per_level) - per_level / 2) / per_level.sum()
    device = np.minimum(np.searchsorted(np.cumsum(throughput_shares(problem)), middle), problem.n_devices - 1)
    placement = device[levels]
    order = np.lexsort((levels, followers(problem)))  # a group goes with its first node that is not a follower
    lead, first = np.unique(problem.leaders[order], return_index=True)
    placement[lead] = placement[order[first]]
    return make_feasible(problem, placement[None, :])[0]


def layers_over_devices(problem: Problem, order: str) -> np.ndarray:
    """The layers of a model over its accelerators (devices that are not of kind ``cpu``, or all if none is left), int16[V].

    ``layers``: layer l on accelerator l mod n. ``blocks``: contiguous blocks of equally many layers. ``one``: all on the first.
    Operations without a layer go with layer 0, a co-location group where its first node of weight goes (its variable).
    """
    accelerators = [d for d, kind in enumerate(problem.network.kinds) if kind != "cpu"] or list(range(problem.n_devices))
    layer = np.maximum(problem.graph.layer, 0)
    n = len(accelerators)
    which = {"layers": layer % n, "blocks": layer * n // (int(layer.max()) + 1), "one": np.zeros_like(layer)}[order]
    placement = np.array(accelerators)[which]
    first = np.lexsort((np.arange(problem.n_nodes), -problem.graph.parameter_bytes))
    lead, at = np.unique(problem.leaders[first], return_index=True)
    placement[lead] = placement[first[at]]
    return make_feasible(problem, placement[None, :].astype(np.int16))[0]


def partition(problem: Problem, devices: np.ndarray, seed: int) -> np.ndarray:
    """A METIS partition int16[V]: work balanced by `throughput_shares`, bytes over cut edges minimised.

    Co-location groups are contracted to one vertex. METIS knows neither feasible devices nor memory: units on a forbidden
    device go to their fastest feasible one, then overflowing devices are relieved.

    Args:
        problem: what to place.
        devices: the device each part stands for, int64[P]; METIS places neighbouring parts differently in another order.
        seed: of METIS's own random choices.
    """
    unit = unit_of(problem)
    n = len(units(problem))
    devices = devices[: min(len(devices), n)]
    if len(devices) == 1:
        return single_device(problem, int(devices[0]))
    starts, adjacent, cut = _adjacency(problem, unit, n)
    work = _integers(np.bincount(unit, weights=mean_costs(problem)[0], minlength=n))
    shares = throughput_shares(problem)[devices]
    parts = part_graph(len(devices), starts, adjacent, work, cut, (shares / shares.sum()).tolist(), seed)
    return make_feasible(problem, devices[parts][unit][None, :])[0]


def _adjacency(problem: Problem, unit: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The undirected graph of ``n`` units for METIS: where neighbours begin, neighbours, integer weights by bytes."""
    ends = unit[problem.graph.edges]
    crossing = ends[:, 0] != ends[:, 1]
    low, high = ends[crossing].min(axis=1, initial=n), ends[crossing].max(axis=1, initial=0)
    keys, inverse = np.unique(low * n + high, return_inverse=True)
    weights = _integers(np.bincount(inverse, weights=problem.graph.edge_bytes[crossing], minlength=len(keys)))
    source = np.concatenate((keys // n, keys % n))
    target = np.concatenate((keys % n, keys // n))
    order = np.lexsort((target, source))
    starts = np.concatenate(([0], np.cumsum(np.bincount(source, minlength=n))))
    return starts.astype(np.int32), target[order].astype(np.int32), np.tile(weights, 2)[order]


def _integers(weights: np.ndarray) -> np.ndarray:
    """Positive int32 weights in proportion; equal ones if all are zero."""
    total = weights.sum()
    scaled = weights * (METIS_TOTAL / total) if total > 0 else weights
    return np.maximum(1, np.rint(scaled)).astype(np.int32)
