"""What helps GDP to place a graph that it never searched: alike devices, mixed logits, agreement of neighbours, averaged weights."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from envs.problem.errors import InputError
from envs.problem.network import DeviceNetwork
from envs.simulators.fifo.evaluator import Simulator
from methods.contract.registry import build
from methods.learning.encoder_placers import KEPT, spread_logits
from methods.nets.op_features import OpFeatureConfig, op_graph
from methods.placing.twin_devices import Twins, alike
from methods.testing.problems import random_problem, toy
from methods.testing.running import go, make
from orchestration.specs.state_files import load_state, save_state

ALIKE = {"keep": 4, "imitate": 0.5, "vary": 0.5, "regions": 8, "relabel": True}


def two_kinds():
    """Devices 0 and 2 are alike; 1 is faster, 3 has another memory."""
    network = DeviceNetwork(
        tuple("abcd"), np.array([1.0, 2.0, 1.0, 1.0]), np.full((4, 4), 3.0), np.full((4, 4), 0.1), np.array([9e9, 9e9, 9e9, 8e9])
    )
    return replace(random_problem(20, 4, seed=0), network=network)


def test_devices_are_alike_if_nothing_else_tells_them_apart():
    assert alike(two_kinds()).tolist() == [0, 1, 0, 3]
    far = two_kinds()
    bandwidth = far.network.bandwidth.copy()
    bandwidth[0, 1] = 1.0
    assert alike(replace(far, network=replace(far.network, bandwidth=bandwidth))).tolist() == [0, 1, 2, 3]


def test_relabelled_placements_are_as_fast_and_no_twin_is_left():
    problem, rng = two_kinds(), np.random.default_rng(0)
    view, placed = op_graph(problem, OpFeatureConfig(), 4), rng.integers(0, 4, (50, 20))
    twins = Twins(problem, view.coarse, view.work.numpy().astype(np.float64))
    mirrored = np.array([2, 1, 0, 3])[placed]
    made = twins.relabel(placed)
    np.testing.assert_array_equal(made, twins.relabel(mirrored))
    assert ((made == placed).all(axis=1) | (made == mirrored).all(axis=1)).all()
    assert (made != placed).any()
    simulated = [Simulator().evaluate(problem, p.astype(np.int16)).objective for p in (placed, made)]
    np.testing.assert_allclose(*simulated)


def test_what_is_learned_from_is_what_was_measured():
    problem = two_kinds()
    method = make("gdp", problem, search=ALIKE)
    for _ in range(3):
        proposals = method.propose(10)
        actions = np.stack([s.actions for s in method._asked[0]])
        np.testing.assert_array_equal(method._device_of(method.views[0], actions), proposals[0].placements)
        np.testing.assert_array_equal(actions, method.twins[0].relabel(actions))
        scored = method.network(method.views[0], torch.from_numpy(actions.astype(np.int64)), None)
        torch.testing.assert_close(torch.from_numpy(np.stack([s.log_probs for s in method._asked[0]])), scored.log_probs.detach())
        method.update([Simulator().evaluate(problem, p.placements, 0) for p in proposals])


def test_logits_are_mixed_with_those_of_neighbours():
    view = op_graph(random_problem(12, 3, seed=4), OpFeatureConfig(), 3)
    w, start = view.pulls.to_dense(), torch.randn(12, 3)
    torch.testing.assert_close(w, w.T)
    assert float(w.max()) == pytest.approx(1.0)
    root = w.sum(dim=1).rsqrt()
    expected = start
    for _ in range(3):
        expected = (1 - KEPT) * (root[:, None] * w * root) @ expected + KEPT * start
    torch.testing.assert_close(spread_logits(view, start, 3), expected)
    assert spread_logits(view, start, 0) is start


def test_neighbours_agree_the_more_it_counts():
    problem = random_problem(40, 3, seed=1)
    cuts = []
    for weight in (0.0, 0.5, 50.0):
        placed = make("gdp", problem, agree=weight).place(problem)
        cuts.append(int((placed[problem.graph.edges[:, 0]] != placed[problem.graph.edges[:, 1]]).sum()))
    assert cuts[0] >= cuts[1] >= cuts[2] == 0


def test_fast_devices_are_likelier():
    problem = two_kinds()
    view = op_graph(problem, OpFeatureConfig(), 5)
    torch.testing.assert_close(view.log_speed, torch.tensor([-np.log(2), 0.0, -np.log(2), -np.log(2), 0.0], dtype=torch.float32))
    shares = [np.mean(np.concatenate([p.placements for p in make("gdp", problem, speed=s).propose(10)]) == 1) for s in (0.0, 8.0)]
    assert shares[1] > 0.9 > shares[0]


def test_a_search_leaves_the_average_of_its_weights(tmp_path):
    problem = toy()
    learning = {"learning_rate": 0.01, "samples": 4, "window": 4, "epochs": 1, "average": 0.999}
    method, seen = make("gdp", problem, learning=learning), []
    for _ in range(5):
        go(method, 4)
        seen.append(method.network.state_dict()["placer.head.weight"].clone())
    left = method.policy()["network"]["placer.head.weight"]
    torch.testing.assert_close(left, torch.stack(seen).mean(dim=0))
    save_state(tmp_path / "state.safetensors", method.state())
    other = make("gdp", problem, learning=learning)
    other.restore(load_state(tmp_path / "state.safetensors"))
    torch.testing.assert_close(other.policy()["network"]["placer.head.weight"], left)
    np.testing.assert_array_equal(other.place(problem), method.place(problem))
    torch.testing.assert_close(other.network.state_dict()["placer.head.weight"], seen[-1])
    fresh = make("gdp", problem, seed=1)
    fresh.load_policy(method.policy())
    np.testing.assert_array_equal(fresh.place(problem), method.place(problem))


def test_refuses_negative_weights():
    with pytest.raises(InputError, match=r"'agree' needs .* not -1"):
        build("gdp", {"agree": -1.0}, [toy()], 0)
    with pytest.raises(InputError, match=r"average' needs .* not 1"):
        build("gdp", {"learning.average": 1.0}, [toy()], 0)
