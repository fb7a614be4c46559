"""What is listed as known by name, compared with what a sweep accepts."""

import dataclasses
import json
from pathlib import Path

import pytest

from envs.graphs import sharded
from envs.graphs.capture import model_names, resolve_options
from envs.networks.named import named_network, names
from orchestration.cli.main import main
from orchestration.commands import known
from orchestration.specs.sources import GENERATED, GRAPH_KINDS, NETWORK_KINDS, generator, graph_source, network_source

HERE = Path()


def test_networks_are_those_that_a_sweep_knows():
    found = {k.name: k for k in known.networks()}
    assert [n for n in found if n in names()] == names() and found.keys() - set(names()) == set(NETWORK_KINDS) - {"named"}
    for name in names():
        assert found[name].detail["devices"] == list(named_network(name).names)
        assert network_source({"named": name}, HERE, HERE)["named"] == name


def test_models_are_listed_with_the_options_that_they_take():
    found = {k.name: k for k in known.models()}
    assert list(found) == model_names()
    for name, k in found.items():
        assert {s.name: s.default for s in k.settings} == dict(resolve_options(name, {}))


def test_kinds_of_graphs_are_listed_with_the_parameters_that_they_take():
    found = {k.name: k for k in known.graphs()}
    assert list(found) == list(GRAPH_KINDS)
    for kind in GENERATED["graph"]:
        parameters = generator("graph", kind)[0]
        assert [s.name for s in found[kind].settings] == [f.name for f in dataclasses.fields(parameters)]
    assert graph_source({"synthetic": {s.name: s.default for s in found["synthetic"].settings}}, HERE, HERE)
    assert found["sharded"].detail.keys() == sharded.GRAPHS.keys()


@pytest.mark.parametrize("what", ["networks", "graphs"])
def test_listings_are_printed(what, capsys):
    assert main([what]) == 0
    text = capsys.readouterr().out
    assert main([what, "--format", "json"]) == 0
    for one in json.loads(capsys.readouterr().out):
        assert one["name"] in text and all(s["name"] in text for s in one["settings"])
    assert max(map(len, text.splitlines())) <= 140
