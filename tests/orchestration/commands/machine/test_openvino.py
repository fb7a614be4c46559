"""From an OpenVINO model to a placement that runs in another process, by the commands themselves."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from envs.graphs.openvino_capture import import_openvino
from envs.hosts.openvino.profiling import fused
from envs.sources.files import load_problem
from orchestration.cli.main import main
from orchestration.commands.machine.targets import make_target
from tests.envs.hosts.test_openvino_host import write_model

ROOT = Path(__file__).parents[4]
CORES = len(os.sched_getaffinity(0))
two_cores = pytest.mark.skipif(CORES < 2, reason="two instances need two cores")


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PLACEWRIGHT_CACHE", str(tmp_path / "cache"))
    write_model(tmp_path / "small.xml")


@two_cores
def test_place_measures_two_instances_beside_the_whole_cpu(tmp_path, capsys):
    words = [
        "place",
        "small.xml",
        "--on",
        "openvino",
        "--instances",
        "2",
        "--budget",
        "60",
        "--rounds",
        "3",
        "--corrections",
        "1",
        "--json",
    ]
    assert main([*words, "--output", "out"]) == 0
    about = json.loads(capsys.readouterr().out)
    names = {c["name"] for c in about["candidates"]}
    assert {"all on cpu0", "all on cpu1", "OpenVINO on CPU", "HETERO"} <= names
    assert all(c["why"] is None and c["measured"] > 0 for c in about["candidates"])
    deciding = {c["name"]: c["measured"] for c in about["candidates"] if c["deciding"]}
    assert deciding[about["chosen"]] <= min(c["measured"] for c in about["candidates"] if c["deciding"] and c["kind"] != "placed")
    page = json.loads(re.search(r'id="data">(.*?)</script>', (tmp_path / "out" / "small.timeline.html").read_text(), re.DOTALL)[1])
    assert page["note"].startswith("measured: one run of ") and max(page["finish"]) == page["makespan"] > 0
    assert (tmp_path / "out" / "small.trace.json").is_file()
    problem = load_problem(tmp_path / "out" / "small.problem.json")
    assert problem.network.names == ("cpu0", "cpu1") and problem.compute_seconds.sum() > 0


def test_an_operation_that_no_device_runs_is_named_before_anything_starts(monkeypatch, capsys):
    refuses = lambda self, device: self.kinds == "Softmax"  # noqa: E731
    monkeypatch.setattr("envs.hosts.openvino.model.PreparedModel.unsupported", refuses)
    assert main(["place", "small.xml", "--on", "openvino"]) == 2
    said = capsys.readouterr().err
    assert "operation 'soft' of type Softmax runs on none of cpu; add a device" in said and said.count("placewright:") == 1


@two_cores
def test_layers_that_are_compiled_into_one_stay_together(tmp_path):
    target = make_target("small.xml", "openvino", instances=2)
    group = dict(zip(target.graph.names, target.graph.colocation, strict=True))
    target.close()
    assert group["left0"] == group["left0.bias"] == group["left0.relu"] >= 0
    assert len({group["left0"], group["left1"], group["right0"]}) == 3
    sets = fused(import_openvino().Core(), tmp_path / "small.xml", None, target.plain)
    assert any(len(s) == 3 for s in sets)


@two_cores
@pytest.mark.parametrize("script", ["run.py", "hetero.py"])
def test_the_exported_model_gives_the_unplaced_models_outputs_in_a_fresh_process(script, tmp_path):
    target = make_target("small.xml", "openvino", instances=2)
    groups = np.random.default_rng(3).integers(0, 2, target.graph.n_nodes)
    where = np.where(target.graph.colocation >= 0, groups[target.graph.colocation], groups)
    placement = {n: target.devices[d] for n, d in zip(target.graph.names, where, strict=True)}
    assert len(set(placement.values())) == 2
    about = {**target.describe(), "format": "placewright-placed/1", "placement": placement, "chosen": "x", "reason": "", "machine": ""}
    target.close()
    (tmp_path / "small.placed.json").write_text(json.dumps(about))
    assert main(["export", "small.placed.json", "--to", "exported"]) == 0
    x = np.random.default_rng(0).standard_normal((1, 3, 8, 8)).astype(np.float32)
    np.savez(tmp_path / "in.npz", x=x)
    command = [sys.executable, str(tmp_path / "exported" / script), str(tmp_path / "in.npz"), str(tmp_path / "out.npz")]
    subprocess.run(command, check=True, env={**os.environ, "PYTHONPATH": str(ROOT)}, cwd=tmp_path, timeout=600)
    openvino = import_openvino()
    whole = openvino.Core().compile_model(tmp_path / "small.xml", "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    right = whole([x])
    found = np.load(tmp_path / "out.npz")
    for i, output in enumerate(whole.outputs):
        np.testing.assert_allclose(found[f"arr_{i}"], right[output], rtol=0, atol=1e-4)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["place", "small.xml", "--on", "openvino", "--instances", "999"], "--instances is 999; this machine has"),
        (["place", "gone.xml", "--on", "openvino"], "there is no model file"),
        (["place", "small.xml", "--on", "openvino", "--memory", "cpu=1GB"], "--memory is for torch's devices"),
        (["place", "dynamic.xml", "--on", "openvino"], "on the command line, --input-shape"),
        (["place", "small.xml", "--on", "cpu:0"], "unknown model 'small.xml'"),
    ],
)
def test_bad_input_is_one_sentence_before_anything_starts(words, says, capsys, tmp_path):
    openvino = import_openvino()
    model = openvino.Core().read_model(tmp_path / "small.xml")
    model.reshape([1, 3, -1, -1])
    openvino.save_model(model, tmp_path / "dynamic.xml")
    assert main(words) == 2
    said = capsys.readouterr().err
    assert says in said and said.count("placewright:") == 1 and "calibrating" not in said
