"""Training steps of torch modules as graphs: FLOPs against torch's counter, groups, bytes, and no memory for weights."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from envs.graphs.training_capture import TensorSpec, capture_step
from envs.problem.errors import InputError


class Small(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(50, 16)
        self.recur = nn.LSTM(16, 16, batch_first=True)
        self.attend = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, dropout=0.0)
        self.out = nn.Linear(16, 50)

    def forward(self, tokens, targets):
        logits = self.out(self.attend(self.recur(self.table(tokens))[0]))
        return nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


class Images(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 4, 3, groups=2))

    def forward(self, x):
        return self.layers(x)


TOKENS = [TensorSpec((4, 5), "int64")] * 2
IMAGES = [TensorSpec((2, 3, 16, 16))]
COUNTED = {"aten.mm", "aten.addmm", "aten.bmm", "aten.baddbmm", "aten.convolution", "aten.convolution_backward"}


def real(spec):
    return torch.zeros(spec.shape, dtype=getattr(torch, spec.dtype))


@pytest.mark.parametrize(("build", "inputs"), [(Small, TOKENS), (Images, IMAGES)], ids=["tokens", "images"])
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.filterwarnings("ignore:TF32 acceleration")
def test_flops_are_those_that_torch_counts(build, inputs, training, monkeypatch):
    monkeypatch.setattr(torch.backends.mha, "get_fastpath_enabled", lambda: False)  # torch does not count its fused layer
    module = build().train(training)
    with sdpa_kernel(SDPBackend.MATH), torch.backends.mkldnn.flags(enabled=False), FlopCounterMode(display=False) as counter:
        if training:
            out = module(*map(real, inputs))
            out.mean().backward()
        else:
            with torch.no_grad():
                module(*map(real, inputs))
    graph = capture_step(build, inputs, training=training)
    products = np.isin(graph.op_types, sorted(COUNTED))
    assert graph.flops[products].sum() == counter.get_total_flops() > 0
    assert graph.flops[~products].sum() > 0


def test_parameters_count_once_with_their_state():
    module = Small()
    expected = sum(p.numel() * 4 for p in module.parameters())
    assert capture_step(module, TOKENS, training=False).parameter_bytes.sum() == expected
    for optimizer, states in (("sgd", 0), ("momentum", 1), ("adam", 2)):
        assert capture_step(module, TOKENS, optimizer=optimizer).parameter_bytes.sum() == expected * (1 + states)


def test_a_weight_is_grouped_with_its_gradient_state_and_update():
    class One(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(4, 3, bias=False)

        def forward(self, x):
            return self.linear(x)

    graph = capture_step(One, [TensorSpec((2, 4))])
    group = graph.colocation[graph.names.index("linear.weight")]
    members = [(graph.names[v], graph.op_types[v]) for v in np.flatnonzero(graph.colocation == group)]
    assert {name for name, kind in members if kind == "ReadValue"} == {"linear.weight", "linear.weight.state0", "linear.weight.state1"}
    kinds = [kind for _, kind in members]
    assert kinds.count("aten.mm") == 1, "the gradient is a product, the forward product is not in the group"
    assert "aten.sqrt" in kinds
    assert graph.op_types.count("aten.mm") == 2
    assert set(np.unique(graph.colocation)) == {-1, group}
    assert (capture_step(One, [TensorSpec((2, 4))], colocate=False).colocation == -1).all()


def test_every_weight_of_a_forward_graph_sits_with_its_only_reader():
    graph = capture_step(Images, IMAGES, training=False)
    weight = graph.names.index("layers.0.weight")
    (reader,) = graph.edges[graph.edges[:, 0] == weight, 1]
    assert graph.op_types[reader] == "aten.convolution"
    assert graph.colocation[weight] == graph.colocation[reader] >= 0


def test_views_are_part_of_what_they_show_and_edges_carry_what_is_read():
    class Views(nn.Module):
        def forward(self, x):
            a, b = torch.relu(x).t().chunk(2, dim=0)
            return torch.exp(a), torch.sin(b.expand(2, 3))

    graph = capture_step(Views(), [TensorSpec((3, 2))], training=False)
    assert sorted(graph.op_types) == ["Parameter", "aten.exp", "aten.relu", "aten.sin"]
    carried = {graph.op_types[v]: b for (_, v), b in zip(graph.edges, graph.edge_bytes, strict=True)}
    assert carried == {"aten.relu": 24, "aten.exp": 12, "aten.sin": 24}  # at most all of the 24 bytes of relu's result
    assert graph.output_shapes[graph.op_types.index("aten.relu")] == (3, 2)


def test_building_allocates_nothing():
    graph = capture_step(lambda: nn.Linear(1_000_000, 1_000_000, bias=False), [TensorSpec((8, 1_000_000))])  # 4 TB of weights
    assert graph.parameter_bytes.sum() == 3 * 4e12
    assert graph.flops[np.isin(graph.op_types, ["aten.mm"])].tolist() == [2 * 8 * 1e12] * 2


def test_a_step_is_the_same_graph_every_time_and_leaves_the_module_alone():
    module = Images().eval()
    before = {k: v.clone() for k, v in module.state_dict().items()}
    first, second = (capture_step(module, IMAGES, name="net") for _ in range(2))
    assert first == second
    assert not module.training
    assert all(torch.equal(v, before[k]) for k, v in module.state_dict().items())


def test_what_cannot_be_captured_is_an_input_error():
    with pytest.raises(InputError, match="Images cannot be captured"):
        capture_step(Images, TOKENS)
    with pytest.raises(InputError, match="no weights that learn"):
        capture_step(nn.ReLU(), [TensorSpec((2, 2))])
    with pytest.raises(InputError, match="unknown optimizer 'lamb'"):
        capture_step(Images, IMAGES, optimizer="lamb")
