"""The networks of GDP and Mars: shapes against the papers' settings, layers, and gradients that go where their operations go."""

import numpy as np
import pytest

from envs.graphs import step_models
from envs.graphs.capture import capture, model_names, resolve_options
from envs.graphs.grouping import _join_neighbours, merge_operators
from envs.problem.errors import InputError

SMALL = {
    "rnnlm": {"batch": 2, "length": 3, "hidden": 8, "vocabulary": 20},
    "gnmt": {"batch": 2, "length": 3, "hidden": 8, "vocabulary": 20},
    "seq2seq": {"batch": 2, "length": 3, "hidden": 8, "vocabulary": 20},
    "transformer-xl": {"batch": 2, "length": 4, "segments": 2, "hidden": 64, "vocabulary": 20},
    "transformer": {"batch": 2, "length": 4, "hidden": 64, "vocabulary": 20},
    "wavenet": {"batch": 1, "length": 16, "residual": 4, "skipped": 4},
    "amoebanet": {"batch": 1, "size": 64, "cells": 3, "filters": 16},
    "vgg-16": {"batch": 1, "size": 64},
    "inception-v3": {"batch": 2, "size": 96},
    "bert-base": {"batch": 1, "length": 8},
}
DEPTHS = {"rnnlm-2": 2, "rnnlm-4": 4, "gnmt-2": 2, "gnmt-4": 4, "transformer-xl-2": 2, "seq2seq": 4, "transformer": 12, "wavenet-2x18": 18}
"""Layers, where a graph is small enough for a quick test."""


def small(name):
    return next(v for k, v in SMALL.items() if name == k or name.startswith(f"{k}-"))


def built(name, **options):
    return step_models._build(name, step_models.resolve_step(name, {**small(name), **options}))


@pytest.mark.thorough
@pytest.mark.parametrize("name", DEPTHS)
def test_every_operation_of_a_training_step_has_a_layer(name):
    graph = built(name, training=True, optimizer="sgd")
    assert np.bincount(graph.layer).size == DEPTHS[name]
    assert (graph.layer >= 0).all()


def weights(graph):
    return sum(1 for t in graph.op_types if t in ("ReadValue", "Constant"))


@pytest.mark.parametrize(
    ("name", "count"),
    [  # what nothing reads, as the way on from WaveNet's last block, is not in the graph
        ("rnnlm-2", 2 * 20 * 8 + 2 * (4 * 8 * 16 + 8 * 8)),  # two tables, and input, recurrent weights and two biases of four gates
        ("wavenet-2x18", 256 * 4 + 18 * (2 * (4 * 4 * 2 + 4) + 2 * (4 * 4 + 4)) + (4 * 4 + 4) - (4 * 4 + 4) + (4 * 256 + 256)),
        # two tables and a projection; both directions and one more encoder layer; keys, query, energy; decoders that read the context
        ("gnmt-2", 3 * 160 + 2 * (4 * 8 * 16 + 64) + (4 * 8 * 24 + 64) + 2 * 64 + 8 + 2 * (4 * 8 * 24 + 64)),
    ],
)
def test_weights_are_those_of_the_architecture(name, count):
    assert built(name).parameter_bytes.sum() == 4 * count


@pytest.mark.parametrize(
    ("name", "options", "count"),
    [
        ("vgg-16", {}, 138_357_544),  # Simonyan & Zisserman's configuration D
        # Mars's GNMT: three tables; both directions, a layer that reads both, two more; attention; four decoders that read the context
        (
            "gnmt-4",
            {"batch": 256, "hidden": 256, "length": 2},
            3 * 36548 * 256 + 2 * 526_336 + 788_480 + 2 * 526_336 + 131_328 + 4 * 788_480,
        ),
        pytest.param(
            "bert-base", {"batch": 24, "length": 384}, 109_482_240 + 2 * 512 * 2, marks=pytest.mark.slow
        ),  # and two int64 rows of 512
        pytest.param(
            "inception-v3", {"batch": 1}, 23_834_568 + 2 * 17_216, marks=pytest.mark.slow
        ),  # no auxiliary head; running statistics
    ],
)
def test_networks_of_full_size_have_as_many_weights_as_published(name, options, count):
    graph = step_models._build(name, step_models.resolve_step(name, options))
    assert graph.parameter_bytes.sum() == 4 * count
    inputs = [s for s, t in zip(graph.output_shapes, graph.op_types, strict=True) if t == "Parameter"]
    expected = {
        "vgg-16": [(32, 3, 224, 224), (32,)],
        "gnmt-4": [(256, 2)] * 3,
        "bert-base": [(24, 384)] * 2,
        "inception-v3": [(1, 3, 299, 299)],
    }
    assert inputs == expected[name]


def test_dilations_double_in_each_stack():
    from envs.graphs.models.training.convolutional import WaveNet

    assert [b.dilation for b in WaveNet(2, 18, 4, 4).blocks] == [2**i for i in range(9)] * 2
    assert [b.dilation for b in WaveNet(4, 36, 4, 4).blocks] == [2**i for i in range(9)] * 4


def test_the_sizes_are_the_papers():
    mars = resolve_options("gnmt-4", {"batch": 256, "hidden": 256, "training": True})
    assert 20 <= mars["length"] <= 50
    assert {f"{m}-{n}" for m in ("rnnlm", "gnmt", "transformer-xl") for n in (2, 4, 8)} <= set(model_names())
    assert resolve_options("rnnlm-2", {})["hidden"] == 2048
    assert resolve_options("gnmt-2", {})["hidden"] == 1024


def test_unrolled_graphs_grow_by_the_same_with_every_step():
    three, four, five = (built("rnnlm-2", length=t, training=True, optimizer="sgd").n_nodes for t in (3, 4, 5))
    assert five - four == four - three > 2 * 30


def units(graph):
    grouped = graph.colocation[graph.colocation >= 0]
    return len(np.unique(grouped)) + graph.n_nodes - len(grouped)


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["gnmt-2", "transformer-xl-2"])
def test_groups_merge_operations_with_their_gradients(name):
    plain, merged = built(name, training=True, optimizer="sgd"), built(name, training=True, optimizer="sgd", groups=30)
    assert units(merged) < 100 < units(plain) / 2
    for key in ("names", "op_types", "edges", "flops", "output_bytes"):
        np.testing.assert_array_equal(getattr(plain, key), getattr(merged, key))


def test_gradients_of_one_group_are_of_its_operations():
    graph = built("wavenet-2x18", training=True, optimizer="sgd", groups=1000)
    types = np.array(graph.op_types)
    backward = np.flatnonzero(types == "aten.convolution_backward")
    for group in graph.colocation[backward].tolist():
        assert "aten.convolution" in types[graph.colocation == group]


def test_inputs_may_have_to_come_from_the_host():
    graph = built("rnnlm-2", host_inputs=True)
    assert [h for h, t in zip(graph.hardware, graph.op_types, strict=True) if t == "Parameter"] == ["cpu"] * 2
    assert set(built("rnnlm-2").hardware) == {""}


def test_graphs_are_kept_by_content(tmp_path, monkeypatch):
    monkeypatch.setenv("PLACEWRIGHT_CACHE", str(tmp_path))
    first = capture("rnnlm-2", **SMALL["rnnlm"])
    monkeypatch.setattr(step_models, "_build", None)
    assert capture("rnnlm-2", **SMALL["rnnlm"]) == first
    assert first.layer.max() == 1
    next(tmp_path.glob("*.npz")).write_bytes(b"broken")
    with pytest.raises(TypeError):
        capture("rnnlm-2", **SMALL["rnnlm"])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"lenght": 3}, "no option 'lenght'; did you mean 'length'?"),
        ({"training": 1}, "must be true or false"),
        ({"optimizer": "lion"}, "one of adam, momentum, sgd"),
        ({"batch": 0}, "positive whole number"),
    ],
)
def test_options_are_checked(options, words):
    with pytest.raises(InputError, match=words.replace("?", r"\?")):
        capture("gnmt-4", **options)


def test_openvino_models_stay_what_they_are():
    assert "training" not in resolve_options("bert-base", {"training": False})
    assert resolve_options("bert-base", {})["attention"] == "sdpa"
    assert resolve_options("bert-base", {"training": True, "batch": 24, "length": 384})["optimizer"] == "adam"
    with pytest.raises(InputError, match="which 3 segments do not divide"):
        capture("transformer-xl-2", length=8, segments=3)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["amoebanet", "vgg-16", "inception-v3", "bert-base", "transformer-xl-8", "wavenet-4x36", "gnmt-8", "rnnlm-8"]
)
def test_the_larger_networks_are_captured_too(name):
    graph = built(name, training=True)
    assert (graph.layer >= 0).all()
    assert graph.layer.max() >= 6


def test_neighbours_are_merged_by_what_they_exchange_into_groups_of_like_work():
    # a grid of cells over time and layers, as unrolled LSTMs are: each reads the one before, and less from the one below
    times, layers = 12, 2
    cell = np.arange(times * layers).reshape(layers, times)
    within = np.stack((cell[:, :-1].ravel(), cell[:, 1:].ravel()), axis=1)
    across = np.stack((cell[:-1].ravel(), cell[1:].ravel()), axis=1)
    edges, sizes = np.concatenate((within, across)), np.repeat([10.0, 1.0], [len(within), len(across)])
    work, layer = np.ones(cell.size), np.repeat([0, 1], times)
    heads = _join_neighbours(edges, sizes, work, np.zeros(cell.size, dtype=int), 6)
    assert len(np.unique(heads)) == 6
    assert np.bincount(heads).max() <= 8, "more than twice the mean"
    assert all(len(np.unique(layer[heads == h])) == 1 for h in heads), "what is exchanged most was cut"
    assert len(np.unique(_join_neighbours(edges, sizes, work, layer, 1))) == 2, "kinds were merged"
    few = merge_operators(np.arange(cell.size) > 3, edges, sizes, work, layer, 2)
    np.testing.assert_array_equal(few[:4], np.arange(4))
    assert len(np.unique(few[4:])) == 2
