"""Models are captured by workers while other trials run, once each, and people are told."""

import io
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest
from rich.console import Console

from orchestration.definition.expansion import Expansion
from orchestration.driver import captures
from orchestration.driver.agenda import Agenda
from orchestration.driver.run_sweep import run_sweep
from orchestration.folder.ledger import Ledger, TrialEnd, entries
from orchestration.specs import sources
from orchestration.specs.canonical import FrozenDict
from orchestration.specs.trial import ProblemSpec
from orchestration.trials.worker import lost
from tests.orchestration.driver.test_driver import no_plots  # noqa: F401
from tests.orchestration.sweeps_for_tests import small_sweep, trial

MODEL = "light-squeezenet"


def on(*names, **changes):
    problems = tuple(ProblemSpec(FrozenDict({"model": n}), FrozenDict({"named": "cpu-gpu-4"}), graph_label=n) for n in names)
    return trial("heft", 5, problems=problems, **changes)


@pytest.fixture
def agenda(tmp_path, monkeypatch):
    """Agenda over trials on graphs of which those called ``big…`` are not on disk."""
    monkeypatch.setattr(captures, "must_be_captured", lambda spec: spec.graph["model"].startswith("big"))
    with Ledger(tmp_path / "sweep") as ledger:
        yield lambda *trials: Agenda(SimpleNamespace(expansion=lambda _winners=None: Expansion(trials, (), (), ())), ledger)


def handed(agenda):
    found = []
    while (task := agenda.next()) is not None:
        found.append([p.graph_label for p in task.trial.problems])
    return found


def test_trials_wait_for_their_graphs_and_others_do_not(agenda):
    work = agenda(on("big1"), on("small"), on("big1", seed=1), on("big1", "big2"), on("big2"))
    assert work.ready and handed(work) == [["small"]] and not work.ready and not work.complete
    first, second = work.next_capture(), work.next_capture()
    assert (first.graph_label, second.graph_label, work.next_capture()) == ("big1", "big2", None), "each once"
    work.captured(first)
    assert handed(work) == [["big1"], ["big1"]] and not work.complete
    work.captured(second)
    assert handed(work) == [["big2"], ["big1", "big2"]] and work.complete


def test_a_trial_behind_another_waits_for_its_graph_too(agenda):
    parent = on("small")
    work = agenda(parent, on("big1", parent=parent.content_hash))
    task = work.next()
    assert work.next_capture() is None, "nobody needs it yet"
    work.returned([(task, TrialEnd(parent.content_hash, "finished", False, _line(parent), (), 1, 0.0, ""))])
    assert handed(work) == [] and not work.complete
    work.captured(work.next_capture())
    assert handed(work) == [["big1"]]


def _line(made):
    return lost(made, "", "s").line


SWEEP = f"""
sweep: small
problems:
  networks: {{four: cpu-gpu-4}}
  graphs: {{real: {{model: {MODEL}}}, a: {{synthetic: {{tasks: 12}}, seed: 0}}}}
methods: [heft, metis]
budget: 5
evaluator: {{kind: simulator, local: true}}
"""


@pytest.fixture
def empty(tmp_path, monkeypatch):
    """A cache with nothing in it, of which this process knows nothing."""
    monkeypatch.setenv("PLACEWRIGHT_CACHE", str(tmp_path / "kept"))
    monkeypatch.setattr(sources, "_ON_DISK", set())
    sources._graph.cache_clear()
    return tmp_path / "kept"


@pytest.mark.slow
@pytest.mark.parametrize("options", [["--local"], []], ids=["local", "ray"])
def test_a_model_is_captured_in_a_run_and_kept(tmp_path, empty, options):
    (tmp_path / "small.yaml").write_text(SWEEP)
    command = [sys.executable, "-m", "orchestration.cli.main", "run", "small.yaml", *options]
    said = subprocess.run(command, cwd=tmp_path, env={**os.environ, "COLUMNS": "400"}, capture_output=True, text=True, check=True).stderr
    lines = said.splitlines()
    assert lines[0] == "reading small.yaml"
    (begun,) = [i for i, line in enumerate(lines) if line.startswith(f"capturing {MODEL}, slow the first time")]
    (ended,) = [i for i, line in enumerate(lines) if line.startswith(f"captured {MODEL}: ")]
    assert begun < ended and str(empty) in lines[begun]
    assert next(i for i, line in enumerate(lines) if line.startswith("opening the store of MLflow")) < begun, "not before the run"
    ran = [t.problems[0].graph_label for t, r in entries(tmp_path / ".placewright" / "small") if r.ok]
    assert sorted(ran) == ["a", "a", "real", "real"]
    if options:
        assert ran == ["a", "a", "real", "real"]
    again = subprocess.run([*command, "--fresh"], cwd=tmp_path, capture_output=True, text=True, check=True).stderr
    assert f"capturing {MODEL}" not in again and f"captured {MODEL}" not in again


@pytest.mark.slow
@pytest.mark.usefixtures("no_plots")
def test_a_model_that_cannot_be_captured_fails_its_trials_alone(tmp_path, empty, monkeypatch):
    from envs.graphs import openvino_capture
    from envs.problem.errors import InputError

    def refuse(*_):
        raise InputError("no such luck")

    monkeypatch.setattr(openvino_capture, "graph_of_ir", refuse)
    said = io.StringIO()
    text = SWEEP.replace(MODEL, "light-resnet50")
    ran = run_sweep(small_sweep(tmp_path, text), local=True, output=tmp_path / "out", console=Console(file=said, width=300))
    assert (ran.finished, ran.failed) == (2, 2)
    assert "light-resnet50 could not be captured: no such luck" in said.getvalue()
