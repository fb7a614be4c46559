"""The period of a pipeline: the largest load of any device, which is what the objective ``throughput`` minimises.

In a pipeline that is full, every device works on another sample (or a batch of them), and a new one can begin whenever the device with the
most to do is through. The load of a device is the time of its operations, forward and backward, and of the transfers it takes part in: it
sends each output that is read elsewhere once (in the time of its slowest reader's link) and receives each output that it reads from
elsewhere once (as large as the largest of the edges that bring it). `DeviceNetwork.host` says which end a transfer keeps busy. This is
the max-load of "Efficient Algorithms for Device Placement of DNN Graph Operators" (NeurIPS 2020, section 3), for any links.
"""

from __future__ import annotations

import numba
import numpy as np

from envs.problem.network import DeviceNetwork
from envs.problem.problem import Problem
from envs.simulators.noise import noise_factor, row_key


def busy_shares(network: DeviceNetwork) -> tuple[np.ndarray, np.ndarray]:
    """The part of a transfer's time that keeps its sender busy, and its receiver, each float64[D, D] as [sender, receiver]."""
    host = network.host
    if not host.any():
        return np.ones((len(host), len(host))), np.ones((len(host), len(host)))
    share = np.where(host[:, None] | host[None, :], 1.0, 0.5)
    return np.where(host[:, None], 0.0, share), np.where(host[None, :], 0.0, share)


def device_loads(problem: Problem, placements: np.ndarray, sigma: float = 0.0, key: int = 0, first: int = 0) -> np.ndarray:
    """Seconds that each device is busy for one sample, float64[B, D], of placements int16[B, V] on devices that the network has.

    Args:
        problem: what is placed.
        placements: one a row.
        sigma: noise of every operation and transfer, drawn as the simulators draw theirs.
        key: of the noise (`envs.simulators.noise.noise_key`).
        first: number of the first row's stream.
    """
    graph, network = problem.graph, problem.network
    pointer, ids = graph.out_edges
    loads = np.zeros((len(placements), problem.n_devices))
    _loads(
        np.asarray(placements, dtype=np.int64), pointer, graph.edges[ids, 1].astype(np.int64), graph.edge_bytes[ids],
        problem.compute_seconds, network.delay, network.seconds_per_byte, *busy_shares(network), sigma, np.uint64(key), first, loads,
    )  # fmt: skip
    return loads


def periods(problem: Problem, placements: np.ndarray, ok: np.ndarray, sigma: float = 0.0, key: int = 0, first: int = 0) -> np.ndarray:
    """The largest load of each placement that is ``ok`` bool[B], infinite for the others, seconds float64[B]."""
    inside = np.where(ok[:, None], placements, 0)
    return np.where(ok, device_loads(problem, inside, sigma, key, first).max(axis=1), np.inf)


@numba.njit(cache=True, nogil=True)
def _loads(placements, pointer, target, edge_bytes, seconds, delay, seconds_per_byte, sending, receiving, sigma, key, first, loads):
    n, d = seconds.shape
    arriving = np.full(d, -1.0)
    for b in range(placements.shape[0]):
        placement, load = placements[b], loads[b]
        stream = row_key(key, first + b)
        for v in range(n):
            home = placement[v]
            busy = seconds[v, home]
            if sigma > 0.0:
                busy *= noise_factor(stream, v, sigma)
            load[home] += busy
            for e in range(pointer[v], pointer[v + 1]):
                k = placement[target[e]]
                if k != home:
                    transfer = delay[home, k] + edge_bytes[e] * seconds_per_byte[home, k]
                    if sigma > 0.0:
                        transfer *= noise_factor(stream, n + e, sigma)
                    arriving[k] = max(arriving[k], transfer)
            sent = 0.0
            for e in range(pointer[v], pointer[v + 1]):
                k = placement[target[e]]
                if arriving[k] >= 0.0:
                    load[k] += arriving[k] * receiving[home, k]
                    sent = max(sent, arriving[k] * sending[home, k])
                    arriving[k] = -1.0
            load[home] += sent
