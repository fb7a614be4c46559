"""Hosts that measure find models and devices in the graphs' own files; what is missing is found when a sweep is read."""

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from envs.hosts.openvino.devices import parse_devices
from envs.problem.errors import InputError
from envs.sources.files import dump_problem, save
from orchestration.cli.main import main
from orchestration.definition.issues import SweepErrors
from orchestration.definition.sweep import load_sweep
from orchestration.folder.ledger import results
from orchestration.rewards.evaluators import build_evaluator
from orchestration.specs.sources import build_problem
from tests.envs.hosts.test_openvino_host import problem_of, write_model

EXAMPLE = Path(__file__).parents[3] / "sweeps" / "examples" / "own-model.yaml"
CORES = len(os.sched_getaffinity(0))
SWEEP = """
sweep: own
problems:
  graphs: {{mine: {graph}}}
  networks: {{here: {{file: net.json}}}}
methods: [random]
budget: 1
evaluator: {evaluator}
"""


def network(*names):
    devices = [{"name": name, "speed": 1e9} for name in names]
    return json.dumps({"format": "placewright/1", "network": {"devices": devices, "links": {"bandwidth": 1e9, "delay": 1e-5}}})


def read(folder, graph="{file: small.xml}", evaluator="openvino", names=("cpu0", "cpu1")):
    if not (folder / "small.xml").exists():
        write_model(folder / "small.xml")
    (folder / "net.json").write_text(network(*names))
    (folder / "own.yaml").write_text(SWEEP.format(graph=graph, evaluator=evaluator))
    return load_sweep(folder / "own.yaml").expand()[0]


def test_a_graphs_own_file_is_the_model_and_names_say_what_the_devices_are(tmp_path):
    trial = read(tmp_path)
    options = trial.evaluator.options
    assert options["models"]["mine"]["file"] == "small.xml" and options["mode"] == "overlapped"
    each = {"device": "CPU", "precision": "f32", "threads": max(1, CORES // 2), "pin": False}
    assert options["devices"] == {"cpu0": each, "cpu1": each}
    problem = build_problem(trial.problems[0])
    with build_evaluator(trial.evaluator) as host:
        found = host.evaluate(problem, np.zeros((1, problem.n_nodes), dtype=np.int16))
    assert found.ok.all(), found.notes
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for end in (".xml", ".bin"):
        shutil.copy((tmp_path / "small").with_suffix(end), elsewhere)
    assert read(elsewhere).content_hash == trial.content_hash, "files count by their content"
    assert read(tmp_path, names=("cpu",)).evaluator.options["devices"] == {"cpu": {"device": "CPU", "precision": "f32"}}


def test_what_a_sweep_says_itself_stays(tmp_path):
    options = read(tmp_path, evaluator="{kind: openvino, mode: serial, devices: {cpu0: {threads: 1}, cpu1: CPU}}").evaluator.options
    assert options["devices"] == {"cpu0": {"threads": 1}, "cpu1": "CPU"} and options["mode"] == "serial"
    assert parse_devices(options["devices"])["cpu0"].device == "CPU", "settings alone are the CPU's, as in profiled costs"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"graph": "{synthetic: {tasks: 4}}"}, "graph 'mine' is of no model that OpenVINO could run"),
        ({"names": ("dsp", "cpu")}, "nothing stands for device 'dsp' here"),
        ({"names": ("npu", "cpu")}, "nothing stands for device 'npu' here"),
        ({"evaluator": "dataflow", "graph": "{sharded: chainmm, size: 32}"}, "nothing says what device 'cpu0' is"),
        ({"evaluator": "{kind: openvino, devices: {cpu0: {plugin: CPU}}}"}, "unknown setting 'plugin'"),
    ],
)
def test_what_is_missing_is_found_when_a_sweep_is_read(arguments, says, tmp_path):
    with pytest.raises(SweepErrors, match=says) as error:
        read(tmp_path, **arguments)
    assert "own.yaml:8" in str(error.value)


@pytest.mark.thorough
def test_a_calibrated_problem_says_how_it_is_measured(tmp_path):
    write_model(tmp_path / "small.xml")
    problem = problem_of(tmp_path / "small.xml")
    two = {"a": {"device": "CPU", "threads": 1}, "b": {"device": "CPU", "threads": 1}}
    runs = {"evaluator": "openvino", "model": {"file": "small.xml"}, "options": {"devices": two, "mode": "serial"}}
    save({**dump_problem(problem), "runs": runs}, tmp_path / "mine.json")
    trial = read(tmp_path, graph="{problem: mine.json}")
    assert trial.evaluator.options["devices"] == two and trial.evaluator.options["mode"] == "serial"
    with build_evaluator(trial.evaluator) as host:
        built = build_problem(trial.problems[0])
        assert host.evaluate(built, np.zeros((1, built.n_nodes), dtype=np.int16)).ok.all()
        host.close()
        write_model(tmp_path / "small.xml", channels=5)
        with pytest.raises(InputError, match="has changed since"):
            host.evaluate(built, np.zeros((1, built.n_nodes), dtype=np.int16))


@pytest.mark.slow
@pytest.mark.skipif(CORES < 2, reason="two instances need two cores")
def test_the_shipped_example_places_a_model_on_this_machine(tmp_path, monkeypatch):
    monkeypatch.setenv("PLACEWRIGHT_CACHE", str(tmp_path / "cache"))
    shutil.copytree(EXAMPLE.parent, tmp_path / "examples")
    assert main(["run", str(tmp_path / "examples" / EXAMPLE.name), "--local", "--output", str(tmp_path / "home")]) == 0
    found = list(results(tmp_path / "home" / "own-model"))
    assert {(r.stage, r.method) for r in found} >= {("measured", m) for m in ("one-instance", "heft", "local-search")}
    assert all(p.seconds > 0 for r in found for p in r.problems)
