"""The cost of relocation: by hand, amortised, and nothing where nothing moves."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

from envs.problem.errors import InputError
from envs.problem.graph import ComputationGraph
from envs.problem.network import DeviceNetwork
from envs.problem.problem import Problem
from envs.simulators.fifo.evaluator import Simulator
from envs.simulators.relocation import Relocating, placement_in_force, relocation_seconds


def problem(objective="makespan"):
    graph = ComputationGraph(
        names=("detect", "fuse"), op_types=("camera-detection", "vehicle-fusion"), flops=[1, 1], output_bytes=[10, 10],
        edges=[(0, 1)], edge_bytes=[10],
    )  # fmt: skip
    network = DeviceNetwork(("a", "b", "c"), [1, 1, 1], bandwidth=1e4, delay=0.5, kinds=("A", "B", "C"))
    return Problem(graph, network, objective=objective)


def test_cost_by_hand():
    p = problem()
    start = placement_in_force(p)
    everywhere = np.array([[d, start[1]] for d in range(3)], dtype=np.int16)
    startup = {0: 4.27373, 1: (4.27373 + 0.79466) / 2, 2: 0.79466}
    expected = [0.0 if d == start[0] else 0.5 + 11494 / 1e4 + startup[d] for d in range(3)]
    assert relocation_seconds(p, everywhere) == pytest.approx(expected)
    moved = next(d for d in range(3) if d != start[0])
    static = relocation_seconds(p, everywhere[[moved]], static=True) - relocation_seconds(p, everywhere[[moved]])
    assert static == pytest.approx([72173525 / 1e4])


def test_state_moves_from_the_device_in_force_to_the_new_one():
    p = problem()
    delay = [[0.0, 1.0, 2.0], [4.0, 0.0, 8.0], [16.0, 32.0, 0.0]]
    bandwidth = 1e4 * np.array([[1.0, 2.0, 3.0], [5.0, 1.0, 7.0], [11.0, 13.0, 1.0]])
    p = replace(p, network=replace(p.network, delay=delay, bandwidth=bandwidth, kinds=("C", "C", "C")))
    before = placement_in_force(p)
    for after in itertools.product(range(3), repeat=2):
        expected = sum(
            delay[k][d] + bytes_moved / bandwidth[k][d] + startup
            for k, d, bytes_moved, startup in zip(before, after, (11494, 11796), (0.79466, 0.00011), strict=True)
            if k != d
        )
        assert relocation_seconds(p, np.array([after])) == pytest.approx([expected])


def test_it_is_shared_by_the_runs_of_a_second():
    p = problem()
    rows = np.array([[d, e] for d in range(3) for e in range(3)], dtype=np.int16)
    plain, often, seldom = (e.evaluate(p, rows) for e in (Simulator(), Relocating(Simulator(), 10.0), Relocating(Simulator(), 1.0)))
    assert (often.seconds == plain.seconds).all()
    assert often.objective - plain.objective == pytest.approx((seldom.objective - plain.objective) / 10)
    stay = (rows == placement_in_force(p)).all(axis=1)
    assert (seldom.objective == plain.objective).tolist() == stay.tolist()


def test_wrong_use_is_named():
    with pytest.raises(InputError, match="frequency is 0"):
        Relocating(Simulator(), 0.0)
    with pytest.raises(InputError, match="minimises energy"):
        Relocating(Simulator(), 1.0).evaluate(problem("energy"), np.zeros((1, 2), dtype=np.int16))
