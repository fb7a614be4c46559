"""What every method must do, over the registry: a new method is covered the moment its file is there."""

import numpy as np
import pytest

from envs.problem.errors import InputError
from methods.contract.registry import build, configure, method_class, names
from orchestration.specs.state_files import load_state, save_state
from tests.methods.problems import brute_force, constrained_toy, random_problem, toy
from tests.methods.running import go, make

BUDGET = 48


@pytest.fixture(scope="module")
def known():
    return brute_force(toy())


@pytest.mark.parametrize("name", names())
class TestEveryMethod:
    def test_is_documented_and_refuses_unknown_settings(self, name):
        assert method_class(name).__doc__ and method_class(name).Config.__doc__
        with pytest.raises(InputError, match="unknown setting 'no_such_setting'"):
            configure(name, {"no_such_setting": 1})

    def test_wants_a_problem(self, name):
        with pytest.raises(InputError, match="no problem"):
            build(name, {}, [], 0)

    def test_proposes_valid_placements_within_the_budget(self, name):
        method = make(name, toy())
        run = go(method, BUDGET, ask=7)
        assert 1 <= len(run.placements) <= BUDGET
        assert method.problem.valid(np.stack(run.placements)).all()

    def test_same_seed_same_run(self, name):
        first, second = (go(make(name, toy(), seed=5), BUDGET) for _ in range(2))
        np.testing.assert_array_equal(first.placements, second.placements)

    def test_the_seed_matters_just_where_the_method_says_so(self, name):
        problem = random_problem(30, 3, seed=1)
        runs = [go(make(name, problem, seed=s), BUDGET) for s in (1, 2)]
        same = [p.tolist() for p in runs[0].placements] == [p.tolist() for p in runs[1].placements]
        assert same != method_class(name).seeded

    def test_goes_on_bit_for_bit_after_a_restore(self, name, tmp_path):
        problem = random_problem(12, 3, seed=2)
        whole = go(make(name, problem, seed=3), BUDGET, ask=5)
        for rounds in (1, 4):
            before = make(name, problem, seed=3)
            begun = go(before, BUDGET, ask=5, rounds=rounds)
            save_state(tmp_path / "state.safetensors", before.state())
            after = make(name, problem, seed=3)
            after.restore(load_state(tmp_path / "state.safetensors"))
            rest = go(after, BUDGET - len(begun.objective), ask=5)
            assert begun.objective + rest.objective == whole.objective
            np.testing.assert_array_equal(begun.placements + rest.placements, whole.placements)

    def test_respects_hardware_groups_and_memory(self, name):
        problem = constrained_toy()
        run = go(make(name, problem), BUDGET)
        assert problem.valid(np.stack(run.placements)).all()
        assert np.isfinite(run.best), "no placement fits the memory"

    def test_is_no_worse_than_the_average_placement_and_never_better_than_the_best(self, name, known):
        best, mean = known
        run = go(make(name, toy()), BUDGET)
        assert best <= run.best * (1 + 1e-12)
        assert run.best <= mean

    def test_places_a_graph_of_one_node_and_one_device(self, name):
        run = go(make(name, random_problem(1, 1, seed=0)), 4)
        assert run.placements and all(p.tolist() == [0] for p in run.placements)
