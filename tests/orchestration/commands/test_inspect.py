"""``inspect`` and ``place --json`` on files of every format: what programs read is what the file holds."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from envs.simulators.fifo.evaluator import Simulator
from envs.sources.importing import load_problem
from orchestration.cli.main import main
from orchestration.commands.inspect import inspect, text
from orchestration.definition.sweep import load_sweep
from orchestration.specs.sources import build_problem

DATA = Path(__file__).parents[2] / "envs" / "sources" / "data"
LAYERS, WORKFLOW = DATA / "dnn-partitioning" / "layer-bert24_inference.json", DATA / "wfinstances" / "helloworld-forkjoin-10-chameleon.json"


def printed(capsys, *words):
    assert main([str(w) for w in words]) == 0
    return json.loads(capsys.readouterr().out)


def test_inspect_tells_counts_and_sums(capsys):
    layers = printed(capsys, "inspect", LAYERS, "--json")
    assert (layers["format"], layers["provenance"], layers["nodes"], layers["edges"]) == ("dnn-partitioning", "measured", 32, 55)
    assert layers["seconds"] == pytest.approx(0.092406) and layers["seconds_by_device"]["cpu"] == pytest.approx(0.92406)
    assert layers["parameter_bytes"] == 1824824592.0 and len(layers["devices"]) == 7 and layers["objective"] == "throughput"
    workflow = printed(capsys, "inspect", WORKFLOW, "--json")
    assert (workflow["format"], workflow["nodes"], workflow["edges"]) == ("WfFormat 1.5", 10, 16)
    assert workflow["seconds"] == pytest.approx(1028.704) and workflow["bytes"] == 145454560.0
    model = printed(capsys, "inspect", "light-squeezenet", "--json")
    assert model["provenance"] == "traced" and model["seconds"] is None and model["operations"]["Convolution"] == 26
    assert "1,028.7" in text(inspect(str(WORKFLOW))) or "1028.7" in text(inspect(str(WORKFLOW)))


def test_inspect_says_what_it_cannot_read(capsys, tmp_path):
    (tmp_path / "x.txt").write_text("hello")
    assert main(["inspect", str(tmp_path / "x.txt")]) == 2
    assert "known endings are .json, .stg" in capsys.readouterr().err
    assert main(["inspect", "resnet-51"]) == 2
    assert "did you mean 'resnet-50'" in capsys.readouterr().err


def test_an_onnx_file_without_weights_is_counted_before_and_after_folding(capsys):
    from envs.graphs.capture import light_models

    assert len(light_models()) == 9
    found = printed(capsys, "inspect", light_models()["light-zfnet512"], "--json")
    assert (found["format"], found["file_nodes"], found["nodes"]) == ("ONNX", 38, 67)


def test_place_prints_the_device_of_every_node(capsys, tmp_path):
    words = ("place", LAYERS, "--method", "random", "--budget", 50, "--output", tmp_path, "--json")
    found = printed(capsys, *words)
    problem = load_problem(LAYERS)
    assert (found["method"], found["objective_name"], found["unit"], found["provenance"]) == ("random", "throughput", "s", "measured")
    row = np.array([[problem.network.index(found["placement"][name]) for name in problem.graph.names]])
    assert Simulator().evaluate(problem, row).objective[0] == found["objective"] >= found["bound"] > 0
    assert found["makespan"] != found["objective"]
    slow = printed(capsys, *words, "--objective", "makespan", "--overwrite")
    assert slow["objective_name"] == "makespan" and slow["objective"] == slow["makespan"]


def test_a_sweep_takes_every_format(tmp_path):
    (tmp_path / "layers.json").write_text(LAYERS.read_text())
    (tmp_path / "flow.json").write_text(WORKFLOW.read_text())
    (tmp_path / "tasks.stg").write_text("2\n0 4 0\n1 6 1 0\n")
    (tmp_path / "sweep.yaml").write_text(
        """
sweep: formats
problems:
  graphs:
    layers: {problem: layers.json}
    elsewhere: {file: layers.json}
    own: {problem: flow.json}
    flow: {file: flow.json}
    tasks: tasks.stg
    light: {model: light-squeezenet}
  networks: [cpu-gpu-4]
methods: [heft]
seeds: [0]
budget: 1
"""
    )
    specs = {spec.graph_label: spec for trial in load_sweep(tmp_path / "sweep.yaml").expand() for spec in trial.problems}
    built = {label: build_problem(spec) for label, spec in specs.items()}
    assert {label: (p.n_nodes, p.n_devices, p.objective) for label, p in built.items()} == {
        "layers": (32, 7, "throughput"), "elsewhere": (32, 4, "makespan"), "own": (10, 1, "makespan"), "flow": (10, 4, "makespan"),
        "tasks": (2, 4, "makespan"), "light": (202, 4, "makespan"),
    }  # fmt: skip
    assert {p.graph.provenance for p in built.values()} == {"measured", "traced", "published generator"}
