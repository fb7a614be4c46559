"""The case study: traces, cases, and the numbers of the paper's tables in them."""

import importlib.util

import numpy as np
import pytest

from envs.graphs.traffic import RECORDED, load_trace, record
from envs.problem.errors import InputError
from envs.simulators.fifo.evaluator import Simulator
from envs.sources.sensor_fusion import FusionParameters, fusion_problem
from methods.placing.list_scheduling import heft


def test_the_recorded_trace_is_what_the_paper_describes():
    trace = load_trace(RECORDED)
    assert len(trace.intersections) == 36
    assert set(np.diff(np.unique(trace.time))) == {10} and trace.time.max() < 3600
    assert 0.08 < len(np.unique(trace.vehicle)) / 3980 < 0.12


def test_cases_have_the_pipeline_of_the_paper():
    sizes = set()
    for case in range(0, 900, 60):
        problem = fusion_problem(FusionParameters(), case)
        graph, network = problem.graph, problem.network
        kinds = np.array(graph.op_types)
        fusions = np.flatnonzero(kinds == "intersection-fusion")
        assert (kinds == "camera-detection").sum() == (kinds == "vehicle-fusion").sum() + 4 * len(fusions)
        assert (kinds == "result").sum() == 1 and graph.op_types[-1] == "result"
        fixed = problem.feasible.sum(axis=1) == 1
        assert (fixed == np.isin(kinds, ("camera", "lidar", "result"))).all() or problem.n_devices == 1
        row = problem.compute_seconds[fusions[0]]
        for device, kind in enumerate(network.kinds):
            assert row[device] == {"A": 0.25, "B": 0.25, "C": 0.028}[kind]
        sizes.add((problem.n_nodes, problem.n_devices))
        assert np.isfinite(Simulator().evaluate(problem, heft(problem).device[None].astype(np.int16)).seconds).all()
    assert len(sizes) > 5 and max(v for v, _ in sizes) <= 100


def test_bandwidth_falls_with_distance():
    network = fusion_problem(FusionParameters(), 100).network
    off = ~np.eye(network.n_devices, dtype=bool)
    assert network.bandwidth[off].max() <= 7.5e6 and network.bandwidth[off].min() >= 7.5e6 * np.exp(-10.0) * 0.999


def test_wrong_input_is_named(tmp_path):
    with pytest.raises(InputError, match="case 900"):
        fusion_problem(FusionParameters(), 900)
    (tmp_path / "x.npz").write_bytes(b"nothing")
    with pytest.raises(InputError, match="no trace"):
        load_trace(tmp_path / "x.npz")
    with pytest.raises(InputError, match=r"ends in \.npz"):
        record(tmp_path / "x.json")


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("sumo") is None, reason="SUMO is an extra: pip install 'placewright[traffic]'")
def test_sumo_records_a_trace(tmp_path):
    made = record(tmp_path / "new.npz", vehicles=60, seconds=120, share=0.5, seed=1)
    kept = load_trace(tmp_path / "new.npz")
    assert (kept.position == made.position).all() and (kept.time == made.time).all()
    assert (kept.intersections == load_trace(RECORDED).intersections).all()
    assert set(np.unique(kept.time)) <= set(range(0, 121, 10)) and len(np.unique(kept.time)) > 8
    assert 10 < len(np.unique(kept.vehicle)) < 50 and kept.vehicle.max() < 60
    low, high = kept.intersections.min(axis=0) - 250, kept.intersections.max(axis=0) + 250
    assert ((kept.position >= low) & (kept.position <= high)).all() and np.ptp(kept.position, axis=0).min() > 400
