"""Hypothesis strategies for graphs, networks, problems and placements, rich in ties and corner cases. No tests belong here."""

from __future__ import annotations

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st

from envs.problem.cost_model import LinearCosts
from envs.problem.graph import ComputationGraph
from envs.problem.network import DeviceNetwork
from envs.problem.problem import Problem


def share(part: float) -> settings:
    """For tests whose examples take long: that part of the examples that others get."""
    return settings(max_examples=max(1, round(settings.default.max_examples * part)))


HARDWARE = ("", "", "fpga", "camera")


def amounts(size: int, exact: bool) -> st.SearchStrategy[list[float]]:
    """``size`` costs: small integers (many ties, many zeros) if ``exact``, otherwise any finite value up to 1,000."""
    value = st.integers(0, 3).map(float) if exact else st.one_of(st.just(0.0), st.floats(1e-3, 1e3))
    return st.lists(value, min_size=size, max_size=size)


@st.composite
def edge_lists(draw: st.DrawFn, n: int, max_edges: int = 40) -> list[tuple[int, int]]:
    """Edges of a DAG on ``n`` nodes in any order; node indices need not be a topological order."""
    pairs = [(u, v) for u in range(n) for v in range(u + 1, n)]
    if not pairs:
        return []
    chosen = draw(st.lists(st.sampled_from(pairs), unique=True, max_size=max_edges))
    label = draw(st.permutations(range(n)))
    return [(label[u], label[v]) for u, v in chosen]


@st.composite
def graphs(draw: st.DrawFn, max_nodes: int = 12, constrained: bool = True) -> ComputationGraph:
    """A graph of 1 to ``max_nodes`` nodes: several entries, isolated nodes, zero costs, and hardware and groups if ``constrained``."""
    n, exact = draw(st.integers(1, max_nodes)), draw(st.booleans())
    edges = draw(edge_lists(n))
    use_hardware, use_groups = (draw(st.booleans()), draw(st.booleans())) if constrained else (False, False)
    return ComputationGraph(
        names=tuple(f"n{i}" for i in range(n)),
        op_types=tuple(draw(st.lists(st.sampled_from(["MatMul", "Add"]), min_size=n, max_size=n))),
        flops=draw(amounts(n, exact)),
        output_bytes=draw(amounts(n, exact)),
        edges=np.array(edges, dtype=np.int32).reshape(-1, 2),
        edge_bytes=draw(amounts(len(edges), exact)),
        parameter_bytes=draw(amounts(n, exact)),
        output_shapes=tuple(draw(st.lists(st.sampled_from([(), (1,), (2, 3)]), min_size=n, max_size=n))),
        hardware=tuple(draw(st.lists(st.sampled_from(HARDWARE), min_size=n, max_size=n))) if use_hardware else None,
        colocation=draw(st.lists(st.integers(-1, 2), min_size=n, max_size=n)) if use_groups else None,
        name=draw(st.sampled_from(["graph", "g2"])),
    )


@st.composite
def networks(draw: st.DrawFn, max_devices: int = 4, memory: bool = False, power: bool = False) -> DeviceNetwork:
    """A network of 1 to ``max_devices`` devices, links not symmetric; finite memory and power draws on request."""
    d, exact = draw(st.integers(1, max_devices)), draw(st.booleans())
    speed = st.sampled_from([0.5, 1.0, 2.0]) if exact else st.floats(0.1, 100.0)
    bandwidth = st.sampled_from([0.5, 1.0, 2.0, np.inf]) if exact else st.floats(0.1, 100.0)
    size = {"min_size": d, "max_size": d}
    square = {"min_size": d * d, "max_size": d * d}
    watts: dict[str, object] = {}
    if power:
        watts = {
            "power": draw(amounts(d, exact)),
            "idle_power": draw(amounts(d, exact)),
            "link_energy": np.reshape(draw(amounts(d * d, exact)), (d, d)),
        }
    return DeviceNetwork(
        names=tuple(f"d{k}" for k in range(d)),
        speed=draw(st.lists(speed, **size)),
        bandwidth=np.reshape(draw(st.lists(bandwidth, **square)), (d, d)),
        delay=np.reshape(draw(amounts(d * d, exact)), (d, d)),
        memory=draw(st.lists(st.one_of(st.just(np.inf), st.floats(0, 40)), **size)) if memory else np.inf,
        kinds=tuple(draw(st.lists(st.sampled_from(["cpu", "gpu"]), **size))),
        supports=tuple(draw(st.lists(st.frozensets(st.sampled_from(["fpga", "camera"])), **size))),
        name=draw(st.sampled_from(["network", "lab"])),
        **watts,
    )


@st.composite
def problems(
    draw: st.DrawFn,
    max_nodes: int = 12,
    max_devices: int = 4,
    *,
    constrained: bool = True,
    memory: bool = False,
    energy: bool = False,
) -> Problem:
    """A problem that has a feasible placement; energy with random power if ``energy``, otherwise makespan.

    Feasibility is built in, not filtered for: every group is given a home device that is made to allow all its members.
    """
    graph = draw(graphs(max_nodes, constrained))
    network = draw(networks(max_devices, memory, energy))
    v, d = graph.n_nodes, network.n_devices
    homes = np.array(draw(st.lists(st.integers(0, d - 1), min_size=v, max_size=v)))
    for group in set(graph.colocation[graph.colocation >= 0].tolist()):
        members = np.flatnonzero(graph.colocation == group)
        homes[members] = homes[members[0]]
    supports = [set(s) for s in network.supports]
    for node, need in enumerate(graph.hardware):
        if need:
            supports[homes[node]].add(need)
    allowed = None
    if constrained and draw(st.booleans()):
        allowed = np.reshape(draw(st.lists(st.booleans(), min_size=v * d, max_size=v * d)), (v, d))
        allowed[np.arange(v), homes] = True
    network = DeviceNetwork(
        network.names, network.speed, network.bandwidth, network.delay, network.memory, network.power, network.idle_power,
        network.link_energy, kinds=network.kinds, supports=tuple(frozenset(s) for s in supports), name=network.name,
    )  # fmt: skip
    return Problem(graph, network, LinearCosts(), "energy" if energy else "makespan", allowed)


@st.composite
def placements(draw: st.DrawFn, problem: Problem, batch: int = 1) -> np.ndarray:
    """``batch`` feasible placements of ``problem``, int16[batch, V]; groups stay together. Draw it inside a test with ``data()``."""
    v, d = problem.n_nodes, problem.n_devices
    picks = np.reshape(draw(st.lists(st.integers(0, d - 1), min_size=batch * v, max_size=batch * v)), (batch, v))
    return feasible_placements(problem, picks)


def feasible_placements(problem: Problem, picks: np.ndarray) -> np.ndarray:
    """Turn any non-negative integers ``[B, V]`` into feasible placements int16[B, V] (the pick-th feasible device of each node)."""
    counts = problem.feasible.sum(axis=1)
    order = np.argsort(~problem.feasible, axis=1, kind="stable")
    chosen = order[np.arange(problem.n_nodes), np.asarray(picks) % counts]
    return problem.colocate(chosen)


def random_placements(problem: Problem, batch: int, seed: int) -> np.ndarray:
    """``batch`` feasible placements from a seed, int16[batch, V], for problems too large to draw."""
    picks = np.random.default_rng(seed).integers(0, 2**31, (batch, problem.n_nodes))
    return feasible_placements(problem, picks)


def drawn_problem(seed: int, *, memory: float = np.inf, live_memory: bool = False) -> Problem:
    """A problem of 10 operations on 3 devices from a seed, in halves and wholes: many ties, and some zeros.

    Operations are numbered in no order of their own, so that the first may have to wait for others.
    """
    rng = np.random.default_rng(seed)
    number = rng.permutation(10)
    pairs = [(number[u], number[v]) for u in range(10) for v in range(u + 1, 10)]
    edges = [pairs[i] for i in rng.choice(len(pairs), 16, replace=False)]
    graph = ComputationGraph(
        tuple(f"n{i}" for i in range(10)), ("x",) * 10, rng.integers(0, 4, 10).astype(float), rng.integers(0, 3, 10) / 2, edges,
        rng.integers(0, 5, 16) / 2, parameter_bytes=rng.integers(0, 3, 10) / 2,
    )  # fmt: skip
    delay = rng.integers(0, 3, (3, 3)).astype(float)
    network = DeviceNetwork(("a", "b", "c"), [1.0, 2.0, 0.5], 2.0, delay, memory=memory, live_memory=live_memory)
    return Problem(graph, network)
