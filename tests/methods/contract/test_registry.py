"""Methods of other packages, found by their entry points. Nothing is installed: a ``.dist-info`` on the path will do."""

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "examples" / "plugin"
SWEEP = """
sweep: outside
problems:
  graphs: {layered: {synthetic: {tasks: 8}, seeds: [0]}}
  networks: {desktop: cpu-gpu-4}
methods:
  random:
  annealing: {cooling: 0.9}
seeds: [0, 1]
budget: {evaluations: 40}
evaluator: {kind: simulator, local: true}
"""


def distribution(folder, name, methods):
    """What pip leaves of a package that adds ``methods``, so that importlib.metadata finds its entry points."""
    info = folder / f"{name.replace('-', '_')}-0.1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.1.0\n")
    lines = [f"{method} = {value}" for method, value in methods.items()]
    (info / "entry_points.txt").write_text("\n".join(["[placewright.methods]", *lines, ""]))
    return folder


@pytest.fixture
def example(tmp_path):
    """A folder that makes the example's entry points known as they stand in its pyproject.toml."""
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"]
    return distribution(tmp_path / "installed", project["name"], project["entry-points"]["placewright.methods"])


def python(*arguments, path, cwd):
    """A fresh Python beside these folders."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, [ROOT, EXAMPLE, *path]))}
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, env=environment, cwd=cwd, check=False)


@pytest.mark.thorough
def test_an_outside_method_passes_the_contract(example, tmp_path):
    suite = str(EXAMPLE / "tests" / "test_annealing.py")
    done = python("-m", "pytest", "-q", "-p", "no:cacheprovider", suite, path=[example], cwd=tmp_path)
    assert done.returncode == 0, done.stdout
    assert done.stdout.startswith("." * 9 + " "), "nine tests passed"


@pytest.mark.slow
def test_an_outside_method_is_listed_and_runs_in_a_sweep(example, tmp_path):
    (tmp_path / "sweep.yaml").write_text(SWEEP)
    listed = json.loads(
        python("-m", "orchestration.cli.main", "methods", "annealing", "--format", "json", path=[example], cwd=tmp_path).stdout
    )
    assert [(m["name"], m["source"], m["summary"][:19]) for m in listed] == [
        ("annealing", "placewright_example.annealing (package placewright-example)", "Simulated annealing")
    ]
    assert {s["name"]: s["default"] for s in listed[0]["settings"]} == {"temperature": 0.1, "cooling": 0.98}
    ran = python("-m", "orchestration.cli.main", "run", "sweep.yaml", "--local", "--output", "out", path=[example], cwd=tmp_path)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    rows = [json.loads(line) for line in next(tmp_path.glob("out/**/ledger.jsonl")).read_text().splitlines()]
    results = [row["result"] for row in rows if row.get("result", {}).get("method_name") == "annealing"]
    assert len(results) == 2 and all(r["status"] == "finished" and r["evaluations"] == 40 for r in results)


def ask(code, path, cwd):
    done = python("-c", f"from methods.contract import registry\n{code}", path=path, cwd=cwd)
    return done.stdout.strip(), done.stderr.strip()


def test_our_own_method_wins_over_an_outside_one_of_its_name(tmp_path):
    folder = distribution(tmp_path / "installed", "rival", {"heft": "rival:Heft", "rival-heft": "rival:Heft"})
    said, warned = ask("print(registry.method_class('heft').__module__, 'rival-heft' in registry.names())", [folder], tmp_path)
    assert said == "methods.heuristics.heft True"
    assert (
        "method 'heft' of package 'rival' (rival:Heft) is not used, since placewright's own methods.heuristics.heft has that name" in warned
    )


def test_the_first_of_two_outside_methods_of_one_name_is_used(tmp_path):
    path = [distribution(tmp_path / name, name, {"both": f"{name}:Method"}) for name in ("second", "first")]
    said, warned = ask("print(registry.outside()['both'].value)", path, tmp_path)
    assert said == "first:Method"
    assert "method 'both' of package 'second' (second:Method) is not used, since package 'first' (first:Method) has that name" in warned


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        (
            "no_such_package:Method",
            "method 'odd' of package 'odd' (no_such_package:Method) cannot be imported: No module named 'no_such_package'",
        ),
        pytest.param(
            "json:dumps",
            "method 'odd' of package 'odd' (json:dumps) is no subclass of methods.contract.method.Method",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "json:nothing",
            "method 'odd' of package 'odd' (json:nothing) cannot be imported: module 'json' has no attribute 'nothing'",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_an_outside_method_that_cannot_be_had_is_refused_in_one_sentence(tmp_path, value, sentence):
    folder = distribution(tmp_path / "installed", "odd", {"odd": value})
    for command in (["methods", "odd"], ["methods"]):
        done = python("-m", "orchestration.cli.main", *command, path=[folder], cwd=tmp_path)
        assert done.returncode == 2 and done.stderr == f"placewright: {sentence}\n"
