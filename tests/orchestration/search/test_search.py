"""Searches: what is tried depends on the sweep alone, pruners prune, winners feed what follows."""

import itertools
import json
import random
import shutil

import optuna
import pytest
from rich.console import Console

from envs.problem.errors import InputError
from orchestration.driver.agenda import Agenda
from orchestration.driver.run_sweep import run_sweep
from orchestration.folder.ledger import Ledger, entries, results
from orchestration.report import finish
from orchestration.rewards.evaluators import InfrastructureError
from orchestration.search import search as search_module
from orchestration.search.search import mean_until
from orchestration.search.studies import Studies
from orchestration.specs.layout import JOURNAL, LEDGER
from orchestration.trials import run_trial as runner
from orchestration.trials import worker
from orchestration.trials.worker import execute
from tests.orchestration.results import problem
from tests.orchestration.servers import postgres
from tests.orchestration.sweeps_for_tests import small_sweep

SWEEP = """
sweep: small
problems:
  networks: {n4: {synthetic: {devices: 4}, seed: 0}}
  graphs: {a: {synthetic: {tasks: 60}, seed: 0}, b: {synthetic: {tasks: 50}, seed: 3}, c: {synthetic: {tasks: 25}, seed: 2}}
methods: [local-search]
budget: 240
propose: 16
stages:
  tune:
    kind: search
    on: [a, b]
    search:
      space:
        temperature: {float: [1e-4, 10.0], log: true}
        batch: {int: [2, 32], step: 2}
        critical: [0.5, 1.0]
        elite: {int: [1, 8], when: {critical: [0.5]}}
      configurations: 20
      sampler: {name: tpe, n_startup_trials: 4}
      pruner: {name: median, n_startup_trials: 2}
      reports: 4
  final: {kind: search, config_from: tune, on: c, seeds: [0, 1]}
"""


class Killed(Exception):
    """The driver, at an unlucky moment."""


def drive(folder, text=SWEEP, at_once=1, die=lambda: None, **options):
    """Run a sweep's work as the driver does, without Ray and MLflow; trials come back in a scrambled order if ``at_once`` > 1."""
    draw, waiting = random.Random(at_once), []
    with Ledger(folder) as ledger:
        work = Agenda(small_sweep(folder, text), ledger, Studies(folder, "small").open, **options)
        while not work.complete or waiting:
            while len(waiting) < at_once and (job := work.next()) is not None:
                waiting.append(job)
            if not waiting:
                continue
            job = waiting.pop(draw.randrange(len(waiting)))
            die()
            ended = execute(job, str(folder), "small", lambda *_: None)
            die()
            work.returned([(job, ended)])
        work.end()
        return work


def record(work):
    return [s.describe() for s in work.searches.values()]


def contents(folder):
    return {r.trial: r.content() for r in results(folder)}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("search")
    return drive(folder), folder


@pytest.mark.thorough
def test_a_search_prunes_and_its_winner_configures_what_follows(undisturbed):
    work, folder = undisturbed
    (search,) = record(work)
    states = [c["state"] for c in search["configurations"]]
    assert len(states) == 20 and states.count("PRUNED") >= 3 and set(states) == {"PRUNED", "COMPLETE"}
    assert search["optuna"] == optuna.__version__
    assert search["sampler"]["arguments"]["n_startup_trials"] == 4 and search["sampler"]["arguments"]["constant_liar"] is True
    best = min((c for c in search["configurations"] if c["state"] == "COMPLETE"), key=lambda c: c["values"])
    assert search["winner"] == best["settings"] and best["values"][0] >= 1.0
    final = [(t, r) for t, r in entries(folder) if t.stage == "final"]
    assert len(final) == 2 and all(r.ok for _, r in final)
    assert all(t.config[key] == value for t, _ in final for key, value in search["winner"].items())
    winning = next(c["trials"] for c in search["configurations"] if c["settings"] == search["winner"])
    assert set(work.counted) == {t.content_hash for t, _ in final} | set(winning), "the report compares the winner alone"


def test_pruned_trials_are_recorded_as_such(undisturbed):
    work, folder = undisturbed
    by_hash = {r.trial: r for r in results(folder)}
    (search,) = record(work)
    for c in search["configurations"]:
        for key in c["trials"]:
            assert by_hash[key].status == {"PRUNED": "pruned", "COMPLETE": "finished"}[c["state"]]
            assert (by_hash[key].evaluations < 240) == (c["state"] == "PRUNED")
    study = Studies(folder, "small").open(small_sweep(folder, SWEEP).searches()[0])
    assert [t.state.name for t in study.trials] == [c["state"] for c in search["configurations"]]


@pytest.mark.thorough
@pytest.mark.parametrize("every", [83, 149])
def test_a_killed_search_goes_on_as_if_nothing_had_been(tmp_path, undisturbed, monkeypatch, every):
    """Killed after every so many steps: trials run, values reported, configurations told, records written."""
    count, kills = itertools.count(1), 0

    def die(*_):
        if next(count) % every == 0:
            raise Killed

    def around(old):
        return lambda self, *a, **k: (die(), old(self, *a, **k), die())[1]

    for cls, name in (
        (optuna.Study, "add_trial"), (optuna.Study, "set_user_attr"),
        (Ledger, "append"), (search_module.Search, "_stop"),
    ):  # fmt: skip
        monkeypatch.setattr(cls, name, around(getattr(cls, name)))
    while True:
        try:
            work = drive(tmp_path, die=die)
            break
        except Killed:
            kills += 1
            with (tmp_path / JOURNAL).open("ab") as file:
                file.write(b'{"op_code": 4, "worker')  # what it was writing
    expected, folder = undisturbed
    assert kills >= 3
    assert record(work) == record(expected) and contents(tmp_path) == contents(folder)


@pytest.mark.thorough
def test_of_a_batch_that_is_pruned_whole_no_record_is_lost(tmp_path, monkeypatch):
    """Killed right after the study learned that the batch is decided."""
    text = SWEEP.replace("on: [a, b]", "on: a")
    monkeypatch.setattr(optuna.pruners.MedianPruner, "prune", lambda self, study, trial: trial.number >= 4)
    whole = drive(tmp_path / "whole", text)
    add, told = optuna.Study.add_trial, itertools.count(1)

    def dies(self, *args, **kwargs):
        add(self, *args, **kwargs)
        if isinstance(self._storage, optuna.storages.JournalStorage) and next(told) % 4 == 0:
            raise Killed

    monkeypatch.setattr(optuna.Study, "add_trial", dies)
    kills = 0
    while True:
        try:
            work = drive(tmp_path / "killed", text)
            break
        except Killed:
            kills += 1
    assert kills >= 3 and record(work) == record(whole)
    assert contents(tmp_path / "killed") == contents(tmp_path / "whole")


@pytest.mark.thorough
def test_the_number_of_workers_does_not_matter(tmp_path, undisturbed):
    expected, folder = undisturbed
    work = drive(tmp_path, at_once=5)
    assert record(work) == record(expected) and contents(tmp_path) == contents(folder)
    again = drive(tmp_path)
    assert again.skipped == len(contents(folder)) and record(again) == record(expected)


@pytest.mark.slow
def test_on_ray_and_tracked_the_search_is_the_same(tmp_path, undisturbed, ray_session, monkeypatch):
    import mlflow

    monkeypatch.setattr(finish, "_write_plots", lambda *_: [])
    monkeypatch.setattr(finish, "PLACEMENTS_UP_TO", 0)
    expected, folder = undisturbed
    done = run_sweep(small_sweep(tmp_path, SWEEP), output=tmp_path / "out", console=Console(quiet=True))
    searches = json.loads((done.folder / "searches.json").read_text())
    assert searches == json.loads(json.dumps(record(expected))) and contents(done.folder) == contents(folder)
    assert len((done.folder / "runs.csv").read_text().splitlines()) == 1 + 2 + 2
    client = mlflow.MlflowClient(done.tracking_uri)
    experiment = client.get_experiment_by_name("small")
    pruned = client.search_runs([experiment.experiment_id], "tags.status = 'pruned'")
    assert {r.data.tags["trial"] for r in pruned} == {r.trial for r in results(folder) if r.status == "pruned"}
    assert done.finished == len(contents(folder)) == len(client.search_runs([experiment.experiment_id], "tags.trial LIKE '%'"))


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_in_a_teams_database_the_search_is_the_same_and_a_fresh_run_leaves_the_old_one(tmp_path, undisturbed, monkeypatch):
    monkeypatch.setattr(finish, "_write_plots", lambda *_: [])
    monkeypatch.setattr(finish, "PLACEMENTS_UP_TO", 0)
    expected, _ = undisturbed
    with postgres() as server:
        text = SWEEP.replace("      configurations: 20\n", f"      configurations: 20\n      storage: {server.uri}\n")
        for fresh in (False, True):
            done = run_sweep(small_sweep(tmp_path, text), local=True, fresh=fresh, output=tmp_path / "out", console=Console(quiet=True))
            (search,) = json.loads((done.folder / "searches.json").read_text())
            assert search["configurations"] == json.loads(json.dumps(record(expected)[0]["configurations"]))
        assert len(optuna.get_all_study_names(server.uri)) == 2


ONE = """
sweep: small
problems:
  networks: {n4: {synthetic: {devices: 4}, seed: 0}}
  graphs: {a: {synthetic: {tasks: 40}, seed: 0}}
methods: [local-search]
budget: 80
propose: 4
search: {space: SPACE, SETTINGS}
"""
NUMBERS = "{temperature: {float: [1e-4, 10.0], log: true}, elite: {int: [1, 12]}}"


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("space", "settings"),
    [
        (NUMBERS, "configurations: 18, sampler: random, pruner: asha, reports: 8"),
        (NUMBERS, "configurations: 18, sampler: cma-es, pruner: {name: hyperband, reduction_factor: 2}, reports: 8"),
        (NUMBERS, "configurations: 18, sampler: {name: nsga-ii, population_size: 6}, objectives: [best, curve]"),
        ("{critical: [0.5, 0.7, 1.0], elite: {int: [1, 9], step: 4}}", "sampler: grid"),
        ("{critical: [0.5, 1.0]}", "configurations: 12, sampler: random, seed: 3, objectives: [curve]"),
    ],
)
def test_every_sampler_and_pruner_repeats_itself(tmp_path, space, settings):
    text = ONE.replace("SPACE", space).replace("SETTINGS", settings)
    (search,) = record(drive(tmp_path, text))
    again = drive(copy(tmp_path), text, at_once=3)
    assert record(again) == [search]
    configurations = search["configurations"]
    assert all(c["state"] in ("COMPLETE", "PRUNED") for c in configurations) and search["winner"] is not None
    if "pruner" in settings:
        assert any(c["state"] == "PRUNED" for c in configurations)
    if "grid" in settings:
        assert len({json.dumps(c["settings"], sort_keys=True) for c in configurations}) == len(configurations) == 9
    if "seed: 3" in settings:  # two configurations, tried twelve times: run once each
        assert len({k for c in configurations for k in c["trials"]}) == 2


def copy(folder):
    """A folder of its own, with nothing run in it."""
    other = folder / "other"
    other.mkdir()
    return other


def test_a_configuration_that_fails_is_told_so_and_retried_only_on_demand(tmp_path, monkeypatch):
    def fails(trial, *args, **kwargs):
        if trial.config["critical"] == 0.5:
            raise ZeroDivisionError("own fault")
        return runner.run_trial(trial, *args, **kwargs)

    text = ONE.replace("SPACE", "{critical: [0.5, 0.7, 1.0]}").replace("SETTINGS", "sampler: grid")
    monkeypatch.setattr(worker, "run_trial", fails)
    for _ in range(2):
        work = drive(tmp_path, text)
        assert work.failed == 1
        (search,) = record(work)
        assert sorted(c["state"] for c in search["configurations"]) == ["COMPLETE", "COMPLETE", "FAIL"]
    monkeypatch.setattr(worker, "run_trial", runner.run_trial)
    work = drive(tmp_path, text, retry_failed=True)
    assert (work.failed, work.skipped) == (0, 2)
    assert {c["state"] for c in record(work)[0]["configurations"]} == {"COMPLETE"}


@pytest.mark.thorough
def test_a_search_whose_trial_cannot_be_run_ends_without_a_winner_and_goes_on_later(tmp_path, undisturbed, monkeypatch):
    monkeypatch.setattr("orchestration.driver.agenda.RETRIES", 0)
    count = itertools.count()

    def gone(trial, *args, **kwargs):
        if next(count) == 30:
            raise InfrastructureError("host is gone")
        return runner.run_trial(trial, *args, **kwargs)

    monkeypatch.setattr(worker, "run_trial", gone)
    work = drive(tmp_path)
    assert work.blocked == 2 and work.failed == 3
    expected, folder = undisturbed
    assert record(drive(tmp_path)) == record(expected) and contents(tmp_path) == contents(folder)


@pytest.mark.thorough
@pytest.mark.parametrize("left", [None, 0, 3, 17])
def test_what_the_ledger_lost_runs_again_though_the_journal_has_decided(tmp_path, undisturbed, left):
    expected, folder = undisturbed
    shutil.copytree(folder, tmp_path / "copy")
    ledger = tmp_path / "copy" / LEDGER
    kept = ledger.read_bytes().splitlines(keepends=True)[: left or 0]
    ledger.write_bytes(b"".join(kept))
    if left is None:
        ledger.unlink()
    work = drive(tmp_path / "copy")
    assert record(work) == record(expected) and contents(tmp_path / "copy") == contents(folder)
    (note,) = work.notes
    assert "the ledger lacks" in note and "runs again" in note
    assert not drive(tmp_path / "copy").notes


def test_a_lost_journal_is_told_anew_from_the_ledger(tmp_path, undisturbed):
    expected, folder = undisturbed
    shutil.copytree(folder, tmp_path / "copy")
    (tmp_path / "copy" / JOURNAL).unlink()
    before = (tmp_path / "copy" / LEDGER).read_bytes()
    work = drive(tmp_path / "copy")
    assert record(work) == record(expected) and (tmp_path / "copy" / LEDGER).read_bytes() == before


def test_no_flipped_bit_of_the_journal_is_overlooked(tmp_path, undisturbed):
    _, folder = undisturbed
    (spec,) = small_sweep(tmp_path, SWEEP).searches()
    data, rng, refused = (folder / JOURNAL).read_bytes(), random.Random(0), 0
    whole = Studies(folder, "small").open(spec).trials
    for _ in range(60):
        changed = bytearray(data)
        changed[rng.randrange(len(data) - 1)] ^= 1 << rng.randrange(8)
        (tmp_path / JOURNAL).write_bytes(changed)
        try:
            found = Studies(tmp_path, "small").open(spec).trials
        except InputError as error:
            assert "line" in str(error) and "move the file away" in str(error)
            refused += 1
        else:
            assert found == whole  # it fell on the name of a checksum
    assert refused >= 55


def test_a_line_of_the_journal_that_is_lost_or_moved_is_not_overlooked(tmp_path, undisturbed):
    _, folder = undisturbed
    (spec,) = small_sweep(tmp_path, SWEEP).searches()
    lines = (folder / JOURNAL).read_bytes().splitlines(keepends=True)
    for number, changed in ((2, [lines[0], *lines[2:]]), (1, [lines[1], lines[0], *lines[2:]]), (3, [*lines[:2], *lines[1:]])):
        (tmp_path / JOURNAL).write_bytes(b"".join(changed))
        with pytest.raises(InputError, match=rf"line {number} of journal .* is damaged .*move the file away"):
            Studies(tmp_path, "small").open(spec)


def test_a_study_whose_trials_reported_often_can_be_opened_again(tmp_path):
    """Steps are numbers when they are written and words when they are read: in another order from ten on."""
    (spec,) = small_sweep(tmp_path, SWEEP).searches()
    study = Studies(tmp_path, "small").open(spec)
    reported = {step: 1.0 / step for step in range(1, 25)}
    study.add_trial(optuna.trial.create_trial(value=0.5, intermediate_values=reported))
    assert [t.intermediate_values for t in Studies(tmp_path, "small").open(spec).trials] == [reported]


def test_a_journal_of_before_there_were_checksums_is_read_or_refused_in_a_sentence(tmp_path, undisturbed):
    _, folder = undisturbed
    (spec,) = small_sweep(tmp_path, SWEEP).searches()
    lines = [json.loads(raw) for raw in (folder / JOURNAL).read_text().splitlines()]
    old = [{k: v for k, v in entry.items() if k != "sum"} for entry in lines]
    (tmp_path / JOURNAL).write_text("".join(json.dumps(entry) + "\n" for entry in old))
    assert len(Studies(tmp_path, "small").open(spec).trials) == 20
    del old[1]["op_code"]
    (tmp_path / JOURNAL).write_text("".join(json.dumps(entry) + "\n" for entry in old))
    with pytest.raises(InputError, match=r"journal .* is damaged .*op_code.*move the file away"):
        Studies(tmp_path, "small").open(spec)


@pytest.mark.thorough
def test_a_study_with_trials_that_a_killed_driver_left_running_is_cut_to_what_is_decided(tmp_path, undisturbed):
    expected, folder = undisturbed
    (spec,) = small_sweep(tmp_path, SWEEP).searches()
    study = Studies(tmp_path, "small").open(spec)
    study.add_trials(Studies(folder, "small").open(spec).trials[:3])
    study.ask()
    assert record(drive(tmp_path)) == record(expected) and contents(tmp_path) == contents(folder)


def test_the_mean_over_the_budget_rewards_the_early():
    early = problem("a", 1.0)  # 2.0 at evaluation 1, 1.0 at 60
    assert mean_until(early, 100) == pytest.approx((59 * 2.0 + 41 * 1.0) / 100)
    assert mean_until(early, 30) == pytest.approx(2.0) and mean_until(problem("a", None), 30) is None


def test_all_storages_are_opened_before_the_first_trial(tmp_path, toy_methods):
    """Also that of a search that starts only when a stage before it is over."""
    text = """
sweep: later
problems:
  networks: {n4: {synthetic: {devices: 4}, seed: 0}}
  graphs: {a: {synthetic: {tasks: 12}, seed: 0}}
methods: [toy-learner]
budget: 100
stages:
  pretrain: {}
  tune:
    kind: finetune
    from: pretrain
    search: {space: {steps: {int: [1, 9]}}, configurations: 2, storage: "sqlite:////nowhere/at/all.db"}
"""
    with pytest.raises(InputError, match=r"storage 'sqlite:////nowhere/at/all.db' of the search in stage 'tune' cannot be used"):
        run_sweep(small_sweep(tmp_path, text), local=True, output=tmp_path / "out")
    assert list(results(tmp_path / "out" / "later")) == []
