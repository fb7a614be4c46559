"""What kinds of evaluators there are and their options, read off the classes; kinds of other packages by their entry points."""

import json
import os
import subprocess
import sys
import tomllib
from dataclasses import fields, is_dataclass
from pathlib import Path

import pytest

from envs.hosts.engine.host import Engine
from envs.hosts.measuring import Measuring
from envs.hosts.openvino.choice import ToolkitChoice
from envs.hosts.openvino.host import OpenVinoHost
from envs.problem.errors import InputError
from envs.problem.measurement import Evaluator
from envs.simulators.fifo.evaluator import Simulator
from envs.simulators.pieces.evaluator import PiecesSimulator
from envs.simulators.relocation import Relocating
from envs.simulators.work_conserving.discipline import Discipline
from envs.simulators.work_conserving.evaluator import WorkConservingSimulator
from orchestration.rewards.evaluators import build_evaluator, measures_for_real, simulates
from orchestration.rewards.kinds import EVALUATORS
from orchestration.rewards.wrappers import Failing, Noisy
from orchestration.specs.trial import EvaluatorSpec

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "examples" / "plugin"
CORE = f"cpu:{min(os.sched_getaffinity(0))}"
MEASURING = {"warm_up": 2, "repetitions": 7, "average_last": 3, "statistic": "min", "cut_off": 5.0, "time_limit": 9.0}
DISCIPLINE = {"strategy": "longest-path", "channels": 2, "sharing": "bus", "synchronous": True}
SIMULATED = {"processors": [0, 0, 1], "send_overhead": 1e-3}
"""Of the discipline, but for simulators alone."""
GIVEN = {
    "simulator": {"noise": 0.25, "threads": 2},
    "work-conserving": {**DISCIPLINE, **SIMULATED, "noise": 0.25, "samples": 3, "inputs_everywhere": False, "threads": 2},
    "pieces": {"contention": 1.25, "early": False},
    "dataflow": {
        **DISCIPLINE, "devices": [CORE], "measuring": MEASURING, "emulate_links": False, "check_results": False, "input_seed": 5,
        "models": {"m": {"model": "bert"}}, "prepare_limit": 7.0,
    },
    "openvino": {
        "devices": {"a": {"device": "CPU"}}, "mode": "serial", "models": {"m": {"model": "bert"}}, "measuring": MEASURING,
        "tolerance": 0.5, "keep_compiled": 9, "compile_limit": 8.0, "memory_limit": 1e12, "prepare_limit": 7.0, "input_seed": 5,
        "choice": "AUTO", "preference": ["a"],
    },
}  # fmt: skip
"""A value that is not the default for every setting of every kind."""
CLASSES = {
    "simulator": Simulator,
    "work-conserving": WorkConservingSimulator,
    "pieces": PiecesSimulator,
    "dataflow": Engine,
    "openvino": OpenVinoHost,
}


def same(found, given):
    """Whether a setting came through as given."""
    if is_dataclass(found) and isinstance(given, dict):
        return all(same(getattr(found, k), v) for k, v in given.items())
    return list(found) == list(given) if isinstance(given, list) else found == given


@pytest.mark.parametrize("kind", GIVEN)
def test_every_setting_of_every_kind_can_be_given(kind):
    options = GIVEN[kind]
    built = build_evaluator(EvaluatorSpec(kind, options))
    if kind == "openvino":
        assert (type(built), built.choice, list(built.preference)) == (ToolkitChoice, "AUTO", ["a"])
        built = built.inner
    assert type(built) is CLASSES[kind] and isinstance(built, Evaluator)
    for f in fields(CLASSES[kind]):
        if not f.init:
            continue
        value = getattr(built, f.name)
        if f.name == "discipline":
            for part in fields(Discipline):
                if kind == "work-conserving" or part.name not in SIMULATED:
                    assert same(getattr(value, part.name), options[part.name]) and options[part.name] != part.default, part.name
        else:
            assert f.name in options, f"give a value for {f.name}"
            if f.name not in ("devices", "models"):
                assert same(value, options[f.name]) and options[f.name] != f.default, f.name
    assert set(MEASURING) == {f.name for f in fields(Measuring)}
    assert set(options) <= set(EVALUATORS[kind].options)


def test_what_simulates_can_be_wrapped():
    options = {"noise": 0.1, "measurement_noise": 0.2, "relocation": {"frequency": 10, "static": True}, "fail": 0.3}
    built = build_evaluator(EvaluatorSpec("work-conserving", options))
    assert isinstance(built, Failing) and built.rate == 0.3
    relocating = built.inner
    assert isinstance(relocating, Relocating) and (relocating.frequency, relocating.static) == (10.0, True)
    assert isinstance(relocating.inner, Noisy) and relocating.inner.sigma == 0.2 and relocating.inner.inner.noise == 0.1
    for wrong in ({"often": 1}, {"static": True}):
        with pytest.raises(InputError, match=r"write relocation: NUMBER or .frequency: …, static: …."):
            build_evaluator(EvaluatorSpec("simulator", {"relocation": wrong}))
    with pytest.raises(InputError, match="unknown option 'fail' of evaluator 'dataflow'"):
        build_evaluator(EvaluatorSpec("dataflow", {"devices": [CORE], "fail": 0.5}))


def test_nobody_asks_an_evaluator_for_what_it_may_not_have():
    found = [
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for room in ("envs", "orchestration")
        for path in (ROOT / room).rglob("*.py")
        for line in path.read_text().splitlines()
        if "getattr(evaluator" in line or "getattr(self.evaluator" in line or "getattr(self.inner" in line
    ]
    assert not found, found


def test_what_measures_for_real():
    assert [name for name in EVALUATORS if measures_for_real(name)] == ["dataflow", "openvino"]
    assert [name for name in EVALUATORS if simulates(name)] == ["simulator", "work-conserving", "pieces"]
    assert not simulates("nobody-knows") and not measures_for_real("nobody-knows")


SWEEP = """
sweep: outside
problems:
  graphs: {layered: {synthetic: {tasks: 8}, seeds: [0]}}
  networks: {desktop: cpu-gpu-4}
methods: [random, local-search]
seeds: [0, 1]
budget: {evaluations: 40}
evaluator: {kind: busiest-device, launch: 0.001%s}
"""


def installed(folder: Path, lines: list[str], name: str) -> Path:
    """What pip leaves of a package, so that importlib.metadata finds its entry points."""
    info = folder / f"{name}-0.1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.1.0\n")
    (info / "entry_points.txt").write_text("\n".join(["[placewright.evaluators]", *lines, ""]))
    return folder


def python(*arguments, path, cwd):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, [ROOT, EXAMPLE, path]))}
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, env=environment, cwd=cwd, check=False)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_sweep_measures_by_an_evaluator_of_another_package(tmp_path):
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"]
    points = project["entry-points"]["placewright.evaluators"]
    folder = installed(tmp_path / "installed", [f"{name} = {value}" for name, value in points.items()], "placewright_example")
    for run, more in (("local", ["--local"]), ("ray", [])):
        (tmp_path / "sweep.yaml").write_text(SWEEP % (", fail: 0.1" if run == "ray" else ""))
        ran = python("-m", "orchestration.cli.main", "run", "sweep.yaml", *more, "--output", run, path=folder, cwd=tmp_path)
        assert ran.returncode == 0, ran.stdout + ran.stderr
    found = []
    for run in ("local", "ray"):
        rows = [json.loads(line) for line in next(tmp_path.glob(f"{run}/**/ledger.jsonl")).read_text().splitlines()]
        results = [row["result"] for row in rows if "result" in row]
        assert len(results) == 4 and all(r["status"] == "finished" and r["evaluations"] == 40 for r in results)
        assert {p["protocol"] for r in results for p in r["problems"]} == {"busiest-device launch=0.001"}
        found.append(sorted((r["method"], r["seed"], r["problems"][0]["objective"]) for r in results))
    assert found[0] == found[1]
    (tmp_path / "sweep.yaml").write_text(SWEEP.replace("launch", "lunch") % "")
    wrong = python("-m", "orchestration.cli.main", "plan", "sweep.yaml", path=folder, cwd=tmp_path)
    assert wrong.returncode and "'lunch'" in wrong.stderr and "did you mean 'launch'" in wrong.stderr


@pytest.mark.parametrize(
    ("line", "code", "said"),
    [
        ("simulator = rival:Rival", "print(EVALUATORS['simulator'].make.__name__)", "Simulator"),
        ("gone = nowhere:Nothing", "EVALUATORS['gone']", "InputError: evaluator 'gone' cannot be loaded from nowhere:Nothing"),
        ("odd = json:dumps", "EVALUATORS['odd']", "InputError: evaluator 'odd' is json:dumps, which is no BaseEvaluator"),
    ],
)
def test_packages_that_offer_what_cannot_be(tmp_path, line, code, said):
    folder = installed(tmp_path / "installed", [line], "rival")
    done = python("-c", f"from orchestration.rewards.kinds import EVALUATORS\n{code}", path=folder, cwd=tmp_path)
    assert said in done.stdout + done.stderr
    assert ("evaluator 'simulator' of rival:Rival is not used" in done.stderr) == line.startswith("simulator")


SAME = {
    "threads": "a simulator's answers do not depend on them", "keep_compiled": "memory", "prepare_limit": "a failure of infrastructure",
    "models": "hosts refuse a graph that is not its model's", **dict.fromkeys(SIMULATED, "the engine itself has it"),
}  # fmt: skip
"""Settings that measurements do not depend on, and why."""


def changed(kind):
    """Every setting of a kind alone, with a name, beside options without it."""
    given = GIVEN[kind]
    needed = {"devices": given["devices"]} if "devices" in given else {}
    choice = {key: given[key] for key in ("choice", "preference") if key in given}
    for key, value in given.items():
        if key == "measuring":
            yield from ((f"measuring.{k}", {**needed, key: {k: v}}, {**needed, key: {}}) for k, v in value.items())
        elif key == "devices":
            other = [CORE, CORE] if isinstance(value, list) else {"a": {"device": "CPU", "threads": 1}}
            yield key, {key: other}, needed
        elif key in choice:
            yield key, {**needed, **choice}, {**needed, **choice, "choice": "HETERO"} if key == "choice" else needed
        elif key not in SAME:
            yield key, {**needed, key: value}, needed


@pytest.mark.parametrize(("kind", "key", "one", "other"), [(kind, *case) for kind in GIVEN for case in changed(kind)])
def test_whatever_decides_a_measurement_is_in_its_key(kind, key, one, other):
    protocols = [build_evaluator(EvaluatorSpec(kind, options)).protocol for options in (one, other)]
    assert protocols[0] != protocols[1], f"{key} does not show in {protocols[0]!r}"


@pytest.mark.parametrize("option", ["noise", "relocation", "measurement_noise"])
def test_numbers_that_are_nearly_the_same_are_told_apart(option):
    built = [build_evaluator(EvaluatorSpec("simulator", {option: value})).protocol for value in (0.1234567, 0.12345671)]
    assert built[0] != built[1]
