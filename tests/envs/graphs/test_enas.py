"""ENAS graphs, the grouping of operators, and changing networks."""

import itertools

import numpy as np
import pytest

from envs.graphs.enas import EnasParameters, cell_design, generate_enas
from envs.graphs.grouping import group_operators
from envs.networks.changing import ChangingParameters, changing_network
from envs.problem.errors import InputError
from envs.problem.graph import ComputationGraph


def diamond() -> ComputationGraph:
    """a -> b -> d, a -> c -> d, d -> e."""
    return ComputationGraph(
        names=tuple("abcde"), op_types=("x",) * 5, flops=[5, 1, 2, 3, 4], output_bytes=[10] * 5,
        edges=[(0, 1), (0, 2), (1, 3), (2, 3), (3, 4)], edge_bytes=[1, 2, 4, 8, 16], parameter_bytes=[1, 1, 1, 1, 1],
    )  # fmt: skip


def test_the_cheapest_with_one_predecessor_goes_first():
    one = group_operators(diamond(), 4)  # b into a
    assert one.names == ("a", "c", "d", "e") and one.flops.tolist() == [6, 2, 3, 4]
    assert dict(zip(map(tuple, one.edges.tolist()), one.edge_bytes.tolist(), strict=True)) == {(0, 1): 2, (0, 2): 4, (1, 2): 8, (2, 3): 16}
    two = group_operators(diamond(), 3)  # then c into a, whose two edges to d become one
    assert two.names == ("a", "d", "e") and two.flops.tolist() == [8, 3, 4] and two.edge_bytes.tolist() == [12, 16]
    all_in_one = group_operators(diamond(), 1)
    assert all_in_one.n_nodes == 1 and all_in_one.flops.tolist() == [15] and all_in_one.parameter_bytes.tolist() == [5]


def test_different_hardware_stays_apart():
    graph = ComputationGraph(
        names=("a", "b"), op_types=("x", "x"), flops=[1, 1], output_bytes=[1, 1], edges=[(0, 1)], edge_bytes=[1], hardware=("", "gpu")
    )
    assert group_operators(graph, 1).n_nodes == 2


def test_enas_graphs_are_as_large_as_the_paper_says():
    sizes = [generate_enas(EnasParameters(cell=c, groups=0), s).n_nodes for c in range(10) for s in range(3)]
    assert min(sizes) >= 200 and max(sizes) <= 301
    assert len({str(cell_design(c)) for c in range(10)}) == 10


def test_grouping_keeps_work_and_reaches_forty():
    for c in range(10):
        whole, grouped = (generate_enas(EnasParameters(cell=c, groups=g), 7) for g in (0, 40))
        assert grouped.n_nodes == 40
        assert grouped.flops.sum() == pytest.approx(whole.flops.sum())
        assert grouped.parameter_bytes.sum() == pytest.approx(whole.parameter_bytes.sum())


def test_networks_change_within_limits_and_keep_what_stays():
    networks = [changing_network(ChangingParameters(change=k, hardware_types=5), 3) for k in range(25)]
    counts = [n.n_devices for n in networks]
    assert counts[0] == 20 and min(counts) >= 16 and max(counts) <= 20 and len(set(counts)) > 2
    for before, after in itertools.pairwise(networks):
        stayed = sorted(set(before.names) & set(after.names))
        assert 0 < len(set(before.names) ^ set(after.names)) <= 2
        i, j = ([n.names.index(x) for x in stayed] for n in (before, after))
        assert (before.speed[i] == after.speed[j]).all()
        assert (before.bandwidth[np.ix_(i, i)] == after.bandwidth[np.ix_(j, j)]).all()
        assert (before.delay[np.ix_(i, i)] == after.delay[np.ix_(j, j)]).all()
    assert all(frozenset().union(*n.supports) == frozenset().union(*networks[0].supports) for n in networks)


def test_newcomers_are_weaker_than_what_they_replace():
    networks = [changing_network(ChangingParameters(change=k, hardware_types=5), 3) for k in range(25)]
    known, gone = {name: networks[0].speed[k] for k, name in enumerate(networks[0].names)}, []
    for before, after in itertools.pairwise(networks):
        left = set(before.names) - set(after.names)
        for k, name in enumerate(after.names):
            if name not in known:
                old = next(o for o in gone if known[o] * 0.7 == pytest.approx(after.speed[k]))
                gone.remove(old)
                known[name] = after.speed[k]
        gone += sorted(left)
    assert len(known) > 25
    last = networks[-1]
    mean = [np.mean(n.bandwidth[np.isfinite(n.bandwidth)]) for n in (networks[0], last)]
    assert last.speed.mean() < 0.9 * networks[0].speed.mean() and mean[1] < 0.9 * mean[0]
    assert np.isinf(np.diag(last.bandwidth)).all() and (np.diag(last.delay) == 0).all()


def test_wrong_parameters_are_named():
    with pytest.raises(InputError, match="max_devices"):
        ChangingParameters(min_devices=20, max_devices=18)
    with pytest.raises(InputError, match="max_steps"):
        EnasParameters(min_steps=30, max_steps=20)
    with pytest.raises(InputError, match="groups is 0"):
        group_operators(diamond(), 0)
