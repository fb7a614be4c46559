"""Message passing against a plain recursive evaluation of equation 1, and its gradient against finite differences."""

import functools

import numpy as np
import pytest
import torch

from methods.nets.gpnet import GpNets, make_layout
from methods.nets.gpnet_messages import MessagePassing
from tests.methods.gpnets import constrained, random_placement

CASES = [(rounds, reverse, features) for rounds in (0, 3) for reverse in (False, True) for features in (True, False)]


def make(rounds: int, reverse: bool, features: bool, *, single: bool = False) -> tuple[MessagePassing, GpNets, torch.Tensor]:
    torch.manual_seed(1)
    problems = [constrained(6, 3, 1), constrained(8, 4, 2)]
    rng = np.random.default_rng(3)
    of = np.array([1, 0, 1])
    nets = GpNets(make_layout(problems, single=single), of, np.concatenate([random_placement(problems[p], rng) for p in of]))
    network = MessagePassing(3, 5, edge_features=features, rounds=rounds, reverse=reverse).double()
    return network, nets, torch.randn(nets.n_options, 3, dtype=torch.float64)


def plain(network: MessagePassing, nets: GpNets, x: torch.Tensor, edge_features: bool) -> torch.Tensor:
    """Equations 1 and 4 for one option at a time, each parent looked up in the list of gpNet edges."""
    source, target, slot = nets.edges()
    if network.reverse:
        source, target = target, source
    features = torch.from_numpy(nets.edge_features).double()

    @functools.cache
    def embedding(u: int, turn: int) -> torch.Tensor:
        if network.rounds and turn == 0:
            return x[u]
        messages = []
        for k in np.flatnonzero(target == u):
            parent = embedding(int(source[k]), turn - 1 if network.rounds else 0)
            seen = torch.cat([parent, features[slot[k]]]) if edge_features else parent
            messages.append(torch.relu(network.h1(seen)))
        mean = torch.stack(messages).mean(dim=0) if messages else torch.zeros(network.h1.out_features, dtype=torch.float64)
        return torch.relu(network.h2(mean)) + x[u]

    return torch.stack([embedding(u, network.rounds) for u in range(nets.n_options)])


@pytest.mark.thorough
@pytest.mark.parametrize(("rounds", "reverse", "features"), CASES)
@pytest.mark.parametrize("single", [False, True])
def test_equals_the_plain_recursion(rounds, reverse, features, single):
    network, nets, x = make(rounds, reverse, features, single=single)
    with torch.no_grad():
        torch.testing.assert_close(network(x, nets), plain(network, nets, x, features))


@pytest.mark.thorough
@pytest.mark.parametrize(("rounds", "reverse", "features"), CASES)
def test_gradient_is_exact(rounds, reverse, features):
    network, nets, x = make(rounds, reverse, features)
    x.requires_grad_()
    weights = torch.randn(nets.n_options, 3, dtype=torch.float64)
    expected = torch.autograd.grad((plain(network, nets, x, features) * weights).sum(), [x, *network.parameters()])
    found = torch.autograd.grad((network(x, nets) * weights).sum(), [x, *network.parameters()])
    for e, f in zip(expected, found, strict=True):
        assert f.abs().max() > 0
        torch.testing.assert_close(f, e)


def test_finite_differences():
    network, nets, x = make(0, False, True)
    torch.autograd.gradcheck(lambda *args: network(args[0], nets), (x.requires_grad_(), *network.parameters()))


def test_the_gradient_survives_a_relocation_after_the_forward_pass():
    """Rollouts update gpNets in place; what a pass saved for its gradient must not follow."""
    network, nets, x = make(0, False, True)
    network, x = network.float(), x.float().requires_grad_()
    before = torch.autograd.grad(network(x, nets).sum(), x)[0]
    out = network(x, nets).sum()
    free = int(np.flatnonzero(np.diff(nets.layout.option_ptr)[8:] > 1)[0])
    options = nets.layout.option_device[nets.layout.option_ptr[6 + free] : nets.layout.option_ptr[7 + free]]
    nets.relocate(np.zeros(1), np.array([free]), np.array([options[options != nets.placement[free]][0]]))
    torch.testing.assert_close(torch.autograd.grad(out, x)[0], before)
