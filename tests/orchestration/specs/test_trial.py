"""A trial's identity sees every field that determines the result and no other; a new field has to be decided about here."""

from __future__ import annotations

import json
from dataclasses import fields, replace

import pytest

from orchestration.specs.trial import Budget, EvaluatorSpec, FrozenDict, ProblemSpec, Trial

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
