"""The archive of best known placements: what enters it, what is noticed, and that what is in it holds."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from envs.problem.errors import InputError
from orchestration.cli.main import main
from orchestration.commands import best_known as archive

ROOT = Path(__file__).parents[3]
SWEEP = """
sweep: small
problems: {graphs: {layered: {synthetic: {tasks: 12}, seeds: [0, 1]}}, networks: {three: {synthetic: {devices: 3}, seed: 0}}}
methods: [heft]
budget: 10
evaluators: {wrong: {kind: simulator, cost_error: 0.3, noise: 0.05, local: true}}
stages: {right: {on: {graphs: layered}}, wrong: {on: {graphs: layered/0}, evaluator: wrong}}
"""


@pytest.fixture
def named(tmp_path):
    (tmp_path / "small.yaml").write_text(SWEEP)
    return archive.problems(tmp_path / "small.yaml")


def filled(named):
    known = {}
    for one in named.values():
        problem = one.build()
        archive.improve(known, one, problem, np.zeros(12, dtype=np.int16), "nobody")
    archive.add_bounds(known, named.values())
    return known


def test_only_what_is_better_enters_and_a_file_comes_back_as_it_was(named, tmp_path):
    known = filled(named)
    one = named["right/layered/0@three"]
    problem, before = one.build(), known["right/layered/0@three"]
    worst = max((np.full(12, d, dtype=np.int16) for d in range(3)), key=lambda p: archive.simulated(problem, p))
    assert not archive.improve(known, one, problem, worst, "worse") or known[one.name].value < before.value
    best = min((np.full(12, d, dtype=np.int16) for d in range(3)), key=lambda p: archive.simulated(problem, p))
    archive.improve(known, one, problem, best, "better")
    assert known[one.name].value == archive.simulated(problem, best) <= before.value
    archive.write(known, tmp_path / "a.jsonl")
    assert archive.read(tmp_path / "a.jsonl") == known
    assert list(archive.check(known, named)) == []


def test_under_a_wrong_cost_model_the_archive_holds_the_true_problem(named):
    known = filled(named)
    right, wrong = known["right/layered/0@three"], known["wrong/layered/0@three"]
    assert right.problem_hash != wrong.problem_hash and right.value != wrong.value


def test_values_that_do_not_hold_are_named(named):
    known = filled(named)
    name = "right/layered/0@three"
    known[name] = replace(known[name], value=known[name].value * 0.9)
    assert any("takes" in text and name in text for text in archive.check(known, named))
    known[name] = replace(known[name], bound=known[name].value * 2)
    assert any("above the best known" in text for text in archive.check(known, named))
    known[name] = replace(known[name], problem_hash="0" * 64)
    assert any("not what it was" in text for text in archive.check(known, named))
    with pytest.raises(InputError, match="claims a bound"):
        fresh = filled(named)
        archive.improve(fresh, named[name], named[name].build(), None, "", 1e9, "a slip")


@pytest.mark.thorough
def test_from_the_command_line(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.yaml").write_text(SWEEP)
    assert main(["run", "small.yaml", "--local"]) == 0
    where = ["--archive", "a.jsonl", "--benchmark", "small.yaml"]
    assert main(["best-known", "add", "small", "--bounds", *where]) == 0
    assert "3 problems of the benchmark, 3 improved" in capsys.readouterr().out
    assert main(["best-known", "check", *where]) == 0
    assert main(["best-known", "show", "--only", "right", *where]) == 0
    assert "heft" in capsys.readouterr().out
    assert main(["best-known", "show", "--only", "nothing", *where]) == 2


def held(*families):
    """What the archive of the benchmark says of the problems of some families, and complaints about it."""
    known, named = archive.read(ROOT / archive.ARCHIVE), archive.problems(ROOT / archive.BENCHMARK)
    chosen = {name: entry for name, entry in known.items() if name.startswith(families)}
    return chosen, list(archive.check(chosen, {name: named[name] for name in chosen if name in named}))


def test_the_archive_holds_where_it_is_quick_to_see():
    chosen, complaints = held("train-layered/layered-40", "test-giph", "test-chains")
    assert chosen and complaints == []


@pytest.mark.slow
def test_the_whole_archive_holds():
    chosen, complaints = held("")
    assert chosen and complaints == []
