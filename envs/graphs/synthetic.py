"""Random task graphs: the parametric generator of GiPH, Appendix B.2, after Topcuoglu et al. (2002). Networks are made elsewhere.

Where the paper leaves a choice open:

- Depth counts the tasks of the longest path. Its uniform distribution spans ``1 ± depth_spread`` times the mean (the authors'
  code: 0.2), and a random chain through all levels makes it exact.
- Widths are uniform between 0 and twice their mean. With ``sizing="exact"`` they are then scaled so that the graph has exactly
  M tasks, entry and exit included, as the paper defines M. With ``sizing="layers"`` they are rounded up and kept, and entry
  and exit are added on top, as in the authors' code: M only sets the scale (M = 10 or 15 with shape 0.1 to 0.3 gives 11 to 49 tasks).
- Tasks left without a parent (child) are given a random one among the earlier (later) levels.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from envs.problem.errors import InputError
from envs.problem.graph import ComputationGraph
from envs.problem.randomness import check_ranges, seed_label, stream
from envs.problem.ranges import MOST, MOST_TASKS, Tasks


@dataclass(frozen=True)
class TaskGraphParameters:
    """What `generate_graph` needs; symbols are those of Appendix B.2.

    Raises:
        InputError: for a value out of range.
    """

    tasks: Tasks = 20
    """M, the number of tasks (with ``sizing="layers"`` only the scale of depth and widths)."""
    shape: float = 0.5
    """α: mean depth is √M / α, mean width α √M."""
    connection_probability: float = 0.2
    """p_c, of an edge from a task to each task of a later level."""
    mean_compute: float = 100.0
    """C̄, mean work of a task, FLOPs (or free work units)."""
    mean_bytes: float = 100.0
    """B̄, mean data of an edge, bytes."""
    compute_heterogeneity: float = 0.2
    """ε_C, 0 to 1: work is uniform in C̄ (1 ± ε_C)."""
    bytes_heterogeneity: float = 0.2
    """ε_B, 0 to 1: data is uniform in B̄ (1 ± ε_B)."""
    hardware_types: int = 0
    """Each task requires one of ``hw0``, ``hw1``, …, chosen uniformly; 0 is no constraints."""
    sizing: str = "exact"
    """``exact``: M tasks, as in the paper; ``layers``: M is a scale, as in the authors' code."""
    depth_spread: float = 0.2
    """Half width of the depth's uniform distribution, relative to its mean, 0 to 1."""
    max_span: int = 0
    """How many levels an edge may span; 0 is any number, as in the paper. Keeps large graphs sparse."""

    def __post_init__(self) -> None:
        if self.sizing not in ("exact", "layers"):
            raise InputError(f"sizing is {self.sizing!r}; it must be 'exact' or 'layers'")
        check_ranges(
            self,
            tasks=(1, MOST_TASKS), shape=(1e-6, 1e6), connection_probability=(0, 1), mean_compute=(0, MOST),
            mean_bytes=(0, MOST), compute_heterogeneity=(0, 1), bytes_heterogeneity=(0, 1), hardware_types=(0, 1024),
            depth_spread=(0, 1), max_span=(0, MOST_TASKS),
        )  # fmt: skip


def generate_graph(parameters: TaskGraphParameters, seed: int | np.random.SeedSequence) -> ComputationGraph:
    """A random graph with a single entry (node 0) and a single exit (the last node).

    Structure, work, data and hardware come from separate streams of ``seed``, so that changing the parameters of one leaves
    the others as they were. Each task's ``output_bytes`` is the largest of its edges; edges are sorted by producer, then consumer.
    """
    widths = _widths(parameters, stream(seed, 0))
    edges = _edges(widths, parameters, stream(seed, 1))
    n = int(widths.sum())
    work = _around(parameters.mean_compute, parameters.compute_heterogeneity, n, stream(seed, 2))
    data = _around(parameters.mean_bytes, parameters.bytes_heterogeneity, len(edges), stream(seed, 3))
    output = np.zeros(n)
    np.maximum.at(output, edges[:, 0], data)
    kinds = stream(seed, 4).integers(0, max(parameters.hardware_types, 1), n)
    return ComputationGraph(
        names=tuple(f"t{i}" for i in range(n)),
        op_types=("task",) * n,
        flops=work,
        output_bytes=output,
        edges=edges,
        edge_bytes=data,
        hardware=tuple(f"hw{k}" for k in kinds) if parameters.hardware_types else ("",) * n,
        name=f"synthetic-{parameters.tasks}-a{parameters.shape:g}-s{seed_label(seed)}",
        provenance="published generator",
    )


def _around(mean: float, heterogeneity: float, size: int, rng: np.random.Generator) -> np.ndarray:
    return mean * (1 + heterogeneity * rng.uniform(-1, 1, size))


def _widths(parameters: TaskGraphParameters, rng: np.random.Generator) -> np.ndarray:
    """Number of tasks of each level, int64[depth]; the first and the last level have one."""
    root = math.sqrt(parameters.tasks)
    depth = root / parameters.shape * rng.uniform(1 - parameters.depth_spread, 1 + parameters.depth_spread)
    if parameters.sizing == "layers":
        middle = max(math.ceil(depth), 1)
        inner = np.maximum(np.ceil(rng.uniform(0, 2 * parameters.shape * root, middle)), 1).astype(np.int64)
        return np.concatenate(([1], inner, [1]))
    m = parameters.tasks
    if m <= 2:
        return np.ones(m, dtype=np.int64)
    middle = min(max(round(depth), 3), m) - 2
    share = 1 - rng.random(middle)  # (0, 1], so that the sum is never zero
    spare = m - 2 - middle
    inner = np.floor(share / share.sum() * spare).astype(np.int64)
    short = rng.choice(middle, spare - int(inner.sum()), replace=False)
    inner[short] += 1
    return np.concatenate(([1], inner + 1, [1]))


def _edges(widths: np.ndarray, parameters: TaskGraphParameters, rng: np.random.Generator) -> np.ndarray:
    """Edges int32[E, 2] of nodes numbered level by level."""
    start = np.concatenate(([0], np.cumsum(widths)))
    n, depth = int(start[-1]), len(widths)
    level = np.repeat(np.arange(depth), widths)
    span = parameters.max_span or depth
    first = start[np.maximum(level - span, 0)]  # candidates for parents of node v are first[v] .. start[level[v]] - 1
    behind = start[level]
    last = start[np.minimum(level + span, depth - 1) + 1]  # candidates for children are start[level[v] + 1] .. last[v] - 1
    ahead = start[level + 1]

    chance = _chosen(behind - first, parameters.connection_probability, rng)
    children = np.searchsorted(np.cumsum(behind - first), chance, side="right")
    offset = chance - (np.cumsum(behind - first) - (behind - first))[children]
    pairs = [np.stack([first[children] + offset, children], axis=1)]

    chain = start[:-1] + rng.integers(0, widths)
    pairs.append(np.stack([chain[:-1], chain[1:]], axis=1))
    joined = np.concatenate(pairs)

    orphans = np.flatnonzero((np.bincount(joined[:, 1], minlength=n) == 0) & (level > 0))
    pairs.append(np.stack([rng.integers(first[orphans], behind[orphans]), orphans], axis=1))
    joined = np.concatenate(pairs)

    barren = np.flatnonzero((np.bincount(joined[:, 0], minlength=n) == 0) & (level < depth - 1))
    pairs.append(np.stack([barren, rng.integers(ahead[barren], last[barren])], axis=1))
    keys = np.unique(np.concatenate([p[:, 0] * n + p[:, 1] for p in pairs]))
    return np.stack([keys // n, keys % n], axis=1).astype(np.int32)


def _chosen(candidates: np.ndarray, probability: float, rng: np.random.Generator) -> np.ndarray:
    """Indices below ``candidates.sum()``, each chosen with ``probability``, in time that grows with their number only."""
    total = int(candidates.sum())
    if probability == 0 or total == 0:
        return np.empty(0, dtype=np.int64)
    if probability == 1:
        return np.arange(total)
    found, reached = [], -1
    while reached < total:
        size = int((total - reached) * probability * 1.05) + 100
        # A gap beyond the end is as good as any other, and must not overflow when summed.
        steps = reached + np.cumsum(np.minimum(rng.geometric(probability, size), total + 1))
        found.append(steps[steps < total])
        reached = int(steps[-1])
    return np.concatenate(found)
