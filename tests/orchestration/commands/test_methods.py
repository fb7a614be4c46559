"""What ``placewright methods`` says of every method, compared with the method itself."""

import dataclasses

import pytest

from envs.problem.errors import InputError
from methods.contract.registry import configure, method_class, names
from orchestration.commands.methods import REQUIRED, describe, text


@pytest.fixture(scope="module")
def listed():
    return {m.name: m for m in describe()}


def flat(config, prefix=""):
    """Every value of a configuration by its dotted name, as JSON has it."""
    found = {}
    for key, value in config.items():
        if isinstance(value, dict):
            found |= flat(value, f"{prefix}{key}.")
        else:
            found[prefix + key] = list(value) if isinstance(value, tuple) else value
    return found


def test_every_method_is_listed(listed):
    assert list(listed) == names()
    assert all(m.summary and not m.summary.endswith('"""') for m in listed.values())
    with pytest.raises(InputError, match="did you mean 'heft'"):
        describe("hefd")


@pytest.mark.parametrize("name", names())
def test_settings_are_those_of_the_configuration(listed, name):
    settings = listed[name].settings
    if any(s.default == REQUIRED for s in settings):
        with pytest.raises((InputError, TypeError)):
            configure(name, {})
    else:
        assert {s.name: s.default for s in settings} == flat(dataclasses.asdict(configure(name, {})))


@pytest.mark.parametrize("name", names())
def test_choices_are_all_that_is_accepted(listed, name):
    for setting in listed[name].settings:
        if not setting.choices:
            continue
        assert setting.default in setting.choices
        for choice in setting.choices:
            try:
                configure(name, {setting.name: choice})
            except InputError as error:
                assert "needs" in str(error) or "both" in str(error), f"{setting.name}: {choice} is no choice"  # it goes with others only
        with pytest.raises(InputError):
            configure(name, {setting.name: "no such choice"})


@pytest.mark.parametrize("name", names())
def test_numbers_have_bounds_and_nothing_beyond_them_is_accepted(listed, name):
    for setting in listed[name].settings:
        if not setting.type.startswith(("int", "float")):
            continue
        assert {"ge", "gt"} & set(setting.bounds) and {"le", "lt"} & set(setting.bounds), f"{setting.name} takes any number"
        for limit, value in setting.bounds.items():
            beyond = value + {"ge": -1, "le": 1, "gt": 0, "lt": 0}[limit]
            with pytest.raises(InputError, match=f"setting '{setting.name}' needs a .*number"):
                configure(name, {setting.name: beyond})


@pytest.mark.parametrize("name", names())
def test_every_setting_says_what_it_means(listed, name):
    assert [s.name for s in listed[name].settings if len(s.help.split()) < 2] == []


def test_inherited_and_nested_settings_have_their_meaning(listed):
    giph = {s.name: s for s in listed["giph"].settings}
    assert giph["batch"].help == "Episodes in lockstep, and between updates."
    assert giph["learning.clip"].type == "float or null"
    assert giph["start"].choices == ("random", "previous", "in-force")
    window = next(s for s in listed["gdp"].settings if s.name == "learning.window")
    assert window.default == 10 and window.help.startswith("Latest placements of each problem")  # another default, the same meaning


@pytest.mark.parametrize("name", names())
def test_what_a_method_can_do_is_what_its_class_does(listed, name):
    said, method = listed[name], method_class(name)
    assert (said.many_problems, said.seeded) == (method.many_problems, method.seeded)
    for told, ability in ((said.learns, "policy"), (said.zero_shot, "place"), (said.pretrains, "pretrain")):
        assert told == any(ability in vars(c) for c in method.__mro__ if c.__name__ not in ("Method", "ABC", "object"))


def test_the_text_names_every_setting_once(listed):
    lines = text([listed["giph"]], whole=True)
    assert all(lines.count(f" {s.name}: ") == 1 for s in listed["giph"].settings)
    assert "batch: int from 1 to 1000000 = 1" in lines and "learning.clip: float or null above 0 and at most 1000000000000 = null" in lines
    assert "[learns, many problems at once; methods.giph.giph]" in lines
    assert "[tries a fixed list, ignores the seed; methods.heuristics.heft]" in text([listed["heft"]])
