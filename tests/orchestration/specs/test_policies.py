"""A policy starts what comes later from wherever it lies: same content, same trials, same placement."""

import json
import shutil

import pytest

from envs.problem.errors import InputError
from orchestration.cli.main import main
from orchestration.commands.place import place_by_policy
from orchestration.definition.sweep import load_sweep
from orchestration.driver.agenda import Agenda
from orchestration.folder.ledger import Ledger, entries
from orchestration.specs.files import write_atomic
from orchestration.specs.layout import POLICY, trial_folder
from orchestration.specs.policies import read_policy
from orchestration.trials.worker import execute
from tests.orchestration.sweeps_for_tests import problem_spec

pytestmark = pytest.mark.usefixtures("toy_methods")

PROBLEMS = """
problems:
  networks: {n4: {synthetic: {devices: 4}, seed: 0}}
  graphs: {a: {synthetic: {tasks: 12}, seed: 0}, b: {synthetic: {tasks: 9}, seed: 1}}
"""
FIRST = "sweep: first\nmethods: {toy: {method: toy-learner, steps: 7}}\nbudget: 30\npropose: 5\nstages: {pretrain: {}}" + PROBLEMS
THEN = """
sweep: then
methods: [toy-learner, random]
budget: 10
propose: 5
stages:
  zero-shot: {from: POLICY}
  finetune: {from: POLICY, config: {rate: 0.5}}
"""


def drive(path, folder):
    """Run a sweep's trials one after another, as its driver does."""
    sweep = load_sweep(path)
    with Ledger(folder) as ledger:
        for policy in sweep.policies:
            write_atomic(trial_folder(folder, policy.digest) / POLICY, policy.data)
        agenda = Agenda(sweep, ledger)
        while (task := agenda.next()) is not None:
            agenda.returned([(task, execute(task, str(folder), sweep.name, lambda *_: None))])
    return list(entries(folder))


@pytest.fixture
def learned(tmp_path):
    """The folder of a trial that learned on both graphs."""
    (tmp_path / "first.yaml").write_text(FIRST)
    ((trial, _),) = drive(tmp_path / "first.yaml", tmp_path / "out" / "first")
    return trial_folder(tmp_path / "out" / "first", trial.content_hash)


def test_stages_start_from_a_policy_wherever_it_lies(tmp_path, learned):
    copy = tmp_path / "elsewhere" / "policy"
    shutil.copytree(learned, copy)
    hashes, reached = [], []
    for where in (learned, copy):
        text = THEN.replace("POLICY", str(where.relative_to(tmp_path))) + PROBLEMS
        (tmp_path / "then.yaml").write_text(text)
        ran = drive(tmp_path / "then.yaml", tmp_path / where.name)
        assert [r.status for _, r in ran] == ["finished"] * 4
        assert {t.method for t, _ in ran} == {"toy-learner"} and {t.config["steps"] for t, _ in ran} == {7}
        assert {t.stage: t.config["rate"] for t, _ in ran} == {"zero-shot": 0.1, "finetune": 0.5}
        hashes.append([t.content_hash for t, _ in ran])
        reached.append([r.content() for _, r in ran])
    assert hashes[0] == hashes[1] and reached[0] == reached[1]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("zero-shot: {from: ./nowhere}", "policy './nowhere' cannot be read"),
        ("zero-shot: {from: models:/gone/1}", "there is no model 'models:/gone/1'"),
        ("zero-shot: {from: models:/gone}", "write models:/NAME/VERSION"),
        ("zero-shot: {from: POLICY, methods: [random]}", "'random' is 'random', but"),
    ],
)
def test_what_is_not_there_is_one_sentence_at_its_place(tmp_path, learned, monkeypatch, text, sentence):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    where = str(learned.relative_to(tmp_path))
    head = THEN.partition("stages:")[0]
    (tmp_path / "then.yaml").write_text(f"{head}stages:\n  {text.replace('POLICY', where)}\n{PROBLEMS}")
    with pytest.raises(InputError) as caught:
        load_sweep(tmp_path / "then.yaml")
    (line,) = str(caught.value).splitlines()
    assert sentence in line and "then.yaml:7:" in line


def test_a_graph_is_placed_by_a_policy_as_a_zero_shot_stage_would(tmp_path, learned, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    text = THEN.replace("POLICY", str(learned.relative_to(tmp_path))) + PROBLEMS
    (tmp_path / "then.yaml").write_text(text)
    trial, result = next((t, r) for t, r in drive(tmp_path / "then.yaml", tmp_path / "then") if t.stage == "zero-shot")
    policy = read_policy(str(learned))
    placed = place_by_policy(trial.problems[0], policy)
    own = placed.found if placed.kept else placed.objective
    assert own == result.problems[0].objective and placed.evaluations == 1
    from envs.sources.files import dump_problem, save
    from orchestration.specs.sources import build_problem

    save(dump_problem(build_problem(problem_spec())), tmp_path / "own.json")
    told = []
    for where in (learned, shutil.copytree(learned, tmp_path / "copy")):
        assert main(["place", "own.json", "--policy", str(where), "--output", "o", "--overwrite", "--json"]) == 0
        told.append(json.loads(capsys.readouterr().out)["placement"])
    assert told[0] == told[1]
    assert main(["place", "own.json", "--policy", str(learned), "--output", "o"]) == 2
    assert "placement.json is there already" in capsys.readouterr().err
    assert main(["place", "own.json", "--policy", str(learned), "--budget", "3"]) == 2
    assert "--budget does not go with --policy" in capsys.readouterr().err


def test_a_damaged_policy_is_refused(tmp_path, learned):
    data = bytearray((learned / POLICY).read_bytes())
    data[len(data) // 2] ^= 1
    (learned / POLICY).write_bytes(data)
    with pytest.raises(InputError, match="is damaged"):
        read_policy(str(learned))
