"""A problem's hash sees every field of its graph, network and costs but the names for people; a new field has to be decided about."""

from __future__ import annotations

import dataclasses
import importlib
import pkgutil

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import envs.costs
from envs.costs.calibrated import CalibratedCosts
from envs.costs.device_profiles import DeviceProfiles
from envs.costs.operation_times import OperationTimes
from envs.costs.profiled import ProfiledCosts
from envs.costs.roofline import RooflineCosts
from envs.costs.table import TableCosts
from envs.costs.totals import TotalCosts
from envs.problem.cost_model import LinearCosts
from envs.problem.graph import ComputationGraph
from envs.problem.network import DeviceNetwork
from envs.problem.problem import Problem
from tests.envs.strategies import problems

FOR_PEOPLE = {"name", "provenance"}
"""Fields that only people read: they change no result."""
LINKS = ("bandwidth", "delay", "link_energy")


def fields(kind):
    return {field.name for field in dataclasses.fields(kind)}


def other(value, place):
    """``value`` with the entry at ``place`` (counted on from the end of short ones) changed to another legal one."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, np.ndarray):
        flat = value.ravel().copy()
        i = place % flat.size
        flat[i] = not flat[i] if value.dtype == bool else 1.0 if np.isinf(flat[i]) else flat[i] + 1
        return flat.reshape(value.shape)
    i = place % len(value)
    entry = value[i]
    changed = entry + "'" if isinstance(entry, str) else entry | {"'"} if isinstance(entry, frozenset) else (*entry, 1)
    return (*value[:i], changed, *value[i + 1 :])


def off_diagonal(place, size):
    """A place of a square matrix off its diagonal, which is free whatever is given."""
    sender, step = place % size, 1 + place // size % (size - 1)
    return sender * size + (sender + step) % size


@pytest.mark.thorough
@given(st.data())
def test_every_field_of_a_graph_counts(data):
    graph = data.draw(problems(constrained=False)).graph
    key, place = data.draw(st.sampled_from(sorted(fields(ComputationGraph)))), data.draw(st.integers(0, 1000))
    assume(graph.n_edges > 1 or key not in ("edges", "edge_bytes"))
    special = {"name": f"{graph.name}'", "provenance": "traced", "edges": graph.edges[::-1]}
    value = special[key] if key in special else other(getattr(graph, key), place)
    changed = dataclasses.replace(graph, **{key: value})
    assert (changed.content_hash == graph.content_hash) is (key in FOR_PEOPLE)
    assert (changed != graph) is (key != "provenance"), "where a graph comes from makes it no other graph"


@pytest.mark.thorough
@given(st.data())
def test_every_field_of_a_network_counts(data):
    network = data.draw(problems(max_devices=3, memory=True, energy=True)).network
    key, place = data.draw(st.sampled_from(sorted(fields(DeviceNetwork)))), data.draw(st.integers(0, 1000))
    assume(network.n_devices > 1 or key not in LINKS)
    place = off_diagonal(place, network.n_devices) if key in LINKS else place
    value = f"{network.name}'" if key in FOR_PEOPLE else other(getattr(network, key), place)
    changed = dataclasses.replace(network, **{key: value})
    assert (changed.content_hash == network.content_hash) is (key in FOR_PEOPLE)
    assert changed != network


def test_every_field_of_a_problem_counts():
    graph = ComputationGraph(("a", "b"), ("t", "t"), [2.0, 4.0], [1.0, 1.0], [[0, 1]], [8.0])
    base = Problem(graph, DeviceNetwork(("x", "y"), [1.0, 2.0], 4.0, 1.0))
    changes = {
        "graph": dataclasses.replace(graph, flops=[2.0, 5.0]),
        "network": dataclasses.replace(base.network, speed=[1.0, 3.0]),
        "costs": TableCosts(("a", "b"), ("x", "y"), base.compute_seconds),
        "objective": "energy",
        "allowed": np.ones((2, 2), dtype=bool),
    }
    assert set(changes) == fields(Problem)
    for key, value in changes.items():
        assert dataclasses.replace(base, **{key: value}).content_hash != base.content_hash, key
    for part in ("graph", "network"):
        renamed = dataclasses.replace(base, **{part: dataclasses.replace(getattr(base, part), name="another")})
        assert renamed.content_hash == base.content_hash and renamed != base


TIMES = OperationTimes(("a", "b"), np.array([1.0, 2.0]), "graph", (("model", "m"),))
LONGER = OperationTimes(("a", "b"), np.array([1.0, 3.0]), "graph", (("model", "m"),))
COSTS = [
    (LinearCosts(), {}, ()),
    (CalibratedCosts(1.0), {"seconds": 2.0}, ()),
    (CalibratedCosts({"g": 1.0}), {"seconds": {"g": 2.0}}, ()),
    (DeviceProfiles({"x": TIMES}), {"times": {"x": LONGER}}, ()),
    (TIMES, {"names": ("a", "c"), "seconds": np.array([1.0, 3.0]), "signature": "another"}, ("about",)),
    (RooflineCosts({"cpu": {"*": 0.5}}), {"efficiency": {"cpu": {"*": 0.6}}}, ()),
    (
        ProfiledCosts(TIMES, 1e9, 1e9, "cpu", RooflineCosts()),
        {
            "times": LONGER, "reference_speed": 2e9, "reference_memory_bandwidth": 2e9, "reference_kind": "gpu",
            "roofline": RooflineCosts({"cpu": {"*": 0.5}}),
        },
        (),
    ),
    (
        TableCosts(("a", "b"), ("x",), np.array([[1.0], [2.0]])),
        {"nodes": ("a", "c"), "devices": ("y",), "seconds": np.array([[1.0], [3.0]])},
        (),
    ),
    (TotalCosts({"g": {"x": 1.0}}, LinearCosts()), {"seconds": {"g": {"x": 2.0}}, "shape": RooflineCosts()}, ()),
]  # fmt: skip


@pytest.mark.parametrize(("costs", "changes", "for_people"), COSTS, ids=lambda x: type(x).__name__)
def test_every_field_of_costs_counts(costs, changes, for_people):
    assert set(changes) | set(for_people) == fields(type(costs))
    for key, value in changes.items():
        assert dataclasses.replace(costs, **{key: value}).content_hash != costs.content_hash, key


def test_all_cost_models_are_looked_at():
    modules = [importlib.import_module(f"envs.costs.{m.name}") for m in pkgutil.iter_modules(envs.costs.__path__)]
    kinds = {
        k for m in modules for k in vars(m).values() if isinstance(k, type) and hasattr(k, "content_hash") and k.__module__ == m.__name__
    }
    assert kinds <= {type(costs) for costs, *_ in COSTS}
