"""Products by oneDNN against torch's own: values and gradients, of dense tensors, of parts of larger ones, and with packed weights."""

import pytest
import torch
from torch.nn import functional

from methods.nets import products
from methods.nets.products import Linear, linear, packed, product


@pytest.fixture(params=[True, False], ids=["onednn", "torch"], autouse=True)
def _backend(request, monkeypatch):
    monkeypatch.setattr(products, "FASTER", request.param and products.ONEDNN)
    monkeypatch.setattr(products, "ONEDNN", request.param and products.ONEDNN)


@pytest.mark.parametrize("shape", [(700, 48, 64), (2, 300, 48, 100), (3, 5, 2)])
@pytest.mark.parametrize("bias", [True, False])
def test_values_and_gradients_are_torch_s(shape, bias):
    torch.manual_seed(0)
    *rows, k, m = shape
    given = [torch.randn(*rows, k), torch.randn(m, k), *([torch.randn(m)] if bias else [])]
    found = []
    for function in (linear, functional.linear):
        mine = [g.clone().requires_grad_() for g in given]
        out = function(*mine)
        found.append([out, *torch.autograd.grad(out.sin().sum(), mine)])
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)
    with torch.no_grad():
        torch.testing.assert_close(linear(*given), found[0][0], rtol=0, atol=0)


def test_parts_of_larger_tensors():
    x, w = torch.randn(200, 90)[:, 10:74], torch.randn(150, 100)[:, ::1][:, 3:67]
    expected = (x.double() @ w.double().t()).float()
    for weight in (w, packed(w, 200)):
        torch.testing.assert_close(product(x, weight), expected, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(product(w.t(), x[:150].t()), w.t() @ x[:150], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("rows", [1, 4, 9])
def test_packed_weights_serve_any_number_of_rows(rows):
    w, x = torch.randn(600, 400), torch.randn(rows, 400)
    torch.testing.assert_close(product(x, packed(w, 4)), x @ w.t(), rtol=1e-4, atol=1e-4)


def test_double_precision_stays():
    w, x = torch.randn(300, 200, dtype=torch.float64), torch.randn(100, 200, dtype=torch.float64)
    torch.testing.assert_close(product(x, packed(w, 100)), x @ w.t())


def test_a_layer_begins_and_is_saved_as_torch_s():
    torch.manual_seed(0)
    mine = Linear(30, 20).state_dict()
    torch.manual_seed(0)
    torch.testing.assert_close(mine, torch.nn.Linear(30, 20).state_dict())
