"""Schedules taken apart, layouts, pages and pictures: what they say must be what the simulator said."""

from __future__ import annotations

import itertools
import json
import re
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from envs.problem.errors import InputError
from envs.problem.graph import ComputationGraph
from envs.problem.network import DeviceNetwork
from envs.problem.problem import Problem
from envs.simulators.work_conserving.discipline import Discipline
from envs.simulators.work_conserving.evaluator import WorkConservingSimulator
from orchestration.analysis.comparison import compare
from orchestration.analysis.runs import collect
from orchestration.analysis.schedule import Schedule, simulate
from orchestration.plots import comparison as comparison_plots
from orchestration.plots import placed_graph, timeline
from orchestration.plots.curves import proposed, search_curves
from orchestration.plots.style import device_colours, method_styles, spread
from orchestration.specs.results import CurvePoint
from tests.orchestration.results import problem, small_study, trial


def diamond() -> Problem:
    """a -> b, c -> d; work 1, 2, 3, 1 s on either of two devices; a transfer takes 0.5 s + 1 s."""
    graph = ComputationGraph(
        ("a", "b", "c", "</script><b>d"),
        ("A", "B", "B", "A"),
        [1, 2, 3, 1],
        [1] * 4,
        [(0, 1), (0, 2), (1, 3), (2, 3)],
        [1] * 4,
        name="diamond",
    )
    return Problem(graph, DeviceNetwork(("x", "y"), [1, 1], 1.0, 0.5, name="pair"))


def layered(n: int, seed: int = 0, devices: int = 4) -> Problem:
    """A random graph with edges from lower to higher numbers."""
    rng = np.random.default_rng(seed)
    heads = np.arange(1, n)
    tails = np.maximum(heads - 1 - rng.integers(0, 12, n - 1), 0)
    extra = np.column_stack([rng.integers(0, n - 1, n), rng.integers(1, n, n)])
    edges = np.unique(np.vstack([np.column_stack([tails, heads]), extra[extra[:, 0] < extra[:, 1]]]), axis=0)
    work = rng.integers(0, 4, n).astype(float)
    graph = ComputationGraph([f"n{i}" for i in range(n)], ["T"] * n, work, [1] * n, edges, [1] * len(edges), name="layered")
    return Problem(graph, DeviceNetwork([f"d{i}" for i in range(devices)], [1.0] * devices, 2.0, 0.1, name="net"))


def test_schedule_of_a_diamond() -> None:
    plan = simulate(diamond(), np.array([0, 1, 0, 0]))
    assert plan.start.tolist() == [0, 2.5, 1, 6] and plan.makespan == 7
    assert plan.moved.tolist() == [0, 2] and plan.arrival[plan.moved].tolist() == [2.5, 6.0]
    assert plan.busy.tolist() == [5, 2] and plan.utilisation == pytest.approx([5 / 7, 2 / 7]) and plan.operations.tolist() == [3, 1]
    assert [t.tolist() for t in plan.traffic] == [[1, 1], [1, 1]]
    # d waits for the data of b, which waited for that of a: 4 s of work and two transfers.
    assert plan.critical_path.tolist() == [0, 1, 3]
    # On one device every operation waits for the device.
    assert simulate(diamond(), np.zeros(4)).critical_path.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("seed", range(6))
def test_critical_path_explains_every_second(seed: int) -> None:
    """Along it, each start is the finish before it or that plus the transfer; zero-time operations must not close a loop."""
    random = layered(60, seed)
    placement = np.random.default_rng(seed).integers(0, 4, 60)
    plan, edges = simulate(random, placement), random.graph.edges
    path = plan.critical_path
    assert len(set(path.tolist())) == len(path)
    assert plan.start[path[0]] == 0 and plan.finish[path[-1]] == plan.makespan
    for before, after in itertools.pairwise(path):
        edge = np.flatnonzero((edges == (before, after)).all(axis=1))
        reasons = [plan.arrival[e] for e in edge] + ([plan.finish[before]] if placement[before] == placement[after] else [])
        assert min(abs(plan.start[after] - r) for r in reasons) < 1e-12


def test_a_placement_that_cannot_run_says_why() -> None:
    base = diamond()
    tight = Problem(base.graph, DeviceNetwork(("x", "y"), [1, 1], 1.0, 0.5, memory=[3.0, 99], name="pair"))
    with pytest.raises(InputError, match="OUT_OF_MEMORY: 'x' needs"):
        simulate(tight, np.zeros(4))
    with pytest.raises(InputError, match="'a' is on device 7 of 2"):
        simulate(base, np.full(4, 7))
    barred = Problem(base.graph, base.network, allowed=np.array([[1, 1], [1, 0], [1, 1], [1, 1]], dtype=bool))
    with pytest.raises(InputError, match="'b' may not run on 'y'"):
        simulate(barred, np.ones(4))


def test_page_is_self_contained_and_holds_the_schedule(tmp_path: Path) -> None:
    plan = simulate(diamond(), np.array([0, 1, 0, 0]))
    text = timeline.write_page(plan, tmp_path / "t.html", "a <title>", lower_bound=5.0).read_text(encoding="utf-8")
    assert "http://" not in text and "https://" not in text and not re.search(r"\b(src|href)=", text)
    # A name must not be able to end the element that holds the data.
    assert text.count("</script>") == 2
    found = re.search(r'id="data">(.*?)</script>', text, re.DOTALL)
    assert found
    data = json.loads(found[1])
    assert data["names"][3] == "</script><b>d" and data["title"] == "a <title>"
    assert data["start"] == [0, 2500, 1000, 6000] and data["finish"] == [1000, 4500, 4000, 7000]
    assert data["critical"] == [0, 1, 3] and data["transfers"]["arrive"] == [2500, 6000]
    assert [d["use"] for d in data["devices"]] == pytest.approx([5 / 7, 2 / 7])
    assert data["devices"][0]["capacity"] is None
    assert ("5,000 ms", "lower bound (makespan +40.0%)") in [tuple(f) for f in data["facts"]]


def test_transfers_that_are_tasks_get_rows_of_their_own(tmp_path: Path) -> None:
    """On one bus the transfers of b and c's input queue, which the page must show; c's data serves both its consumers."""
    plan = simulate(diamond(), np.array([0, 1, 1, 0]), WorkConservingSimulator(Discipline(sharing="bus"), inputs_everywhere=False))
    assert plan.transfers is not None
    assert plan.transfers.tolist() == [[0, 0, 1, 1.0, 2.5], [1, 1, 0, 4.5, 6.0], [2, 1, 0, 7.5, 9.0]]
    assert plan.arrival.tolist() == [2.5, 2.5, 6.0, 9.0] and plan.moved.tolist() == [0, 1, 2, 3] and plan.makespan == 10.0
    assert [t.tolist() for t in plan.traffic] == [[2, 1], [1, 2]]
    assert [(a, b, ids.tolist()) for a, b, ids in plan.lanes] == [(0, 1, [0]), (1, 0, [1, 2])]
    data = timeline.page_data(plan, origin="measured")
    assert data["note"].startswith("measured; 4 operations on 2 devices")
    assert [(x["name"], x["use"], x["from"], x["critical"]) for x in data["links"]] == [
        ("x → y", 0.15, [0], [True]), ("y → x", 0.3, [1, 2], [False, True])
    ]  # fmt: skip
    events = json.loads(timeline.write_trace(plan, tmp_path / "t.json").read_text())["traceEvents"]
    assert [(e["tid"], e["name"], e["ts"], e["dur"]) for e in events if e.get("cat") == "transfer"] == [
        (3, "a", 1e6, 1.5e6), (4, "b", 4.5e6, 1.5e6), (4, "c", 7.5e6, 1.5e6)
    ]  # fmt: skip


def test_a_link_with_two_transfers_at_a_time_has_two_lanes() -> None:
    plan = Schedule(
        diamond(), np.array([0, 1, 1, 0]), *np.zeros((2, 4)), np.array([[1, 1, 0, 0.0, 2.0], [2, 1, 0, 1.0, 3.0], [0, 0, 1, 0, 1]])
    )
    assert [(a, b, ids.tolist()) for a, b, ids in plan.lanes] == [(0, 1, [2]), (1, 0, [0]), (1, 0, [1])]


def test_trace_is_in_microseconds_with_an_arrow_a_transfer(tmp_path: Path) -> None:
    plan = simulate(diamond(), np.array([0, 1, 0, 0]))
    events = json.loads(timeline.write_trace(plan, tmp_path / "t.json").read_text())["traceEvents"]
    slices = {e["name"]: e for e in events if e["ph"] == "X"}
    assert slices["b"]["ts"] == 2.5e6 and slices["b"]["dur"] == 2e6 and slices["b"]["tid"] == 2
    arrows = [e for e in events if e["ph"] in "sf"]
    assert [(e["ph"], e["id"]) for e in arrows] == [("s", 0), ("f", 0), ("s", 1), ("f", 1)]
    # A viewer draws an arrow only if both ends lie inside slices of their threads.
    for e in arrows:
        assert any(s["tid"] == e["tid"] and s["ts"] <= e["ts"] <= s["ts"] + s["dur"] for s in slices.values())


@pytest.mark.parametrize("n", [1, 2, 40, 400])
def test_layout_points_forwards_and_never_overlaps(n: int) -> None:
    graph = layered(n).graph if n > 1 else ComputationGraph(("a",), ("A",), [1], [1], [], [])
    layer, offset = placed_graph.layout(graph)
    assert (layer[graph.edges[:, 1]] > layer[graph.edges[:, 0]]).all()
    places = np.column_stack([layer, offset])
    assert len(np.unique(places, axis=0)) == n


def test_weights_stand_beside_their_use() -> None:
    """A chain of ten layers with a weight each: weights are sources, but must not all be drawn at the start."""
    edges = [(i, i + 1) for i in range(9)] + [(10 + i, i + 1) for i in range(9)]
    graph = ComputationGraph([f"n{i}" for i in range(19)], ["T"] * 19, [1] * 19, [1] * 19, edges, [1] * 18)
    layer = placed_graph.layers(graph)
    assert layer[:10].tolist() == list(range(10)) and layer[10:].tolist() == list(range(9))


def test_barycentre_untangles_a_crossing() -> None:
    graph = ComputationGraph(("a", "b", "c", "d"), ("T",) * 4, [1] * 4, [1] * 4, [(0, 3), (1, 2)], [1] * 2)
    _, offset = placed_graph.layout(graph)
    assert (offset[0] - offset[1]) * (offset[3] - offset[2]) > 0


def drawn(paths: list[Path]) -> None:
    from matplotlib.image import imread

    for path in paths:
        if path.suffix == ".png":
            picture = imread(path)
            assert picture.shape[0] > 300 and picture.shape[1] > 600
            assert picture[..., :3].std() > 0.02  # not an empty sheet
        else:
            assert path.read_text(encoding="utf-8").rstrip().endswith("</svg>")


def test_graph_pictures_are_the_same_every_time(tmp_path: Path) -> None:
    for n in (30, 300):
        random = layered(n, devices=14)
        placement = np.arange(n) % 14
        first = placed_graph.draw(random, placement, tmp_path / f"one{n}")
        drawn(first)
        again = placed_graph.draw(random, placement, tmp_path / f"two{n}")
        assert [p.read_bytes() for p in first] == [p.read_bytes() for p in again]
        labels = first[1].read_text(encoding="utf-8").count(">n2<")
        assert labels == (1 if n <= placed_graph.LABELS_UP_TO else 0)


@pytest.mark.thorough
def test_comparison_pictures_name_every_method(tmp_path: Path) -> None:
    results = [*small_study(12), trial("none", 0, problem("ga", None)), trial("late", 0, problem("gb", 2.0, evaluations=7))]
    results += [trial("m0", 0, problem("gn", None)), trial("m0", 0, problem("gz", 0.0))]  # nothing runs; takes no time
    results += [trial("m0", 0, problem("gi", 1.0, curve=(CurvePoint(1, float("inf"), 0.1),)))]
    found = compare(collect(results, {("ga" * 4, False): 0.0009, ("gn" * 4, False): 0.5}))
    for draw, name in (
        (comparison_plots.makespan_per_method, "makespan"), (comparison_plots.performance_profile, "profile"), (search_curves, "curves"),
        (partial(search_curves, points=proposed), "proposed"),
    ):  # fmt: skip
        paths = draw(found, tmp_path / name)
        drawn(paths)
        svg = paths[1].read_text(encoding="utf-8")
        shown = [s.method for s in found.standings if s.method != "none" or name not in ("curves", "proposed")]
        assert all(f">{m}" in svg for m in shown), name


def test_labels_are_spread_without_changing_their_order() -> None:
    rng = np.random.default_rng(2)
    for n in (0, 1, 5, 12):
        wanted = rng.uniform(0, 1, n)
        placed = spread(wanted, 0.05, 0.0, 1.0)
        assert (np.diff(placed[np.argsort(wanted)]) >= 0.05 - 1e-9).all()
        assert ((placed >= -1e-9) & (placed <= 1 + 1e-9)).all()
    assert spread(np.array([0.1, 0.5, 0.9]), 0.05, 0, 1) == pytest.approx([0.1, 0.5, 0.9])
    crowded = spread(np.full(40, 0.5), 0.1, 0.0, 1.0)
    assert crowded.min() >= 0 and crowded.max() <= 1 and len(np.unique(crowded)) == 40


def test_colours_are_distinct() -> None:
    assert all(len(set(device_colours(n))) == n for n in (1, 8, 12, 13, 40))
    styles = list(method_styles([f"m{i}" for i in range(36)]).values())
    assert len({(colour, str(dash)) for colour, dash, _ in styles}) == 36
