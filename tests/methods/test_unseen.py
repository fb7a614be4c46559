"""Neighbours drawn in compiled code are those of the plain loop over the same random numbers."""

import numpy as np
import pytest

from envs.problem.distinct import first_of_equals
from envs.problem.problem import Problem
from methods.placing.constraints import fit_memory, fitting, random_placements, unit_of, units
from methods.placing.moves import OPERATORS, propose_move, unit_graph
from methods.searching.unseen import TRIES, Seen
from methods.testing.problems import constrained_toy, random_problem
from tests.methods.gpnets import constrained


def plain(problem, rng, device, odds, chain, critical, n, seen):
    """One move after another, with NumPy's own draws and a set of bytes."""
    graph, unit, heads = unit_graph(problem), unit_of(problem), units(problem)
    for _ in range(n):
        for _ in range(TRIES):
            operator = int(rng.choice(len(OPERATORS), p=odds))
            on_chain = len(chain) and rng.random() < critical
            start = int(rng.choice(chain)) if on_chain else int(rng.integers(len(device)))
            size = int(np.exp(rng.uniform(np.log(2.0), np.log(max(2.0, len(device) / 2) + 1))))
            moved = propose_move(graph, device, operator, start, size, rng.random(4))
            moved = fit_memory(problem, moved[unit][None, :])[0, heads]
            if moved.tobytes() not in seen:
                break
        seen.add(moved.tobytes())
        yield moved, operator


def tight() -> Problem:
    """A problem whose devices hold little more than everything together."""
    base = random_problem(40, 3, 1)
    graph, network = base.graph, base.network
    room = base.held_bytes.sum() / 3 * 1.1
    return Problem(graph, type(network)(network.names, network.speed, network.bandwidth, network.delay, memory=np.full(3, room)))


@pytest.mark.parametrize("make", [tight, constrained_toy, lambda: constrained(12, 3, 1, groups=True)], ids=["memory", "toy", "groups"])
def test_the_same_neighbours_as_a_plain_loop(make):
    problem = make()
    mine, other = np.random.default_rng(7), np.random.default_rng(7)
    device = random_placements(problem, 1, np.random.default_rng(0))[0, units(problem)]
    chain, seen, table = np.array([0, len(device) - 1]), set(), Seen()
    for k in range(30):
        odds = np.random.default_rng(k).dirichlet(np.ones(len(OPERATORS)))
        found, operators = table.neighbours(mine, unit_graph(problem), fitting(problem), device, odds, chain[: k % 3], 0.7, 5)
        expected = list(plain(problem, other, device, odds, chain[: k % 3], 0.7, 5, seen))
        np.testing.assert_array_equal(found, [moved for moved, _ in expected])
        assert operators.tolist() == [operator for _, operator in expected]
    assert mine.bit_generator.state == other.bit_generator.state
    assert len(table.hashes()) == len(seen)


def test_remembers_what_was_added_however_many_there_are_and_after_a_restart():
    rows = np.random.default_rng(0).integers(0, 3, (3000, 40)).astype(np.int16)
    seen = Seen()
    assert all(seen.add(row) for row in rows)
    again = Seen(seen.hashes())
    for table in (seen, again):
        assert not any(table.add(row) for row in rows)
        assert table.add(np.full(40, 2, dtype=np.int16))
        assert len(table.hashes()) == 3001


def test_first_of_equals_is_what_unique_finds():
    rows = np.random.default_rng(0).integers(0, 2, (50, 4)).astype(np.int16)
    expected = np.sort(np.unique(rows, axis=0, return_index=True)[1])
    np.testing.assert_array_equal(first_of_equals(rows), expected)
    assert len(first_of_equals(rows[:0])) == 0
