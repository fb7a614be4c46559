"""HSDAG's compiled kernels against torch's operations: values and gradients."""

import numpy as np
import pytest
import torch

from methods.hsdag.kernels import EndsProduct, Pooling, Propagation
from methods.placing.graph_parsing import adjacency, undirected


@pytest.fixture
def edges():
    return undirected(np.random.default_rng(0).integers(0, 30, (40, 2)), 30)


def agree(ours, torchs, *given):
    """Equal values, and equal gradients by all that is given."""
    found = []
    for function in (ours, torchs):
        mine = [g.clone().requires_grad_() for g in given]
        out = function(*mine)
        found.append([out, *torch.autograd.grad((out.sin() * torch.linspace(0.5, 1.5, out.numel()).view_as(out)).sum(), mine)])
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("active", [False, True])
def test_propagation(edges, active):
    torch.manual_seed(0)
    a = torch.eye(30)
    a[edges[:, 0], edges[:, 1]] = a[edges[:, 1], edges[:, 0]] = 1.0
    matrix = a / (a.sum(0)[:, None] * a.sum(0)).sqrt()

    def plain(x, y, gain, shift):
        out = torch.nn.functional.layer_norm(x + torch.relu(matrix @ y), (16,), gain, shift)
        return torch.relu(out) if active else out

    given = (torch.randn(30, 16), torch.randn(30, 16), torch.rand(16) + 0.5, torch.randn(16))
    agree(lambda *a: Propagation.apply(*a, adjacency(30, edges), active), plain, *given)


def test_products_of_ends(edges):
    torch.manual_seed(0)
    agree(lambda z: EndsProduct.apply(z, edges), lambda z: z[edges[:, 0]] * z[edges[:, 1]], torch.randn(30, 16))


def test_pooling(edges):
    torch.manual_seed(0)
    labels = np.arange(30) // 4
    same = labels[edges[:, 0]] == labels[edges[:, 1]]

    def plain(z, scores):
        rows = []
        for g in range(8):
            inner = torch.from_numpy(same & (labels[edges[:, 0]] == g))
            rows.append(z[labels == g].mean(dim=0) * (scores[inner].mean() if bool(inner.any()) else 1.0))
        return torch.stack(rows)

    assert 0 < len(np.unique(labels[edges[same, 0]])) < 8, "groups with and without inner edges"
    agree(lambda z, s: Pooling.apply(z, s, labels, edges, 8), plain, torch.randn(30, 16), torch.rand(len(edges)))
