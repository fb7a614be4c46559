"""Problems and plain constructions that the tests of gpNet and its learners share. No tests belong here."""

from __future__ import annotations

import numpy as np

from envs.problem.problem import Problem
from methods.nets.gpnet import GpNets
from methods.testing.problems import random_graph, random_network

Ends = tuple[tuple[int, int], tuple[int, int]]
"""The labels (task, device) of both ends of a gpNet edge."""


def constrained(n: int, d: int, seed: int, *, groups: bool = False) -> Problem:
    """A random graph on unequal devices where every task has its own random feasible devices."""
    rng = np.random.default_rng(seed)
    colocation = rng.permutation(n) // 3 - 1 if groups else None
    graph = random_graph(n, rng, colocation=colocation)
    allowed = rng.random((n, d)) < 0.6
    allowed[:, rng.integers(d)] = True
    return Problem(graph, random_network(d, rng), allowed=allowed)


def random_placement(problem: Problem, rng: np.random.Generator) -> np.ndarray:
    return problem.colocate(np.array([rng.choice(np.flatnonzero(row)) for row in problem.feasible]))


def brute_force_edges(problem: Problem, placement: np.ndarray) -> dict[Ends, tuple[float, ...]]:
    """Algorithm gpNet (Appendix B.1), line by line: the ends of every edge, and its raw features."""
    graph, net = problem.graph, problem.network
    options = [[(i, d) for d in range(net.n_devices) if problem.feasible[i, d]] for i in range(graph.n_nodes)]
    edges = {}
    for (i, j), nbytes in zip(graph.edges.tolist(), graph.edge_bytes, strict=True):
        for u1 in options[i]:
            for u2 in options[j]:
                if placement[i] == u1[1] or placement[j] == u2[1]:
                    per_byte, delay = net.seconds_per_byte[u1[1], u2[1]], net.delay[u1[1], u2[1]]
                    edges[u1, u2] = (nbytes, per_byte, delay, delay + nbytes * per_byte)
    return edges


def labelled_edges(nets: GpNets) -> dict[Ends, np.ndarray]:
    """The edges of one gpNet by the labels of their ends, with their features scaled back."""
    source, target, slot = nets.edges()
    label = list(zip(nets.option_tasks().tolist(), nets.device.tolist(), strict=True))
    raw = nets.edge_features[slot] / nets.layout.edge_scale[0] + nets.layout.edge_shift[0]
    return {(label[u], label[v]): x for u, v, x in zip(source, target, raw, strict=True)}
