"""What one does to a sweep besides running it: status, cancel, retry, hosts, replay."""

import dataclasses
import json
import signal
import subprocess
import sys
import time

import pytest

from envs.hosts.processor import processor
from envs.problem.errors import InputError
from orchestration.cli.main import main
from orchestration.commands import status
from orchestration.commands.replay import elsewhere, find_run, replay
from orchestration.commands.status import cancel, is_active, read_statistics, sweep_status, write_statistics
from orchestration.definition.sweep import load_sweep
from orchestration.folder.definition_copy import save_definition
from orchestration.folder.ledger import Ledger, TrialEnd, entries
from orchestration.trials.run_trial import run_trial
from orchestration.trials.worker import execute
from tests.orchestration.sweeps_for_tests import small_sweep, trial

SEARCHING = """
sweep: small
problems:
  networks: {n4: {synthetic: {devices: 4}, seed: 0}}
  graphs: {a: {synthetic: {tasks: 12}, seed: 0}}
methods: [random, local-search]
budget: 100
stages:
  plain: {kind: search, methods: [random], seeds: 0..4}
  tune: {kind: search, methods: [local-search], seeds: [0, 1], search: {space: {batch: {int: [2, 9]}}, configurations: 10, sampler: random}}
  final: {kind: search, config_from: tune}
"""


@pytest.fixture
def ran(tmp_path):
    """A folder in which two of the sweep's trials ended, one of them badly."""
    sweep = small_sweep(tmp_path, SEARCHING)
    good, bad = sweep.expand()[:2]
    folder = tmp_path / "out" / "small"
    with Ledger(folder) as ledger:
        ended = execute(_job(good), str(folder), "small", lambda *_: None)
        ledger.append([ended])
        failed = dataclasses.replace(run_trial(bad, _simulator()), status="failed", traceback="Traceback\nZeroDivisionError: own fault\n")
        ledger.append([TrialEnd.of(bad, failed)])
    return sweep, tmp_path / "out", good


def _job(trial):
    from orchestration.specs.trial import TrialTask

    return TrialTask(trial)


def _simulator(noise=0.0):
    from envs.simulators.fifo.evaluator import Simulator

    return Simulator(noise=noise)


def test_status_counts_searches_by_the_most_they_may_run(ran):
    sweep, output, _ = ran
    found = sweep_status(sweep, output / "small")
    assert found.stages == {"plain": {"finished": 1, "failed": 1, "waiting": 3}, "tune": {"waiting": 20}, "final": {"waiting": 1}}
    assert not found.active and "own fault" in found.text()


def test_a_sweep_is_named_by_its_file_its_name_or_its_folder_alike(ran, tmp_path, capsys):
    sweep, output, _ = ran
    save_definition(output / "small", sweep)
    told = []
    for name in (str(tmp_path / "small.yaml"), "small", str(output / "small")):
        assert main(["status", name, "--output", str(output)]) == 1
        told.append(capsys.readouterr().out)
        assert main(["cancel", name, "--output", str(output)]) == 2
        assert f"no driver is running the sweep in {output / 'small'}" in capsys.readouterr().err
        assert main(["report", name, "--output", str(output)]) == 0
        told.append(capsys.readouterr().out)
        assert main(["hosts", name, "--output", str(output)]) == 0
        assert "no sweep is running" in capsys.readouterr().out
    assert told[:2] == told[2:4] == told[4:] and "plain" in told[0]
    assert main(["status", "smal", "--output", str(output)]) == 2
    assert "did you mean 'small'" in capsys.readouterr().err


def test_status_knows_what_was_changed_for_the_run(tmp_path, capsys):
    path = tmp_path / "s.yaml"
    path.write_text(SEARCHING)
    sweep = load_sweep(path, ["stages.plain.seeds=0..1", "budget=50"])
    folder = tmp_path / "out" / "small"
    with Ledger(folder) as ledger:
        save_definition(folder, sweep)
        ledger.append([execute(_job(sweep.expand()[0]), str(folder), "small", lambda *_: None)])
    for name in ("small", str(path)):
        assert main(["status", name, "--output", str(tmp_path / "out")]) == 0
        assert "plain  1 finished, 1 waiting" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        ("stages.plian.seeds=1", "has no 'stages.plian'; did you mean 'plain'"),
        ("budget", "is not KEY=VALUE"),
        ("=3", "is not KEY=VALUE"),
        ("budget=[1", "is not valid YAML"),
        ("stages.plain.budgt=3", "unknown key 'budgt'"),
        ("budget=-3", "budget"),
        ("budget.evaluations=3", "'budget' is no mapping"),
        ("methods.7=heft", "'methods' is no mapping that could have '7'"),
    ],
)
def test_a_wrong_change_is_one_sentence_that_names_it(tmp_path, capsys, setting, sentence):
    path = tmp_path / "s.yaml"
    path.write_text(SEARCHING)
    assert main(["plan", str(path), "--set", setting]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert f"--set {setting}" in line and sentence in line


def test_changes_are_values_of_yaml(tmp_path):
    path = tmp_path / "s.yaml"
    path.write_text(SEARCHING)
    sweep = load_sweep(
        path, ["stages.plain.budget={evaluations: 7}", "stages.plain.seeds=3", "methods.0=heft", "stages.plain.methods.0=heft"]
    )
    (trial,) = [t for t in sweep.expand() if t.stage == "plain"]
    assert (trial.budget.evaluations, trial.seed, trial.method) == (7, 3, "heft")
    assert "evaluations: 7" in sweep.resolved and sweep.text == SEARCHING


def test_replay_measures_the_recorded_placement_again(ran, capsys):
    _, output, good = ran
    found, result = find_run(good.content_hash[:9], output)
    assert found == good
    (one,) = replay(found, result)
    assert one.agrees and one.tolerance == 0 and one.measured == result.problems[0].objective
    assert main(["replay", good.content_hash, "--output", str(output)]) == 0
    assert "agrees exactly" in (said := capsys.readouterr().out) and "computed on" not in said
    assert result.processor == processor() and elsewhere(dataclasses.replace(result, processor="")) == ""
    assert f"computed on Another (z9); this is {processor()}" in elsewhere(dataclasses.replace(result, processor="Another (z9)"))
    wrong = dataclasses.replace(result, problems=(dataclasses.replace(result.problems[0], objective=result.problems[0].objective * 1.01),))
    assert not replay(found, wrong)[0].agrees
    other = dataclasses.replace(result, problems=(dataclasses.replace(result.problems[0], problem_hash="0" * 64),))
    with pytest.raises(InputError, match="is not what it was"):
        replay(found, other)
    for name, sentence in (("abc", "too short"), ("f" * 20, "no trial and no MLflow run")):
        with pytest.raises(InputError, match=sentence):
            find_run(name, output)


def test_noise_is_replayed_too():
    from orchestration.specs.trial import EvaluatorSpec

    noisy = trial("random", 150, evaluator=EvaluatorSpec("simulator", {"noise": 0.3}))
    assert replay(noisy, run_trial(noisy, _simulator(0.3)))[0].agrees


def test_cancel_asks_the_driver_that_holds_the_sweep(tmp_path):
    folder = tmp_path / "out"
    with pytest.raises(InputError, match="no driver is running"):
        cancel(folder, 1)
    code = (
        "import signal, sys, time; from pathlib import Path; from orchestration.folder.ledger import Ledger\n"
        f"with Ledger(Path({str(folder)!r})):\n    print('there', flush=True)\n    time.sleep(600)"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "there\n"
    assert is_active(folder)
    with pytest.raises(InputError, match="another run is writing"):
        Ledger(folder)
    assert json.loads((folder / "ledger.lock").read_text())["pid"] == process.pid, "a second driver leaves the lock's owner in peace"
    assert cancel(folder, 300)
    assert process.wait(300) == -signal.SIGTERM and not is_active(folder)
    process.stdout.close()


def test_hosts_are_shown_as_they_were_last_seen(tmp_path, capsys):
    host = {
        "name": "dataflow-0", "pid": 7, "running": 1, "measurements": 1200, "faults": 2, "quarantined": False, "utilisation": 0.5,
        "waiting": False, "last_fault": "OSError('cable')",
    }  # fmt: skip
    (tmp_path / "small").mkdir()
    before = time.time()
    write_statistics(tmp_path / "small", {"keys": {"dataflow": {"queued": 3, "hosts": [host]}}, "cache": {"hits": 9, "misses": 1}})
    assert before <= read_statistics(tmp_path)["small"]["at"] <= time.time()
    assert main(["hosts", "--output", str(tmp_path)]) == 0
    assert "no sweep is running" in capsys.readouterr().out
    assert main(["hosts", "--output", str(tmp_path), "--all"]) == 0
    said = capsys.readouterr().out
    assert "dataflow: 3 requests queued" in said and "busy" in said and "50% used, 1,200 measured, 2 faults" in said
    assert status.hosts_text({}) == "no sweep is running that asks a reward service"


def test_what_failed_is_run_again_only_on_demand(ran):
    from orchestration.driver.agenda import Agenda

    sweep, output, good = ran
    sweep = dataclasses.replace(sweep, stages=sweep.stages[:1])
    for retry, waiting in ((False, 3), (True, 4)):
        with Ledger(output / "small") as ledger:
            work = Agenda(sweep, ledger, retry_failed=retry)
            assert (work.skipped, len(work.open_trials)) == (5 - waiting, waiting)
    assert {t.content_hash for t, r in entries(output / "small") if r.ok} == {good.content_hash}


def over(t, evaluations, seconds):
    return TrialEnd(t.content_hash, "finished", False, "", (), evaluations, seconds, "")


def test_time_left_knows_that_trials_differ_in_length(monkeypatch):
    from rich.console import Console

    from orchestration.driver.progress import Display
    from orchestration.specs.trial import Budget

    short = [trial("random", 100, seed=i) for i in range(10)]
    long = [trial("heft", 100, seed=i, budget=Budget(10_000)) for i in range(10)]
    now = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    display = Display(20, 0, [*short, *long], Console(quiet=True))
    assert display.left() is None
    for t in short:
        now[0] += 1.0
        display.ended(t, over(t, 100, 2.0))  # two run at a time
    assert display.left() == pytest.approx(10 * 100 * 10 / 10 * 1.0, rel=0.02), "10 trials of 100 times the length, at one a second"
    now[0] += 50.0
    display.ended(long[0], over(long[0], 10_000, 100.0))
    assert display.left() == pytest.approx(9 * 50.0, rel=0.02), "its own pace, once it is known"


def test_training_without_measurements_says_nothing_about_the_pace_of_searches(monkeypatch):
    from rich.console import Console

    from orchestration.driver.progress import Display
    from orchestration.specs.trial import Budget

    lessons = [trial("doppler", seed=i, budget=Budget(0), stage="imitation") for i in range(2)]
    searches = [trial("doppler", seed=i, budget=Budget(8000), stage="simulated") for i in range(2)]
    now = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    display = Display(4, 0, [*lessons, *searches], Console(quiet=True))
    for one in lessons:
        now[0] += 15.0
        display.ended(one, over(one, 0, 15.0))
    assert display.left() is None, "not 15 seconds an evaluation"
    now[0] += 60.0
    display.ended(searches[0], over(searches[0], 8000, 60.0))
    assert display.left() == pytest.approx(60.0)
    now[0] += 60.0
    display.ended(searches[1], over(searches[1], 8000, 60.0))
    assert display.left() is None
