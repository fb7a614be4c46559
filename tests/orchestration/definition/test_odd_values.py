"""Whatever stands in whatever place of a sweep, reading it ends in a valid sweep or in lines that name a place and a cure."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from orchestration.definition.issues import Issues, SweepErrors
from orchestration.definition.source import read_source
from orchestration.definition.sweep import load_sweep

WHOLE = """
sweep: s
description: words
problems:
  graphs:
    a: {synthetic: {tasks: 6}}
    m: {model: resnet-50, batch: 2}
    l: {synthetic: {tasks: 8}, seeds: [0, 1], vary: {shape: [0.2, 0.5]}}
    f: {sharded: ffnn, shards: 4}
  networks: {two: {synthetic: {devices: 2}}, d: cpu-gpu-4}
  groups: {train: [a, l], test: [m]}
  costs: {kind: roofline}
  objective: makespan
methods: {toy-learner: {steps: 3, features: {in_degree: true}}, heft: {propose: 2}, v: {method: toy-learner, vary: {steps: [7, 8]}}}
ablations: {base: toy-learner, x: {features.in_degree: false}}
seeds: [0, 1]
budget: {evaluations: 10, seconds: 5}
evaluators: {noisy: {kind: simulator, noise: 0.1}}
evaluator: noisy
resources: {cpu: 1, gpu: 0.5, custom: {x: 1}}
stages:
  pretrain: {"on": {graphs: train, networks: two, sample: {count: 5, seed: 1}}, per: all}
  held: {kind: pretrain, "on": {graphs: l, networks: two}, hold_out: each}
  finetune: {from: held, config: {rate: 0.2}, methods: [toy-learner, v]}
  zero-shot: {from: held}
  base: {kind: search, methods: [heft], budget: 3}
  tune:
    kind: search
    methods: toy-learner
    "on": a
    search:
      space: {steps: {int: [1, 9]}, start: [random, first], temperature: {float: [0.1, 1], log: true, when: {start: random}}}
      configurations: 4
      sampler: {name: tpe, n_startup_trials: 3}
      pruner: {name: median}
      objectives: [best]
  final: {kind: search, config_from: tune, "on": a}
"""
ODD: list[Any] = [
    None, True, -1, 0, 1.5, float("inf"), "", "x", "../x", [], {}, [[]], [None], {"a": None}, {"kind": 3}, "each", 10**30, "0..3",
    "é", [1, "a"], {"": 1}, "*", "a/b", {"file": "x.json"}, {"method": 5}, {"synthetic": {"tasks": []}}, {"model": []}, {"float": [1]},
    {"name": []},
]  # fmt: skip


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of every value inside ``value``."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield (*path, key)
        yield from places(inner, (*path, key))


def test_the_whole_is_valid(toy_methods: None, tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text(WHOLE)
    assert len(load_sweep(tmp_path / "s.yaml").expand()) > 50


@pytest.mark.thorough
@pytest.mark.parametrize("part", [0, *(pytest.param(part, marks=pytest.mark.slow) for part in range(1, 12))])
def test_odd_values_are_named(toy_methods: None, tmp_path: Path, part: int) -> None:
    whole = yaml.safe_load(WHOLE)
    cases = [(place, odd) for place in places(whole) for odd in ODD]
    path, rng, refused = tmp_path / "s.yaml", random.Random(part), 0
    for place, odd in rng.sample(cases, 40):
        changed = copy.deepcopy(whole)
        inner = changed
        for key in place[:-1]:
            inner = inner[key]
        inner[place[-1]] = odd
        path.write_text(yaml.safe_dump(changed, sort_keys=False, allow_unicode=True))
        try:
            load_sweep(path)
        except SweepErrors as errors:
            refused += 1
            for issue in errors.issues:
                assert issue.mark.line > 0 and ";" in issue.text, f"{place} = {odd!r}: {issue}"
    assert refused > 20


HOSTILE = {
    "brackets": "sweep: " + "[" * 5000,
    "a long list": "seeds: [" + "1," * 100_000 + "1]",
    "aliases": "a0: &a0 [1, 1, 1]\n" + "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 12)),
    "digits": "budget: " + "9" * 6000,
    "a version": "sweep: a\n%YAML 9.9\nbudget: 1\n",
    "a large file": "description: " + "x" * 300_000,
}


@pytest.mark.thorough
@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_text_is_refused_by_one_sentence(name: str, tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text(HOSTILE[name])
    issues = Issues()
    read_source(tmp_path / "s.yaml", issues)
    assert len(issues.found) == 1 and issues.found[0].cure


@pytest.mark.parametrize(("count", "twice"), [(25, True), (1500, False)])
def test_fragments_that_include_one_another_without_end_are_refused(count: int, twice: bool, tmp_path: Path) -> None:
    for i in range(count):
        other = f"f{i + 1}.yaml"
        (tmp_path / f"f{i}.yaml").write_text(f"include: {[other, other] if twice else other}\n" if i + 1 < count else "seeds: [0]\n")
    issues = Issues()
    assert read_source(tmp_path / "f0.yaml", issues) is None
    assert len(issues.found) == 1 and "deep" in issues.found[0].message
