"""Features of the nodes of a computation graph (HSDAG section 2.3). Made once a graph; what is learned from them is not known here."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import shortest_path

from envs.problem.errors import InputError
from envs.problem.graph import ComputationGraph
from envs.problem.ranges import WidthOrNone
from methods.placing.coarsening import CoarseGraph


@dataclass(frozen=True)
class FeatureConfig:
    """Which features there are; Table 3 leaves some out."""

    op_type: bool = True
    """One-hot type, averaged over the members of a group (equation 3, Appendix G)."""
    degrees: bool = True
    """One-hot in- and out-degree; with ``fractal`` these are the graph structural features of Table 3."""
    fractal: bool = True
    """Fractal dimension (equation 4)."""
    node_id: bool = True
    """Positional encoding of the topological position (equation 5)."""
    output_shape: bool = True
    """Output shape, padded to the longest."""
    position_size: WidthOrNone = 16
    """d_pos, length of the positional encoding."""


def node_features(graph: ComputationGraph, coarse: CoarseGraph, config: FeatureConfig) -> np.ndarray:
    """The features x of every group side by side, float32[N, d].

    Raises:
        InputError: if every feature is switched off.
    """
    n, edges = coarse.n_nodes, coarse.edges
    parts = []
    if config.op_type:
        parts.append(mean_types(graph.op_types, coarse))
    if config.degrees:
        parts += [one_hot(np.bincount(edges[:, side], minlength=n)) for side in (1, 0)]
    if config.fractal:
        parts.append(fractal_dimension(n, edges)[:, None])
    if config.output_shape:
        parts.append(padded_shapes([graph.output_shapes[v] for v in coarse.last]))
    if config.node_id:
        parts.append(positional_encoding(np.arange(1, n + 1), config.position_size))
    if not parts:
        raise InputError("every feature is switched off; leave at least one on")
    return np.concatenate(parts, axis=1).astype(np.float32)


def mean_types(op_types: tuple[str, ...], coarse: CoarseGraph) -> np.ndarray:
    """Share of every operation type in each group, float64[N, |T|]; types in alphabetic order."""
    names, index = np.unique(np.asarray(op_types), return_inverse=True)
    counts = np.bincount(coarse.group * len(names) + index, minlength=coarse.n_nodes * len(names))
    return counts.reshape(coarse.n_nodes, len(names)) / coarse.size[:, None]


def one_hot(values: np.ndarray) -> np.ndarray:
    """A column for each different value, float64[N, unique values]."""
    return (values[:, None] == np.unique(values)[None, :]).astype(np.float64)


def fractal_dimension(n: int, edges: np.ndarray) -> np.ndarray:
    """Slope of log N(v, r) over log r, float64[n]: N counts the other nodes at most r steps down the directed edges (equation 4).

    The radii of a node are the distances that occur; it is 0 where fewer than two do.
    """
    matrix = coo_array((np.ones(len(edges)), (edges[:, 0], edges[:, 1])), shape=(n, n)).tocsr()
    distance = shortest_path(matrix, unweighted=True)
    node, other = np.nonzero(np.isfinite(distance) & (distance > 0))
    steps = distance[node, other].astype(np.int64)
    radii = int(steps.max(initial=0)) + 1
    count = np.bincount(node * radii + steps, minlength=n * radii).reshape(n, radii)
    occurs = count > 0
    mass = np.log(np.maximum(np.cumsum(count, axis=1), 1))
    x = np.broadcast_to(np.log(np.maximum(np.arange(radii), 1)), mass.shape)
    m = np.maximum(occurs.sum(axis=1), 1)[:, None]
    x = np.where(occurs, x - (x * occurs).sum(axis=1, keepdims=True) / m, 0.0)
    y = np.where(occurs, mass - (mass * occurs).sum(axis=1, keepdims=True) / m, 0.0)
    spread = (x * x).sum(axis=1)
    return np.divide((x * y).sum(axis=1), spread, out=np.zeros(n), where=spread > 0)


def positional_encoding(position: np.ndarray, size: int) -> np.ndarray:
    """Sines (even columns) and cosines (odd columns) of the position (equation 5), float64[N, size]."""
    k = np.arange(size)
    angle = position[:, None] / 10000.0 ** ((k - k % 2) / size)[None, :]
    return np.where(k % 2 == 0, np.sin(angle), np.cos(angle))


def padded_shapes(shapes: list[tuple[int, ...]]) -> np.ndarray:
    """log(1 + size) of every dimension, zeros behind the last, float64[N, |S|]; sizes reach thousands, all else about one."""
    longest = max(1, *(len(s) for s in shapes)) if shapes else 1
    return np.log1p(np.array([(*s, *(0,) * (longest - len(s))) for s in shapes], dtype=np.float64))
