"""Reference pages leave nothing out: every key, option, setting and command stands there with its meaning."""

import pytest

from methods.contract.registry import names
from orchestration.commands.methods import describe
from orchestration.definition.schema import sweep_schema
from orchestration.records import reference
from orchestration.rewards.kinds import EVALUATORS


def test_every_key_of_a_sweep_has_a_meaning():
    found = list(reference.keys(sweep_schema()))
    assert len(found) > 120
    assert [(part, key) for part, key, schema in found if not schema.get("description") and "$ref" not in str(schema)] == []


def test_every_part_of_a_sweep_has_a_section():
    """All of the schema's parts but the settings of methods, which have a page of their own."""
    parts = {name for name in sweep_schema()["$defs"] if not name.startswith(("settings.", "method.")) and name != "row"}
    assert parts <= set(reference.SECTIONS)


@pytest.mark.parametrize("kind", EVALUATORS)
def test_every_option_of_an_evaluator_has_a_meaning(kind):
    found = {name.partition(".")[0]: meaning for name, _, _, meaning in reference.options(EVALUATORS[kind])}
    assert set(found) == set(EVALUATORS[kind].options) and [name for name, meaning in found.items() if not meaning] == []


def test_methods_show_settings_differences_and_results():
    page = reference.methods_page()
    for method in describe():
        own = page.partition(f"\n## {method.name}\n")[2].partition("\n## ")[0]
        assert method.summary in own and [s.name for s in method.settings if f"| `{s.name}` |" not in own] == [], method.name
        assert (method.name in reference.RESULTS) == ("Differences from the paper" in own) == ("../results/" in own), method.name
    assert page.count("\n## ") == len(names())
    assert "| `learning.entropy` | float from 0 to 1e12 | `0.001` | Weight of the policy's entropy in the objective. |" in page
