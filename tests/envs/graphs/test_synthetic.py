"""The generators of GiPH's Appendix B.2: every parameter does what the paper says."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from envs.graphs.synthetic import TaskGraphParameters, generate_graph
from envs.networks.synthetic import NetworkParameters, generate_network
from envs.problem.errors import InputError
from envs.problem.problem import Problem
from envs.problem.randomness import parameter_grid


@given(
    tasks=st.integers(1, 60),
    shape=st.floats(0.05, 4),
    probability=st.sampled_from([0.0, 0.1, 0.5, 1.0]),
    sizing=st.sampled_from(["exact", "layers"]),
    span=st.integers(0, 3),
    seed=st.integers(0, 2**32),
)
def test_structure(tasks, shape, probability, sizing, span, seed):
    parameters = TaskGraphParameters(tasks, shape, probability, sizing=sizing, max_span=span)
    graph = generate_graph(parameters, seed)
    n, levels = graph.n_nodes, graph.levels
    assert np.flatnonzero(np.bincount(graph.edges[:, 1], minlength=n) == 0).tolist() == [0], "one entry"
    assert np.flatnonzero(np.bincount(graph.edges[:, 0], minlength=n) == 0).tolist() == [n - 1], "one exit"
    mean = np.sqrt(tasks) / shape
    depth = levels.max() + 1
    if sizing == "exact":
        assert n == tasks
        low, high = (min(max(x, min(tasks, 3)), tasks) for x in (np.floor(0.8 * mean), np.ceil(1.2 * mean)))
        assert low <= depth <= high
    else:
        assert np.ceil(0.8 * mean) <= depth - 2 <= np.ceil(1.2 * mean)
        assert n - 2 <= (depth - 2) * np.ceil(2 * shape * np.sqrt(tasks))
    if probability == 1 and span == 1:
        assert (np.diff(levels[graph.edges], axis=1) == 1).all()


def test_depth_and_width_follow_the_shape():
    grid = parameter_grid(TaskGraphParameters(400, sizing="layers"), shape=[0.5, 1.0, 2.0])
    for parameters in grid:
        graphs = [generate_graph(parameters, seed) for seed in range(80)]
        depth = np.mean([g.levels.max() - 1 for g in graphs])
        width = np.mean([(g.n_nodes - 2) / (g.levels.max() - 1) for g in graphs])
        assert depth == pytest.approx(20 / parameters.shape, rel=0.05)
        assert width == pytest.approx(20 * parameters.shape, rel=0.1)


def test_connection_probability():
    def share(probability):
        parameters = TaskGraphParameters(300, 1.0, probability)
        graph = generate_graph(parameters, 0)
        counts = np.bincount(graph.levels)
        return graph.n_edges / ((300**2 - (counts**2).sum()) / 2)

    assert share(0.1) == pytest.approx(0.1, rel=0.1)
    assert share(0.5) == pytest.approx(0.5, rel=0.05)
    assert share(1.0) == 1.0


def test_work_and_data_are_uniform_around_their_means():
    parameters = TaskGraphParameters(
        2000, connection_probability=0.01, mean_compute=50, mean_bytes=8, compute_heterogeneity=0.4, bytes_heterogeneity=1.0
    )
    graph = generate_graph(parameters, 0)
    for values, low, high in ((graph.flops, 30, 70), (graph.edge_bytes, 0, 16)):
        assert low <= values.min() < low + 0.05 * (high - low)
        assert high - 0.05 * (high - low) < values.max() <= high
        assert values.mean() == pytest.approx((low + high) / 2, rel=0.03)
        assert values.std() == pytest.approx((high - low) / np.sqrt(12), rel=0.05)
    out = graph.edges[:, 0] == 0
    assert graph.output_bytes[0] == graph.edge_bytes[out].max()


def test_networks_are_uniform_around_their_means():
    network = generate_network(NetworkParameters(200, 5, 100, 10, 0.4, 0.8), 0)
    away = ~np.eye(200, dtype=bool)
    for values, low, high in ((network.speed, 3, 7), (network.bandwidth[away], 20, 180), (network.delay[away], 0, 20)):
        assert low <= values.min() < low + 0.05 * (high - low)
        assert high - 0.05 * (high - low) < values.max() <= high
        assert values.mean() == pytest.approx((low + high) / 2, rel=0.05)
    assert (network.delay == network.delay.T).all()
    assert (network.bandwidth == network.bandwidth.T).all()
    lopsided = generate_network(NetworkParameters(5, symmetric=False), 0)
    assert (lopsided.delay != lopsided.delay.T).any()


@given(devices=st.integers(1, 4), types=st.integers(1, 6), probability=st.sampled_from([0.0, 0.2, 1.0]), seed=st.integers(0, 1000))
def test_every_required_hardware_is_somewhere(devices, types, probability, seed):
    graph = generate_graph(TaskGraphParameters(30, hardware_types=types), seed)
    network = generate_network(NetworkParameters(devices, hardware_types=types, support_probability=probability), seed)
    problem = Problem(graph, network)
    assert problem.feasible.any(axis=1).all()
    assert problem.feasible.all() or probability < 1


def test_support_probability_sets_the_number_of_feasible_devices():
    network = generate_network(NetworkParameters(400, hardware_types=20, support_probability=0.2), 0)
    assert np.mean([len(s) for s in network.supports]) == pytest.approx(4, rel=0.05)


def test_a_seed_repeats_and_streams_are_separate():
    base = TaskGraphParameters(40, hardware_types=2)
    assert generate_graph(base, 3) == generate_graph(base, 3)
    assert generate_graph(base, 3).content_hash != generate_graph(base, 4).content_hash
    sequence = np.random.SeedSequence(3, spawn_key=(7,))
    assert generate_graph(base, sequence) == generate_graph(base, sequence)
    assert generate_network(NetworkParameters(), sequence) == generate_network(NetworkParameters(), sequence)
    assert generate_network(NetworkParameters(), np.int64(5)) == generate_network(NetworkParameters(), 5)
    (wider,) = parameter_grid(base, compute_heterogeneity=[0.9])
    one, two = generate_graph(base, 3), generate_graph(wider, 3)
    assert (one.edges == two.edges).all() and (one.edge_bytes == two.edge_bytes).all() and one.hardware == two.hardware
    assert (one.flops != two.flops).all()


def test_the_papers_single_network_data_set():
    base = TaskGraphParameters(hardware_types=5, sizing="layers")
    grid = parameter_grid(base, tasks=[10, 15], shape=[0.1, 0.2, 0.3], connection_probability=[0.1, 0.2])
    assert len(grid) == 12
    assert (grid[0].tasks, grid[1].connection_probability, grid[-1].shape) == (10, 0.2, 0.3)
    sizes = [generate_graph(parameters, seed).n_nodes for parameters in grid for seed in range(25)]
    assert len(sizes) == 300
    assert min(sizes) >= 11 and max(sizes) <= 49 and max(sizes) > 45


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: TaskGraphParameters(tasks=0), "tasks is 0; it must be a whole number between 1 and 100000"),
        (lambda: TaskGraphParameters(tasks=10.5), "tasks is 10.5; it must be a whole number"),
        (lambda: TaskGraphParameters(shape=0), "shape is 0"),
        (lambda: TaskGraphParameters(connection_probability=1.5), "connection_probability is 1.5; it must be a number between 0 and 1"),
        (lambda: TaskGraphParameters(mean_compute=float("nan")), "mean_compute is nan"),
        (lambda: TaskGraphParameters(compute_heterogeneity=-0.1), "compute_heterogeneity is -0.1"),
        (lambda: TaskGraphParameters(sizing="rows"), "sizing is 'rows'"),
        (lambda: NetworkParameters(devices=0), "devices is 0"),
        (lambda: NetworkParameters(speed_heterogeneity=1.0), "speed_heterogeneity is 1.0"),
        (lambda: NetworkParameters(support_probability="0.2"), "support_probability is '0.2'"),
        (lambda: parameter_grid(NetworkParameters(), device=[1]), "unknown parameter 'device'; did you mean 'devices'"),
        (lambda: parameter_grid(NetworkParameters(), devices=4), "parameter 'devices' needs a list of values, not 4"),
        (lambda: parameter_grid(NetworkParameters(), devices=[4, -1]), "devices is -1"),
        (lambda: generate_graph(TaskGraphParameters(), -1), "seed is -1"),
    ],
)
def test_wrong_parameters(make, message):
    with pytest.raises(InputError, match=message):
        make()
