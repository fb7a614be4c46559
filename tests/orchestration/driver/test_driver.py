import dataclasses
import json
import logging
import os
import signal
import subprocess
import sys

import mlflow
import pytest
from rich.console import Console

from envs.problem.errors import InputError
from orchestration.driver.run_sweep import run_sweep
from orchestration.folder.ledger import entries, results
from orchestration.rewards.evaluators import InfrastructureError
from orchestration.trials.run_trial import run_trial
from tests.orchestration.sweeps_for_tests import small_sweep


def quiet():
    return Console(file=open(os.devnull, "w"))


@pytest.fixture
def no_plots(monkeypatch):
    """Plots take longer than the sweeps of these tests."""
    from orchestration.report import finish

    monkeypatch.setattr(finish, "_write_plots", lambda *_: [])
    monkeypatch.setattr(finish, "PLACEMENTS_UP_TO", 0)


def artifacts(output, trial):
    """Names of the artifacts of a trial's only run."""
    client = mlflow.MlflowClient(f"sqlite:///{output}/mlflow.db")
    experiments = [e.experiment_id for e in client.search_experiments()]
    (run,) = client.search_runs(experiments, f"tags.trial = '{trial}'")
    return sorted(a.path for a in client.list_artifacts(run.info.run_id))


def contents(folder):
    return {r.trial: r.content() for r in results(folder)}


@pytest.fixture(scope="module")
def local(tmp_path_factory):
    """The small sweep, run in this process: what every other way of running it must give."""
    folder = tmp_path_factory.mktemp("local")
    return run_sweep(small_sweep(folder), local=True, output=folder / "out", console=quiet())


def test_everything_of_a_sweep_is_there_at_its_end(local):
    assert (local.finished, local.skipped, local.failed) == (12, 0, 0)
    for name in ("sweep.yaml", "leaderboard.json", "leaderboard.csv", "ledger.jsonl"):
        assert (local.folder / name).stat().st_size
    assert all(r.ok for r in results(local.folder))


@pytest.mark.thorough
def test_on_ray_the_results_are_the_same(tmp_path, local, ray_session, no_plots):
    done = run_sweep(small_sweep(tmp_path), output=tmp_path / "out", console=quiet())
    assert done.finished == 12 and contents(done.folder) == contents(local.folder)
    for name in ("runs.csv", "leaderboard.csv"):
        assert (done.folder / name).read_bytes() == (local.folder / name).read_bytes()


@pytest.mark.thorough
@pytest.mark.parametrize(("error", "status"), [(ValueError, "FAILED"), (KeyboardInterrupt, "KILLED")])
def test_whatever_ends_the_driver_no_run_stays_running(tmp_path, monkeypatch, error, status):
    def breaks(*_):
        raise error("odd")

    monkeypatch.setattr("orchestration.driver.run_sweep._finish", breaks)
    with pytest.raises(error):
        run_sweep(small_sweep(tmp_path), local=True, output=tmp_path / "out", console=quiet())
    client = mlflow.MlflowClient(f"sqlite:///{tmp_path}/out/mlflow.db")
    found = client.search_runs([e.experiment_id for e in client.search_experiments()])
    assert sorted(r.info.status for r in found) == sorted(["FINISHED"] * 12 + [status])


@pytest.mark.thorough
def test_running_again_runs_nothing_and_fresh_runs_all(tmp_path, no_plots):
    sweep = small_sweep(tmp_path)
    run_sweep(sweep, local=True, output=tmp_path / "out", console=quiet())
    again = run_sweep(sweep, output=tmp_path / "out", console=quiet())
    assert (again.finished, again.skipped) == (0, 12)
    fresh = run_sweep(sweep, local=True, output=tmp_path / "out", console=quiet(), fresh=True)
    assert (fresh.finished, fresh.skipped) == (12, 0)


STAGES = """
sweep: staged
problems:
  networks: {n4: {synthetic: {devices: 4}, seed: 0}}
  graphs: {a: {synthetic: {tasks: 12}, seed: 0}, b: {synthetic: {tasks: 14}, seed: 1}, c: {synthetic: {tasks: 16}, seed: 2}}
methods: [toy-learner]
budget: 100
stages:
  pretrain: {on: [a, b]}
  finetune: {from: pretrain, on: [c], budget: 70}
  zero-shot: {from: pretrain, on: [c]}
"""


def test_stages_start_from_what_their_parent_learned(tmp_path, toy_methods, no_plots):
    sweep = small_sweep(tmp_path, STAGES)
    done = run_sweep(sweep, local=True, output=tmp_path / "out", console=quiet())
    by_stage = {r.stage: r for r in results(done.folder)}
    assert [r.evaluations for r in by_stage.values()] == [100, 70, 1]
    from orchestration.specs.layout import POLICY, trial_folder
    from orchestration.specs.state_files import load_state

    counts = {s: load_state(trial_folder(done.folder, r.trial) / POLICY)["updates"] for s, r in by_stage.items()}
    assert counts["pretrain"] == 2 and counts["finetune"] == 4


def damage(path):
    data = path.read_bytes()
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))


@pytest.mark.thorough
def test_a_damaged_policy_is_made_again_in_the_same_run_and_in_the_next(tmp_path, toy_methods, monkeypatch, no_plots):
    from orchestration.driver import agenda
    from orchestration.specs.layout import POLICY, trial_folder

    sweep = small_sweep(tmp_path, STAGES)
    pretrain, found = dataclasses.replace(sweep, stages=sweep.stages[:1]), []
    for output, retries in ((tmp_path / "same", 1), (tmp_path / "next", 0)):
        monkeypatch.setattr(agenda, "RETRIES", retries)
        first = run_sweep(pretrain, local=True, output=output, console=quiet())
        (learned,) = results(first.folder)
        path = trial_folder(first.folder, learned.trial) / POLICY
        damage(path)
        if not retries:
            broken = run_sweep(sweep, local=True, output=output, console=quiet())
            assert (broken.skipped, broken.failed) == (1, 2)
            assert all("policy.safetensors was found damaged" in r.traceback for r in results(first.folder) if r.stage != "pretrain")
        mended = run_sweep(sweep, local=True, output=output, console=quiet())
        assert (mended.finished, mended.skipped, mended.failed) == (2, 1, 0) and path.exists()
        assert [r.stage for r in results(first.folder)].count("pretrain") == 1
        found.append(contents(first.folder))
    whole = run_sweep(sweep, local=True, output=tmp_path / "whole", console=quiet())
    assert found == [contents(whole.folder)] * 2


@pytest.mark.thorough
def test_a_trial_that_fails_is_recorded_and_the_rest_goes_on(tmp_path, toy_methods, monkeypatch, no_plots):
    from orchestration.trials import worker

    def fails(trial, *args, **kwargs):
        if trial.kind == "pretrain":
            print("printed")
            logging.getLogger("learner").warning("logged")
            print("complained", file=sys.stderr)
            raise ZeroDivisionError("own fault")
        return run_trial(trial, *args, **kwargs)

    text = STAGES.replace("methods: [toy-learner]", "methods: [toy-learner, heft]").replace(
        "stages:\n", "stages:\n  plain: {on: [c], methods: [heft], kind: search}\n"
    )
    sweep = small_sweep(tmp_path, text)
    monkeypatch.setattr(worker, "run_trial", fails)
    done = run_sweep(sweep, local=True, output=tmp_path / "out", console=quiet())
    assert (done.finished, done.failed) == (1, 3)
    bad = next(r for r in results(done.folder) if r.status == "failed")
    assert "ZeroDivisionError: own fault" in bad.traceback and not bad.infrastructure
    assert all(word in bad.log for word in ("printed", "learner: logged", "complained"))
    assert all(r.log is None for r in results(done.folder) if r.status == "finished")
    assert artifacts(tmp_path / "out", bad.trial) == ["log.txt", "traceback.txt"]
    again = run_sweep(sweep, local=True, output=tmp_path / "out", console=quiet())
    assert (again.finished, again.skipped, again.failed) == (0, 2, 3)


def test_failures_of_infrastructure_are_tried_again(tmp_path, monkeypatch, no_plots):
    from orchestration.driver import agenda as work
    from orchestration.trials import worker

    monkeypatch.setattr(work, "FIRST_RETRY_SECONDS", 0.0)
    tries = {}

    def flaky(trial, *args, **kwargs):
        tries[trial.content_hash] = tries.get(trial.content_hash, 0) + 1
        if trial.method == "heft" or tries[trial.content_hash] < 3:
            raise InfrastructureError("host is gone")
        return run_trial(trial, *args, **kwargs)

    monkeypatch.setattr(worker, "run_trial", flaky)
    sweep = small_sweep(tmp_path)
    done = run_sweep(sweep, local=True, output=tmp_path / "out", console=quiet())
    assert (done.finished, done.failed) == (8, 4)
    monkeypatch.setattr(worker, "run_trial", run_trial)
    again = run_sweep(sweep, local=True, output=tmp_path / "out", console=quiet())
    assert (again.finished, again.skipped, again.failed) == (4, 8, 0)
    assert len(list(entries(again.folder))) == 12


def test_a_broken_store_is_said_before_anything_runs(tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mlflow.db").write_text("this is no database, " * 100)
    with pytest.raises(InputError, match="cannot be opened"):
        run_sweep(small_sweep(tmp_path), local=True, output=tmp_path / "out", console=quiet())
    assert not (tmp_path / "out" / "small").exists()


LONG = """
sweep: small
problems:
  networks: {n4: {synthetic: {devices: 4}, seed: 0}}
  graphs: {a: {synthetic: {tasks: 40}, seed: 0}}
methods: [random, local-search]
seeds: [0, 1]
checkpoint_every: 200
budget: 3000
"""


STOPPED = """
import os, signal, sys
from orchestration.cli.main import main
from orchestration.specs.layout import CHECKPOINT

saved = []

def look(event, args):
    if event == "os.rename" and os.path.basename(args[1]) == CHECKPOINT:
        saved.append(os.path.dirname(args[1]))
        if len(set(saved)) == TRIALS and saved.count(saved[-1]) == 3:
            os.kill(os.getpid(), SIGNAL)

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell that runs the tests in the background has it ignored
sys.addaudithook(look)
sys.exit(main(ARGUMENTS))
"""
"""The command line in a process that signals itself as it saves its third checkpoint of the last of so many trials."""


def stop_by(number, folder, trials):
    """Run the sweep as a command until it stops itself in the last of ``trials`` trials."""
    arguments = ["run", str(folder / "small.yaml"), "--local", "--output", str(folder / "out")]
    code = STOPPED.replace("TRIALS", str(trials)).replace("SIGNAL", str(int(number))).replace("ARGUMENTS", repr(arguments))
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)
    assert "Traceback" not in done.stderr
    return done.returncode


@pytest.mark.thorough
def test_a_stopped_and_killed_run_goes_on_where_it_was(tmp_path, no_plots):
    sweep = small_sweep(tmp_path, LONG)
    folder = tmp_path / "out" / "small"
    assert stop_by(signal.SIGINT, tmp_path, 1) == 130
    assert not list(results(folder))
    assert stop_by(signal.SIGKILL, tmp_path, 3) == -signal.SIGKILL
    assert [r.resumed for r in results(folder)] == [1, 0]
    done = run_sweep(sweep, local=True, output=tmp_path / "out", console=quiet())
    assert done.finished == 2 and [r.resumed for r in results(folder)] == [1, 0, 1, 0]
    whole = run_sweep(sweep, local=True, output=tmp_path / "whole", console=quiet())
    assert contents(folder) == contents(whole.folder)
    assert json.loads((folder / "tracking.json").read_text())["offset"] == (folder / "ledger.jsonl").stat().st_size


STAGED = """
sweep: small
problems:
  networks: {n4: {synthetic: {devices: 4}, seed: 0}}
  graphs: {a: {synthetic: {tasks: 10}, seed: 0}, b: {synthetic: {tasks: 12}, seed: 1}}
methods: {placeto: {learning: {learning_rate: 0.001}}, heft: , random: }
budget: 40
stages:
  train: {kind: pretrain, on: a}
  place: {from: train, on: b}
  others: {kind: search, on: b, methods: [heft, random]}
"""


@pytest.mark.thorough
def test_stages_can_be_run_one_by_one(tmp_path, no_plots):
    sweep, folder = small_sweep(tmp_path, STAGED), tmp_path / "out"
    whole = run_sweep(sweep, local=True, output=tmp_path / "whole", console=quiet())
    done = run_sweep(sweep.only(["place"]), local=True, output=folder, console=quiet())
    assert (done.finished, done.skipped) == (2, 0)
    assert {r.stage for r in results(done.folder)} == {"train", "place"}
    done = run_sweep(sweep.only(["others"]), local=True, output=folder, console=quiet())
    assert (done.finished, done.skipped) == (2, 0)
    assert contents(done.folder) == contents(whole.folder)
    assert (done.folder / "runs.csv").read_bytes() == (whole.folder / "runs.csv").read_bytes()
    with pytest.raises(InputError, match="no stage 'other'; did you mean 'others'"):
        sweep.only(["other"])
