"""From a torch module to a placement that runs in another process, by the commands themselves."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from envs.graphs.exported.device_map import device_map
from envs.graphs.exported.graph import PlaceableProgram
from envs.graphs.exported.sources import exported
from envs.problem.errors import InputError
from envs.sources.files import load_network, load_placements, load_problem
from orchestration.cli.main import main
from orchestration.commands.machine.candidates import Candidate, in_turn, ratio
from orchestration.commands.machine.search import choose, corrected
from orchestration.commands.machine.targets import make_target
from orchestration.definition.sweep import load_sweep
from orchestration.rewards.evaluators import build_evaluator
from tests.envs.hosts.exported_modules import MODULES

CORES = sorted(os.sched_getaffinity(0))
ON = f"cpu:{CORES[0]},cpu:{CORES[-1]},cpu:{CORES[0]}+{CORES[-1]}" if len(CORES) > 1 else f"cpu:{CORES[0]}"
DEVICES = ON.split(",")
ROOT = Path(__file__).parents[4]


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PLACEWRIGHT_CACHE", str(tmp_path / "cache"))
    torch.manual_seed(0)


def test_devices_are_listed_and_written(tmp_path, capsys):
    assert main(["devices", "--json", "--write", "net.json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {f"cpu:{c}" for c in CORES} <= {d["name"] for d in found}
    assert any(d["runtime"] == "openvino" and d["name"] == "openvino:CPU" for d in found)
    network = load_network(tmp_path / "net.json")
    assert set(network.names) == {d["name"] for d in found if d["runtime"] == "torch"} and (network.speed > 1e7).all()
    assert main(["devices", "--write", "net.yaml"]) == 2


@pytest.mark.thorough
def test_place_measures_writes_and_keeps_its_calibration(tmp_path, capsys):
    torch.export.save(torch.export.export(*MODULES["branches"]()), tmp_path / "mine.pt2")
    words = ["place", "mine.pt2", "--on", ON, "--budget", "60", "--rounds", "3", "--corrections", "1", "--output", "out", "--json"]
    assert main(words) == 0
    captured = capsys.readouterr()
    about = json.loads(captured.out)
    assert "calibrating" in captured.err and "confirming" in captured.err
    assert not about["calibration"]["kept"] and about["calibration"]["cut_seconds"] >= 0
    kinds = {c["kind"] for c in about["candidates"]}
    assert {"single", "own"} <= kinds
    for c in about["candidates"]:
        assert c["why"] is None and c["measured"] > 0 and c["interval"][0] <= c["measured"] <= c["interval"][1]
        assert c["kind"] == "own" or c["simulated"] > 0
    # never worse: what is chosen is the fastest of the deciding measurements, or a simple choice
    deciding = {c["name"]: c["measured"] for c in about["candidates"] if c["deciding"]}
    simple = min(c["measured"] for c in about["candidates"] if c["deciding"] and c["kind"] != "placed")
    assert deciding[about["chosen"]] <= simple
    assert sorted(Path(f).name for f in about["files"]) == [
        "mine.placed.json",
        "mine.problem.json",
        "mine.timeline.html",
        "mine.trace.json",
    ]
    page = json.loads(re.search(r'id="data">(.*?)</script>', (tmp_path / "out" / "mine.timeline.html").read_text(), re.DOTALL)[1])
    assert page["note"].startswith("measured: one run of ") and page["makespan"] > 0
    events = json.loads((tmp_path / "out" / "mine.trace.json").read_text())["traceEvents"]
    assert any(e["ph"] == "X" and e["dur"] > 0 for e in events)
    problem = load_problem(tmp_path / "out" / "mine.problem.json")
    assert problem.network.names == tuple(DEVICES) and len(load_placements(tmp_path / "out" / "mine.problem.json", problem)) >= len(DEVICES)
    assert main(["calibrate", "mine.pt2", "--on", ON, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["kept"]
    assert main(["calibrate", "mine.pt2", "--on", ON, "--json", "--fresh", "--rounds", "1"]) == 0
    assert not json.loads(capsys.readouterr().out)["kept"]
    assert load_problem(tmp_path / "mine.problem.json").graph.content_hash == problem.graph.content_hash
    sweep = "sweep: own\nproblems: {graphs: {mine: {problem: mine.problem.json}}}\nmethods: [heft]\nbudget: 1\nevaluator: dataflow\n"
    (tmp_path / "own.yaml").write_text(sweep)
    options = load_sweep(tmp_path / "own.yaml").expand()[0].evaluator.options
    assert list(options["devices"]) == DEVICES and options["models"]["mine"]["file"] == "mine.pt2" and not options["emulate_links"]


@pytest.mark.thorough
@pytest.mark.timeout(700)
@pytest.mark.parametrize("name", ["odd", pytest.param("block", marks=pytest.mark.slow)])
def test_the_exported_placement_gives_the_modules_outputs_in_a_fresh_process(name, tmp_path):
    module, inputs = MODULES[name]()
    torch.export.save(torch.export.export(module, inputs), tmp_path / "mine.pt2")
    target = make_target("mine.pt2", ON)
    where = np.random.default_rng(1).integers(0, len(DEVICES), target.graph.n_nodes)
    placement = {n: DEVICES[d] for n, d in zip(target.graph.names, where, strict=True)}
    about = {**target.describe(), "format": "placewright-placed/1", "placement": placement, "chosen": "x", "reason": "", "machine": ""}
    target.close()
    (tmp_path / "mine.placed.json").write_text(json.dumps(about))
    assert main(["export", "mine.placed.json", "--to", "exported"]) == 0
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, str(tmp_path / "exported" / "run.py"), str(tmp_path / "found.pt")]
    subprocess.run(command, check=True, env=environment, cwd=tmp_path, timeout=600)
    with torch.inference_mode():
        right = module(*inputs)
    found = torch.load(tmp_path / "found.pt", weights_only=True)
    assert torch.utils._pytree.tree_structure(found) == torch.utils._pytree.tree_structure(right)
    for a, b in zip(torch.utils._pytree.tree_leaves(found), torch.utils._pytree.tree_leaves(right), strict=True):
        torch.testing.assert_close(torch.as_tensor(a), torch.as_tensor(b), rtol=0.0, atol=1e-4)


def test_the_loaded_callable_checks_what_it_is_given(tmp_path):
    from placewright.runtime import load

    module, inputs = MODULES["branches"]()
    torch.export.save(torch.export.export(module, inputs), tmp_path / "program.pt2")
    target = make_target("program.pt2", DEVICES[0])
    about = {**target.describe(), "format": "placewright-placed/1", "placement": dict.fromkeys(target.graph.names, DEVICES[0])}
    target.close()
    (tmp_path / "placed.json").write_text(json.dumps(about))
    placed = load(tmp_path)
    other = torch.randn(2, 3, 12, 12)
    with torch.inference_mode():
        torch.testing.assert_close(placed(other), module(other), rtol=0.0, atol=1e-4)
        torch.testing.assert_close(placed(inputs[0]), module(*inputs), rtol=0.0, atol=1e-4)
    with pytest.raises(InputError, match=r"input 'x' is torch.float32 of shape \(1, 3, 12, 12\); the program was placed for"):
        placed(other[:1])
    with pytest.raises(InputError, match="takes 1 inputs in the structure"):
        placed(other, other)
    placed.close()
    about["placement"].popitem()
    (tmp_path / "placed.json").write_text(json.dumps(about))
    with pytest.raises(InputError, match="does not fit program 'program': it lacks"):
        load(tmp_path)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["place", "experts", "--on", "cpu:9999"], "names core 9999"),
        (["place", "experts", "--on", "gpu:0"], "is not of the form cpu:0"),
        (["place", "experts", "--on", "cuda:99"], "this machine has"),
        (["place", "experts", "--on", f"{DEVICES[0]},{DEVICES[0]}"], "names a device twice"),
        (["place", "experts", "--on", ON, "--network", "x.json"], "--network does not go with --on"),
        (["place", "experts", "--on", DEVICES[0], "--memory", f"{DEVICES[0]}=1MB"], "more than any device may use; raise --memory"),
        (["place", "experts", "--on", DEVICES[0], "--memory", f"{DEVICES[0]}=20MB"], "more than all devices together may use"),
        (["place", "experts", "--on", DEVICES[0], "--memory", "cuda:0=4GB"], "--memory names device 'cuda:0'"),
        (["place", "experts", "--on", DEVICES[0], "--memory", f"{DEVICES[0]}=lots"], "is not DEVICE=SIZE"),
        (["place", "experts", "--on", DEVICES[0], "--size", "hiden=4"], "did you mean 'hidden'"),
        (["place", "experts", "--on", DEVICES[0], "--input-shape", "x"], "is not NAME=SIZES"),
        (["place", "dynamic.pt2", "--on", DEVICES[0]], "has dynamic shapes"),
        (["place", "dynamic.pt2", "--on", DEVICES[0], "--input-shape", "input=4,9"], "does not take the shapes"),
        (["export", "gone.json", "--to", "x"], "cannot be read"),
    ],
)  # fmt: skip
def test_bad_input_is_one_sentence_before_anything_starts(words, says, capsys):
    if "dynamic.pt2" in words:
        batch = ({0: torch.export.Dim("batch")},)
        torch.export.save(torch.export.export(nn.Sequential(nn.Linear(3, 2)), (torch.ones(4, 3),), dynamic_shapes=batch), "dynamic.pt2")
    assert main(words) == 2
    said = capsys.readouterr().err
    assert says in said and said.count("placewright:") == 1 and "calibrating" not in said


def test_export_refuses_what_its_runtime_cannot_express(tmp_path, capsys):
    about = {"format": "placewright-placed/1", "runtime": "torch", "placement": None, "chosen": "torch on cpu:0"}
    (tmp_path / "p.json").write_text(json.dumps(about))
    assert main(["export", "p.json", "--to", "x", "--runtime", "openvino"]) == 2
    assert "which openvino cannot express" in capsys.readouterr().err
    assert main(["export", "p.json", "--to", "x"]) == 2
    assert "nothing to export" in capsys.readouterr().err
    (tmp_path / "p.json").write_text(json.dumps({**about, "runtime": "openvino", "placement": {}}))
    assert main(["export", "p.json", "--to", "x", "--runtime", "accelerate"]) == 2
    assert "which accelerate cannot express" in capsys.readouterr().err


@pytest.mark.thorough
def test_a_placement_of_whole_layers_becomes_a_device_map(tmp_path, capsys):
    model = nn.Sequential(nn.Sequential(nn.Linear(4, 8), nn.ReLU()), nn.Linear(8, 8), nn.Sequential(nn.Linear(8, 8), nn.GELU()))
    torch.export.save(torch.export.export(model, (torch.ones(2, 4),)), tmp_path / "mine.pt2")
    target = make_target("mine.pt2", DEVICES[0])
    names = [n for n, kind in zip(target.graph.names, target.graph.op_types, strict=True) if kind not in ("Parameter", "Constant")]
    about = {**target.describe(), "format": "placewright-placed/1", "chosen": "x", "reason": "", "machine": ""}
    target.close()
    assert len(names) == 3

    def mapped(*devices):
        placement = {**dict.fromkeys(target.graph.names, devices[0]), **dict(zip(names, devices, strict=True))}
        (tmp_path / "p.json").write_text(json.dumps({**about, "placement": placement}))
        if main(["export", "p.json", "--to", "map", "--runtime", "accelerate"]):
            return capsys.readouterr().err
        return json.loads((tmp_path / "map" / "device_map.json").read_text())

    assert mapped("cuda:0", "cuda:0", "cuda:0") == {"": 0}
    assert mapped("cuda:1", "cuda:1", "cpu:0-1") == {"0": 1, "1": 1, "2": "cpu"}
    said = mapped("cpu:0", "cpu:1", "cpu:0")
    assert "accelerate knows the CPU as one device" in said and said.count("placewright:") == 1


@pytest.mark.parametrize(
    ("name", "placed", "says"),
    [
        ("branches", {"conv2d_1": "cuda:1"}, "operation 'cat' between the layers reads from"),
        ("branches", {"cat": "cuda:1"}, "operation 'cat' between the layers would run on cuda:0"),
        ("lstm", {"lstm_3": "cuda:1"}, "layer 'lstm' is divided between cuda:0 and cuda:1"),
    ],
)
def test_a_device_map_that_accelerate_would_run_otherwise_is_refused(name, placed, says):
    program = PlaceableProgram.of(exported(*MODULES[name]()), name)
    assert device_map(program, dict.fromkeys(program.graph.names, "cuda:0")) == {"": 0}
    with pytest.raises(InputError, match=says):
        device_map(program, {**dict.fromkeys(program.graph.names, "cuda:0"), **placed})


def candidate(name, kind, samples):
    return Candidate(name, kind, None, None, samples=list(samples))


def test_what_is_chosen_is_faster_beyond_the_noise_or_simple():
    rng = np.random.default_rng(0)
    noise = lambda: rng.normal(0.0, 0.05, 20)  # noqa: E731
    single, own = candidate("one", "single", 1.0 + noise()), candidate("own", "own", 1.2 + noise())
    fast, equal = candidate("fast", "placed", 0.8 + noise()), candidate("equal", "placed", 0.995 + noise())
    chosen, why = choose([single, own, fast, equal])
    assert chosen is fast and "less time than one" in why
    chosen, why = choose([single, own, equal])
    assert chosen is single and "beyond the noise" in why
    assert choose([single, own])[0] is single
    least, low, high = ratio(fast, single)
    assert low < least < high < 1.0


def test_a_candidate_that_fails_is_left_out():
    names = []

    def sample(c):
        names.append(c.name)
        if c.name == "bad":
            raise InputError("too little memory")
        return 1.0

    good, bad = candidate("good", "placed", []), candidate("bad", "placed", [])
    in_turn([good, bad], 3, sample, True, None)
    assert names == ["good", "bad", "good", "good"] and good.samples == [1.0] * 3
    assert bad.why == "too little memory" and bad.median == float("inf")


def test_corrections_find_costs_of_cuts_that_explain_what_was_measured():
    target = make_target("experts", f"cpu:{CORES[0]},cpu:{CORES[-1]}" if len(CORES) > 1 else ON, options=["hidden=8"])
    from envs.costs.table import TableCosts
    from envs.problem.network import DeviceNetwork
    from envs.problem.problem import Problem

    v, d = target.graph.n_nodes, len(target.devices)
    evaluator = build_evaluator(target.simulator({}))
    target.close()
    if d < 2:
        pytest.skip("needs two cores")

    def problem(seconds, delay):
        return Problem(
            target.graph,
            DeviceNetwork(target.devices, 1e9, np.inf, delay),
            TableCosts(target.graph.names, target.devices, np.full((v, d), seconds)),
        )

    true, believed = problem(2e-3, 4e-3), problem(1e-3, 1e-3)
    candidates = []
    for k in range(4):
        p = np.full(v, k) if k < d else np.random.default_rng(k).integers(0, d, v)
        seconds = float(evaluator.evaluate(true, p[None, :]).seconds[0])
        simulated = float(evaluator.evaluate(believed, p[None, :]).seconds[0])
        candidates.append(Candidate(str(k), "single" if k < d else "placed", p.astype(np.int16), simulated, screening=[seconds]))
    better, change = corrected(believed, candidates, evaluator)
    assert change["cuts"] == 4.0
    for c in candidates:
        assert evaluator.evaluate(better, c.placement[None, :]).seconds[0] == pytest.approx(c.screening[0])
