"""GiPH's studies through the sweep machinery: a policy trained on many problems is what searches others, locally and on Ray."""

import dataclasses
import itertools
import os
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from envs.problem.measurement import Wrapper
from orchestration.analysis.load import load_sweep_record
from orchestration.definition.sweep import load_sweep
from orchestration.driver.run_sweep import run_sweep
from orchestration.folder.ledger import results
from orchestration.report.paper.section import report_section
from orchestration.report.paper.shapes import study_tables
from orchestration.rewards.evaluators import build_evaluator
from orchestration.specs.layout import POLICY, trial_folder
from orchestration.specs.state_files import load_state
from orchestration.trials.run_trial import run_trial

SWEEPS = Path(__file__).parents[3] / "sweeps" / "giph"

TEXT = """
sweep: tiny
problems:
  graphs:
    train: {synthetic: {tasks: 8, hardware_types: 2}, seeds: 0..2}
    test: {synthetic: {tasks: 9, hardware_types: 2}, seeds: 5..6}
  networks: {n: {changing: {max_devices: 4, min_devices: 2, hardware_types: 2}, vary: {change: [0, 1, 2]}}}
methods:
  giph: {method: giph, batch: 2, episodes: 4}
  heft:
budget: {evaluations_per_node: 2}
evaluator: {kind: simulator, local: true}
report:
  baseline: heft
  tables:
    - {shape: final}
    - {shape: by-step}
    - {shape: by-depth, bins: 2}
    - {shape: by-network, stages: [follow, baselines]}
    - {shape: pairwise, methods: [giph, heft], paper: {giph: {heft: [59, 5.2, 35.8]}}}
    - {shape: distribution}
    - {shape: relocation, stages: [search]}
stages:
  train: {kind: pretrain, on: {graphs: train}, methods: [giph], budget: {evaluations: 10000}}
  search: {kind: finetune, from: train, on: {graphs: test, networks: n/change=0}, config: {learn: false, episodes: 0, batch: 1}}
  follow:
    kind: finetune
    from: train
    on: {graphs: test}
    per: graph
    config: {learn: false, batch: 1, episodes: 3, start: previous}
    budget: {evaluations: 10000}
  baselines: {kind: search, on: {graphs: test}, methods: [heft]}
"""


def quiet():
    return Console(file=open(os.devnull, "w"))


@pytest.fixture(autouse=True)
def no_plots(monkeypatch):
    from orchestration.report import finish

    monkeypatch.setattr(finish, "_write_plots", lambda *_: [])
    monkeypatch.setattr(finish, "PLACEMENTS_UP_TO", 0)


def tiny(folder):
    path = folder / "tiny.yaml"
    path.write_text(TEXT)
    return load_sweep(path)


@pytest.mark.thorough
@pytest.mark.parametrize("path", sorted(SWEEPS.glob("*-small.yaml")), ids=lambda p: p.stem)
def test_small_tiers_are_valid_and_have_a_full_one(path):
    assert load_sweep(path).expand()
    assert (SWEEPS / path.name.replace("-small", "")).is_file()


@pytest.mark.slow
@pytest.mark.timeout(1200)  # starts Ray and every method's libraries in its workers
def test_a_trained_policy_searches_other_problems_alike_everywhere(tmp_path, ray_session):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    sweep = tiny(tmp_path / "a")
    local = run_sweep(sweep, local=True, output=tmp_path / "a" / "out", console=quiet())
    assert local.failed == 0
    on_ray = run_sweep(tiny(tmp_path / "b"), output=tmp_path / "b" / "out", console=quiet())
    found = {r.trial: r for r in results(local.folder)}
    assert {k: r.content() for k, r in found.items()} == {r.trial: r.content() for r in results(on_ray.folder)}

    trial = next(t for t in sweep.expand() if t.stage == "search")
    assert found[trial.content_hash].report["updates"] == 0  # the weights stay as trained
    policy = load_state(trial_folder(local.folder, trial.parent) / POLICY)
    again = run_trial(trial, build_evaluator(trial.evaluator), parent_policy=policy)
    assert again.problems[0].curve[-1][:2] == found[trial.content_hash].problems[0].curve[-1][:2]
    zeros = {"network": {key: value * 0 for key, value in policy["network"].items()}}
    started = [t for t in sweep.expand() if t.stage == "search" and t.parent]
    others = [run_trial(t, build_evaluator(t.evaluator), parent_policy=zeros).problems[0].curve for t in started]
    curves = [found[t.content_hash].problems[0].curve for t in started]
    assert [[p[:2] for p in c] for c in others] != [[p[:2] for p in c] for c in curves]

    section = report_section(tmp_path / "a" / "tiny.yaml", local.folder)
    final, by_step, by_depth, by_network, pairwise, distribution, relocation = study_tables(load_sweep_record(local.folder), section)
    assert [row[0] for row in final.rows] == ["heft", "giph"] or [row[0] for row in final.rows] == ["giph", "heft"]
    assert by_network.columns[1:] == ("change=0", "change=1", "change=2", "worst against heft")
    rows = {name: values for name, *values in by_network.texts}
    worst = max(float(a) / float(b) for a, b in zip(rows["giph"][:3], rows["heft"][:3], strict=True))
    assert float(rows["giph"][3].split()[0]) == pytest.approx(100 * (worst - 1), abs=0.2) and rows["heft"][3] == "–"
    assert pairwise.texts[1][2] == "59 / 5.2 / 35.8"
    assert float(dict(r[:2] for r in distribution.texts)["heft"].split()[0]) >= 1.0
    assert len(by_step.rows) == 2 and len(by_depth.rows) == 4 and len(relocation.rows) == 1


def test_searches_follow_a_changing_network(tmp_path):
    sweep = tiny(tmp_path)
    trial = next(t for t in sweep.expand() if t.stage == "follow")
    trial = dataclasses.replace(trial, parent=None, kind="search")
    proposals = []

    class Watching(Wrapper):
        def __init__(self, inner):
            self.inner = inner

        def evaluate(self, problem, placements, *args, **more):
            m = self.inner.evaluate(problem, placements, *args, **more)
            proposals.append((problem, placements[0].copy(), float(m.objective[0])))
            return m

    result = run_trial(trial, Watching(build_evaluator(trial.evaluator)))
    for problem in result.problems:
        assert (problem.curve[0].own, problem.curve[-1].own) == (1, problem.evaluations)
    assert result.problems[1].curve[0].evaluations == result.problems[0].evaluations + 1
    networks = list(dict.fromkeys(p.network.name for p, _, _ in proposals))
    assert len(networks) == 3
    for before, after in itertools.pairwise(networks):
        best = min((x for x in proposals if x[0].network.name == before), key=lambda x: x[2])
        first = next(x for x in proposals if x[0].network.name == after)
        names = [best[0].network.names[d] for d in best[1]]
        now = first[0].network.names
        kept = [(name, now[d]) for name, d, v in zip(names, first[1], range(len(names)), strict=True)
                if name in now and first[0].feasible[v, now.index(name)]]  # fmt: skip
        assert kept and all(a == b for a, b in kept)
        assert np.isfinite(first[2])
