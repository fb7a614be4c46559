"""GDP: its equations by plain loops on small tensors, segment recurrence, ablations, transfer."""

import numpy as np
import pytest
import torch

from envs.problem.errors import InputError
from envs.simulators.fifo.evaluator import Simulator
from methods.contract.registry import build
from methods.gdp import Gdp
from methods.learning.encoder_placers import EncoderPlacer
from methods.nets.gated import Gated
from methods.nets.graph_encoders import GraphSage
from methods.nets.largest import Largest
from methods.nets.op_features import OpFeatureConfig, adjacent, op_graph, padded, type_codes
from methods.nets.transformer_xl import TransformerLayer, TransformerXL, condition
from methods.testing.problems import brute_force, constrained_toy, random_problem, toy
from methods.testing.running import go, make


def test_embedding_follows_equations_2_and_3():
    torch.manual_seed(0)
    config = OpFeatureConfig()
    view = op_graph(random_problem(12, 3, seed=4), config, 3)
    net = GraphSage(config, 6, 2)
    h = net.input(view)
    neighbours = [
        {*view.coarse.edges[view.coarse.edges[:, 0] == v, 1], *view.coarse.edges[view.coarse.edges[:, 1] == v, 0]} for v in range(12)
    ]
    for k in range(2):
        w, b = net.affine[k].weight, net.affine[k].bias
        rows = []
        for v in range(12):
            pooled = torch.stack([torch.sigmoid(w @ h[u] + b) for u in neighbours[v]]).amax(dim=0)
            rows.append(net.dense[k].weight @ torch.cat((h[v], pooled)) + net.dense[k].bias)
        h = torch.stack(rows) if k == 1 else torch.relu(torch.stack(rows))
    torch.testing.assert_close(net(view), h)


def test_a_lonely_node_pools_nothing():
    found = Largest.apply(torch.randn(3, 4), np.array([0, 0, 1, 1]), np.array([0]))
    assert (found[[0, 2]] == 0).all()


def test_the_largest_message_and_its_gradient_are_torch_s():
    torch.manual_seed(0)
    view = op_graph(random_problem(40, 3, seed=4), OpFeatureConfig(), 3)
    messages, found = torch.randint(1, 5, (view.n, 24)).float().requires_grad_(), []  # few values: some are equally large
    ends = view.neighbours
    scattered = torch.zeros(view.n, 24).scatter_reduce(
        0, ends[:, 1:].expand(-1, 24), messages[ends[:, 0]], "amax", include_self=False
    )  # fmt: skip
    for out in (Largest.apply(messages, *view.adjacency), scattered):
        found.append((out, *torch.autograd.grad((out * torch.arange(24.0)).sin().sum(), messages)))
    torch.testing.assert_close(found[0], found[1])


def test_superposition_follows_equation_4():
    torch.manual_seed(0)
    c = torch.randn(5, 4)
    layer, inputs, mask = TransformerLayer(4, 1, 2, False), torch.randn(1, 5, 4), torch.ones(1, 1, 1, 10, dtype=torch.bool)
    wide = torch.relu(layer.widen(c * inputs[0]))
    narrow = layer.narrow(torch.cat((c, c), dim=1) * wide)
    torch.testing.assert_close(layer(inputs, c[None], mask)[0], layer.norm(inputs[0] + narrow))


def test_gated_activations_and_their_gradients_are_torch_s():
    torch.manual_seed(0)
    found = []
    for function in (Gated.apply, lambda x, c: torch.relu(x) * c.repeat(1, 1, 2)):
        torch.manual_seed(0)
        given = [torch.randn(2, 3, 8, requires_grad=True), torch.randn(2, 3, 4, requires_grad=True)]
        out = function(*given)
        found.append([out, *torch.autograd.grad(out.sin().sum(), given)])
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b)


def test_every_dense_layer_is_conditioned():
    torch.manual_seed(0)
    x, mask = torch.randn(2, 3, 4), torch.ones(2, 1, 1, 6, dtype=torch.bool)
    layer, c = TransformerLayer(4, 2, 2, True), torch.randn(2, 3, 4)
    cached = torch.cat((torch.zeros(1, 3, 4), (c * x)[:-1]))
    both = torch.cat((cached, c * x), dim=1)
    q, k, v = layer.query(c * x), layer.key(both), layer.value(both)
    mixed = torch.cat([torch.softmax(q[..., s] @ k[..., s].mT / 2**0.5, dim=-1) @ v[..., s] for s in (slice(0, 2), slice(2, 4))], dim=-1)
    torch.testing.assert_close(layer.attend(x, c, mask), layer.merge(c * mixed))


def by_segments(net, embedding):
    """Segment after segment, keeping the input of every layer as the cache of the next segment."""
    length, logits, caches = net.segment, [], {}

    def run(layer, name, x, c):
        now = condition(x, c)
        cached = caches.get(name)
        both = now if cached is None else torch.cat((cached, now))
        caches[name] = now.detach()
        split = lambda t: t.unflatten(1, (layer.heads, -1)).transpose(0, 1)  # noqa: E731
        q, k, v = split(layer.query(now)), split(layer.key(both)), split(layer.value(both))
        mixed = (torch.softmax(q @ k.mT / q.shape[-1] ** 0.5, dim=-1) @ v).transpose(0, 1).flatten(1)
        x = layer.norm_attention(x + layer.merge(condition(mixed, c)))
        twice = None if c is None else torch.cat((c, c), dim=-1)
        return layer.norm(x + layer.narrow(condition(torch.relu(layer.widen(condition(x, c))), twice)))

    for part in embedding.split(length):
        c, x = run(net.conditioning, "c", part, None), part
        for k, layer in enumerate(net.layers):
            x = run(layer, k, x, c)
        logits.append(net.head(condition(x, c)))
    return torch.cat(logits)


def test_all_segments_at_once_are_segment_after_segment_with_a_cache():
    torch.manual_seed(0)
    net = TransformerXL(8, 3, segment=4)
    gradients = []
    embedding = torch.randn(11, 8)
    weights = torch.randn(11, 3)
    for forward in (net, lambda e: by_segments(net, e)):
        net.zero_grad()
        e = embedding.clone().requires_grad_()
        logits = forward(e)
        (logits * weights).sum().backward()
        gradients.append([logits.detach(), e.grad, *(p.grad.clone() for p in net.parameters())])
    for a, b in zip(*gradients, strict=True):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-4)


def test_no_gradient_passes_the_cache_though_its_content_does():
    torch.manual_seed(0)
    net = TransformerXL(8, 3, segment=4)
    e = torch.randn(8, 8, requires_grad=True)
    net(e)[4:].sum().backward()
    assert (e.grad[:4] == 0).all()
    assert (e.grad[4:] != 0).all()
    changed = e.detach().clone()
    changed[0] += 1
    with torch.no_grad():
        assert (net(changed)[4:] != net(e)[4:]).any(dim=1).all()


def test_there_is_no_positional_embedding():
    torch.manual_seed(0)
    net = TransformerXL(8, 3, segment=6)
    e, order = torch.randn(6, 8), torch.randperm(6)
    with torch.no_grad():
        torch.testing.assert_close(net(e[order]), net(e)[order])


def test_ablations_leave_out_what_they_say():
    torch.manual_seed(0)
    e = torch.randn(8, 8)
    alone = TransformerXL(8, 3, segment=4, attention=False)
    with torch.no_grad():
        torch.testing.assert_close(alone(e)[3:4], alone(e[3:4]))  # without attention, an operation is placed by itself
    assert not any("query" in name for name, _ in alone.named_parameters())
    assert TransformerXL(8, 3, superposition=False).conditioning is None
    fixed = make("gdp", toy(), train_embedding=False)
    before = {k: v.clone() for k, v in fixed.network.state_dict().items()}
    go(fixed, 20)
    changed = {k.split(".")[0] for k, v in fixed.network.state_dict().items() if not torch.equal(v, before[k])}
    assert changed == {"placer"}


def test_features_of_operations():
    np.testing.assert_array_equal(padded([(3, 4), (), (2,) * 7]), [[3, 4, 0, 0, 0], [0] * 5, [2, 2, 2, 2, 8]])
    edges = np.array([[0, 1], [0, 2], [0, 3], [1, 3]])
    np.testing.assert_allclose(adjacent(4, edges, 2), [[1 / 3, 2 / 3], [1, -1], [-1, -1], [-1, -1]])
    assert len({tuple(c) for c in type_codes([f"aten.op{i}" for i in range(200)]).tolist()}) == 200


def test_groups_and_hardware_reach_the_policy():
    problem = constrained_toy()
    view = op_graph(problem, OpFeatureConfig(costs=True), 4)
    assert view.n == 7  # 9 operations, two groups of two
    assert not view.allowed[:, 3].any()
    assert view.allowed[view.coarse.group[4]].tolist() == [False, False, True, False]
    assert view.numbers.shape == (7, OpFeatureConfig(costs=True).count)


def test_one_policy_learns_several_graphs_and_places_another():
    problems = [toy(), random_problem(20, 3, seed=1)]
    config = {"size": 16, "segment": 8, "learning": {"learning_rate": 0.01, "samples": 4, "window": 4}}
    method = build("gdp", config, problems, 0)
    seen = set()
    for _ in range(3):
        proposals = method.propose(16)
        seen |= {p.problem for p in proposals}
        method.update([Simulator().evaluate(problems[p.problem], p.placements, 0) for p in proposals])
    assert seen == {0, 1}
    assert method.learner.updates == 12
    unseen = random_problem(30, 2, seed=7)
    placed = method.place(unseen)
    assert unseen.valid(placed[None]).all()
    other = build("gdp", config | {"devices": 3}, [unseen], 1)
    other.load_policy(method.policy())
    np.testing.assert_array_equal(other.place(unseen), placed)
    with pytest.raises(InputError, match="chooses among 3 devices"):
        method.place(random_problem(5, 4, seed=0))
    with pytest.raises(InputError, match="does not fit"):
        build("gdp", {"size": 8}, [unseen], 1).load_policy(method.policy())


def test_learns_a_toy_problem():
    problem = toy()
    best, mean = brute_force(problem)
    run = go(make("gdp", problem, seed=1), 300)
    assert np.mean(run.objective[-50:]) <= best + 0.5 * (mean - best)
    assert run.best <= best + 0.1 * (mean - best)


def test_without_repair_memory_is_what_the_reward_teaches():
    problem = constrained_toy()
    run = go(make("gdp", problem, repair=False), 40)
    assert problem.valid(np.stack(run.placements)).all()
    assert np.isinf(run.objective).any()


def test_kept_logits_change_nothing(monkeypatch):
    found = []
    for kept in (True, False):
        if not kept:
            monkeypatch.setattr(EncoderPlacer, "_logits_now", lambda self, view, keep: self._logits(view, self.embedding(view)))
        problem, proposed = random_problem(30, 3, seed=4), []
        method = build("gdp", Gdp.toy_config, [problem], 0)
        worked_out = []
        monkeypatch.setattr(type(method.network.encoder), "forward", _counting(type(method.network.encoder).forward, worked_out))
        for _ in range(3):
            (proposal,) = method.propose(10)
            proposed.append(proposal.placements)
            method.update([Simulator().evaluate(problem, proposal.placements)])
        found.append((np.concatenate(proposed), method.policy(), len(worked_out)))
        monkeypatch.undo()
    np.testing.assert_array_equal(found[0][0], found[1][0])
    torch.testing.assert_close(found[0][1], found[1][1], rtol=0, atol=0)
    assert [f[2] for f in found] == [3 * 4, 3 * 5]  # the draw is the first of four epochs


def _counting(function, calls):
    def counted(self, view):
        calls.append(1)
        return function(self, view)

    return counted
