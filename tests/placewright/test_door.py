"""The door for Python: its names stay, it opens fast, and it gives what the commands give."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import placewright
from orchestration.cli.main import main
from placewright import InputError
from tests.orchestration.sweeps_for_tests import SWEEP

ROOT = Path(__file__).parents[2]
NAMES = {
    "ComputationGraph": None,
    "DeviceNetwork": None,
    "InputError": None,
    "Measurements": None,
    "Placed": None,
    "Problem": None,
    "Policy": "(method: 'str', settings: 'Mapping[str, Any]', weights: 'Mapping[str, Any]') -> None",
    "SweepResults": "(folder: 'Path') -> None",
    "assignment": "(problem: 'Problem', placement: 'Sequence[int] | np.ndarray') -> 'dict[str, str]'",
    "load_placements": "(path: 'str | Path', problem: 'Problem | None' = None) -> 'tuple[Problem, np.ndarray]'",
    "load_policy": "(path: 'str | Path') -> 'Policy'",
    "load_problem": "(model: 'str | Path | Mapping[str, Any]', network: 'str | Path | Mapping[str, Any] | None' = None, *, "
    "costs: 'str | Mapping[str, Any] | None' = None, objective: 'str | None' = None) -> 'Problem'",
    "load_sweep": "(sweep: 'str | Path', output: 'str | Path' = '.placewright') -> 'SweepResults'",
    "measure": "(problem: 'Problem', placements: 'Any', evaluator: 'str | Mapping[str, Any]', *, seed: 'int' = 0, "
    "trace: 'bool' = False) -> 'Measurements'",
    "methods": "() -> 'list[str]'",
    "models": "() -> 'list[str]'",
    "networks": "() -> 'list[str]'",
    "place": "(problem: 'Problem', method: 'str' = 'local-search', *, settings: 'Mapping[str, Any] | None' = None, budget: 'int' = 2000, "
    "seed: 'int' = 0, progress: 'Callable[[int, float], None] | None' = None) -> 'Placed'",
    "run_sweep": "(sweep: 'str | Path | Mapping[str, Any]', *, output: 'str | Path' = '.placewright', local: 'bool' = False, "
    "cpus: 'int | None' = None, fresh: 'bool' = False, quiet: 'bool' = False) -> 'SweepResults'",
    "save_placements": "(problem: 'Problem', placements: 'Any', path: 'str | Path') -> 'Path'",
    "save_timeline": "(problem: 'Problem', placement: 'Any', path: 'str | Path') -> 'Path'",
    "simulate": "(problem: 'Problem', placements: 'Any', *, noise: 'float' = 0.0, seed: 'int' = 0, "
    "trace: 'bool' = False) -> 'Measurements'",
}
"""What other programs rely on. A change here breaks them: add, and say so in the notes of the version."""
METHODS_OF_RESULTS = {"best", "curves", "leaderboard", "page", "policy", "runs", "folder"}
GRAPH: dict[str, Any] = {"synthetic": {"tasks": 12}, "seed": 1}


@pytest.fixture
def problem() -> placewright.Problem:
    return placewright.load_problem(GRAPH, "cpu-gpu-4")


def test_names_and_signatures_stay() -> None:
    assert set(placewright.__all__) == set(NAMES) == set(dir(placewright))
    found = {name: None if value is None else str(inspect.signature(getattr(placewright, name))) for name, value in NAMES.items()}
    assert found == NAMES
    assert {name for name in vars(placewright.SweepResults) if not name.startswith("_")} | {"folder"} == METHODS_OF_RESULTS
    assert all(inspect.getdoc(getattr(placewright, name)) for name in NAMES)
    with pytest.raises(AttributeError, match="no attribute 'plcae'"):
        placewright.plcae  # noqa: B018


def test_importing_it_imports_nothing_heavy() -> None:
    heavy = "{'numpy', 'pandas', 'torch', 'ray', 'mlflow', 'optuna', 'openvino', 'matplotlib'}"
    code = f"import sys, placewright, placewright.runtime; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"


def test_it_says_that_it_is_typed() -> None:
    assert (Path(placewright.__file__).parent / "py.typed").is_file()


def test_placements_are_taken_in_every_form(problem: placewright.Problem, tmp_path: Path) -> None:
    rows = np.array([[0] * 12, [1] * 12])
    both = placewright.simulate(problem, rows)
    assert both.seconds.shape == (2,) and both.ok.all()
    by_name = placewright.assignment(problem, rows[1])
    assert set(by_name.values()) == {"igpu"}
    for form in (rows[1], rows[1].tolist(), by_name, [by_name]):
        assert placewright.simulate(problem, form).seconds.tolist() == [both.seconds[1]]
    assert placewright.measure(problem, rows, "simulator").seconds.tolist() == both.seconds.tolist()
    assert placewright.measure(problem, rows, {"kind": "work-conserving"}).protocol.startswith("simulator:work-conserving")
    assert problem.name == "synthetic/1@cpu-gpu-4"
    with pytest.raises(InputError, match=r"whole numbers \[V\] or \[B, V\] with V = 12"):
        placewright.simulate(problem, [0, 1])
    loaded, read = placewright.load_placements(placewright.save_placements(problem, rows, tmp_path / "p.json"))
    assert (read == rows).all() and placewright.simulate(loaded, read).seconds.tolist() == both.seconds.tolist()
    assert "makespan" in placewright.save_timeline(problem, rows[0], tmp_path / "t.html").read_text()


def test_a_search_is_that_of_the_command_line(tmp_path: Path, problem: placewright.Problem, capsys: pytest.CaptureFixture[str]) -> None:
    path = placewright.save_placements(problem, None, tmp_path / "whole.json")
    told: list[int] = []
    loaded = placewright.load_problem(path)
    placed = placewright.place(loaded, "local-search", budget=60, seed=3, progress=lambda n, _: told.append(n))
    assert placed.problem is loaded and placed.evaluations == told[-1] == 60
    assert placed.makespan == placewright.simulate(loaded, placed.placement).seconds[0] >= placed.lower_bound
    assert main(["place", str(path), "--budget", "60", "--seed", "3", "--output", str(tmp_path / "placed"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["placement"] == placewright.assignment(loaded, placed.placement)


def test_a_problem_of_ones_own_is_placed_too() -> None:
    graph = placewright.ComputationGraph(("a", "b", "c"), ("A",) * 3, [3.0, 2.0, 2.0], [1.0] * 3, [(0, 1), (0, 2)], [1.0] * 2)
    problem = placewright.Problem(graph, placewright.DeviceNetwork(("x", "y"), [1.0, 1.0], 10.0, 0.0))
    first, second = (placewright.place(problem, budget=20, seed=1) for _ in range(2))
    assert first.problem is problem and first.makespan == pytest.approx(5.1)
    assert (first.placement == second.placement).all()


def test_files_and_names_can_be_mixed_with_mappings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, problem: placewright.Problem) -> None:
    monkeypatch.chdir(tmp_path)
    path = placewright.save_placements(problem, None, "whole.json")
    assert placewright.load_problem(path).n_nodes == 12
    assert placewright.load_problem({"file": "whole.json"}, {"named": "cpu-gpu-2"}, costs="linear").n_devices == 2
    assert placewright.load_problem("whole.json", {"synthetic": {"devices": 3}}, costs={"kind": "linear"}).n_devices == 3
    assert placewright.load_problem({"problem": "whole.json"}).n_devices == 4
    with pytest.raises(InputError, match="unknown model"):
        placewright.load_problem("nothing", "cpu-gpu-4")
    with pytest.raises(InputError, match="says nothing about devices"):
        placewright.load_problem(GRAPH)


def test_lists_of_names() -> None:
    assert "heft" in placewright.methods() and "cpu-gpu-4" in placewright.networks() and "resnet-50" in placewright.models()


@pytest.mark.slow
def test_a_sweep_is_run_and_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    from ruamel.yaml import YAML

    monkeypatch.chdir(tmp_path)
    text = SWEEP.replace("[random, heft, local-search]", "[heft, random]").replace("budget: 300", "budget: 20")
    sweep = YAML(typ="safe").load(text)
    done = placewright.run_sweep(sweep, output="out", local=True, quiet=True)
    assert capfd.readouterr().out == "" and not list(tmp_path.glob("*.yaml"))
    assert done == placewright.load_sweep("small", "out") and done.page.is_file()
    runs = done.runs()
    assert len(runs) == 8 and set(runs["method"]) == {"heft", "random"} and runs["objective"].dtype == float
    assert done.leaderboard()["method"].tolist()[0] == "heft" and set(done.curves()["problem"]) == {"a@n4", "b@n4"}
    problem, placement = done.best("a@n4")
    assert placewright.simulate(problem, placement).objective[0] == runs.query("problem == 'a@n4'")["objective"].min()
    assert "<table" in done._repr_html_() and "simulated" in done._repr_html_()
    with pytest.raises(InputError, match="did you mean 'a@n4'"):
        done.best("a@n")
    with pytest.raises(InputError, match="nothing learned there"):
        done.policy("heft")
    with pytest.raises(InputError, match="unknown key 'budgte'"):
        placewright.run_sweep({**sweep, "budgte": 3}, output="out")


@pytest.mark.slow
def test_what_was_learned_places_other_problems(tmp_path: Path) -> None:
    sweep = {
        "sweep": "learn",
        "problems": {"networks": {"cpu-gpu-4": None}, "graphs": {"a": {"synthetic": {"tasks": 10}, "seed": 0}}},
        "methods": {"learner": {"method": "gdp"}},
        "budget": 4,
    }
    done = placewright.run_sweep(sweep, output=tmp_path, local=True, quiet=True)
    policy = done.policy("learner")
    other = placewright.load_problem(GRAPH, "cpu-gpu-4")
    placement = policy.place(other)
    assert policy.method == "gdp" and other.valid(placement[None, :]).all()
    (file,) = done.folder.glob("trials/*/policy.safetensors")
    assert (placewright.load_policy(file.parent).place(other) == placement).all()
    with pytest.raises(InputError, match="no policy of 'learnt'"):
        done.policy("learnt")


@pytest.mark.slow
def test_the_notebook_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its cells one after another, as a kernel runs them."""
    monkeypatch.chdir(tmp_path)
    cells = json.loads((ROOT / "examples" / "first_steps.ipynb").read_text(encoding="utf-8"))["cells"]
    kernel: dict[str, Any] = {}
    for cell in cells:
        if cell["cell_type"] == "code":
            exec("".join(cell["source"]), kernel)
    assert kernel["placed"]["local-search"].makespan <= kernel["placed"]["heft"].makespan
    assert kernel["results"].page.is_file() and "<table" in kernel["results"]._repr_html_()
