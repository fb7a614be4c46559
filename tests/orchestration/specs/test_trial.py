"""A trial's identity sees every field that determines the result and no other; a new field has to be decided about here."""

from __future__ import annotations

import json
import pickle
from dataclasses import fields, replace

import pytest

from envs.problem.errors import InputError
from orchestration.specs.canonical import canonical
from orchestration.specs.trial import KINDS, Budget, EvaluatorSpec, FrozenDict, ProblemSpec, Trial

FILE = FrozenDict({"file": "g.json", "root": "/here", "sha256": "1" * 64})
PROBLEM = ProblemSpec(FILE, FrozenDict({"named": "cpu-gpu-4"}))
PROBLEM_CHANGES = {
    "graph": FrozenDict({**FILE, "sha256": "2" * 64}),
    "network": FrozenDict({"named": "cpu-gpu-8"}),
    "costs": FrozenDict({"kind": "linear"}),
    "objective": "energy",
}
EVALUATOR = EvaluatorSpec("simulator", FrozenDict({"noise": 0.1}))
EVALUATOR_CHANGES = {"kind": "work-conserving", "options": FrozenDict({"noise": 0.2})}
BUDGET = Budget(100, 5.0, 3)
BUDGET_CHANGES = {"evaluations": 101, "seconds": 6.0, "confirm": 4}
TRIAL = Trial(
    "heft", "heft", FrozenDict({"propose": 1, "inner": {"rate": 0.1}}), (PROBLEM,), EVALUATOR, BUDGET, 0, parent="3" * 64
)  # fmt: skip
TRIAL_CHANGES = {
    "method": "cpop",
    "config": FrozenDict({"propose": 1, "inner": {"rate": 0.2}}),
    "problems": (PROBLEM, PROBLEM),
    "evaluator": replace(EVALUATOR, **{"kind": "work-conserving"}),
    "budget": Budget(101, 5.0, 3),
    "seed": 1,
    "stage": "tune",
    "kind": "finetune",
    "parent": "4" * 64,
    "batch": 63,
}
PROBLEM_ALIKE = {"graph_label": "another", "network_label": "another"}
TRIAL_ALIKE = {
    "label": "another",
    "resources": FrozenDict({"num_cpus": 2, "num_gpus": 1, "custom": {"x": 1}}),
    "checkpoint_every": 7,
    "priority": 5,
}
CASES = [
    (PROBLEM, PROBLEM_CHANGES, PROBLEM_ALIKE),
    (EVALUATOR, EVALUATOR_CHANGES, {}),
    (BUDGET, BUDGET_CHANGES, {}),
    (TRIAL, TRIAL_CHANGES, TRIAL_ALIKE),
]


def name(x):
    return x if isinstance(x, str) else type(x).__name__


def trial_with(part):
    """A trial that contains a part."""
    if isinstance(part, Trial):
        return part
    if isinstance(part, ProblemSpec):
        return replace(TRIAL, problems=(part,))
    return replace(TRIAL, **{"budget" if isinstance(part, Budget) else "evaluator": part})


@pytest.mark.parametrize(("part", "changes", "alike"), CASES, ids=name)
def test_every_field_is_decided_about(part, changes, alike):
    assert set(changes) | set(alike) == {field.name for field in fields(part)}
    assert not set(changes) & set(alike)


@pytest.mark.parametrize(("part", "key", "value"), [(p, k, v) for p, changes, _ in CASES for k, v in changes.items()], ids=name)
def test_what_determines_the_result_is_identity(part, key, value):
    changed = replace(part, **{key: value})
    assert trial_with(changed).content_hash != TRIAL.content_hash
    if not isinstance(part, Budget):
        assert changed.content_hash != part.content_hash


@pytest.mark.parametrize(("part", "key", "value"), [(p, k, v) for p, _, alike in CASES for k, v in alike.items()], ids=name)
def test_what_does_not_determine_it_is_none(part, key, value):
    changed = replace(part, **{key: value})
    assert changed != part and changed.content_hash == part.content_hash
    assert trial_with(changed).content_hash == TRIAL.content_hash


def test_the_parent_tells_one_trial_from_another():
    first, second, none = (replace(TRIAL, parent=parent) for parent in ("3" * 64, "4" * 64, None))
    assert len({t.content_hash for t in (first, second, none)}) == 3


def test_places_of_files_are_no_identity_where_their_content_is_known():
    moved = replace(PROBLEM, graph=FrozenDict({**FILE, "file": "elsewhere.json", "root": "/there"}))
    assert moved.content_hash == PROBLEM.content_hash
    named = [replace(PROBLEM, graph=FrozenDict({"file": name})) for name in ("a.json", "b.json")]
    assert named[0].content_hash != named[1].content_hash, "without its content a file is known by its place alone"
    inside = [replace(PROBLEM, costs=FrozenDict({"kind": "profiled", "times": [{**FILE, "file": name}]})) for name in ("a", "b")]
    assert inside[0].content_hash == inside[1].content_hash != PROBLEM.content_hash


def test_the_order_of_problems_counts_and_that_of_keys_does_not():
    other = replace(PROBLEM, objective="energy")
    assert replace(TRIAL, problems=(PROBLEM, other)).content_hash != replace(TRIAL, problems=(other, PROBLEM)).content_hash
    assert replace(TRIAL, config=FrozenDict({"inner": {"rate": 0.1}, "propose": 1})).content_hash == TRIAL.content_hash


def test_where_a_simulation_runs_is_no_identity():
    here = replace(EVALUATOR, options=FrozenDict({"noise": 0.1, "local": True}))
    assert here.content_hash == EVALUATOR.content_hash


@pytest.mark.parametrize(
    ("part", "key", "value"), [(p, k, v) for p, changes, alike in CASES for k, v in {**changes, **alike}.items()], ids=name
)
def test_json_loses_no_field(part, key, value):
    changed = replace(part, **{key: value})
    again = type(part).from_json(json.loads(json.dumps(changed.to_json())))
    assert again == changed and hash(again) == hash(changed)


def test_identities_stay_what_they_were():
    """Ledgers and checkpoint folders of earlier versions are known by these: whoever changes them starts every study anew."""
    assert PROBLEM.content_hash == "65ff0461f88be50d38210cbeaa5484637be13d1ada063573fb44cd2d3c2e6d3f"
    assert EVALUATOR.content_hash == "e0eb95d1a1f8705763922bcd71198e8b9a8c3a7d8ff032e0363d4297e52bc4b3"
    assert TRIAL.content_hash == "f0de6e4bee19768271c688d4ef3c63170e611e48052676dca625724909795365"
    assert TRIAL.short == TRIAL.content_hash[:12]
    assert canonical({"b": [1, {"c": None}], "a": 0.5}) == '{"a":0.5,"b":[1,{"c":null}]}'


def test_what_stands_where_nothing_is_said():
    problem = ProblemSpec(FILE, FrozenDict({"named": "cpu-gpu-4"}))
    assert (problem.costs, problem.objective, problem.label) == ({"kind": "roofline"}, "makespan", "graph@network")
    assert EvaluatorSpec() == EvaluatorSpec("simulator", FrozenDict())
    assert Budget(5) == Budget(5, None, 0)
    plain = Trial("heft", "heft", FrozenDict(), (problem,), EvaluatorSpec(), Budget(5), 0)
    assert (plain.stage, plain.kind, plain.parent, plain.batch, plain.checkpoint_every, plain.priority) == (
        "main",
        "search",
        None,
        64,
        1000,
        0,
    )
    assert plain.resources == {"num_cpus": 1, "num_gpus": 0, "custom": {}}
    assert KINDS == ("search", "pretrain", "finetune", "zero-shot")


def test_labels_for_people():
    named = replace(PROBLEM, graph_label="g", network_label="n")
    assert replace(TRIAL, problems=(named,)).problem_label == "g@n"
    assert replace(TRIAL, problems=(named, PROBLEM)).problem_label == "2 problems"
    assert EVALUATOR.key == "simulator"
    assert EvaluatorSpec("openvino", FrozenDict({"host": "flex170"})).key == "openvino:flex170"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({}, "needs evaluations, seconds or both"),
        ({"evaluations": -1}, "a budget of -1 evaluations"),
        ({"evaluations": 5, "confirm": -1}, "confirms by -1"),
        ({"seconds": 0}, "a budget of 0 seconds"),
        ({"seconds": -1.0}, "a budget of -1.0 seconds"),
        ({"seconds": float("inf")}, "a budget of inf seconds"),
        ({"seconds": float("nan")}, "a budget of nan seconds"),
    ],
)
def test_impossible_budgets_are_refused(values, message):
    with pytest.raises(InputError, match=message):
        Budget(**values)


def test_budgets_at_the_edge_of_what_is_possible():
    assert Budget(0).evaluations == 0
    assert Budget(None, 1).to_json() == {"evaluations": None, "seconds": 1.0}
    assert isinstance(Budget(seconds=1).seconds, float)
    assert Budget(seconds=0.5).seconds == 0.5


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"kind": "finetun"}, "unknown kind of stage 'finetun'; did you mean 'finetune'"),
        ({"problems": ()}, "trial 'heft' of stage 'main' has no problem"),
        ({"batch": 0}, "batch 0 and checkpoint_every 1000 must be at least 1"),
        ({"checkpoint_every": 0}, "batch 64 and checkpoint_every 0"),
    ],
)
def test_impossible_trials_are_refused(changes, message):
    with pytest.raises(InputError, match=message):
        replace(TRIAL, **changes)


def test_lists_become_what_can_be_hashed():
    trial = replace(TRIAL, problems=[PROBLEM], config={"a": [1, [2]]}, batch=1, checkpoint_every=1)
    assert trial.problems == (PROBLEM,) and trial.config["a"] == (1, (2,))
    assert hash(trial) != hash(TRIAL)
    with pytest.raises(TypeError, match="read-only"):
        trial.config["a"] = 2
    assert pickle.loads(pickle.dumps(trial)) == trial
