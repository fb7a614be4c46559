"""Problems to try methods on: a published example, toys with a known optimum, larger graphs. No tests belong here."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np

from envs.problem.graph import ComputationGraph, digest
from envs.problem.network import DeviceNetwork
from envs.problem.problem import Problem
from envs.simulators.fifo.evaluator import Simulator


@dataclass(frozen=True)
class GivenCosts:
    """Compute seconds given outright, a row a node."""

    rows: tuple[tuple[float, ...], ...]

    @property
    def content_hash(self) -> str:
        return digest("table", self.rows)

    def compute_seconds(self, graph: ComputationGraph, network: DeviceNetwork) -> np.ndarray:
        return np.array(self.rows, dtype=np.float64)


def make_graph(edges: list[tuple[int, int]], edge_bytes: list[float], flops: list[float], **more: object) -> ComputationGraph:
    """A graph of operations n0, n1, … of one type with outputs of one byte; ``more`` are further fields."""
    n = len(flops)
    return ComputationGraph(
        names=tuple(f"n{i}" for i in range(n)), op_types=("op",) * n, flops=flops, output_bytes=[1.0] * n,  # type: ignore[arg-type]
        edges=np.array(edges, dtype=np.int32).reshape(-1, 2), edge_bytes=edge_bytes, **more,  # type: ignore[arg-type]
    )  # fmt: skip


def topcuoglu() -> Problem:
    """The example of Topcuoglu et al. (2002), figure 2: 10 tasks, 3 processors, links of 1 byte/s without delay."""
    costs = (
        (14, 16, 9), (13, 19, 18), (11, 13, 19), (13, 8, 17), (12, 13, 10),
        (13, 16, 9), (7, 15, 11), (5, 11, 14), (18, 12, 20), (21, 7, 16),
    )  # fmt: skip
    edges = [
        (1, 2, 18), (1, 3, 12), (1, 4, 9), (1, 5, 11), (1, 6, 14), (2, 8, 19), (2, 9, 16), (3, 7, 23), (4, 8, 27), (4, 9, 23), (5, 9, 13),
        (6, 8, 15), (7, 10, 17), (8, 10, 11), (9, 10, 13),
    ]  # fmt: skip
    graph = make_graph([(u - 1, v - 1) for u, v, _ in edges], [float(b) for _, _, b in edges], [1.0] * 10)
    return Problem(graph, DeviceNetwork(("p1", "p2", "p3"), 1.0, 1.0, 0.0), GivenCosts(costs))  # type: ignore[arg-type]


def random_graph(n: int, rng: np.random.Generator, **more: object) -> ComputationGraph:
    """A layered random graph with one to three inputs a node."""
    width = max(2, int(np.sqrt(n)))
    edges = sorted({(int(rng.integers(max(0, v - 2 * width), v)), v) for v in range(1, n) for _ in range(rng.integers(1, 4))})
    return make_graph(edges, rng.uniform(1, 5, len(edges)).tolist(), rng.uniform(1, 10, n).tolist(), **more)


def random_problem(n: int, d: int, seed: int, *, links: float = 4.0) -> Problem:
    """A random graph on unequal devices, without constraints; more ``links`` (bytes/s) make transfers cheaper."""
    rng = np.random.default_rng(seed)
    return Problem(random_graph(n, rng), random_network(d, rng, links))


def random_network(d: int, rng: np.random.Generator, links: float = 4.0, **more: object) -> DeviceNetwork:
    """Devices d0, d1, … of unequal speed and links; ``more`` are further fields."""
    return DeviceNetwork(
        tuple(f"d{k}" for k in range(d)),
        rng.uniform(1, 4, d),
        rng.uniform(0.5, 1.5, (d, d)) * links,
        rng.uniform(0, 0.5, (d, d)),
        **more,  # type: ignore[arg-type]
    )


def chains(length: int, branches: int, blocks: int, d: int, seed: int) -> Problem:
    """Blocks of parallel chains one after another, like the branches of a convolutional network."""
    rng = np.random.default_rng(seed)
    edges, n, last = [], 1, 0
    for _ in range(blocks):
        ends = []
        for _ in range(branches):
            before = last
            for _ in range(int(rng.integers(1, length + 1))):
                edges.append((before, n))
                before, n = n, n + 1
            ends.append(before)
        edges.extend((end, n) for end in ends)
        last, n = n, n + 1
    unique = sorted(set(edges))
    graph = make_graph(unique, rng.uniform(1, 3, len(unique)).tolist(), rng.uniform(1, 10, n).tolist())
    return Problem(graph, random_network(d, rng, links=1.0))


def toy() -> Problem:
    """Two chains between an entry and an exit, nine tasks on two devices: small enough to try all 512 placements."""
    return chains(4, 2, 1, 2, seed=0)


def constrained_toy() -> Problem:
    """Nine tasks on three devices: required hardware, two co-location groups, and memory that stops any device from taking all."""
    rng = np.random.default_rng(5)
    graph = random_graph(
        9, rng, hardware=("", "gpu", "", "", "fpga", "", "", "", ""), colocation=[-1, 0, -1, 0, -1, 1, 1, -1, -1], parameter_bytes=[1.0] * 9
    )
    supports: tuple[frozenset[str], ...] = (frozenset(), frozenset({"gpu"}), frozenset({"gpu", "fpga"}))
    return Problem(graph, random_network(3, rng, memory=[10.0, 8.0, 8.0], supports=supports))


def brute_force(problem: Problem) -> tuple[float, float]:
    """The best and the mean simulated objective over all placements that run."""
    everything = np.array(list(itertools.product(range(problem.n_devices), repeat=problem.n_nodes)), dtype=np.int16)
    scores = Simulator().evaluate(problem, everything[problem.valid(everything)], 0).objective
    return float(scores.min()), float(scores[np.isfinite(scores)].mean())
