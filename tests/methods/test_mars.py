"""Mars: GCN and Deep Graph Infomax against their equations, pre-training, the placers of Table 1; shapes as the paper sets them."""

import dataclasses

import numpy as np
import pytest
import torch

from envs.problem.errors import InputError
from methods.contract.registry import build, configure
from methods.mars import MarsFeatureConfig
from methods.nets.graph_encoders import Gcn, Infomax, infomax_loss
from methods.nets.op_features import OpFeatureConfig, op_graph
from methods.nets.seq2seq import Seq2Seq
from methods.testing.problems import brute_force, random_problem, toy
from methods.testing.running import go, make

FEATURES = OpFeatureConfig(adjacent=2)


def typed(n):
    """A random graph whose operations have types: those at an even depth one, those at an odd depth another."""
    problem = random_problem(n, 2, seed=3)
    types = tuple("matmul" if level % 2 else "add" for level in problem.graph.levels)
    return dataclasses.replace(problem, graph=dataclasses.replace(problem.graph, op_types=types))


def dense_adjacency(view):
    a = torch.eye(view.n)
    for u, v in view.coarse.edges.tolist():
        a[u, v] = a[v, u] = 1.0
    scale = torch.diag(a.sum(dim=1) ** -0.5)
    return scale @ a @ scale


def test_layers_follow_equation_1():
    torch.manual_seed(0)
    view = op_graph(random_problem(10, 2, seed=3), FEATURES, 2)
    net = Gcn(FEATURES, 6, 3)
    a, h = dense_adjacency(view), net.input(view)
    for k in range(3):
        z = a @ (h if k == 0 else h @ net.theta[k - 1].weight.T)
        h = torch.where(z > 0, z, net.activation[k].weight * z)
    torch.testing.assert_close(net(view), h)


def test_the_loss_follows_equations_4_to_6():
    torch.manual_seed(0)
    real, corrupted, dgi = torch.randn(5, 4), torch.randn(5, 4), Infomax(4)
    s = torch.sigmoid(real.sum(dim=0) / 5)
    d = lambda h: torch.sigmoid(h @ dgi.bilinear @ s)  # noqa: E731
    expected = -(sum(torch.log(d(h)) for h in real) + sum(torch.log(1 - d(h)) for h in corrupted)) / 10
    torch.testing.assert_close(dgi(real, corrupted), expected)


def test_corruption_permutes_features_and_keeps_the_graph():
    torch.manual_seed(0)
    view = op_graph(random_problem(8, 2, seed=3), FEATURES, 2)
    net, dgi, order = Gcn(FEATURES, 6, 3), Infomax(6), torch.randperm(8)
    shuffled = dataclasses.replace(view, types=view.types[order], numbers=view.numbers[order])
    torch.testing.assert_close(infomax_loss(net, dgi, view, order), dgi(net(view), net(shuffled)))


def test_pretraining_lowers_the_loss_and_keeps_the_best_weights():
    problem = typed(40)
    method = make("mars", problem, pretraining=60, size=32, pretraining_rate=0.01)
    placer = {k: v.clone() for k, v in method.network.placer.state_dict().items()}
    encoder = {k: v.clone() for k, v in method.network.encoder.state_dict().items()}
    report = method.pretrain([problem])
    assert report["infomax_best_loss"] < 0.8 * report["infomax_first_loss"]
    assert report["infomax_first_loss"] == pytest.approx(np.log(2), abs=0.15)  # a discriminator that knows nothing
    assert all(torch.equal(v, placer[k]) for k, v in method.network.placer.state_dict().items())
    assert any(not torch.equal(v, encoder[k]) for k, v in method.network.encoder.state_dict().items())
    longer = make("mars", problem, pretraining=1, size=32)
    longer.load_policy(method.policy())
    assert torch.equal(longer.network.encoder.theta[0].weight, method.network.encoder.theta[0].weight)
    again = make("mars", problem, pretraining=60, size=32, pretraining_rate=0.01)
    assert again.pretrain([problem]) == report


def test_pretraining_keeps_the_first_of_all_weights_if_it_only_gets_worse():
    problem = random_problem(10, 2, seed=3)
    method = make("mars", problem, pretraining=5, pretraining_rate=1000.0)
    before = {k: v.clone() for k, v in method.network.encoder.state_dict().items()}
    report = method.pretrain([problem])
    assert report["infomax_best_loss"] == report["infomax_first_loss"]
    assert all(torch.equal(v, before[k]) for k, v in method.network.encoder.state_dict().items())


@pytest.mark.parametrize("placer", ["segments", "seq2seq", "transformer-xl", "mlp"])
def test_every_placer_of_table_1_places_and_learns_with_a_fixed_encoder(placer):
    method = make("mars", toy(), placer=placer, train_encoder=False)
    method.pretrain([toy()])
    before = {k: v.clone() for k, v in method.network.state_dict().items()}
    go(method, 16)
    assert method.learner.updates > 0
    changed = {k.split(".")[0] for k, v in method.network.state_dict().items() if not torch.equal(v, before[k])}
    assert changed == {"placer"}


def test_sizes_are_those_of_section_4_2():
    config = configure("mars", {})
    method = build("mars", {}, [random_problem(5, 2, seed=0)], 0)
    encoder, placer = method.network.encoder, method.network.placer
    assert len(encoder.activation) == 3
    assert {tuple(t.weight.shape) for t in encoder.theta} == {(256, 256)}
    assert isinstance(placer, Seq2Seq)
    assert placer.cell.hidden_size == 2 * placer.encoder.hidden_size == 512
    assert placer.encoder.bidirectional
    assert placer.segment == 128
    learning = config.learning
    assert (learning.samples, learning.window, learning.minibatches, learning.epochs) == (10, 20, 4, 3)
    assert (learning.clip_ratio, learning.entropy, learning.learning_rate, learning.clip) == (0.2, 0.001, 3e-4, 1.0)
    assert (learning.baseline, learning.decay, learning.invalid_seconds, config.pretraining) == ("ema", 0.99, 100.0, 1000)


def test_infomax_is_for_the_gcn():
    with pytest.raises(InputError, match="pre-trains a GCN"):
        make("mars", toy(), encoder="graphsage").pretrain([toy()])


@pytest.mark.slow
def test_learns_a_toy_problem():
    problem = toy()
    best, mean = brute_force(problem)
    learning = {"learning_rate": 0.01, "samples": 10, "window": 10, "epochs": 3, "minibatches": 1, "decay": 0.9}
    run = go(make("mars", problem, seed=1, learning=learning), 300)
    assert np.mean(run.objective[-50:]) <= best + 0.5 * (mean - best)


def test_shapes_are_those_of_the_input_and_the_output_over_the_largest():
    graph = random_problem(6, 2, seed=0).graph
    shapes = ((4, 8), (2,), (16,), (), (1, 2, 3), (5,))
    problem = dataclasses.replace(random_problem(6, 2, seed=0), graph=dataclasses.replace(graph, output_shapes=shapes))
    view = op_graph(problem, MarsFeatureConfig(), 2)
    pointer, ids = graph.in_edges
    for unit, v in enumerate(view.coarse.last.tolist()):
        first = shapes[graph.edges[ids[pointer[v]], 0]] if pointer[v + 1] > pointer[v] else ()
        expected = [*shapes[v], *(0,) * (5 - len(shapes[v])), *first, *(0,) * (5 - len(first))]
        np.testing.assert_allclose(view.numbers[unit], np.array(expected) / 16, rtol=1e-6)
