"""The contract of methods as a suite of tests. A package with a method of its own runs it by a class of two lines::

    class TestAnnealing(MethodContract):
        method = "annealing"

The method must be known to the registry (`methods.contract.registry`). What only one method promises is tested beside that method.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from envs.problem.errors import InputError
from methods.contract.registry import build, configure, method_class
from methods.testing.problems import brute_force, constrained_toy, random_problem, toy
from methods.testing.running import go, make


class MethodContract:
    """What every method must do, on problems small enough for some seconds; `Method.toy_config` makes a learner quick there."""

    method: ClassVar[str]
    """Name in the registry."""
    budget: ClassVar[int] = 48
    """Placements that a method may try."""

    @pytest.fixture
    def name(self) -> str:
        """The method under test; parametrize ``name`` to test several."""
        return self.method

    def through_a_checkpoint(self, state: dict[str, Any], folder: Path) -> dict[str, Any]:
        """What a state looks like after it was saved and loaded; here a copy of it."""
        return copy.deepcopy(state)

    def test_is_documented_and_refuses_unknown_settings(self, name: str) -> None:
        assert method_class(name).__doc__ and method_class(name).Config.__doc__
        with pytest.raises(InputError, match="unknown setting 'no_such_setting'"):
            configure(name, {"no_such_setting": 1})

    def test_wants_a_problem(self, name: str) -> None:
        with pytest.raises(InputError, match="no problem"):
            build(name, {}, [], 0)

    def test_proposes_valid_placements_within_the_budget(self, name: str) -> None:
        method = make(name, toy())
        run = go(method, self.budget, ask=7)
        assert 1 <= len(run.placements) <= self.budget
        assert method.problem.valid(np.stack(run.placements)).all()
        wanted = method.wanted_evaluations(method.config, lambda: method.problems)
        assert wanted is None or len(run.placements) == min(wanted, self.budget), "ends elsewhere than `wanted_evaluations` says"

    def test_same_seed_same_run(self, name: str) -> None:
        first, second = (go(make(name, toy(), seed=5), self.budget) for _ in range(2))
        np.testing.assert_array_equal(first.placements, second.placements)

    def test_the_seed_matters_just_where_the_method_says_so(self, name: str) -> None:
        problem = random_problem(30, 3, seed=1)
        runs = [go(make(name, problem, seed=s), self.budget) for s in (1, 2)]
        same = [p.tolist() for p in runs[0].placements] == [p.tolist() for p in runs[1].placements]
        assert same != method_class(name).seeded

    def test_goes_on_bit_for_bit_after_a_restore(self, name: str, tmp_path: Path) -> None:
        problem = random_problem(12, 3, seed=2)
        whole = go(make(name, problem, seed=3), self.budget, ask=5)
        for rounds in (1, 4):
            before = make(name, problem, seed=3)
            begun = go(before, self.budget, ask=5, rounds=rounds)
            after = make(name, problem, seed=3)
            after.restore(self.through_a_checkpoint(before.state(), tmp_path))
            rest = go(after, self.budget - len(begun.objective), ask=5)
            assert begun.objective + rest.objective == whole.objective
            np.testing.assert_array_equal(begun.placements + rest.placements, whole.placements)

    def test_respects_hardware_groups_and_memory(self, name: str) -> None:
        problem = constrained_toy()
        run = go(make(name, problem), self.budget)
        assert problem.valid(np.stack(run.placements)).all()
        assert np.isfinite(run.best), "no placement fits the memory"

    def test_is_no_worse_than_the_average_placement_and_never_better_than_the_best(self, name: str) -> None:
        best, mean = brute_force(toy())
        run = go(make(name, toy()), self.budget)
        assert best <= run.best * (1 + 1e-12)
        assert run.best <= mean

    def test_places_a_graph_of_one_node_and_one_device(self, name: str) -> None:
        run = go(make(name, random_problem(1, 1, seed=0)), 4)
        assert run.placements and all(p.tolist() == [0] for p in run.placements)
