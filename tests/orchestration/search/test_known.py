"""Configurations that are tried first, limits that a winner keeps, and the pictures of a search."""

import json

import optuna
import pytest

from envs.problem.errors import InputError
from orchestration.definition.sweep import load_sweep
from orchestration.plots.searches import draw_searches, importances
from orchestration.search.studies import Studies
from tests.orchestration.search.test_search import drive, record
from tests.orchestration.sweeps_for_tests import small_sweep

SWEEP = """
sweep: small
problems:
  networks: {n4: {synthetic: {devices: 4}, seed: 0}}
  graphs: {a: {synthetic: {tasks: 20}, seed: 0}}
methods: [local-search]
budget: 40
propose: 8
stages:
  tune:
    kind: search
    search:
      space: {batch: {int: [2, 32], step: 2}, temperature: {float: [1e-4, 10.0], log: true}, critical: [0.5, 1.0]}
      configurations: 12
      sampler: {name: tpe, n_startup_trials: 4}
      MORE
  final: {kind: search, config_from: tune}
"""


def sweep(more):
    return SWEEP.replace("MORE", more)


def test_known_configurations_are_tried_first_and_a_search_without_them_is_what_it_was(tmp_path):
    text = sweep("known: [{batch: 4, temperature: 0.5, critical: 1.0}, {batch: 30}]")
    (found,) = record(drive(tmp_path / "known", text))
    first, second = (c["settings"] for c in found["configurations"][:2])
    assert first == {"batch": 4, "temperature": 0.5, "critical": 1.0} and second["batch"] == 30
    assert len(found["configurations"]) == 12 and found["known"][1] == {"batch": 30}
    hashes = {small_sweep(tmp_path, sweep(m)).searches()[0].content_hash for m in ("", "known: []", "constraints: {}")}
    assert len(hashes) == 1 and small_sweep(tmp_path, text).searches()[0].content_hash not in hashes
    (again,) = record(drive(tmp_path / "other", text, at_once=3))
    assert again == found


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ("known: [{bach: 4}]", "sets 'bach', which is not searched; did you mean 'batch'"),
        ("known: [{batch: 3}]", "has batch = 3, which the space does not hold"),
        ("known: [{critical: 0.7}]", "has critical = 0.7"),
        ("known: [{temperature: 11.0}]", "has temperature = 11"),
        ("constraints: {second: 3}", "unknown key 'second'"),
        ("constraints: {invalid: 2}", "invalid"),
    ],
)
def test_what_cannot_be_is_told_at_its_line(tmp_path, more, sentence):
    (tmp_path / "s.yaml").write_text(sweep(more))
    with pytest.raises(InputError) as caught:
        load_sweep(tmp_path / "s.yaml")
    (line,) = str(caught.value).splitlines()
    assert sentence in line and "s.yaml:16:" in line


def test_limits_are_constraints_of_the_study_and_the_winner_is_least_over_them(tmp_path):
    work = drive(tmp_path / "limits", sweep("constraints: {seconds: 1e-9, invalid: 0}"))
    (search,) = work.searches.values()
    trials = search.study.get_trials()
    assert all(t.constraints.keys() == {"seconds", "invalid"} and t.constraints["invalid"] == 0 for t in trials)
    least = min(trials, key=lambda t: (t.constraints["seconds"], t.values))
    assert search.winner == search._values(least.params) and record(work)[0]["constraints"] == {"seconds": 1e-9, "invalid": 0}


def test_the_journal_opens_as_any_study_of_optunas(tmp_path):
    drive(tmp_path / "journal", sweep(""))
    backend = optuna.storages.journal.JournalFileBackend(str(tmp_path / "journal" / "studies.journal"))
    storage = optuna.storages.JournalStorage(backend)
    (name,) = optuna.get_all_study_names(storage)
    assert len(optuna.load_study(study_name=name, storage=storage).trials) == 12
    assert Studies(tmp_path / "journal", "small")  # and still as ours


def test_a_search_is_drawn_with_what_counts_in_it(tmp_path):
    work = drive(tmp_path / "drawn", sweep(""))
    path = tmp_path / "searches.json"
    path.write_text(json.dumps(record(work)))
    files = draw_searches(path, tmp_path / "plots")
    assert [f.name for f in files] == ["search-tune-local-search.png", "search-tune-local-search.svg"]
    text = files[1].read_text()
    assert all(word in text for word in ("history", "importance (PED-ANOVA)", "parallel coordinates", "batch", "temperature", "critical"))
    (found,) = record(work)
    shares = importances(found)
    assert shares.keys() == {"batch", "temperature", "critical"} and all(0 <= v <= 1 for v in shares.values())
    assert importances({**found, "configurations": found["configurations"][:1]}) == {}
