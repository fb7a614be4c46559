"""Good placements to start a search from. What improves them does not belong here."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from envs.problem.distinct import first_of_equals
from envs.problem.problem import Problem
from methods.placing.constraints import fit_memory, unit_seconds
from methods.placing.list_scheduling import by_rank, cpop, heft, list_schedule, upward_ranks
from methods.placing.meta_ops import enumerate_meta_ops
from methods.placing.one_go import level_blocks, partition, single_device
from methods.placing.pipeline import best_split

DEARER = (2.0, 4.0, 8.0)
"""Factors on communication: HEFT that dreads transfers keeps chains together, which a FIFO device often rewards."""
SINGLES = 4
"""At most this many single devices, fastest first."""
COARSE = ("single device", "blocks", "partition", "meta-ops")
"""One-go placements that are no list schedules; the last is the first where the graph is not sharded."""
IDEALS = 500
"""Up to this many ideals a pipeline starts from the best contiguous split, which takes 0.2 s at most; beyond, from that of some orders."""


def good_starts(problem: Problem, seed: int) -> np.ndarray:
    """Distinct feasible placements int16[S, V]: HEFT first, then the other one-go heuristics."""
    found = np.stack(list(_all(problem, seed)))
    found = fit_memory(problem, found)
    return found[first_of_equals(found)]


def coarse_starts(problem: Problem, seed: int) -> np.ndarray:
    """Feasible placements that are no list schedules, as `COARSE` names them, int16[len(COARSE), V]."""
    fastest = int(unit_seconds(problem).sum(axis=0).argmin())
    sharded = (problem.graph.meta_op >= 0).any()
    found = [
        single_device(problem, fastest), level_blocks(problem), partition(problem, np.arange(problem.n_devices), seed),
        enumerate_meta_ops(problem) if sharded else single_device(problem, fastest),
    ]  # fmt: skip
    return fit_memory(problem, np.stack(found))


def _all(problem: Problem, seed: int) -> Iterator[np.ndarray]:
    yield heft(problem).device
    for device in np.argsort(unit_seconds(problem).sum(axis=0), kind="stable")[:SINGLES]:
        yield single_device(problem, int(device))
    yield cpop(problem).device
    yield list_schedule(problem, by_rank(problem, upward_ranks(problem)), insertion=False).device
    for factor in DEARER:
        network = replace(problem.network, delay=problem.network.delay * factor, bandwidth=problem.network.bandwidth / factor)
        yield heft(replace(problem, network=network)).device
    yield level_blocks(problem)
    if problem.objective == "throughput" and (split := best_split(problem, IDEALS).device) is not None:
        yield split
    yield partition(problem, np.arange(problem.n_devices), seed)
