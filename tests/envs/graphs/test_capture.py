import json
import logging
import subprocess
import sys

import numpy as np
import pytest

from envs.graphs import capture as front
from envs.graphs import openvino_capture, store, torch_capture
from envs.graphs.capture import capture, model_names
from envs.problem.errors import InputError
from envs.problem.op_arithmetic import bytes_moved, folded, free, operation_flops

pytestmark = pytest.mark.xdist_group("capture")  # one worker captures the models for all

COUNTS = {"resnet-50": (396, 411), "inception-v3": (726, 762), "bert-base": (1003, 1092)}


class Captured(dict):
    """Captures a benchmark when it is first asked for."""

    def __missing__(self, name):
        self[name] = capture(name)
        return self[name]


@pytest.fixture(scope="session")
def models():
    """The three benchmarks, from the disk cache where this very code captured them before."""
    return Captured()


@pytest.fixture
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("PLACEWRIGHT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def small_module():
    import torch
    from torch import nn

    class Small(nn.Module):
        def __init__(self):
            super().__init__()
            self.convolve = nn.Conv2d(3, 4, 3, padding=1)
            self.mix = nn.Linear(8, 5)

        def forward(self, x):
            left, right = torch.split(torch.relu(self.convolve(x)), 2, dim=1)
            return self.mix(torch.cat([right, left], 1) * 0.5)

    torch.manual_seed(0)
    return Small(), torch.ones(1, 3, 8, 8)


def small_ir(folder):
    module, x = small_module()
    model = torch_capture.convert_module(module, x)
    openvino_capture.concrete(model, [tuple(x.shape)], "small")
    return openvino_capture.save_ir(model, folder)


@pytest.mark.parametrize("name", COUNTS)
def test_counts_of_hsdags_table_1(models, name):
    graph = models[name]
    assert (graph.n_nodes, graph.n_edges) == COUNTS[name]
    assert graph.name == name
    paper = {"resnet-50": 396, "inception-v3": 728, "bert-base": 1009}[name]
    assert abs(graph.n_nodes - paper) <= 0.01 * paper


def test_flops_are_those_that_torch_counts(models):
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    from envs.graphs.models.inception_v3 import InceptionV3
    from envs.graphs.models.resnet50 import ResNet50

    def counted(module, *inputs):
        with FlopCounterMode(display=False) as counter, torch.no_grad():
            module.eval()(*inputs)
        return counter.get_total_flops()

    def products(graph):
        types = np.asarray(graph.op_types)
        return graph.flops[np.isin(types, ("Convolution", "MatMul", "ScaledDotProductAttention"))].sum()

    with torch.device("meta"):
        resnet = counted(ResNet50(), torch.ones(1, 3, 224, 224))
        inception = counted(InceptionV3(), torch.ones(1, 3, 299, 299))
    assert products(models["resnet-50"]) == resnet == pytest.approx(8.18e9, rel=0.01)  # 2 x 4.09 GMACs
    assert products(models["inception-v3"]) == inception
    tokens, width = 128, 768
    layer = 4 * tokens * width**2 + 2 * tokens * width * 4 * width + 2 * tokens**2 * width  # projections, feed-forward, attention
    bert = 2 * (12 * layer + width**2)
    assert products(models["bert-base"]) == pytest.approx(bert, rel=0.001)  # the softmax inside attention is ours only
    for graph in map(models.__getitem__, COUNTS):
        assert graph.flops.sum() == pytest.approx(products(graph), rel=0.02)


def test_parameters_are_counted_once_in_float32(models):
    # 25.557 and 23.835 million parameters, and BatchNorm's statistics folded into them; BERT-base has 109.48 million.
    for name, count in (("resnet-50", 25.557e6), ("inception-v3", 23.835e6), ("bert-base", 109.482e6)):
        graph = models[name]
        assert graph.parameter_bytes.sum() == pytest.approx(4 * count, rel=0.002)
        types = np.asarray(graph.op_types)
        assert not graph.parameter_bytes[types != "Constant"].any()
        assert not graph.output_bytes[folded(graph)].any()


def test_shapes_and_bytes_are_concrete(models):
    graph = models["resnet-50"]
    assert graph.output_shapes[graph.op_types.index("Parameter")] == (1, 3, 224, 224)
    assert graph.output_shapes[graph.op_types.index("MaxPool")] == (1, 64, 56, 56)
    assert graph.output_bytes[graph.op_types.index("MaxPool")] == 4 * 64 * 56 * 56
    assert graph.output_shapes[graph.op_types.index("MatMul")] == (1, 1000)
    bert = models["bert-base"]
    assert bert.output_shapes[bert.op_types.index("ScaledDotProductAttention")] == (1, 12, 128, 64)


def test_constants_stay_with_their_only_consumer(models):
    graph = models["inception-v3"]
    fixed = folded(graph)
    consumers = np.bincount(graph.edges[:, 0], minlength=graph.n_nodes)
    for u, v in graph.edges:
        if fixed[u] and consumers[u] == 1:
            assert graph.colocation[u] == graph.colocation[v] >= 0
    running = np.flatnonzero(~fixed & (graph.colocation >= 0))
    assert len(set(graph.colocation[running])) == len(running), "a group holds one operation that runs"


def test_a_module_becomes_a_graph_with_ports_told_apart():
    module, x = small_module()
    graph = capture(module, example_inputs=x)
    kinds = dict(zip(graph.op_types, range(graph.n_nodes), strict=True))
    assert graph.name == "Small"
    assert graph.flops[kinds["Convolution"]] == 2 * (4 * 8 * 8) * (3 * 3 * 3)
    assert graph.flops[kinds["MatMul"]] == 2 * (4 * 8 * 5) * 8
    split = next(i for i, t in enumerate(graph.op_types) if "Split" in t)
    concat = kinds["Concat"]
    into = [i for i, (u, v) in enumerate(graph.edges) if (u, v) == (split, concat)]
    assert len(into) == 1 and graph.edge_bytes[into[0]] == 4 * 4 * 8 * 8, "both halves on one edge"
    assert graph.output_bytes[split] == 4 * 4 * 8 * 8
    assert module.training, "the module is left as it was"
    apart = capture(module, example_inputs=x, colocate_constants=False)
    assert (apart.colocation == -1).all() and apart.n_nodes == graph.n_nodes
    assert capture(module, example_inputs=x).content_hash == graph.content_hash, "names do not depend on what was converted before"


def test_loops_and_recurrent_layers_count_their_bodies():
    import torch
    from torch import nn

    class Repeated(nn.Module):
        def __init__(self):
            super().__init__()
            self.step = nn.Linear(8, 8)

        def forward(self, x):
            for _ in range(5):
                x = torch.relu(self.step(x))
            return x

    graph = capture(torch.jit.script(Repeated()), example_inputs=torch.ones(2, 8))
    loop = graph.op_types.index("Loop")
    assert graph.flops[loop] == 5 * (2 * 2 * 8 * 8 + 16 + 16)
    assert graph.parameter_bytes[loop] >= 4 * (64 + 8)
    lstm = capture(nn.LSTM(8, 16, batch_first=True), example_inputs=torch.ones(1, 7, 8))
    assert lstm.flops[lstm.op_types.index("LSTMSequence")] == 2 * 7 * 4 * 16 * (8 + 16)


def onnx_file(path, shape):
    import onnx
    from onnx import TensorProto, helper

    weights = np.random.default_rng(0).normal(size=(4, 3, 3, 3)).astype(np.float32)
    graph = helper.make_graph(
        [helper.make_node("Conv", ["image", "w"], ["y"], pads=[1, 1, 1, 1]), helper.make_node("Relu", ["y"], ["z"])],
        "g",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("z", TensorProto.FLOAT, None)],
        [onnx.numpy_helper.from_array(weights, "w")],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
    return path


def test_onnx_files_and_dynamic_inputs(tmp_path, own_cache):
    graph = capture(onnx_file(tmp_path / "net.onnx", ["n", 3, 8, 8]))
    assert graph.name == "net" and sorted(graph.op_types) == ["Constant", "Convert", "Convolution", "Parameter", "Relu", "Result"]
    assert graph.output_shapes[graph.op_types.index("Relu")] == (1, 4, 8, 8)
    path = onnx_file(tmp_path / "any.onnx", ["n", 3, "h", "w"])
    with pytest.raises(InputError, match=r"input 'image' of any has the dynamic shape .*input_shapes"):
        capture(path)
    assert capture(path, input_shapes={"image": (2, 3, 16, 16)}).flops.sum() == 2 * (2 * 4 * 256) * 27 + 2 * 4 * 256
    for shapes, message in (
        ({"img": (1, 3, 8, 8)}, "did you mean 'image'"),
        ([(1, 4, 8, 8)], "does not fit"),
        ([(1, 3, 8, 8)] * 2, "2 input shapes"),
    ):
        with pytest.raises(InputError, match=message):
            capture(path, input_shapes=shapes)


def test_malformed_sources_give_one_line(tmp_path):
    whole = small_ir(tmp_path)
    text = whole.read_text()
    files = {
        "cut.xml": text[: len(text) // 2],
        "other.xml": "<svg/>",
        "empty.xml": "",
        "part.xml": text.replace('from-port="', 'frm="', 1),
        "alone.xml": text,
        "noise.onnx": "hello",
        "empty.onnx": "",
        "weights.pt": "x",
    }
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    (tmp_path / "folder.xml").mkdir()
    for name in [*files, "folder.xml", "missing.onnx"]:
        with pytest.raises(InputError) as caught:
            capture(tmp_path / name)
        message = str(caught.value)
        assert "\n" not in message and name in message and len(message) < 600, message


def test_unsupported_operators_and_modules_give_one_line(tmp_path):
    import onnx
    import torch
    from onnx import TensorProto, helper
    from torch import nn

    value = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1])
    out = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1])
    graph = helper.make_graph([helper.make_node("Teleport", ["x"], ["y"], domain="mine")], "g", [value], [out])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("mine", 1)]), tmp_path / "odd.onnx")
    for source, inputs in ((tmp_path / "odd.onnx", None), (nn.Linear(3, 4), torch.ones(2, 5)), (nn.Linear(3, 4), None), (3, None)):
        with pytest.raises(InputError) as caught:
            capture(source, example_inputs=inputs)
        assert "\n" not in str(caught.value)
        assert source != tmp_path / "odd.onnx" or "mine.Teleport" in str(caught.value)


@pytest.mark.parametrize(
    ("nodes", "why"),
    [
        ([("Add", ["x", "b"], ["a"]), ("Relu", ["a"], ["b"])], "node 'Add' reads 'b', which a node after it makes: in a cycle"),
        ([("Relu", ["a"], ["b"]), ("Relu", ["x"], ["a"])], "node 'Relu' reads 'a', which a node after it makes"),
        ([("Relu", ["z"], ["b"])], "node 'Relu' reads 'z', which nothing makes"),
    ],
)
def test_onnx_nodes_out_of_order_are_refused(tmp_path, nodes, why):
    import onnx
    from onnx import TensorProto, helper

    ends = [[helper.make_tensor_value_info(name, TensorProto.FLOAT, [2])] for name in ("x", "b")]
    graph = helper.make_graph([helper.make_node(*node) for node in nodes], "g", *ends)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), tmp_path / "odd.onnx")
    with pytest.raises(InputError, match=r"odd\.onnx is not a valid ONNX model") as caught:
        capture(tmp_path / "odd.onnx")
    assert why in str(caught.value)


def test_wrong_names_and_options():
    assert sorted(torch_capture.NAMED) == sorted(COUNTS)
    assert set(COUNTS) < set(model_names())
    for arguments, options, message in (
        ("resnet50", {}, "did you mean 'resnet-50'"),
        ("resnet-50", {"batchsize": 2}, "did you mean 'batch'"),
        ("resnet-50", {"batch": 0}, "positive whole number"),
        ("bert-base", {"attention": "flash"}, "sdpa, eager"),
        ("resnet-50", {"input_shapes": [(1, 3, 9, 9)]}, "size"),
        ("net.onnx", {"batch": 2}, "'batch' is for models known by name"),
    ):
        with pytest.raises(InputError, match=message):
            capture(arguments, **options)


def test_a_capture_is_told_once(own_cache, caplog):
    caplog.set_level(logging.INFO, logger="envs.graphs.capture")
    assert not front.is_captured("light-squeezenet")
    graph = capture("light-squeezenet")
    begun, ended = [r.getMessage() for r in caplog.records]
    assert begun.startswith("capturing light_squeezenet, slow the first time") and str(own_cache) in begun
    assert ended.startswith(f"captured light_squeezenet: {graph.n_nodes} operations in ")
    caplog.clear()
    assert front.is_captured("light-squeezenet") and capture("light-squeezenet").n_nodes == graph.n_nodes and not caplog.records


def test_cache_is_by_content_and_survives_damage(tmp_path, own_cache, monkeypatch):
    path = small_ir(tmp_path)
    first = capture(path)
    (entry,) = own_cache.glob("graph-*.npz")
    with monkeypatch.context() as patch:
        patch.setattr(front.openvino_capture, "graph_of_ir", lambda *_: pytest.fail("not taken from the cache"))
        moved = path.rename(tmp_path / "elsewhere.xml")
        path.with_suffix(".bin").rename(tmp_path / "elsewhere.bin")
        found = capture(moved)
    assert found.content_hash == first.content_hash and found.name == "elsewhere"
    for damage in (b"", b"not a zip", entry.read_bytes()[:-200]):
        entry.write_bytes(damage)
        assert capture(moved).content_hash == first.content_hash
        assert store.load_graph(entry.stem.removeprefix("graph-")) is not None, "rebuilt"
    arrays, about = store.load(entry.stem)
    arrays["flops"] = arrays["flops"] + 1
    store.save(entry.stem, arrays, about)
    assert capture(moved).content_hash == first.content_hash, "altered numbers are noticed"
    capture(moved, colocate_constants=False)
    assert len(list(own_cache.glob("*"))) == 2, "another graph, and no temporary files"


def test_a_cache_that_cannot_be_written_is_no_error(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("PLACEWRIGHT_CACHE", str(tmp_path / "file" / "cache"))
    assert capture(small_ir(tmp_path)).n_nodes > 5


def test_import_is_light():
    code = "import sys, json, envs.graphs.capture, envs.problem.cost_model, envs.networks.named; print(json.dumps(list(sys.modules)))"
    loaded = json.loads(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)
    assert not {"torch", "openvino", "transformers", "onnx"} & set(loaded)


@pytest.mark.thorough
def test_conversion_reports_to_nobody():
    code = (
        "import torch, sys; from envs.graphs.capture import capture; capture(torch.nn.ReLU(), example_inputs=torch.ones(2)); "
        "from openvino.tools.ovc import convert_impl; print(convert_impl.tm.__name__)"
    )
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split()[-1] == "openvino.tools.ovc.telemetry_stub"


@pytest.mark.parametrize(
    ("kind", "inputs", "outputs", "attributes", "expected"),
    [
        ("Convolution", [(1, 8, 9, 9), (16, 8, 3, 3)], [(1, 16, 9, 9)], {}, 2 * 16 * 81 * 72),
        ("GroupConvolution", [(1, 8, 9, 9), (4, 4, 2, 3, 3)], [(1, 16, 9, 9)], {}, 2 * 16 * 81 * 18),
        ("ConvolutionBackpropData", [(1, 8, 9, 9), (8, 16, 2, 2)], [(1, 16, 18, 18)], {}, 2 * 8 * 81 * 64),
        ("MatMul", [(2, 5, 7), (7, 3)], [(2, 5, 3)], {"transpose_a": False}, 2 * 30 * 7),
        ("MatMul", [(7, 5), (7, 3)], [(5, 3)], {"transpose_a": True}, 2 * 15 * 7),
        ("Einsum", [(2, 5, 7), (2, 7, 3)], [(2, 5, 3)], {"equation": "bij,bjk->bik"}, 2 * 2 * 5 * 7 * 3),
        ("AvgPool", [(1, 4, 9, 9)], [(1, 4, 3, 3)], {"kernel": [3, 3]}, 4 * 81),
        ("ReduceMean", [(1, 4, 9, 9), (2,)], [(1, 4, 1, 1)], {}, 4 * 81),
        ("Add", [(4, 9), (9,)], [(4, 9)], {}, 36),
        ("Softmax", [(4, 9)], [(4, 9)], {}, 5 * 36),
        ("Reshape", [(4, 9), (1,)], [(36,)], {}, 0),
        ("Transpose", [(4, 9), (2,)], [(9, 4)], {}, 0),
    ],
)
def test_formulas(kind, inputs, outputs, attributes, expected):
    assert operation_flops(kind, inputs, outputs, attributes) == expected


def test_what_is_free_and_what_is_read(models):
    graph = models["bert-base"]
    types = np.asarray(graph.op_types)
    assert free(graph)[np.isin(types, ("Parameter", "Constant", "Result", "Reshape", "ShapeOf"))].all()
    assert not free(graph)[np.isin(types, ("MatMul", "Gelu", "ScaledDotProductAttention"))].any()
    rows = 4 * 128 * 768
    embedding = next(i for i in np.flatnonzero(types == "Gather") if graph.output_bytes[i] == rows)
    assert bytes_moved(graph)[embedding] == 2 * rows, "an embedding does not read its whole table"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_resnet_from_onnx_has_the_same_counts(tmp_path):
    import torch

    from envs.graphs.models.resnet50 import ResNet50
    from envs.graphs.models.seeded import seeded

    torch.onnx.export(seeded(ResNet50), (torch.ones(1, 3, 224, 224),), tmp_path / "resnet.onnx", dynamo=False)
    graph = capture(tmp_path / "resnet.onnx", cache=False)
    assert (graph.n_nodes, graph.n_edges) == COUNTS["resnet-50"]


@pytest.mark.slow
def test_capture_does_not_depend_on_the_cache(models):
    for name in COUNTS:
        graph = models[name]
        assert capture(name, cache=False).content_hash == graph.content_hash


def test_a_model_that_cannot_be_converted_leaves_logging_as_it_was():
    import torch

    class Odd(torch.nn.Module):
        def forward(self, x):
            return torch.linalg.eigvals(x).real

    root = logging.getLogger()
    before = root.level, list(root.filters)
    with pytest.raises(InputError, match="Odd cannot be captured"):
        capture(Odd(), example_inputs=torch.eye(3))
    assert (root.level, root.filters) == before
