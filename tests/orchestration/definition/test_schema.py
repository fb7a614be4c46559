"""The JSON Schema of a sweep takes every sweep of this repository and refuses what no sweep may say."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from orchestration.cli.main import main
from orchestration.definition.issues import Issues
from orchestration.definition.schema import sweep_schema
from orchestration.definition.source import read_source

SWEEPS = Path(__file__).parents[3] / "sweeps"
SHIPPED = [p for p in sorted(SWEEPS.rglob("*.yaml")) if re.search(r"^sweep:", p.read_text(), re.MULTILINE)]
CORPUS = Path(__file__).parents[1] / "cli" / "malformed"
BY_SHAPE = (
    "bad_name", "budget_infinite", "budget_negative", "budget_unknown_unit", "budget_word", "evaluator_no_kind", "evaluator_option",
    "graph_synthetic_key", "graphs_missing", "method_choice", "method_nested_setting", "method_setting", "method_type",
    "method_unknown", "method_unknown_by_key", "missing_keys", "objective_unknown", "propose_zero", "report_tables", "report_values",
    "resources", "search_objective", "search_pruner", "search_sampler", "seeds_empty", "seeds_words", "several_errors", "stage_key",
    "stage_kind", "unknown_key", "vary_scalar",
)  # fmt: skip
"""Sweeps that are wrong in their shape alone; what others name does not exist, which no schema knows."""


@pytest.fixture(scope="module")
def checker() -> jsonschema.Draft202012Validator:
    schema = sweep_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def resolved(path: Path) -> dict[str, Any]:
    source = read_source(path, Issues())
    assert source is not None
    return source.node.plain()


@pytest.mark.thorough
@pytest.mark.parametrize("path", SHIPPED, ids=lambda p: str(p.relative_to(SWEEPS)))
def test_takes_every_sweep(path: Path, checker: jsonschema.Draft202012Validator) -> None:
    errors = [f"{e.json_path}: {e.message[:300]}" for e in checker.iter_errors(resolved(path))]
    assert not errors


@pytest.mark.thorough
@pytest.mark.parametrize("name", BY_SHAPE)
def test_refuses_what_is_malformed(name: str, toy_methods: None) -> None:
    checker = jsonschema.Draft202012Validator(sweep_schema())
    assert list(checker.iter_errors(resolved(CORPUS / f"{name}.yaml")))


def test_a_sweep_that_includes_another_need_not_repeat_it(checker: jsonschema.Draft202012Validator) -> None:
    small = {"include": "full.yaml", "sweep": "study-small", "seeds": [0], "budget": {"evaluations": 200}}
    assert not list(checker.iter_errors(small))
    assert list(checker.iter_errors({**small, "budgets": 3}))


def test_keys_and_settings_are_described() -> None:
    schema = sweep_schema()
    assert "Evaluated placements" in schema["properties"]["budget"]["description"]
    giph = schema["$defs"]["settings.giph"]["properties"]
    assert giph["rounds"]["default"] == 3 and giph["rounds"]["description"]
    assert "learning.learning_rate" in schema["$defs"]["method.gdp"]["properties"]


def test_the_command_prints_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema"]) == 0
    assert json.loads(capsys.readouterr().out) == sweep_schema()
