"""Lower bounds that no placement of a problem can beat, and the schedule length ratio. Nothing that scores a placement belongs here.

All bounds are of the expected (noise-free) times; with noise a measurement may fall below them.
"""

from __future__ import annotations

import numba
import numpy as np
from scipy.optimize import linprog
from scipy.sparse import coo_array, vstack

from envs.problem.problem import Problem
from envs.simulators.gathering import gathering_bound

_EXACT_PAIRS = 20_000
"""Up to this many group-device pairs the total-work bound solves its linear program; above, it first merges similar groups."""


def slr_denominator(problem: Problem) -> float:
    """GiPH section 5: the critical path's sum of each task's minimum compute time over its feasible devices, seconds."""
    least = _feasible_seconds(problem).min(axis=1)
    return float(_longest_path(problem, least[:, None]).max())


def schedule_length_ratio(problem: Problem, makespan: float | np.ndarray) -> float | np.ndarray:
    """SLR of GiPH section 5: makespan / `slr_denominator`, of any shape; where both are zero the ratio is 1."""
    denominator = slr_denominator(problem)
    if denominator > 0:
        return makespan / denominator
    return np.where(np.asarray(makespan) > 0, np.inf, 1.0)[()]


def shortest_path_seconds(problem: Problem) -> float:
    """The least sum of minimum compute times along any path from an entry to an exit, seconds; the plots of GiPH's authors divide by it."""
    graph, least = problem.graph, _feasible_seconds(problem).min(axis=1)
    pointer, ids = graph.in_edges
    path = least.copy()
    for v in graph.topological_order:
        if pointer[v + 1] > pointer[v]:
            path[v] += path[graph.edges[ids[pointer[v] : pointer[v + 1]], 0]].min()
    exits = np.setdiff1d(np.arange(graph.n_nodes), graph.edges[:, 0])
    return float(path[exits].min())


def critical_path_bound(problem: Problem) -> float:
    """The longest path when each operation is placed as well as it can be for each of its parents alone, seconds.

    With F(v, d) the earliest that v can finish on device d: F(v, d) = w(v, d) + max over parents u of
    (min over devices k of F(u, k) + c(u, v, k, d)). Communication is paid where it is worth less than a slower device or
    cannot be avoided, which makes this at least `slr_denominator`. Members of a co-location group never pay it.
    Floating-point operations are those of the simulators, so that a placement that reaches the bound equals it.
    """
    earliest = _longest_path(problem, _feasible_seconds(problem))
    return float(earliest.min(axis=1).max())


def total_work_bound(problem: Problem) -> float:
    """The least time in which the devices can do all work if every group of operations may be split at will, seconds.

    The linear relaxation of scheduling on unrelated machines: min T with x >= 0, sum over d of x(v, d) = 1 and
    sum over v of w(v, d) x(v, d) <= T. By duality any weights λ >= 0 of the devices with sum 1 give the bound
    sum over v of min over feasible d of λ(d) w(v, d); that sum is what is returned, for the λ of the linear program or, on
    large problems, of one in which similar groups are merged. So the bound holds whatever λ is and whatever the solver's tolerance.
    """
    seconds = _group_seconds(problem)
    bound = _dual_value(seconds, device_weights(problem))
    # The simulators add the same times in another order; this covers the rounding of both sums.
    return bound * (1 - 2 * problem.n_nodes * np.finfo(np.float64).eps)


def device_weights(problem: Problem) -> np.ndarray:
    """λ of `total_work_bound` but for a factor: what a second on each device is worth where all work is shared out at best, float64[D]."""
    return _device_weights(_merged(_group_seconds(problem)))


def makespan_bound(problem: Problem) -> float:
    """The larger of `critical_path_bound` and `total_work_bound`, seconds."""
    return max(critical_path_bound(problem), total_work_bound(problem))


def strong_bound(problem: Problem) -> float:
    """What no placement can beat, by all that is known here; minutes for thousands of operations, where `lower_bound` takes seconds."""
    bound = lower_bound(problem)
    if problem.objective == "makespan":
        bound = max(bound, gathering_bound(problem, device_weights(problem)))
    return bound


def energy_bound(problem: Problem) -> float:
    """Joules that no placement can save: idle power over `makespan_bound`, and each group's work on its most frugal device."""
    network = problem.network
    extra = network.power - network.idle_power
    seconds = _group_seconds(problem)
    active = _times(seconds, extra).min(axis=1)
    idle = float(network.idle_power.sum()) * makespan_bound(problem)
    slack = 4 * problem.n_nodes * np.finfo(np.float64).eps * (float(np.abs(active).sum()) + idle)
    return float(active.sum()) + idle - slack


def period_bound(problem: Problem) -> float:
    """Seconds that no pipeline's period can fall below: all work shared out at will, and each group on its fastest device."""
    return max(total_work_bound(problem), float(_group_seconds(problem).min(axis=1).max()))


def cost_bound(problem: Problem) -> float:
    """Seconds that no placement's total cost can fall below; with two devices that every operation may use it is the least cost itself.

    Each group on its fastest device and nothing sent; with two devices, the minimum cut between them instead (Stone 1977), by its linear
    program, less the solver's tolerance.
    """
    seconds = _group_seconds(problem)
    free = float(seconds.min(axis=1).sum())
    if problem.n_devices != 2 or not np.isfinite(seconds).all():
        return free * (1 - 2 * problem.n_nodes * np.finfo(np.float64).eps)
    return max(free, _least_cut(problem, seconds) * (1 - 1e-6))


def lower_bound(problem: Problem) -> float:
    """What no placement can beat in the problem's own objective: `makespan_bound`, `period_bound`, `cost_bound` (s), `energy_bound` (J)."""
    bounds = {"makespan": makespan_bound, "throughput": period_bound, "energy": energy_bound, "total-cost": cost_bound}
    return bounds[problem.objective](problem)


def _least_cut(problem: Problem, seconds: np.ndarray) -> float:
    """The least total cost on two devices: a linear program in x (whether a group is on the second) and y, z (whether an edge crosses)."""
    graph, network = problem.graph, problem.network
    group = np.unique(problem.leaders, return_inverse=True)[1]
    u, v = group[graph.edges].T
    over = network.delay[:, :, None] + graph.edge_bytes * network.seconds_per_byte[:, :, None]
    n, m = len(seconds), graph.n_edges
    scale = float(seconds.max()) or 1.0
    cost = np.concatenate((seconds[:, 1] - seconds[:, 0], over[0, 1], over[1, 0])) / scale
    rows, ones = np.arange(m), np.ones(m)
    # x(v) − x(u) <= y (sent from the first device to the second) and x(u) − x(v) <= z (from the second to the first)
    there = (np.concatenate((ones, -ones, -ones)), (np.tile(rows, 3), np.concatenate((v, u, n + rows))))
    back = (np.concatenate((ones, -ones, -ones)), (np.tile(rows, 3), np.concatenate((u, v, n + m + rows))))
    above = vstack([coo_array(entries, shape=(m, n + 2 * m)) for entries in (there, back)])
    result = linprog(cost, A_ub=above.tocsr(), b_ub=np.zeros(2 * m), bounds=(0, 1), method="highs")
    return float(seconds[:, 0].sum() + scale * result.fun) if result.status == 0 else 0.0


def _feasible_seconds(problem: Problem) -> np.ndarray:
    """Compute seconds float64[V, D], infinite where a device may not run an operation."""
    return np.where(problem.feasible, problem.compute_seconds, np.inf)


def _group_seconds(problem: Problem) -> np.ndarray:
    """Compute seconds of whole co-location groups (operations without one are groups), float64[G, D], infinite if infeasible."""
    seconds = _feasible_seconds(problem)
    total = np.zeros_like(seconds)
    np.add.at(total, problem.leaders, seconds)
    return total[np.unique(problem.leaders)]


def _times(seconds: np.ndarray, factors: np.ndarray) -> np.ndarray:
    """Seconds float64[G, D] times a factor of each device float64[D], infinite where they are, even for a factor of zero."""
    return np.multiply(seconds, factors, out=np.full(seconds.shape, np.inf), where=np.isfinite(seconds))


def _longest_path(problem: Problem, seconds: np.ndarray) -> np.ndarray:
    """F of `critical_path_bound` for the given seconds float64[V, K]: of every device, or of a single one for all (K = 1)."""
    graph, network = problem.graph, problem.network
    pointer, ids = graph.in_edges
    return _relax(
        graph.topological_order,
        pointer,
        np.ascontiguousarray(graph.edges[ids, 0]),
        graph.edge_bytes[ids],
        problem.leaders,
        network.delay,
        network.seconds_per_byte,
        seconds,
    )


@numba.njit(cache=True)
def _relax(order, pointer, parents, size, leaders, delay, seconds_per_byte, seconds):  # type: ignore[no-untyped-def]
    n, m = seconds.shape
    finish = np.full((n, m), np.inf)
    for v in order:
        for d in range(m):
            if seconds[v, d] == np.inf:
                continue
            ready = 0.0
            for e in range(pointer[v], pointer[v + 1]):
                u = parents[e]
                arrival = finish[u, d]
                if leaders[u] != leaders[v]:
                    for k in range(m):
                        if k != d:
                            arrival = min(arrival, finish[u, k] + (delay[k, d] + size[e] * seconds_per_byte[k, d]))
                ready = max(ready, arrival)
            finish[v, d] = ready + seconds[v, d]
    return finish


def _dual_value(seconds: np.ndarray, weights: np.ndarray) -> float:
    """The bound that device weights float64[D] (not negative, not all zero) give."""
    return float(_times(seconds, weights).min(axis=1).sum() / weights.sum())


def _merged(seconds: np.ndarray) -> np.ndarray:
    """Sums of groups whose times have nearly the same ratios between devices (1 %), or a sample of them, float64[G', D].

    Groups of the same ratios, which linear costs give all that may run on the same devices, can be merged without any loss.
    """
    seconds = seconds[(seconds > 0).all(axis=1)]  # the others can be done in no time and weigh nothing
    if seconds.size <= _EXACT_PAIRS:
        return seconds
    ratio = np.minimum(np.log2(seconds / seconds.min(axis=1, keepdims=True)), 64.0)
    _, group = np.unique(np.rint(ratio * 64).astype(np.int16), axis=0, return_inverse=True)
    total = np.zeros((int(group.max()) + 1, seconds.shape[1]))
    np.add.at(total, group.ravel(), seconds)
    # np.unique sorts by ratio, so that every k-th row is a fair sample.
    return total[:: -(-total.size // _EXACT_PAIRS)]


def _device_weights(seconds: np.ndarray) -> np.ndarray:
    """`device_weights` from the linear program's multipliers, float64[D]; equal weights should the solver give up."""
    groups, devices = seconds.shape
    equal = np.ones(devices)
    scale = float(seconds.min(axis=1).max(initial=0.0))
    if scale == 0:  # every group has a device that runs it in no time
        return equal
    rows, columns = np.nonzero(np.isfinite(seconds))
    pairs = np.arange(rows.size)
    # Variables: x of each feasible pair, then T.
    load = coo_array(
        (
            np.concatenate([seconds[rows, columns] / scale, -np.ones(devices)]),
            (np.concatenate([columns, np.arange(devices)]), np.concatenate([pairs, np.full(devices, rows.size)])),
        ),
        shape=(devices, rows.size + 1),
    )
    once = coo_array((np.ones(rows.size), (rows, pairs)), shape=(groups, rows.size + 1))
    cost = np.zeros(rows.size + 1)
    cost[-1] = 1.0
    result = linprog(cost, A_ub=load.tocsr(), b_ub=np.zeros(devices), A_eq=once.tocsr(), b_eq=np.ones(groups), method="highs")
    if result.status != 0:
        return equal
    return np.maximum(-result.ineqlin.marginals, 0.0)
