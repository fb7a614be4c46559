"""Tables of run times and of searches, on runs whose figures are known."""

import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np

from orchestration.analysis.runs import ProblemInfo, Run
from orchestration.report.paper.runtimes import evaluations, runtimes
from orchestration.report.paper.shapes import TABLES
from orchestration.report.paper.study import Score, Study
from orchestration.specs.results import CurvePoint, ProposedBlock


def run(method, graph, seed, *improvements):
    curve = tuple(CurvePoint(n, best, 0.0, n) for n, best in improvements)
    best = improvements[-1][1] if improvements else math.inf
    ran = Run(f"{method} {graph} {seed}", "main", method, graph, seed, best, 200, 1.0, curve)
    problem = SimpleNamespace(graph=SimpleNamespace(name=graph), network=SimpleNamespace(name="net"), content_hash=graph)
    return Score(ran, problem, ProblemInfo(graph, graph, graph, "net", graph, "makespan", best), best)


def shown(make, scores, **entry):
    table = make(Study({"shape": "x", **entry}, scores, None))
    return list(table.columns), [list(row) for row in table.texts]


def test_run_times_stand_beside_the_papers():
    scores = [
        run("human", "a", 0, (1, 2.0)),
        run("human", "b", 0),
        run("gdp", "a", 0, (9, 1.0)),
        run("gdp", "a", 1, (9, 2.0)),
        run("gdp", "b", 0, (1, 4.0)),
    ]
    columns, rows = shown(runtimes, scores, baseline="human", paper={"human": {"a": 0.4, "b": "OOM"}, "gdp": {"a": 0.3, "b": 0.6}})
    assert columns == ["graph", "human", "paper", "gdp", "paper"]
    assert rows[:2] == [["a", "2.000", "0.4", "1.500", "0.3"], ["b", "OOM", "OOM", "4.000", "0.6"]]
    assert rows[2] == ["less than human, geometric mean", "0.0 % of 1", "0.0 % of 1", "25.0 % of 1", "25.0 % of 1"]
    _, rows = shown(runtimes, scores[2:], baseline="human")
    assert rows[2] == ["less than gdp, geometric mean", "0.0 % of 2"], "the first method stands in for a baseline that has not run"


def test_searches_are_compared_up_to_what_both_reach():
    scores = []
    for seed in (0, 1):
        scores += [run("slow", "a", seed, (1, 9.0), (100, 4.0), (150, 3.0)), run("fast", "a", seed, (1, 8.0), (50, 3.02), (180, 2.0))]
    columns, rows = shown(evaluations, scores, baseline="slow")
    assert columns[:2] == ["method", "a"]
    assert rows == [["slow", "150", "–"], ["fast", "50", "66.7 (66.7 to 66.7)"]]


def test_hours_count_what_bad_placements_take():
    blocks = {
        "bad": (ProposedBlock(10, 8.0, 5), ProposedBlock(20, 4.0, 10)),
        "good": (ProposedBlock(10, 4.0, 10), ProposedBlock(20, 3.0, 10)),
    }
    scores = [run(method, "a", 0, (1, 9.0), (8, 3.0)) for method in blocks]
    scores = [replace(s, run=replace(s.run, proposed=blocks[s.run.method])) for s in scores]
    columns, rows = shown(TABLES["hours"], scores, baseline="bad", failed=120)
    assert columns[:2] == ["method", "a"]
    assert rows == [["bad", "0.333", "–"], ["good", "0.167", "50.0"]], "5 x 15 x 8 s and 5 x 120 s; 10 x 15 x 4 s"


def test_two_searches_alike_save_nothing():
    rng = np.random.default_rng(0)
    scores = []
    for seed in range(400):
        for method in ("one", "other"):
            found = int(np.ceil(rng.lognormal(4.0, 0.5)))
            scores.append(run(method, "a", seed, (1, 9.0), (found, 3.0)))
    _, rows = shown(evaluations, scores, baseline="one")
    assert abs(float(rows[1][2].split()[0])) < 8.0, "the mean of ratios would say -28 %"


def test_what_was_proposed_is_averaged_over_the_placements_that_could_run():
    scores = [run("mars", "a", 0, (1, 9.0)), run("mars", "a", 1, (1, 9.0)), run("lazy", "a", 0, (1, 9.0))]
    scores[0] = replace(
        scores[0],
        run=replace(scores[0].run, proposed=(ProposedBlock(40, 9.0, 10), ProposedBlock(60, 3.0, 20), ProposedBlock(200, 2.0, 100))),
    )
    scores[1] = replace(scores[1], run=replace(scores[1].run, proposed=(ProposedBlock(50, 0.0, 0), ProposedBlock(200, 4.0, 100))))
    scores[2] = replace(scores[2], run=replace(scores[2].run, proposed=(ProposedBlock(1, 5.0, 1),)))
    columns, rows = shown(TABLES["proposed"], scores)
    assert columns == ["method", "a 1/4", "a 2/4", "a 3/4", "a 4/4", "a %"]
    assert rows == [["mars", "9.000", "3.000", "3.000", "–", "42.5"], ["lazy", "5.000", "–", "–", "–", "99.5"]]
