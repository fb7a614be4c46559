"""Sound files of every format that is read, small ones."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np

DATA = Path(__file__).resolve().parents[1] / "envs" / "sources" / "data"
PROBLEM, PLACEMENTS = "problem.json", "placements.json"
SOUND = {
    PROBLEM: 90, "graph.json": 40, "network.json": 50, PLACEMENTS: 45, "wfformat.json": 50, "dnn-partitioning.json": 50, "tasks.stg": 45,
    "small.onnx": 60, "small.xml": 45,
}  # fmt: skip
"""File and how many of 1,000."""
STG = "3\n0 0 0\n1 4 1\n 0 5\n2 6 2\n 0 7\n 1 1.5\n3 2 1\n 2 3\n4 0 1\n 3 1\n"


def write_documents(folder: Path) -> None:
    """One of each."""
    from envs.graphs.synthetic import TaskGraphParameters, generate_graph
    from envs.networks.synthetic import NetworkParameters, generate_network
    from envs.problem.problem import Problem
    from envs.sources.files import dump_problem, save

    folder.mkdir(parents=True, exist_ok=True)
    problem = Problem(generate_graph(TaskGraphParameters(tasks=8), 0), generate_network(NetworkParameters(devices=3), 0))
    whole = dump_problem(problem, np.zeros((2, problem.n_nodes), dtype=np.int16))
    save(whole, folder / PROBLEM)
    for part in ("graph", "network", "placements"):
        save({"format": whole["format"], part: whole[part]}, folder / f"{part}.json")
    workflow = json.loads((DATA / "wfinstances/helloworld-forkjoin-10-chameleon.json").read_text())
    (folder / "wfformat.json").write_text(json.dumps(workflow, indent=1))
    shutil.copy(DATA / "dnn-partitioning/layer-bert24_inference.json", folder / "dnn-partitioning.json")
    (folder / "tasks.stg").write_text(STG)
    _write_onnx(folder / "small.onnx")
    _write_ir(folder / "small.onnx", folder / "small.xml")


def _write_onnx(path: Path) -> None:
    """A convolution, a product and their sum."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    weights = [numpy_helper.from_array(np.ones(shape, dtype=np.float32), name) for name, shape in (("k", (4, 3, 3, 3)), ("w", (8, 5)))]
    nodes = [
        helper.make_node("Conv", ["x", "k"], ["c"], "convolve", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"], "relu"),
        helper.make_node("MatMul", ["r", "w"], ["m"], "mix"),
        helper.make_node("Add", ["m", "m"], ["y"], "twice"),
    ]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in (("x", (1, 3, 8, 8)), ("y", (1, 4, 8, 5)))]
    model = helper.make_model(helper.make_graph(nodes, "small", ends[:1], ends[1:], weights), opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    onnx.save(model, path)


def _write_ir(onnx: Path, path: Path) -> None:
    import openvino

    openvino.save_model(openvino.convert_model(onnx), path, compress_to_fp16=False)
